"""`Lanes` evaluated eagerly with numpy: the arithmetic half of the reference executor.

A scalar is an array of shape (1,), a vector one of shape (lanes,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rjemu.exec.fenv import libm, rounding
from rjemu.isa.lanes import BOOL, TYPES, FpMode, Lanes, Type, Value

_KINDS = {"u": "uint", "i": "int", "f": "float"}
DTYPES: dict[Type, np.dtype[Any]] = {
    type_: np.dtype(bool) if type_ is BOOL else np.dtype(f"{_KINDS[type_.kind]}{type_.bits}") for type_ in TYPES.values()
}

_COMPARE: dict[str, Any] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_INT: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_FLOAT: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_UNARY: dict[str, Any] = {"sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint}


class NumpyLanes(Lanes):
    """See `Lanes`. Floating-point rounding follows the thread's direction (`fenv.rounding`), which the caller sets to
    `self.rounding`."""

    def __init__(self, wave: int, fp: FpMode | None = None, rounding: int = 0) -> None:
        self.wave = wave
        self.fp = fp or FpMode()
        self.rounding = rounding

    def make(self, type_: Type, data: np.ndarray) -> Value:
        """A value from an array of the type's dtype."""
        assert data.dtype == DTYPES[type_], (data.dtype, type_)
        return Value(self, type_, len(data), data)

    def _const(self, type_: Type, pattern: int) -> Value:
        if type_ is BOOL:
            return self.make(type_, np.array([pattern != 0]))
        bits = np.array([pattern], dtype=f"uint{type_.bits}")
        return self.make(type_, bits.view(DTYPES[type_]))

    def _lane_constants(self, type_: Type, patterns: list[int]) -> Value:
        return self.make(type_, np.array(patterns, dtype=f"uint{type_.bits}").view(DTYPES[type_]))

    def _broadcast(self, x: Value) -> Value:
        return self.make(x.type, np.repeat(x.data, self.wave))

    def _int(self, op: str, x: Value, y: Value) -> Value:
        return self.make(x.type, _INT[op](x.data, y.data))

    def _compare(self, op: str, x: Value, y: Value) -> Value:
        with np.errstate(all="ignore"):
            return self.make(BOOL, _COMPARE[op](x.data, y.data))

    def _select(self, condition: Value, x: Value, y: Value) -> Value:
        return self.make(x.type, np.where(condition.data, x.data, y.data))

    def _convert_int(self, x: Value, type_: Type) -> Value:
        return self.make(type_, x.data.astype(DTYPES[type_]))

    def _int_to_float(self, x: Value, type_: Type) -> Value:
        if type_.bits == 16:
            wide = self.make(TYPES["f64"], x.data.astype(np.float64))
            return self.round_f64_to_f16(wide)
        return self.make(type_, x.data.astype(DTYPES[type_]))

    def _convert_float(self, x: Value, type_: Type) -> Value:
        with np.errstate(all="ignore"):
            if type_.bits == 16 and x.type.bits == 64:
                return self.round_f64_to_f16(x)
            out = x.data.astype(DTYPES[type_])
            if type_.bits == 16 and self.rounding:
                out = _redirect_half(x.data, out, self.rounding)
        return self.make(type_, out)

    def _float_to_int(self, x: Value, type_: Type) -> Value:
        low, high = (
            (0, (1 << type_.bits) - 1) if type_.kind == "u" else (-(1 << (type_.bits - 1)), (1 << (type_.bits - 1)) - 1)
        )
        with np.errstate(all="ignore"):
            wide = np.trunc(x.data.astype(np.float64))
            inside = (wide >= float(low)) & (wide < float(high) + (1.0 if type_.bits < 64 else 0.0))
            out = np.where(inside, wide, 0.0).astype(DTYPES[type_])
        out[wide < float(low)] = low
        out[(wide >= float(low)) & ~inside] = high
        return self.make(type_, out)

    def _bitcast(self, x: Value, type_: Type) -> Value:
        return self.make(type_, x.data.view(DTYPES[type_]))

    def _count(self, op: str, x: Value) -> Value:
        bits = x.type.bits
        pattern = x.data.view(f"uint{bits}")
        if op == "popcount":
            return self.make(x.type, np.bitwise_count(pattern).astype(DTYPES[x.type]))
        digits = np.unpackbits(pattern.astype(f">u{bits // 8}").view(np.uint8).reshape(len(pattern), -1), axis=1)
        if op == "bitreverse":
            packed = np.packbits(digits[:, ::-1], axis=1).view(f">u{bits // 8}").reshape(-1)
            return self.make(x.type, packed.astype(f"uint{bits}").view(DTYPES[x.type]))
        ordered = digits if op == "clz" else digits[:, ::-1]
        first = np.where(ordered.any(axis=1), ordered.argmax(axis=1), bits)
        return self.make(x.type, first.astype(DTYPES[x.type]))

    def _float(self, op: str, x: Value, y: Value) -> Value:
        with np.errstate(all="ignore"):
            if x.type.bits == 16:
                wide = self.make(TYPES["f32"], _FLOAT[op](x.data.astype(np.float32), y.data.astype(np.float32)))
                return self._convert_float(wide, x.type)
            return self.make(x.type, _FLOAT[op](x.data, y.data))

    def _fma(self, x: Value, y: Value, z: Value) -> Value:
        if z.type.bits == 64:
            out = [libm.fma(a, c, d) for a, c, d in zip(x.data.tolist(), y.data.tolist(), z.data.tolist(), strict=True)]
            return self.make(z.type, np.array(out, dtype=np.float64))
        return self.make(z.type, fma32(x.data, y.data, z.data, directed=self.rounding != 0))

    def _unary(self, op: str, x: Value) -> Value:
        with np.errstate(all="ignore"):
            if x.type.bits == 16:
                wide = self._unary(op, self.make(TYPES["f32"], x.data.astype(np.float32)))
                return self._convert_float(wide, x.type)
            if op == "rint" and self.rounding:
                with rounding(0):
                    return self.make(x.type, np.rint(x.data))
            return self.make(x.type, _UNARY[op](x.data))

    def _shuffle(self, x: Value, lanes: tuple[int, ...]) -> Value:
        return self.make(x.type, x.data[list(lanes)])

    def unlikely(self, condition: Value, usual: Value, rare: Callable[[], Value]) -> Value:
        return rare() if condition.data.any() else usual

    def permute(self, x: Value, index: Value) -> Value:
        return self.make(x.type, self.vector(x).data[self.vector(index).data % self.wave])

    def scatter(self, x: Value, index: Value, mask: Value) -> Value:
        out = np.zeros(self.wave, DTYPES[x.type])
        active = self.vector(mask).data
        for lane, item in zip(self.vector(index).data[active] % self.wave, self.vector(x).data[active], strict=True):
            out[lane] = item
        return self.make(x.type, out)

    def read_lane(self, x: Value, lane: Value) -> Value:
        return self.make(x.type, self.vector(x).data[lane.data % self.wave])

    def write_lane(self, x: Value, lane: Value, scalar: Value) -> Value:
        out = self.vector(x).data.copy()
        out[lane.data[0] % self.wave] = scalar.data[0]
        return self.make(x.type, out)

    def ballot(self, condition: Value) -> Value:
        return self._const(TYPES["u64"], mask_to_int(self.vector(condition).data))

    def lane_mask(self, mask: Value) -> Value:
        return self.make(BOOL, int_to_mask(int(mask.data[0]), self.wave))

    def table(self, values: Sequence[int], index: Value) -> Value:
        return self.make(TYPES["u32"], np.array(values, dtype=np.uint32)[index.data])


def mask_to_int(lanes: np.ndarray) -> int:
    """Bit i from element i of a boolean array of at most 64 elements."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


def int_to_mask(bits: int, wave: int) -> np.ndarray:
    """Boolean array [wave] from a mask's bits."""
    raw = np.frombuffer(int(bits & ((1 << wave) - 1)).to_bytes(wave // 8, "little"), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little").astype(bool)


def fma32(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, directed: bool = False) -> np.ndarray:
    """float32 x * y + z with one rounding, for arrays that broadcast.

    The product of two float32 is exact in float64; the sum is rounded to odd there (Boldo and Melquiond, "Emulation of
    FMA and correctly rounded sums"), so that the step to float32 rounds right. Directed roundings compose by themselves.
    """
    with np.errstate(all="ignore"):
        product = x.astype(np.float64) * y.astype(np.float64)
        addend = z.astype(np.float64)
        total = np.asarray(product + addend)
        if not directed:
            back = total - product
            error = (product - (total - back)) + (addend - back)
            bits = total.view(np.int64)
            move = (error != 0) & ~np.isnan(error) & ((bits & 1) == 0)
            away = (np.signbit(error) == np.signbit(total)) | (total == 0)
            total = np.where(move, bits + np.where(away, 1, -1), bits).view(np.float64)
        return np.asarray(total.astype(np.float32))


def _redirect_half(x: np.ndarray, nearest: np.ndarray, direction: int) -> np.ndarray:
    """Turn float16 values rounded to nearest into ones rounded in MODE's direction 1 up, 2 down, 3 to zero."""
    back = nearest.astype(x.dtype)
    bits = nearest.view(np.uint16).astype(np.int32)
    negative = np.signbit(x)
    if direction == 3:
        too_far = np.abs(back) > np.abs(x)
        bits = np.where(too_far, bits - 1, bits)
    else:
        up = direction == 1
        wrong = back < x if up else back > x
        grow = negative != up
        bits = np.where(wrong, np.where(grow, bits + 1, bits - 1), bits)
    return bits.astype(np.uint16).view(np.float16)
