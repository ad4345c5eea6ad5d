"""Abstract lane vectors: the language in which instruction semantics are written, once for both executors.

A semantic function works on `Value`s and on the `Lanes` object `b` that made them. The numpy executor evaluates every
operation at once; the compiler records LLVM IR. A value is a scalar (one for the wave) or a vector (one per lane);
mixing them broadcasts. Types are exact: both sides of an operation have the same type (Python numbers take the other
side's), and integer signedness is part of the type: `>>`, `<` and `to()` follow it.

Floating-point results are fully defined, so that both executors give the same bits: see `Lanes.fadd`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Type:
    """An element type: kind u(nsigned), i (signed), f(loat) or b(oolean), and its bits."""

    kind: Literal["u", "i", "f", "b"]
    bits: int

    @property
    def name(self) -> str:
        return f"{self.kind}{self.bits}"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "ui"


TYPES: dict[str, Type] = {
    f"{k}{n}": Type(k, n)  # type: ignore[arg-type]
    for k, sizes in (("u", (8, 16, 32, 64)), ("i", (8, 16, 32, 64)), ("f", (16, 32, 64)), ("b", (1,)))
    for n in sizes
}
BOOL = TYPES["b1"]
MANTISSA_BITS = {16: 10, 32: 23, 64: 52}
EXPONENT_BITS = {16: 5, 32: 8, 64: 11}
MEMORY_FAMILIES = frozenset({"ds", "flat", "global", "scratch", "buffer", "tbuffer"})
"""First words of the memory instructions' mnemonics."""

APPROXIMATED = frozenset({"rcp", "rsq", "sqrt", "exp", "log", "sin", "cos"})
"""The vector instructions (v_exp_f32 ...) whose results the ISA defines within an error bound."""
MATRIX = frozenset({"mfma", "smfmac"})
"""The matrix instructions, which force rounding to nearest even (CDNA4 ISA, "Round Mode")."""

_STRUCT = {16: "<e", 32: "<f", 64: "<d"}
_UINT = {16: "<H", 32: "<I", 64: "<Q"}


def float_bits(value: float, bits: int) -> int:
    """The IEEE pattern of a Python float in 16, 32 or 64 bits (round to nearest even)."""
    return int(struct.unpack(_UINT[bits], struct.pack(_STRUCT[bits], value))[0])


@dataclass(frozen=True, slots=True)
class FpMode:
    """The floating-point part of the MODE register (CDNA3 ISA, "MODE register").

    round32, round64: 0 nearest even, 1 towards +inf, 2 towards -inf, 3 towards zero; round64 also holds for f16.
    denorm32, denorm64: bit 0 keep denormal inputs, bit 1 keep denormal results; denorm64 also holds for f16.
    fp16_ovfl: an f16 result that overflows becomes the largest finite one (infinite sources still give infinity);
    conversions to fp8 and bf8 saturate.
    """

    round32: int = 0
    round64: int = 0
    denorm32: int = 3
    denorm64: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    fp16_ovfl: bool = False

    @staticmethod
    def from_register(mode: int) -> FpMode:
        flags = (bool(mode >> bit & 1) for bit in (8, 9, 23))
        return FpMode(mode & 3, mode >> 2 & 3, mode >> 4 & 3, mode >> 6 & 3, *flags)

    def register(self) -> int:
        """The MODE bits (9:0 and 23) that stand for this mode."""
        return (
            self.round32
            | self.round64 << 2
            | self.denorm32 << 4
            | self.denorm64 << 6
            | self.dx10_clamp << 8
            | self.ieee << 9
            | self.fp16_ovfl << 23
        )

    def rounding_of(self, mnemonic: str) -> int:
        """The rounding that an instruction follows: that of the first float type in its name (its result's).

        The approximated functions round to nearest whatever the mode: the ISA gives them an error bound, no rounding. So
        do memory instructions (atomics and format conversions) and matrix instructions.
        """
        family, operation = mnemonic.split("_")[:2]
        if operation in APPROXIMATED or operation in MATRIX or family in MEMORY_FAMILIES:
            return 0
        for token in mnemonic.split("_"):
            if token in ("f16", "f64"):
                return self.round64
            if token == "f32":
                return self.round32
        return self.round32

    def denorm(self, bits: int) -> int:
        return self.denorm32 if bits == 32 else self.denorm64


class Value:
    """A typed scalar (lanes == 1) or lane vector. Made by a `Lanes`; immutable."""

    __slots__ = ("b", "data", "lanes", "type")

    def __init__(self, b: Lanes, type_: Type, lanes: int, data: Any) -> None:
        self.b = b
        self.type = type_
        self.lanes = lanes
        self.data = data

    def __repr__(self) -> str:
        return f"Value({self.type.name}x{self.lanes})"

    # integer arithmetic wraps; a shift count is taken modulo the width
    def __add__(self, other: Value | int) -> Value:
        return self.b.int_op("add", self, other)

    def __radd__(self, other: int) -> Value:
        return self.b.int_op("add", other, self)

    def __sub__(self, other: Value | int) -> Value:
        return self.b.int_op("sub", self, other)

    def __rsub__(self, other: int) -> Value:
        return self.b.int_op("sub", other, self)

    def __mul__(self, other: Value | int) -> Value:
        return self.b.int_op("mul", self, other)

    def __and__(self, other: Value | int) -> Value:
        return self.b.int_op("and", self, other)

    def __or__(self, other: Value | int) -> Value:
        return self.b.int_op("or", self, other)

    def __xor__(self, other: Value | int) -> Value:
        return self.b.int_op("xor", self, other)

    def __invert__(self) -> Value:
        return self.b.int_op("xor", self, 1 if self.type is BOOL else (1 << self.type.bits) - 1)

    def __lshift__(self, other: Value | int) -> Value:
        return self.b.int_op("shl", self, other)

    def __rshift__(self, other: Value | int) -> Value:
        return self.b.int_op("shr", self, other)

    # float comparisons are ordered (false for NaN) except !=, which is true for NaN
    def __lt__(self, other: Value | int | float) -> Value:
        return self.b.compare("lt", self, other)

    def __le__(self, other: Value | int | float) -> Value:
        return self.b.compare("le", self, other)

    def __gt__(self, other: Value | int | float) -> Value:
        return self.b.compare("gt", self, other)

    def __ge__(self, other: Value | int | float) -> Value:
        return self.b.compare("ge", self, other)

    def __eq__(self, other: Value | int | float) -> Value:  # type: ignore[override]
        return self.b.compare("eq", self, other)

    def __ne__(self, other: Value | int | float) -> Value:  # type: ignore[override]
        return self.b.compare("ne", self, other)

    __hash__ = object.__hash__

    def to(self, type_name: str) -> Value:
        """Convert. int -> int truncates or extends by this type's sign; int -> float and float -> float round by the
        mode (a NaN keeps its sign and upper payload, quieted); b1 -> int gives 0 or 1. float -> int: `b.float_to_int`."""
        return self.b.convert(self, TYPES[type_name])

    def bits(self, type_name: str) -> Value:
        """The same bits as another type of the same width."""
        return self.b.bitcast(self, TYPES[type_name])


Number = Value | int | float


class Lanes(ABC):
    """Operations on values. `wave` is the number of lanes; `fp` the floating-point mode they follow; `rounding` the
    direction in which this instruction rounds (`fp.rounding_of`).

    Subclasses implement the underscored primitives; what is defined in terms of them is defined here, once.
    """

    wave: int
    fp: FpMode
    rounding: int

    # --- construction -------------------------------------------------------------------------------------------

    def const(self, type_name: str, value: int | float) -> Value:
        """A scalar constant; an int is taken as bits modulo 2^width for integer types, a number for float types."""
        type_ = TYPES[type_name]
        pattern = float_bits(float(value), type_.bits) if type_.is_float else int(value) & ((1 << type_.bits) - 1)
        return self._const(type_, pattern)

    def const_bits(self, type_name: str, pattern: int) -> Value:
        """A scalar constant given by its bit pattern, also for float types."""
        return self._const(TYPES[type_name], pattern)

    def coerce(self, x: Number, type_: Type) -> Value:
        if isinstance(x, Value):
            if x.type is not type_ and x.type != type_:
                raise TypeError(f"operand of type {x.type.name} where {type_.name} is needed")
            return x
        return self.const(type_.name, x)

    def _pair(self, x: Number, y: Number) -> tuple[Value, Value]:
        anchor = x if isinstance(x, Value) else y
        assert isinstance(anchor, Value)
        a, c = self.coerce(x, anchor.type), self.coerce(y, anchor.type)
        if a.lanes == c.lanes:
            return a, c
        return self.vector(a), self.vector(c)

    def vector(self, x: Value) -> Value:
        """The value as a vector: a scalar is broadcast to every lane."""
        return x if x.lanes != 1 else self._broadcast(x)

    # --- integers ------------------------------------------------------------------------------------------------

    def int_op(self, op: str, x: Number, y: Number) -> Value:
        a, c = self._pair(x, y)
        if a.type.is_float or (a.type is BOOL and op not in ("and", "or", "xor")):
            raise TypeError(f"{op} on {a.type.name}")
        if op in ("shl", "shr"):
            c = self._int("and", c, self._like(c, a.type.bits - 1))
        return self._int(op, a, c)

    def _like(self, x: Value, pattern: int) -> Value:
        c = self._const(x.type, pattern)
        return c if x.lanes == 1 else self._broadcast(c)

    def compare(self, op: str, x: Number, y: Number) -> Value:
        return self._compare(op, *self._pair(x, y))

    def select(self, condition: Value, x: Number, y: Number) -> Value:
        """x where the condition (b1, scalar or vector) holds, else y."""
        a, c = self._pair(x, y)
        if condition.lanes != a.lanes:
            if condition.lanes == 1:
                return self._select(condition, a, c)
            a, c = self.vector(a), self.vector(c)
        return self._select(condition, a, c)

    def convert(self, x: Value, type_: Type) -> Value:
        if x.type == type_:
            return x
        if type_ is BOOL:
            raise TypeError("compare with 0 to get a b1")
        if not x.type.is_float and not type_.is_float:
            return self._convert_int(x, type_)
        if not x.type.is_float:
            return self._int_to_float(x, type_)
        if type_.is_int:
            raise TypeError("use float_to_int: the rounding and the saturation must be said")
        result = self._convert_float(x, type_)
        return self.unlikely(self.isnan(x), result, lambda: self.select(self.isnan(x), self._convert_nan(x, type_), result))

    def _convert_nan(self, x: Value, type_: Type) -> Value:
        """A NaN in another float type: sign and upper payload kept, quiet bit set."""
        pattern = self._uint(x).to("u64")
        shift = MANTISSA_BITS[type_.bits] - MANTISSA_BITS[x.type.bits]
        payload = pattern & ((1 << MANTISSA_BITS[x.type.bits]) - 1)
        payload = payload << shift if shift >= 0 else payload >> -shift
        sign = (pattern >> (x.type.bits - 1)) << (type_.bits - 1)
        exponent = ((1 << (EXPONENT_BITS[type_.bits] + 1)) - 1) << (MANTISSA_BITS[type_.bits] - 1)
        return (sign | payload | exponent).to(f"u{type_.bits}").bits(type_.name)

    def bitcast(self, x: Value, type_: Type) -> Value:
        if x.type.bits != type_.bits:
            raise TypeError(f"bitcast from {x.type.name} to {type_.name}")
        return x if x.type == type_ else self._bitcast(x, type_)

    def min(self, x: Number, y: Number) -> Value:
        """The smaller of two integers, by the type's sign."""
        a, c = self._pair(x, y)
        return self.select(a < c, a, c)

    def max(self, x: Number, y: Number) -> Value:
        """The larger of two integers, by the type's sign."""
        a, c = self._pair(x, y)
        return self.select(a > c, a, c)

    def clz(self, x: Value) -> Value:
        """Leading zeros; the width for 0."""
        return self._count("clz", x)

    def ctz(self, x: Value) -> Value:
        """Trailing zeros; the width for 0."""
        return self._count("ctz", x)

    def popcount(self, x: Value) -> Value:
        return self._count("popcount", x)

    def bit_reverse(self, x: Value) -> Value:
        return self._count("bitreverse", x)

    def join64(self, low: Value, high: Value) -> Value:
        """A u64 from two u32."""
        return low.to("u64") | (high.to("u64") << 32)

    def low32(self, x: Value) -> Value:
        return x.bits("u64").to("u32")

    def high32(self, x: Value) -> Value:
        return (x.bits("u64") >> 32).to("u32")

    # --- floats --------------------------------------------------------------------------------------------------

    def _uint(self, x: Value) -> Value:
        return x.bits(f"u{x.type.bits}")

    def fabs(self, x: Value) -> Value:
        """Clears the sign bit, of a NaN too."""
        return (self._uint(x) & ((1 << (x.type.bits - 1)) - 1)).bits(x.type.name)

    def fneg(self, x: Value) -> Value:
        """Flips the sign bit, of a NaN too."""
        return (self._uint(x) ^ (1 << (x.type.bits - 1))).bits(x.type.name)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        top = 1 << (sign.type.bits - 1)
        return ((self._uint(magnitude) & (top - 1)) | (self._uint(sign) & top)).bits(magnitude.type.name)

    def sign_bit(self, x: Value) -> Value:
        """b1: the sign bit, of a NaN too."""
        return self._uint(x).bits(f"i{x.type.bits}") < 0

    def isnan(self, x: Value) -> Value:
        return self.compare("ne", x, x)

    def isinf(self, x: Value) -> Value:
        return self.fabs(x) == float("inf")

    def quiet(self, x: Value) -> Value:
        """Sets the quiet bit (meant for a NaN)."""
        return (self._uint(x) | (1 << (MANTISSA_BITS[x.type.bits] - 1))).bits(x.type.name)

    def default_nan(self, type_name: str) -> Value:
        """The negative quiet NaN that an invalid operation gives (CDNA3 ISA: the examples of V_LOG_F32, V_SQRT_F32)."""
        bits = TYPES[type_name].bits
        mantissa = MANTISSA_BITS[bits]
        return self.const_bits(type_name, ((1 << (EXPONENT_BITS[bits] + 2)) - 1) << (mantissa - 1))

    def is_denormal(self, x: Value) -> Value:
        """b1: a non-zero denormal."""
        magnitude = self._uint(x) & ((1 << (x.type.bits - 1)) - 1)
        return (magnitude - 1) < ((1 << MANTISSA_BITS[x.type.bits]) - 1)

    def flush(self, x: Value) -> Value:
        """A denormal becomes zero of its sign."""
        bits = self._uint(x)
        top = 1 << (x.type.bits - 1)
        small = (bits & (top - 1)) < (1 << MANTISSA_BITS[x.type.bits])
        return self.select(small, bits & top, bits).bits(x.type.name)

    def flush_input(self, x: Value) -> Value:
        """What an arithmetic instruction sees of its source in the present denormal mode."""
        return x if self.fp.denorm(x.type.bits) & 1 else self.flush(x)

    def flush_result(self, x: Value) -> Value:
        """What an arithmetic instruction delivers in the present denormal mode."""
        return x if self.fp.denorm(x.type.bits) & 2 else self.flush(x)

    def limit_f16(self, result: Value, *sources: Value) -> Value:
        """MODE.FP16_OVFL: an infinite f16 result of finite sources becomes the largest finite value of its sign."""
        if not (self.fp.fp16_ovfl and result.type.bits == 16):
            return result

        def limited() -> Value:
            overflow = self.isinf(result)
            for x in sources:
                overflow = overflow & ~self.isinf(x)
            return self.select(overflow, self.copysign(self.const("f16", 65504.0), result), result)

        return self.unlikely(self.isinf(result), result, limited)

    def with_nan_rule(self, result: Value, *sources: Value) -> Value:
        """Give NaN results their defined bits: the first NaN among the sources, quieted; the default NaN if none is."""

        def defined() -> Value:
            nan = self.default_nan(result.type.name)
            for x in reversed(sources):
                nan = self.select(self.isnan(x), self.quiet(x), nan)
            return self.select(self.isnan(result), nan, result)

        return self.unlikely(self.isnan(result), result, defined)

    def _arith(self, op: str, x: Number, y: Number) -> Value:
        a, c = self._pair(x, y)
        a, c = self.flush_input(a), self.flush_input(c)
        result = self.flush_result(self._float(op, a, c))
        if op != "div":  # a quotient's infinity may be a true one: x / 0
            result = self.limit_f16(result, a, c)
        return self.with_nan_rule(result, a, c)

    def fadd(self, x: Number, y: Number) -> Value:
        """x + y of one float type (f16, f32, f64), correctly rounded in the mode's direction, denormals by the mode.

        A NaN result is the first NaN source with its quiet bit set, or the default NaN (bits 0xffc00000 for
        f32) where no source is NaN. This holds for all arithmetic here.
        """
        return self._arith("add", x, y)

    def fsub(self, x: Number, y: Number) -> Value:
        return self._arith("sub", x, y)

    def fmul(self, x: Number, y: Number) -> Value:
        return self._arith("mul", x, y)

    def fdiv(self, x: Number, y: Number) -> Value:
        return self._arith("div", x, y)

    def fma(self, x: Number, y: Number, z: Value) -> Value:
        """x * y + z with one rounding."""
        a, c = self.coerce(x, z.type), self.coerce(y, z.type)
        lanes = max(a.lanes, c.lanes, z.lanes)
        if lanes != 1:
            a, c, z = self.vector(a), self.vector(c), self.vector(z)
        a, c, z = self.flush_input(a), self.flush_input(c), self.flush_input(z)
        fused = self._fma16(a, c, z) if z.type.bits == 16 else self._fma(a, c, z)
        return self.with_nan_rule(self.limit_f16(self.flush_result(fused), a, c, z), a, c, z)

    def _fma16(self, x: Value, y: Value, z: Value) -> Value:
        """f16 x * y + z with one rounding, by way of f32: the product is exact there, and the sum can only round wrongly
        the second time where it lies on the border between two f16 values, with its low bits 0. Then it is rounded to odd
        (Boldo and Melquiond). Directed roundings compose, so they need no such care.
        """
        product = self._float("mul", self._convert_float(x, TYPES["f32"]), self._convert_float(y, TYPES["f32"]))
        addend = self._convert_float(z, TYPES["f32"])
        total = self._float("add", product, addend)
        nearest = self._convert_float(total, TYPES["f16"])
        if self.rounding:
            return nearest

        def by_odd() -> Value:
            back = self._float("sub", total, product)
            lost = self._float("sub", product, self._float("sub", total, back))
            error = self._float("add", lost, self._float("sub", addend, back))
            return self._convert_float(self.nudge_to_odd(total, error), TYPES["f16"])

        return self.unlikely((total.bits("u32") & 0xFFF) == 0, nearest, by_odd)

    def nudge_to_odd(self, rounded: Value, error: Value) -> Value:
        """Rounding to odd: moves a rounded value whose last bit is 0 one step towards where the error points."""
        bits = self._uint(rounded).bits(f"i{rounded.type.bits}")
        inexact = (error != 0.0) & ~self.isnan(error)
        even = (bits & 1) == 0
        away = (self.sign_bit(error) == self.sign_bit(rounded)) | (rounded == 0.0)
        step = self.select(away, bits + 1, bits - 1)
        return self.select(inexact & even, step, bits).bits(rounded.type.name)

    def round_f64_to_f16(self, x: Value) -> Value:
        """f64 -> f16 with one rounding (x may itself carry rounding to odd)."""
        if self.rounding:
            return x.to("f32").to("f16")
        single = self._convert_float(x, TYPES["f32"])
        error = self._float("sub", x, self._convert_float(single, TYPES["f64"]))
        one = self.const("f32", 1.0)
        direction = self.select(error < 0.0, self.fneg(one), self.select(error > 0.0, one, self.const("f32", 0.0)))
        return self.nudge_to_odd(single, direction).to("f16")

    def fsqrt(self, x: Value) -> Value:
        x = self.flush_input(x)
        return self.with_nan_rule(self.flush_result(self._unary("sqrt", x)), x)

    def raw(self, op: str, x: Number, y: Number) -> Value:
        """add, sub, mul or div without the NaN rule and denormal modes, for inner steps of approximations."""
        return self._float(op, *self._pair(x, y))

    def raw_convert(self, x: Value, type_name: str) -> Value:
        """A float in another float type without the NaN rule: a NaN gives some NaN."""
        return self._convert_float(x, TYPES[type_name])

    def raw_fma(self, x: Number, y: Number, z: Number) -> Value:
        anchor = next(v for v in (x, y, z) if isinstance(v, Value))
        values = [self.coerce(v, anchor.type) for v in (x, y, z)]
        if any(v.lanes != 1 for v in values):
            values = [self.vector(v) for v in values]
        return self._fma(*values)

    def raw_unary(self, op: str, x: Value) -> Value:
        """sqrt, floor, ceil, trunc or rint without the NaN rule and denormal modes."""
        return self._unary(op, x)

    def ffloor(self, x: Value) -> Value:
        """Round to an integral value (NaN quieted)."""
        return self.with_nan_rule(self._unary("floor", x), x)

    def fceil(self, x: Value) -> Value:
        return self.with_nan_rule(self._unary("ceil", x), x)

    def ftrunc(self, x: Value) -> Value:
        return self.with_nan_rule(self._unary("trunc", x), x)

    def frint(self, x: Value) -> Value:
        """To the nearest integral value, ties to even, whatever the mode."""
        return self.with_nan_rule(self._unary("rint", x), x)

    def float_to_int(self, x: Value, type_name: str) -> Value:
        """Truncate towards zero, saturating; NaN gives 0."""
        return self._float_to_int(x, TYPES[type_name])

    # --- lanes ---------------------------------------------------------------------------------------------------

    def shuffle(self, x: Value, lanes: Sequence[int]) -> Value:
        """Lane i takes lane lanes[i] of x (numbers known now)."""
        assert len(lanes) == self.wave and x.lanes != 1
        return self._shuffle(x, tuple(lanes))

    def lane_constants(self, type_name: str, values: Sequence[int]) -> Value:
        """A vector whose lane i is values[i]."""
        type_ = TYPES[type_name]
        return self._lane_constants(type_, [v & ((1 << type_.bits) - 1) for v in values])

    def lane_ids(self) -> Value:
        """u32 vector 0, 1, 2 ..."""
        return self.lane_constants("u32", range(self.wave))

    # --- primitives ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _const(self, type_: Type, pattern: int) -> Value: ...
    @abstractmethod
    def _broadcast(self, x: Value) -> Value: ...
    @abstractmethod
    def _int(self, op: str, x: Value, y: Value) -> Value: ...
    @abstractmethod
    def _compare(self, op: str, x: Value, y: Value) -> Value: ...
    @abstractmethod
    def _select(self, condition: Value, x: Value, y: Value) -> Value: ...
    @abstractmethod
    def _convert_int(self, x: Value, type_: Type) -> Value: ...
    @abstractmethod
    def _int_to_float(self, x: Value, type_: Type) -> Value: ...
    @abstractmethod
    def _convert_float(self, x: Value, type_: Type) -> Value: ...
    @abstractmethod
    def _float_to_int(self, x: Value, type_: Type) -> Value: ...
    @abstractmethod
    def _bitcast(self, x: Value, type_: Type) -> Value: ...
    @abstractmethod
    def _count(self, op: str, x: Value) -> Value: ...
    @abstractmethod
    def _float(self, op: str, x: Value, y: Value) -> Value: ...
    @abstractmethod
    def _fma(self, x: Value, y: Value, z: Value) -> Value: ...
    @abstractmethod
    def _unary(self, op: str, x: Value) -> Value: ...
    @abstractmethod
    def _shuffle(self, x: Value, lanes: tuple[int, ...]) -> Value: ...
    @abstractmethod
    def _lane_constants(self, type_: Type, patterns: list[int]) -> Value: ...

    @abstractmethod
    def unlikely(self, condition: Value, usual: Value, rare: Callable[[], Value]) -> Value:
        """`usual` unless the condition holds in some lane; then what rare() computes. rare() must give `usual`'s
        value in lanes where the condition does not hold, and may have no effects."""

    @abstractmethod
    def permute(self, x: Value, index: Value) -> Value:
        """Lane i takes lane index[i] (u32, modulo the wave size) of x."""

    @abstractmethod
    def scatter(self, x: Value, index: Value, mask: Value) -> Value:
        """The reverse of `permute`: lane index[i] (u32, modulo the wave size) gets lane i of x for the lanes i of mask (b1
        vector), the highest i where several name one lane; 0 where none does."""

    @abstractmethod
    def read_lane(self, x: Value, lane: Value) -> Value:
        """The scalar in one lane (u32 scalar, modulo the wave size)."""

    @abstractmethod
    def write_lane(self, x: Value, lane: Value, scalar: Value) -> Value:
        """x with one lane replaced."""

    @abstractmethod
    def ballot(self, condition: Value) -> Value:
        """A u64 scalar: bit i is lane i of a b1 vector (a b1 scalar counts as all lanes alike)."""

    @abstractmethod
    def lane_mask(self, mask: Value) -> Value:
        """A b1 vector from a u64 scalar: the inverse of `ballot`."""

    @abstractmethod
    def table(self, values: Sequence[int], index: Value) -> Value:
        """u32: values[index] for a table of at most 256 known u32 numbers; index u32 below its length."""
