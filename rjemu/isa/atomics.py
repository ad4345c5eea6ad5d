"""The floating-point atomics' arithmetic, written once for both executors (CDNA4 ISA, "Float Memory Atomics").

Memory's value is the first operand. Atomics round to nearest even whatever the wave's mode says. Denormals follow
`atomic_mode`: the comparisons of min, max and compare-and-swap see flushed inputs, but min and max deliver the chosen
operand as it was.
"""

from __future__ import annotations

from dataclasses import replace

from rjemu.isa.lanes import FpMode, Lanes, Value


def atomic_mode(fp: FpMode, space: str) -> FpMode:
    """The mode that an atomic in that address space follows: LDS obeys the wave's denormal control, the L2 cache keeps
    denormals (LLVM, "memory-atomic-fadd-f32-denormal-support")."""
    return replace(fp, round32=0, round64=0, fp16_ovfl=False) if space == "lds" else FpMode()


def float_combine(b: Lanes, op: str, old: Value, data: Value, compare: Value) -> Value:
    """What memory becomes: fadd, fmin, fmax, fcmpswap on f32 or f64; pk_add_f16, pk_add_bf16 on the halves of a u32.

    b.fp must be the `atomic_mode`. compare counts for fcmpswap only. Raises KeyError for another op.
    """
    if op == "fcmpswap":
        return b.select(b.flush_input(old) == b.flush_input(compare), b.flush_input(data), old)
    return {"fadd": _add, "fmin": _min, "fmax": _max, "pk_add_f16": _pk_add_f16, "pk_add_bf16": _pk_add_bf16}[op](
        b, old, data
    )


def _add(b: Lanes, x: Value, y: Value) -> Value:
    """The first NaN wins, quieted. f64 sums keep denormals everywhere."""
    if x.type.bits == 64:
        return b.with_nan_rule(b.raw("add", x, y), x, y)
    x, y = b.flush_input(x), b.flush_input(y)
    return b.with_nan_rule(b.flush_result(b.raw("add", x, y)), x, y)


def _min(b: Lanes, x: Value, y: Value) -> Value:
    u, v = b.flush_input(x), b.flush_input(y)
    return _chosen(b, x, y, b.select(u == v, b.sign_bit(x), u < v))


def _max(b: Lanes, x: Value, y: Value) -> Value:
    u, v = b.flush_input(x), b.flush_input(y)
    return _chosen(b, x, y, b.select(u == v, ~b.sign_bit(x), u > v))


def _chosen(b: Lanes, x: Value, y: Value, first: Value) -> Value:
    """x where `first` holds, else y; a number rather than a quiet NaN; a signalling NaN, quieted, before anything else."""
    number = b.select(b.isnan(x), y, b.select(b.isnan(y), x, b.select(first, x, y)))
    return b.select(_signalling(b, x), b.quiet(x), b.select(_signalling(b, y), b.quiet(y), number))


def _signalling(b: Lanes, x: Value) -> Value:
    unsigned = f"u{x.type.bits}"
    return b.isnan(x) & (b.quiet(x).bits(unsigned) != x.bits(unsigned))


def _halves(x: Value) -> tuple[Value, Value]:
    return (x & 0xFFFF).to("u16"), (x >> 16).to("u16")


def _pk_add_f16(b: Lanes, x: Value, y: Value) -> Value:
    sums = [_add(b, p.bits("f16"), q.bits("f16")).bits("u16").to("u32") for p, q in zip(_halves(x), _halves(y), strict=True)]
    return sums[0] | (sums[1] << 16)


def _pk_add_bf16(b: Lanes, x: Value, y: Value) -> Value:
    """bf16 denormals are f32 denormals' upper halves."""
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
