"""The floating-point atomics' arithmetic, written once for both executors.

Memory's value is the first operand. Atomics round to nearest even and keep denormals whatever the wave's mode says.
"""

from __future__ import annotations

from rjemu.isa.lanes import Lanes, Value


def float_combine(b: Lanes, op: str, old: Value, data: Value) -> Value:
    """fadd, fmin, fmax on f32 or f64; pk_add_f16, pk_add_bf16 on the halves of a u32. Raises KeyError for another op."""
    return {"fadd": _add, "fmin": _min, "fmax": _max, "pk_add_f16": _pk_add_f16, "pk_add_bf16": _pk_add_bf16}[op](
        b, old, data
    )


def _add(b: Lanes, x: Value, y: Value) -> Value:
    return b.with_nan_rule(b.raw("add", x, y), x, y)


def _min(b: Lanes, x: Value, y: Value) -> Value:
    """minNum: a NaN loses against a number; -0 is below +0."""
    smaller = b.select(x == y, b.sign_bit(x), x < y)
    return b.select(b.isnan(y) & ~b.isnan(x), x, b.select(b.isnan(x), _number_or_nan(b, y), b.select(smaller, x, y)))


def _max(b: Lanes, x: Value, y: Value) -> Value:
    """maxNum: a NaN loses against a number; +0 is above -0."""
    larger = b.select(x == y, ~b.sign_bit(x), x > y)
    return b.select(b.isnan(y) & ~b.isnan(x), x, b.select(b.isnan(x), _number_or_nan(b, y), b.select(larger, x, y)))


def _number_or_nan(b: Lanes, y: Value) -> Value:
    return b.select(b.isnan(y), b.quiet(y), y)


def _halves(x: Value) -> tuple[Value, Value]:
    return (x & 0xFFFF).to("u16"), (x >> 16).to("u16")


def _pk_add_f16(b: Lanes, x: Value, y: Value) -> Value:
    sums = [_add(b, p.bits("f16"), q.bits("f16")).bits("u16").to("u32") for p, q in zip(_halves(x), _halves(y), strict=True)]
    return sums[0] | (sums[1] << 16)


def _pk_add_bf16(b: Lanes, x: Value, y: Value) -> Value:
    sums = []
    for shift_x, shift_y in ((x << 16, y << 16), (x & 0xFFFF0000, y & 0xFFFF0000)):
        total = _add(b, shift_x.bits("f32"), shift_y.bits("f32"))
        sums.append(round_bf16(b, total))
    return sums[0] | (sums[1] << 16)


def round_bf16(b: Lanes, x: Value) -> Value:
    """f32 -> bf16 pattern in a u32's low half, to nearest even; a NaN keeps its upper payload, quieted."""
    pattern = x.bits("u32")
    rounded = (pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16
    return b.select(b.isnan(x), (pattern >> 16) | 0x40, rounded)
