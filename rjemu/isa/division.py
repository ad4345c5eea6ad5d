"""The three helpers of precise division: v_div_scale, v_div_fmas, v_div_fixup.

A quotient n / d is computed as scale(d), scale(n), Newton steps, fmas, fixup (LLVM, "LowerFDIV32"). These meanings give
correctly rounded quotients for all operands, denormal ones included. Where the pseudo code of the CDNA3 ISA document
leaves it open or contradicts itself, they follow what hardware of the same design has been seen to do: a near-overflowing
denominator is scaled down; the quotient is scaled back by 2**-64 where it is below 1 (f64: 2**-128), with one rounding;
the NaN that an overflow leaves in the quotient becomes infinity.

Powers of two are made by ldexp, because Python's ** rounds as the host does at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp

from rjemu.isa.floats import biased_exponent, exponent_bias, magnitude_bits
from rjemu.isa.lanes import EXPONENT_BITS, MANTISSA_BITS, Lanes, Value


@dataclass(frozen=True, slots=True)
class _Limits:
    """scale: exponent of the scaling. near_overflow: exponent difference from which the denominator is scaled. tiny:
    biased exponent of a numerator up to which both are scaled. underflow: exponent difference below which the quotient
    rounds to zero."""

    scale: int
    near_overflow: int
    tiny: int
    underflow: int


_LIMITS = {32: _Limits(64, 96, 23, -150), 64: _Limits(128, 768, 53, -1075)}


def div_scale(b: Lanes, x: Value, denominator: Value, numerator: Value) -> tuple[Value, Value]:
    """(x scaled, b1 whether the quotient must be scaled back). x is the denominator or the numerator."""
    x, d, n = b.flush_input(x), b.flush_input(denominator), b.flush_input(numerator)
    limits = _LIMITS[x.type.bits]
    bias = exponent_bias(x.type.bits)
    d_exponent, n_exponent = biased_exponent(b, d), biased_exponent(b, n)
    difference = n_exponent - d_exponent
    near_underflow = 1 - bias + 1
    special = (
        (difference >= limits.near_overflow)
        | (difference <= near_underflow)
        | (d_exponent == 0)
        | (d_exponent >= 2 * bias - 1)
        | (n_exponent <= limits.tiny)
    )
    no = b.vector(b.const_bits("b1", 0))
    scaled = b.unlikely(special, b.vector(x), lambda: b.vector(_scale(b, x, d, n, difference)[0]))
    return scaled, b.unlikely(special, no, lambda: b.vector(_scale(b, x, d, n, difference)[1]))


def _scale(b: Lanes, x: Value, d: Value, n: Value, difference: Value) -> tuple[Value, Value]:
    name, bits = x.type.name, x.type.bits
    limits, mantissa, bias = _LIMITS[bits], MANTISSA_BITS[bits], exponent_bias(bits)
    up, down = b.raw("mul", x, ldexp(1.0, limits.scale)), b.raw("mul", x, ldexp(1.0, -limits.scale))
    zero = (n == 0.0) | (d == 0.0)
    near_overflow = difference >= limits.near_overflow
    tiny_denominator = b.is_denormal(d)
    reciprocal_denormal = magnitude_bits(b, d) > ((2 * bias - 1) << mantissa)
    quotient_denormal = ~(b.fabs(b.raw("div", n, d)) >= b.const_bits(name, 1 << mantissa))
    tiny_numerator = biased_exponent(b, n) <= limits.tiny

    value = b.select(tiny_numerator, up, x)
    value = b.select(quotient_denormal, b.select(x == n, up, x), value)
    value = b.select(reciprocal_denormal, down, value)
    value = b.select(reciprocal_denormal & quotient_denormal, b.select(x == d, down, x), value)
    value = b.select(tiny_denominator, up, value)
    value = b.select(near_overflow, b.select(x == d, up, x), value)
    value = b.select(zero, b.default_nan(name), value)
    return value, ~zero & (near_overflow | (~tiny_denominator & quotient_denormal))


def div_fmas(b: Lanes, x: Value, y: Value, quotient: Value, scaled: Value) -> Value:
    """x * y + quotient, scaled back in the lanes where the b1 vector holds."""
    usual = b.fma(x, y, quotient)

    def scale_back() -> Value:
        a, c, q = b.flush_input(x), b.flush_input(y), b.flush_input(quotient)
        large = biased_exponent(b, q) > exponent_bias(q.type.bits)
        back = _scaled_f32(b, a, c, q, large) if q.type.bits == 32 else _scaled_f64(b, a, c, q, large)
        return b.select(scaled, b.with_nan_rule(b.flush_result(back), a, c, q), usual)

    return b.unlikely(scaled, usual, scale_back)


def _scaled_f32(b: Lanes, x: Value, y: Value, q: Value, large: Value) -> Value:
    """In f64, where the product is exact, with rounding to odd, so that the step back to f32 is the only rounding."""
    product, addend = b.raw("mul", x.to("f64"), y.to("f64")), q.to("f64")
    total = b.raw("add", product, addend)
    if not b.rounding:
        back = b.raw("sub", total, product)
        lost = b.raw("add", b.raw("sub", product, b.raw("sub", total, back)), b.raw("sub", addend, back))
        total = b.nudge_to_odd(total, lost)
    factor = b.select(large, b.const("f64", ldexp(1.0, 64)), b.const("f64", ldexp(1.0, -64)))
    return b.raw("mul", total, factor).to("f32")


def _scaled_f64(b: Lanes, x: Value, y: Value, q: Value, large: Value) -> Value:
    """Below the normal numbers, adding a power of two that has the last place of the result rounds once and for all.

    Directed roundings compose, so they need no such care.
    """
    total = b.raw_fma(x, y, q)
    up, down = b.raw("mul", total, ldexp(1.0, 128)), b.raw("mul", total, ldexp(1.0, -128))
    if b.rounding:
        return b.select(large, up, down)
    edge = b.const("f64", ldexp(1.0, 128 - 1022))
    anchor = b.copysign(edge, q)
    moved = b.raw("add", anchor, q)
    rest = b.raw_fma(x, y, b.raw("sub", q, b.raw("sub", moved, anchor)))
    rounded = b.raw("sub", b.raw("add", moved, rest), anchor)
    denormal = b.copysign(b.raw("mul", rounded, ldexp(1.0, -128)), q)
    return b.select(large, up, b.select(b.fabs(total) < edge, denormal, down))


def div_fixup(b: Lanes, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """The quotient with its sign, and the special cases of division."""
    q, d, n = b.flush_input(quotient), b.flush_input(denominator), b.flush_input(numerator)
    bits = q.type.bits
    sign = (d.bits(f"u{bits}") ^ n.bits(f"u{bits}")).bits(q.type.name)
    usual = b.copysign(q, sign)
    smallest = 1 << MANTISSA_BITS[bits]
    finite = (((1 << EXPONENT_BITS[bits]) - 1) << MANTISSA_BITS[bits]) - smallest
    special = b.isnan(q) | ((magnitude_bits(b, d) - smallest) >= finite) | ((magnitude_bits(b, n) - smallest) >= finite)
    if bits != 16:
        special = special | _underflows(b, d, n)
    usual = b.flush_result(usual)
    return b.unlikely(special, usual, lambda: _special_quotient(b, q, d, n, sign))


def _underflows(b: Lanes, d: Value, n: Value) -> Value:
    return (biased_exponent(b, n) - biased_exponent(b, d)) < _LIMITS[d.type.bits].underflow


def _special_quotient(b: Lanes, q: Value, d: Value, n: Value, sign: Value) -> Value:
    name, bits = q.type.name, q.type.bits
    zero, infinity = b.copysign(b.const(name, 0.0), sign), b.copysign(b.const(name, float("inf")), sign)
    out = b.copysign(q, sign)
    if bits != 16:
        smallest = b.const_bits(name, 1 << MANTISSA_BITS[bits])
        largest = b.const_bits(name, (((1 << EXPONENT_BITS[bits]) - 1) << MANTISSA_BITS[bits]) - 1)
        out = b.select(b.isnan(q), b.raw("mul", b.copysign(largest, sign), largest), out)
        out = b.select(_underflows(b, d, n), b.raw("mul", b.copysign(smallest, sign), smallest), out)
    out = b.flush_result(out)
    out = b.select(b.isinf(d) | (n == 0.0), zero, out)
    out = b.select((d == 0.0) | b.isinf(n), infinity, out)
    undefined = ((d == 0.0) & (n == 0.0)) | (b.isinf(d) & b.isinf(n))
    out = b.select(undefined, b.default_nan(name), out)
    return b.select(b.isnan(n), b.quiet(n), b.select(b.isnan(d), b.quiet(d), out))
