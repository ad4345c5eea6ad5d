"""`Lanes` that record LLVM IR as text: the compiler's half of the semantics, and the language of the native run time.

A `Module` collects functions, constants and declarations. An `IrLanes` writes one function: every operation of `Lanes`
appends instructions, and beyond those there are pointers, memory, control flow and mutable variables for run-time code.
Values may have any number of lanes. Constants stay Python numbers until an instruction needs them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rjemu.isa.lanes import BOOL, TYPES, FpMode, Lanes, Type, Value, float_bits

_SCALAR_NAMES = {
    **{f"{k}{n}": f"i{n}" for k in "ui" for n in (8, 16, 32, 64)},
    "f16": "half", "f32": "float", "f64": "double", "b1": "i1",
}  # fmt: skip
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_UNARY = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven"}
_COUNT = {"clz": ("ctlz", True), "ctz": ("cttz", True), "popcount": ("ctpop", False), "bitreverse": ("bitreverse", False)}
RARELY = "!prof !0"


@dataclass(frozen=True, slots=True)
class Const:
    """A constant's bit pattern, the same in every lane."""

    pattern: int


@dataclass(frozen=True, slots=True)
class Ptr:
    """A pointer: an SSA name or a global."""

    name: str


def type_text(type_: Type, lanes: int) -> str:
    """LLVM's spelling of a scalar or vector type."""
    scalar = _SCALAR_NAMES[type_.name]
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _suffix(type_: Type, lanes: int) -> str:
    """The mangled type in an intrinsic's name."""
    scalar = _SCALAR_NAMES[type_.name]
    return ("" if lanes == 1 else f"v{lanes}") + _SUFFIX.get(scalar, scalar)


@dataclass
class Module:
    """Text of one LLVM module. features: the host CPU features that the code may rely on ("avx512f", ...)."""

    features: frozenset[str] = frozenset()
    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    constants: dict[tuple[int, ...], str] = field(default_factory=dict)

    def declare(self, name: str, result: str, arguments: str) -> str:
        """Declare an external function or intrinsic; gives its name as called."""
        self.declarations[name] = f"declare {result} @{name}({arguments})"
        return f"@{name}"

    def words(self, values: Sequence[int]) -> Ptr:
        """A constant u32 array."""
        key = tuple(values)
        name = self.constants.setdefault(key, f"@words{len(self.constants)}")
        return Ptr(name)

    def text(self) -> str:
        tables = [
            f"{name} = private unnamed_addr constant [{len(key)} x i32] [{', '.join(f'i32 {v}' for v in key)}], align 64"
            for key, name in self.constants.items()
        ]
        weights = '!0 = !{!"branch_weights", i32 1, i32 100000}'
        return "\n".join([*tables, *self.declarations.values(), *self.functions, weights])


class Variable:
    """A mutable variable of a function (a stack slot; the optimiser makes registers of them)."""

    def __init__(self, b: IrLanes, type_: Type, lanes: int, ptr: Ptr) -> None:
        self.b, self.type, self.lanes, self.ptr = b, type_, lanes, ptr

    def get(self) -> Value:
        return self.b.load_value(self.ptr, self.type.name, self.lanes)

    def set(self, value: Value | int) -> None:
        self.b.store_value(self.ptr, self.b.coerce(value, self.type))


class IrLanes(Lanes):
    """Writes one LLVM function. See the module's docstring."""

    def __init__(self, module: Module, wave: int, fp: FpMode | None = None, rounding: int = 0) -> None:
        self.module = module
        self.wave = wave
        self.fp = fp or FpMode()
        self.rounding = rounding
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count_names = 0
        self._label = "body"
        self._terminated = False
        self._breaks: list[str] = []

    # --- text ----------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str = "t") -> str:
        self._count_names += 1
        return f"{prefix}{self._count_names}"

    def emit(self, text: str) -> None:
        """Append one instruction; what follows a terminator is unreachable and left out."""
        if not self._terminated:
            self._lines.append("  " + text)

    def define(self, text: str) -> str:
        """Append an instruction with a result; gives its name."""
        name = "%" + self.fresh()
        self.emit(f"{name} = {text}")
        return name

    def define_entry(self, text: str) -> str:
        """As `define`, in the function's entry block, which dominates everything."""
        name = "%" + self.fresh()
        self._entry.append(f"  {name} = {text}")
        return name

    def start_block(self, label: str) -> None:
        if not self._terminated:
            self._lines.append(f"  br label %{label}")
        self._lines.append(f"{label}:")
        self._label = label
        self._terminated = False

    def terminate(self, text: str) -> None:
        self.emit(text)
        self._terminated = True

    def finish(self, name: str, result: str, arguments: str, attributes: str = "nounwind") -> None:
        """Close the function and add it to the module."""
        if not self._terminated:
            raise ValueError(f"{name} does not return on every path")
        lines = ["entry:", *self._entry, "  br label %body", "body:", *self._lines]
        self.module.functions.append(f"define {result} @{name}({arguments}) {attributes} {{\n" + "\n".join(lines) + "\n}\n")

    # --- values --------------------------------------------------------------------------------------------------

    def make(self, type_: Type, lanes: int, name: str) -> Value:
        return Value(self, type_, lanes, name)

    def ref(self, value: Value) -> str:
        """The value as an instruction's operand, without its type."""
        if isinstance(value.data, str):
            return value.data
        pattern = value.data.pattern
        if value.type.is_float:
            integer = TYPES[f"u{value.type.bits}"]
            text = f"bitcast {self._constant(integer, value.lanes, pattern)} to {type_text(value.type, value.lanes)}"
            return self.define_entry(text)
        return self._constant(value.type, value.lanes, pattern).split(" ", 1)[1] if value.lanes == 1 else self._splat(value)

    def _splat(self, value: Value) -> str:
        return f"splat ({_SCALAR_NAMES[value.type.name]} {self._number(value.type, value.data.pattern)})"

    @staticmethod
    def _number(type_: Type, pattern: int) -> str:
        return ("true" if pattern else "false") if type_ is BOOL else str(pattern)

    def _constant(self, type_: Type, lanes: int, pattern: int) -> str:
        scalar = f"{_SCALAR_NAMES[type_.name]} {self._number(type_, pattern)}"
        return scalar if lanes == 1 else f"{type_text(type_, lanes)} splat ({scalar})"

    def typed(self, value: Value) -> str:
        """The value as an operand with its type."""
        return f"{type_text(value.type, value.lanes)} {self.ref(value)}"

    def _const(self, type_: Type, pattern: int) -> Value:
        return Value(self, type_, 1, Const(pattern))

    def _lane_constants(self, type_: Type, patterns: list[int]) -> Value:
        scalar = _SCALAR_NAMES[type_.name]
        text = ", ".join(f"{scalar} {self._number(type_, p)}" for p in patterns)
        if type_.is_float:
            raise TypeError("float lane constants: make integers and take their bits")
        return self.make(type_, len(patterns), f"<{text}>")

    def _broadcast(self, x: Value) -> Value:
        return self.splat(x, self.wave)

    def splat(self, x: Value, lanes: int) -> Value:
        """A scalar in every one of `lanes` lanes."""
        if isinstance(x.data, Const):
            return Value(self, x.type, lanes, x.data)
        vector = type_text(x.type, lanes)
        first = self.define(f"insertelement {vector} poison, {self.typed(x)}, i32 0")
        return self.make(
            x.type, lanes, self.define(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")
        )

    def _binary(self, text: str, x: Value, y: Value, type_: Type | None = None) -> Value:
        return self.make(type_ or x.type, x.lanes, self.define(f"{text} {self.typed(x)}, {self.ref(y)}"))

    def _int(self, op: str, x: Value, y: Value) -> Value:
        if isinstance(x.data, Const) and isinstance(y.data, Const):
            return Value(self, x.type, x.lanes, Const(_fold(op, x.type, x.data.pattern, y.data.pattern)))
        if op == "shr":
            return self._binary("ashr" if x.type.kind == "i" else "lshr", x, y)
        return self._binary(_INT[op], x, y)

    def _compare(self, op: str, x: Value, y: Value) -> Value:
        if x.type.is_float:
            return self._binary("fcmp " + ("une" if op == "ne" else "o" + op), x, y, BOOL)
        sign = "" if op in ("eq", "ne") else ("s" if x.type.kind == "i" else "u")
        return self._binary(f"icmp {sign}{op}", x, y, BOOL)

    def _select(self, condition: Value, x: Value, y: Value) -> Value:
        text = f"select {self.typed(condition)}, {self.typed(x)}, {self.typed(y)}"
        return self.make(x.type, x.lanes, self.define(text))

    def _cast(self, op: str, x: Value, type_: Type) -> Value:
        return self.make(type_, x.lanes, self.define(f"{op} {self.typed(x)} to {type_text(type_, x.lanes)}"))

    def _convert_int(self, x: Value, type_: Type) -> Value:
        if isinstance(x.data, Const):
            pattern = x.data.pattern
            if x.type.kind == "i" and pattern >> (x.type.bits - 1):
                pattern -= 1 << x.type.bits
            return Value(self, type_, x.lanes, Const(pattern & ((1 << type_.bits) - 1)))
        if type_.bits == x.type.bits:
            return Value(self, type_, x.lanes, x.data)
        if type_.bits < x.type.bits:
            return self._cast("trunc", x, type_)
        return self._cast("sext" if x.type.kind == "i" else "zext", x, type_)

    def _opaque(self, x: Value) -> Value:
        """A constant that LLVM does not know: it folds arithmetic as rounded to nearest, whatever the mode."""
        if not isinstance(x.data, Const):
            return x
        kind = type_text(x.type, 1)
        scalar = Value(self, x.type, 1, x.data)
        hidden = self.make(x.type, 1, self.define(f'call {kind} asm "", "=r,0"({self.typed(scalar)})'))
        return hidden if x.lanes == 1 else self.splat(hidden, x.lanes)

    def _int_to_float(self, x: Value, type_: Type) -> Value:
        x = self._opaque(x)
        if type_.bits == 16:
            return self.round_f64_to_f16(self._int_to_float(x, TYPES["f64"]))
        return self._cast("sitofp" if x.type.kind == "i" else "uitofp", x, type_)

    def _convert_float(self, x: Value, type_: Type) -> Value:
        if type_.bits == 16 and x.type.bits == 64:
            return self.round_f64_to_f16(x)
        if type_.bits == 64 and x.type.bits == 16:
            x = self._cast("fpext", x, TYPES["f32"])
        return self._cast("fpext" if type_.bits > x.type.bits else "fptrunc", x, type_)

    def _float_to_int(self, x: Value, type_: Type) -> Value:
        if x.type.bits == 16:
            x = self._cast("fpext", x, TYPES["f32"])
        signed = type_.kind == "i"
        whole = self._cast("fptosi" if signed else "fptoui", x, type_)  # poison where it does not fit
        pattern = self._uint(self.fabs(x) if signed else x)
        inside = pattern < float_bits(2.0 ** (type_.bits - signed), x.type.bits)
        lowest, highest = (1 << (type_.bits - 1), (1 << (type_.bits - 1)) - 1) if signed else (0, (1 << type_.bits) - 1)

        def saturated() -> Value:
            limit = self.select(self.sign_bit(x), self._const(type_, lowest), self._const(type_, highest))
            return self.select(inside, whole, self.select(self.isnan(x), self._const(type_, 0), limit))

        return self.unlikely(~inside, whole, saturated)

    def _bitcast(self, x: Value, type_: Type) -> Value:
        if isinstance(x.data, Const):
            return Value(self, type_, x.lanes, x.data)
        if _SCALAR_NAMES[type_.name] == _SCALAR_NAMES[x.type.name]:
            return Value(self, type_, x.lanes, x.data)
        return self._cast("bitcast", x, type_)

    def _call(self, name: str, result: str, arguments: list[Value], extra: str = "") -> str:
        kinds = [type_text(a.type, a.lanes) for a in arguments]
        callee = self.module.declare(name, result, ", ".join(kinds) + (", i1" if extra else ""))
        return self.define(f"call {result} {callee}({', '.join(self.typed(a) for a in arguments)}{extra})")

    def _count(self, op: str, x: Value) -> Value:
        name, flag = _COUNT[op]
        extra = ", i1 false" if flag else ""
        result = type_text(x.type, x.lanes)
        return self.make(x.type, x.lanes, self._call(f"llvm.{name}.{_suffix(x.type, x.lanes)}", result, [x], extra))

    def _float(self, op: str, x: Value, y: Value) -> Value:
        if x.type.bits == 16:
            wide = self._float(op, self._cast("fpext", x, TYPES["f32"]), self._cast("fpext", y, TYPES["f32"]))
            return self._cast("fptrunc", wide, x.type)
        return self._binary(_FLOAT[op], x, y)

    def _fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.make(
            z.type, z.lanes, self._call(f"llvm.fma.{_suffix(z.type, z.lanes)}", type_text(z.type, z.lanes), [x, y, z])
        )

    def _unary(self, op: str, x: Value) -> Value:
        if x.type.bits == 16:
            return self._cast("fptrunc", self._unary(op, self._cast("fpext", x, TYPES["f32"])), x.type)
        name = f"llvm.{_UNARY[op]}.{_suffix(x.type, x.lanes)}"
        return self.make(x.type, x.lanes, self._call(name, type_text(x.type, x.lanes), [x]))

    # --- lanes ---------------------------------------------------------------------------------------------------

    def _shuffle(self, x: Value, lanes: tuple[int, ...]) -> Value:
        vector = type_text(x.type, x.lanes)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {vector} {self.ref(x)}, {vector} poison, <{len(lanes)} x i32> <{mask}>"
        return self.make(x.type, len(lanes), self.define(text))

    def concat(self, parts: Sequence[Value]) -> Value:
        """Vectors of equal length one after another (a power of two of them)."""
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        x, y = self.concat(parts[:half]), self.concat(parts[half:])
        mask = ", ".join(f"i32 {k}" for k in range(2 * x.lanes))
        text = f"shufflevector {self.typed(x)}, {self.typed(y)}, <{2 * x.lanes} x i32> <{mask}>"
        return self.make(x.type, 2 * x.lanes, self.define(text))

    def extract(self, x: Value, start: int, lanes: int) -> Value:
        """Lanes start ... start + lanes - 1 of a vector."""
        if lanes == 1:
            return self.make(x.type, 1, self.define(f"extractelement {self.typed(x)}, i32 {start}"))
        return self._shuffle(x, tuple(range(start, start + lanes)))

    def permute(self, x: Value, index: Value) -> Value:
        x, index = self.vector(x), self.vector(index) & (self.wave - 1)
        if x.type.bits == 32 and "avx512f" in self.module.features:
            words = x.bits("u32")
            pieces = [self.extract(words, k, 16) for k in range(0, x.lanes, 16)]
            return self._permute_words(pieces, index).bits(x.type.name)
        slot = self.stack(type_text(x.type, x.lanes))
        self.store_value(slot, x)
        return self._gather(slot, x.type, index)

    def _permute_words(self, pieces: list[Value], index: Value) -> Value:
        """words[index] where the words lie in registers of 16: vpermi2d on pairs, then a blend by the upper index bits."""
        outs = []
        for k in range(0, index.lanes, 16):
            where = self.extract(index, k, 16)
            pairs = [self._permute_pair(pieces[p], pieces[p + 1], where) for p in range(0, len(pieces), 2)]
            level = 32
            while len(pairs) > 1:
                high = (where & level) != 0
                pairs = [self._select(high, pairs[p + 1], pairs[p]) for p in range(0, len(pairs), 2)]
                level *= 2
            outs.append(pairs[0])
        return self.concat(outs)

    def _permute_pair(self, low: Value, high: Value, index: Value) -> Value:
        name = self.module.declare("llvm.x86.avx512.vpermi2var.d.512", "<16 x i32>", "<16 x i32>, <16 x i32>, <16 x i32>")
        text = f"call <16 x i32> {name}({self.typed(low)}, {self.typed(index)}, {self.typed(high)})"
        return self.make(low.type, 16, self.define(text))

    def _gather(self, base: Ptr, type_: Type, index: Value) -> Value:
        """Elements base[index] of memory."""
        scalar = _SCALAR_NAMES[type_.name]
        lanes = index.lanes
        wide = index.to("u64")
        pointers = self.define(f"getelementptr {scalar}, ptr {base.name}, {self.typed(wide)}")
        result = type_text(type_, lanes)
        name = f"llvm.masked.gather.{_suffix(type_, lanes)}.v{lanes}p0"
        callee = self.module.declare(name, result, f"<{lanes} x ptr>, i32, <{lanes} x i1>, {result}")
        align = type_.bits // 8
        every = f"<{lanes} x i1> splat (i1 true)"
        text = f"call {result} {callee}(<{lanes} x ptr> {pointers}, i32 {align}, {every}, {result} poison)"
        return self.make(type_, lanes, self.define(text))

    def scatter(self, x: Value, index: Value, mask: Value) -> Value:
        x, index, mask = self.vector(x), self.vector(index) & (self.wave - 1), self.vector(mask)
        slot = self.stack(type_text(x.type, x.lanes))
        self.store_value(slot, Value(self, x.type, x.lanes, Const(0)))
        pointers = self.define(f"getelementptr {_SCALAR_NAMES[x.type.name]}, ptr {slot.name}, {self.typed(index.to('u64'))}")
        kind, lanes = type_text(x.type, x.lanes), x.lanes
        name = f"llvm.masked.scatter.{_suffix(x.type, lanes)}.v{lanes}p0"
        callee = self.module.declare(name, "void", f"{kind}, <{lanes} x ptr>, i32, <{lanes} x i1>")
        self.emit(
            f"call void {callee}({self.typed(x)}, <{lanes} x ptr> {pointers}, i32 {x.type.bits // 8}, {self.typed(mask)})"
        )
        return self.load_value(slot, x.type.name, lanes)

    def read_lane(self, x: Value, lane: Value) -> Value:
        index = lane & (x.lanes - 1)
        return self.make(x.type, 1, self.define(f"extractelement {self.typed(x)}, {self.typed(index)}"))

    def write_lane(self, x: Value, lane: Value, scalar: Value) -> Value:
        index = lane & (x.lanes - 1)
        text = f"insertelement {self.typed(x)}, {self.typed(scalar)}, {self.typed(index)}"
        return self.make(x.type, x.lanes, self.define(text))

    def ballot(self, condition: Value) -> Value:
        vector = self.vector(condition)
        bits = self.make(TYPES["u64"], 1, self.define(f"bitcast {self.typed(vector)} to i{vector.lanes}"))
        return (
            bits
            if vector.lanes == 64
            else self.make(TYPES["u64"], 1, self.define(f"zext i{vector.lanes} {bits.data} to i64"))
        )

    def lane_mask(self, mask: Value) -> Value:
        if isinstance(mask.data, Const) and mask.data.pattern == (1 << self.wave) - 1:
            return Value(self, BOOL, self.wave, Const(1))
        bits = self.ref(mask)
        if self.wave != 64:
            bits = self.define(f"trunc i64 {bits} to i{self.wave}")
        return self.make(BOOL, self.wave, self.define(f"bitcast i{self.wave} {bits} to <{self.wave} x i1>"))

    def any(self, condition: Value) -> Value:
        """b1 scalar: whether a b1 vector holds in some lane."""
        if condition.lanes == 1:
            return condition
        bits = self.define(f"bitcast {self.typed(condition)} to i{condition.lanes}")
        return self.make(BOOL, 1, self.define(f"icmp ne i{condition.lanes} {bits}, 0"))

    def unlikely(self, condition: Value, usual: Value, rare: Callable[[], Value]) -> Value:
        usual_name = self.ref(usual)
        taken, join = self.fresh("rare"), self.fresh("join")
        flag = self.any(condition)
        before = self._label
        self.terminate(f"br {self.typed(flag)}, label %{taken}, label %{join}, {RARELY}")
        self.start_block(taken)
        other = rare()
        if other.lanes != usual.lanes:
            other = self.splat(other, usual.lanes)
        other_name, after = self.ref(other), self._label
        self.start_block(join)
        kind = type_text(usual.type, usual.lanes)
        return self.make(
            usual.type,
            usual.lanes,
            self.define(f"phi {kind} [ {usual_name}, %{before} ], [ {other_name}, %{after} ]"),
        )

    def table(self, values: Sequence[int], index: Value) -> Value:
        base = self.module.words(values)
        if index.lanes == 1:
            ptr = self.define(f"getelementptr i32, ptr {base.name}, {self.typed(index)}")
            return self.load_value(Ptr(ptr), "u32")
        if "avx512f" in self.module.features and len(values) in (16, 32, 64) and index.lanes % 16 == 0:
            pieces = [self.load_value(self.offset(base, 4 * k), "u32", 16, align=64) for k in range(0, len(values), 16)]
            pieces = pieces * 2 if len(pieces) == 1 else pieces
            return self._permute_words(pieces, index & (len(values) - 1))
        return self._gather(base, TYPES["u32"], index)

    # --- memory ----------------------------------------------------------------------------------------------------

    def stack(self, type_text_: str, align: int = 64) -> Ptr:
        """A stack slot that lives as long as the call."""
        return Ptr(self.define_entry(f"alloca {type_text_}, align {align}"))

    def offset(self, ptr: Ptr, nbytes: Value | int) -> Ptr:
        """The pointer moved by some bytes."""
        if isinstance(nbytes, int):
            return ptr if nbytes == 0 else Ptr(self.define(f"getelementptr i8, ptr {ptr.name}, i64 {nbytes}"))
        return Ptr(self.define(f"getelementptr i8, ptr {ptr.name}, {self.typed(nbytes)}"))

    def address(self, value: Value) -> Ptr:
        """A u64 host address as a pointer."""
        return Ptr(self.define(f"inttoptr {self.typed(value)} to ptr"))

    def integer(self, ptr: Ptr) -> Value:
        """A pointer as a u64."""
        return self.make(TYPES["u64"], 1, self.define(f"ptrtoint ptr {ptr.name} to i64"))

    def load_ptr(self, ptr: Ptr) -> Ptr:
        return Ptr(self.define(f"load ptr, ptr {ptr.name}, align 8"))

    def load_value(self, ptr: Ptr, type_name: str, lanes: int = 1, align: int | None = None) -> Value:
        type_ = TYPES[type_name]
        align = align or min(type_.bits // 8 * lanes, 64) or 1
        return self.make(type_, lanes, self.define(f"load {type_text(type_, lanes)}, ptr {ptr.name}, align {align}"))

    def store_value(self, ptr: Ptr, value: Value, align: int | None = None) -> None:
        align = align or min(value.type.bits // 8 * value.lanes, 64) or 1
        self.emit(f"store {self.typed(value)}, ptr {ptr.name}, align {align}")

    def store_masked(self, ptr: Ptr, value: Value, mask: Value, align: int = 64) -> None:
        """Store a vector's lanes where the b1 vector holds."""
        if isinstance(mask.data, Const):
            if mask.data.pattern:
                self.store_value(ptr, value, align)
            return
        kind = type_text(value.type, value.lanes)
        name = f"llvm.masked.store.{_suffix(value.type, value.lanes)}.p0"
        callee = self.module.declare(name, "void", f"{kind}, ptr, i32, <{value.lanes} x i1>")
        self.emit(f"call void {callee}({self.typed(value)}, ptr {ptr.name}, i32 {align}, {self.typed(mask)})")

    def atomic_rmw(self, op: str, ptr: Ptr, value: Value) -> Value:
        """Sequentially consistent read-modify-write (LLVM's operation names); the old value."""
        align = value.type.bits // 8
        text = f"atomicrmw {op} ptr {ptr.name}, {self.typed(value)} seq_cst, align {align}"
        return self.make(value.type, 1, self.define(text))

    def compare_exchange(self, ptr: Ptr, expected: Value, new: Value) -> tuple[Value, Value]:
        """(old value, b1 whether it was exchanged)."""
        kind = type_text(new.type, 1)
        pair = self.define(f"cmpxchg ptr {ptr.name}, {self.typed(expected)}, {self.typed(new)} seq_cst seq_cst")
        old = self.define(f"extractvalue {{ {kind}, i1 }} {pair}, 0")
        done = self.define(f"extractvalue {{ {kind}, i1 }} {pair}, 1")
        return self.make(new.type, 1, old), self.make(BOOL, 1, done)

    def load_atomic(self, ptr: Ptr, type_name: str, order: str = "acquire") -> Value:
        type_ = TYPES[type_name]
        text = f"load atomic {type_text(type_, 1)}, ptr {ptr.name} {order}, align {type_.bits // 8}"
        return self.make(type_, 1, self.define(text))

    def store_atomic(self, ptr: Ptr, value: Value, order: str = "release") -> None:
        self.emit(f"store atomic {self.typed(value)}, ptr {ptr.name} {order}, align {value.type.bits // 8}")

    # --- control -----------------------------------------------------------------------------------------------------

    def variable(self, type_name: str, initial: Value | int | None = None, lanes: int = 1) -> Variable:
        type_ = TYPES[type_name]
        var = Variable(
            self, type_, lanes, self.stack(type_text(type_, lanes), align=min(64, max(8, type_.bits // 8 * lanes)))
        )
        if initial is not None:
            var.set(initial)
        return var

    @contextmanager
    def if_(self, condition: Value, *, rarely: bool = False) -> Iterator[None]:
        """The block runs if the b1 scalar holds."""
        then, join = self.fresh("then"), self.fresh("endif")
        weights = f", {RARELY}" if rarely else ""
        self.terminate(f"br {self.typed(condition)}, label %{then}, label %{join}{weights}")
        self.start_block(then)
        yield
        self.start_block(join)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """The block repeats until `break_if` or a return leaves it."""
        head, out = self.fresh("loop"), self.fresh("endloop")
        self.start_block(head)
        self._breaks.append(out)
        yield
        self._breaks.pop()
        if not self._terminated:
            self.terminate(f"br label %{head}")
        self.start_block(out)

    def break_if(self, condition: Value) -> None:
        """Leave the innermost loop if the b1 scalar holds."""
        stay = self.fresh("stay")
        self.terminate(f"br {self.typed(condition)}, label %{self._breaks[-1]}, label %{stay}")
        self.start_block(stay)

    @contextmanager
    def count(self, limit: Value | int, type_name: str = "u64") -> Iterator[Value]:
        """The block runs for 0, 1, ... limit - 1 (at least once), in registers."""
        type_ = TYPES[type_name]
        before, head, out = self._label, self.fresh("count"), self.fresh("counted")
        kind = type_text(type_, 1)
        index, following = "%" + self.fresh("i"), "%" + self.fresh("i")
        self.start_block(head)
        # The loop's own end is only known after its body: the phi is filled in then.
        slot = len(self._lines)
        self._lines.append("")
        yield self.make(type_, 1, index)
        end = self._label
        self._lines[slot] = f"  {index} = phi {kind} [ 0, %{before} ], [ {following}, %{end} ]"
        self.emit(f"{following} = add {kind} {index}, 1")
        done = self.compare("ge", self.make(type_, 1, following), self.coerce(limit, type_))
        self.terminate(f"br {self.typed(done)}, label %{out}, label %{head}")
        self.start_block(out)

    def fold(self, limit: int, initial: Sequence[Value], step: Callable[[Value, list[Value]], list[Value]]) -> list[Value]:
        """Values carried through a loop in registers: step(index, values) gives the next ones, for index (u64) 0, 1, ...
        limit - 1. Written out where there is one step only."""
        if limit == 1:
            return step(self.const("u64", 0), list(initial))
        starts = [self.ref(value) for value in initial]
        before, head, out = self._label, self.fresh("fold"), self.fresh("folded")
        carried = [self.make(value.type, value.lanes, "%" + self.fresh("v")) for value in initial]
        index, following = "%" + self.fresh("i"), "%" + self.fresh("i")
        self.start_block(head)
        slot = len(self._lines)
        self._lines.append("")
        results = step(self.make(TYPES["u64"], 1, index), carried)
        names = [self.ref(value) for value in results]
        phis = [f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self._label} ]"]
        for value, start, name in zip(carried, starts, names, strict=True):
            kind = type_text(value.type, value.lanes)
            phis.append(f"  {value.data} = phi {kind} [ {start}, %{before} ], [ {name}, %{self._label} ]")
        self._lines[slot] = "\n".join(phis)
        self.emit(f"{following} = add i64 {index}, 1")
        done = self.define(f"icmp eq i64 {following}, {limit}")
        self.terminate(f"br i1 {done}, label %{out}, label %{head}")
        self.start_block(out)
        return results

    @contextmanager
    def each_bit(self, bits: Value) -> Iterator[Value]:
        """The block runs for the number (of bits' type) of every set bit, in ascending order, in registers."""
        before, head, body, out = self._label, self.fresh("bits"), self.fresh("bit"), self.fresh("bitsdone")
        start, kind = self.ref(bits), type_text(bits.type, 1)
        left, rest = "%" + self.fresh("left"), "%" + self.fresh("left")
        self.start_block(head)
        # The loop's own end is only known after its body: the phi is filled in then.
        slot = len(self._lines)
        self._lines.append("")
        remaining = self.make(bits.type, 1, left)
        self.terminate(f"br {self.typed(remaining != 0)}, label %{body}, label %{out}")
        self.start_block(body)
        yield self.ctz(remaining)
        self.emit(f"{rest} = and {kind} {left}, {(remaining - 1).data}")
        self._lines[slot] = f"  {left} = phi {kind} [ {start}, %{before} ], [ {rest}, %{self._label} ]"
        self.terminate(f"br label %{head}")
        self.start_block(out)

    def ret(self, value: Value | Ptr | None = None) -> None:
        if value is None:
            self.terminate("ret void")
        elif isinstance(value, Ptr):
            self.terminate(f"ret ptr {value.name}")
        else:
            self.terminate(f"ret {self.typed(value)}")

    def call(self, callee: str, result: str, arguments: Sequence[Value | Ptr]) -> str:
        """Call a function of this module or (by a pointer's name) of another; gives the result's name, "" for void."""
        text = ", ".join(f"ptr {a.name}" if isinstance(a, Ptr) else self.typed(a) for a in arguments)
        if result == "void":
            self.emit(f"call void {callee}({text})")
            return ""
        return self.define(f"call {result} {callee}({text})")


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip


def _fold(op: str, type_: Type, x: int, y: int) -> int:
    """Integer arithmetic on constant patterns."""
    if op == "shr" and type_.kind == "i" and x >> (type_.bits - 1):
        x -= 1 << type_.bits
    return _FOLD[op](x, y) & ((1 << type_.bits) - 1)
