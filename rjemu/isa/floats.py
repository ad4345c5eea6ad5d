"""Composite floating-point operations of the vector ALU on f16, f32 and f64 lane vectors.

Facts: pseudo code of the CDNA3 and CDNA4 ISA documents. Sources and results follow the denormal mode throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rjemu.isa.lanes import EXPONENT_BITS, MANTISSA_BITS, Lanes, Value

Extreme = Callable[[Lanes, Value, Value], Value]


def exponent_bias(bits: int) -> int:
    return (1 << (EXPONENT_BITS[bits] - 1)) - 1


def magnitude_bits(b: Lanes, x: Value) -> Value:
    """The pattern without the sign, unsigned: it orders like the magnitude."""
    return b.fabs(x).bits(f"u{x.type.bits}")


def biased_exponent(b: Lanes, x: Value) -> Value:
    """The exponent field as i32."""
    return (magnitude_bits(b, x) >> MANTISSA_BITS[x.type.bits]).to("i32")


def is_signalling(b: Lanes, x: Value) -> Value:
    """b1: a signalling NaN."""
    bits = x.bits(f"u{x.type.bits}")
    return b.isnan(x) & ((bits & (1 << (MANTISSA_BITS[x.type.bits] - 1))) == 0)


# --- smaller and larger ---------------------------------------------------------------------------------------------------


def _smaller(b: Lanes, x: Value, y: Value) -> Value:
    """For numbers, with -0 below +0: the two orders of operands differ only for zeros, where OR finds the sign."""
    unsigned, name = f"u{x.type.bits}", x.type.name
    return (b.select(x < y, x, y).bits(unsigned) | b.select(y < x, y, x).bits(unsigned)).bits(name)


def _larger(b: Lanes, x: Value, y: Value) -> Value:
    unsigned, name = f"u{x.type.bits}", x.type.name
    return (b.select(x > y, x, y).bits(unsigned) & b.select(y > x, y, x).bits(unsigned)).bits(name)


def _number_extreme(b: Lanes, x: Value, y: Value, pick: Extreme) -> Value:
    """The other operand for a NaN; in IEEE mode a signalling NaN wins, quieted."""
    x, y = b.flush_input(x), b.flush_input(y)
    usual = b.flush_result(pick(b, x, y))

    def with_nan() -> Value:
        out = b.select(b.isnan(x), b.flush_result(y), b.select(b.isnan(y), b.flush_result(x), usual))
        if b.fp.ieee:
            out = b.select(is_signalling(b, y), b.quiet(y), out)
            out = b.select(is_signalling(b, x), b.quiet(x), out)
        return out

    return b.unlikely(b.isnan(x) | b.isnan(y), usual, with_nan)


def min_number(b: Lanes, x: Value, y: Value) -> Value:
    """v_min: see `_number_extreme`."""
    return _number_extreme(b, x, y, _smaller)


def max_number(b: Lanes, x: Value, y: Value) -> Value:
    """v_max: see `_number_extreme`."""
    return _number_extreme(b, x, y, _larger)


def min3_number(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    return min_number(b, min_number(b, x, y), z)


def max3_number(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    return max_number(b, max_number(b, x, y), z)


def median(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    """The middle one of three; with a NaN among them, what v_min3 gives."""
    x, y, z = b.flush_input(x), b.flush_input(y), b.flush_input(z)
    xy, top = _larger(b, x, y), _larger(b, _larger(b, x, y), z)
    others = b.select(top == x, _larger(b, y, z), b.select(top == y, _larger(b, x, z), xy))
    any_nan = b.isnan(x) | b.isnan(y) | b.isnan(z)
    usual = b.flush_result(others)
    return b.unlikely(any_nan, usual, lambda: b.select(any_nan, min3_number(b, x, y, z), usual))


def _propagating_extreme(b: Lanes, x: Value, y: Value, pick: Extreme) -> Value:
    """A NaN wins, quieted: signalling before quiet, then the first."""
    x, y = b.flush_input(x), b.flush_input(y)
    usual = b.flush_result(pick(b, x, y))

    def with_nan() -> Value:
        out = b.select(b.isnan(x), b.quiet(x), b.select(b.isnan(y), b.quiet(y), usual))
        return b.select(is_signalling(b, y) & ~is_signalling(b, x), b.quiet(y), out)

    return b.unlikely(b.isnan(x) | b.isnan(y), usual, with_nan)


def minimum3(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    """v_minimum3: IEEE 754-2019 minimum of three."""
    return _propagating_extreme(b, _propagating_extreme(b, x, y, _smaller), z, _smaller)


def maximum3(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    """v_maximum3: IEEE 754-2019 maximum of three."""
    return _propagating_extreme(b, _propagating_extreme(b, x, y, _larger), z, _larger)


# --- parts ----------------------------------------------------------------------------------------------------------------


def in_class(b: Lanes, x: Value, classes: Value) -> Value:
    """b1: x belongs to one of the classes (u32, a bit each): 0 signalling NaN, 1 quiet NaN, 2 -inf, 3 negative normal,
    4 negative denormal, 5 -0, 6 +0, 7 positive denormal, 8 positive normal, 9 +inf."""
    mantissa, exponent = MANTISSA_BITS[x.type.bits], EXPONENT_BITS[x.type.bits]
    magnitude = magnitude_bits(b, x)
    infinity = ((1 << exponent) - 1) << mantissa
    steps = [(magnitude >= bound).to("u32") for bound in (1, 1 << mantissa, infinity)]
    positive = steps[0] + steps[1] + steps[2] + 6
    index = b.select(b.sign_bit(x), 11 - positive, positive)
    is_quiet = ((magnitude >> (mantissa - 1)) & 1).to("u32")
    index = b.select(magnitude > infinity, is_quiet, index)
    return ((classes >> index) & 1) != 0


def frexp_mantissa(b: Lanes, x: Value) -> Value:
    """The significand in [1/2, 1) with x's sign; zero, infinity and (quieted) NaN as they are."""
    x = b.flush_input(x)
    bits, mantissa = x.type.bits, MANTISSA_BITS[x.type.bits]
    kept = (1 << (bits - 1)) | ((1 << mantissa) - 1)
    half = (exponent_bias(bits) - 1) << mantissa

    def significand(v: Value) -> Value:
        return ((v.bits(f"u{bits}") & kept) | half).bits(x.type.name)

    def special() -> Value:
        scaled = b.raw("mul", x, float(2 ** (mantissa + 1)))
        out = b.select(b.is_denormal(x), significand(scaled), b.select(_ordinary(b, x), significand(x), x))
        return b.select(b.isnan(x), b.quiet(x), out)

    return b.unlikely(~_ordinary(b, x), significand(x), special)


def frexp_exponent(b: Lanes, x: Value) -> Value:
    """i32: the exponent that belongs to `frexp_mantissa`; 0 for zero, infinity and NaN."""
    x = b.flush_input(x)
    bits, mantissa = x.type.bits, MANTISSA_BITS[x.type.bits]

    def exponent(v: Value) -> Value:
        return biased_exponent(b, v) - (exponent_bias(bits) - 1)

    def special() -> Value:
        scaled = b.raw("mul", x, float(2 ** (mantissa + 1)))
        rest = b.select(b.is_denormal(x), exponent(scaled) - (mantissa + 1), b.const("i32", 0))
        return b.select(_ordinary(b, x), exponent(x), rest)

    return b.unlikely(~_ordinary(b, x), exponent(x), special)


def _ordinary(b: Lanes, x: Value) -> Value:
    """b1: a normal number."""
    mantissa, exponent = MANTISSA_BITS[x.type.bits], EXPONENT_BITS[x.type.bits]
    smallest = 1 << mantissa
    return (magnitude_bits(b, x) - smallest) < ((((1 << exponent) - 1) << mantissa) - smallest)


def power_of_two(exponent: Value, type_name: str) -> Value:
    """2**exponent (i32, in the range of normal f32 or f64 numbers)."""
    bits = 32 if type_name == "f32" else 64
    biased = (exponent + exponent_bias(bits)).to(f"i{bits}")
    return (biased << MANTISSA_BITS[bits]).bits(type_name)


def clamp_int(b: Lanes, n: Value, low: int, high: int) -> Value:
    return b.min(b.max(n, low), high)


def ldexp(b: Lanes, x: Value, n: Value) -> Value:
    """x * 2**n with one rounding; n is i32."""
    if x.type.bits == 16:
        return _ldexp_f16(b, x, n)
    name = x.type.name
    bias = exponent_bias(x.type.bits)
    direct = clamp_int(b, n, 1 - bias, bias)
    usual = b.fmul(x, power_of_two(direct, name))

    def far() -> Value:
        source = b.flush_input(x)
        scaled = _ldexp_by_f64(b, source, n) if name == "f32" else _ldexp_in_steps(b, source, n)
        return b.with_nan_rule(b.flush_result(scaled), source)

    return b.unlikely(direct != n, usual, far)


def _ldexp_f16(b: Lanes, x: Value, n: Value) -> Value:
    x = b.flush_input(x)
    scaled = b.raw("mul", x.to("f32"), power_of_two(clamp_int(b, n, -64, 64), "f32"))
    return b.with_nan_rule(b.limit_f16(b.flush_result(scaled.to("f16")), x), x)


def _ldexp_by_f64(b: Lanes, x: Value, n: Value) -> Value:
    return b.raw("mul", x.to("f64"), power_of_two(clamp_int(b, n, -400, 400), "f64")).to("f32")


def _ldexp_in_steps(b: Lanes, x: Value, n: Value) -> Value:
    """f64: two steps that lose nothing unless the last one gives zero or infinity anyway, then the rest of the exponent."""
    up, down = 1023, -1022 + 53
    for _ in range(2):
        high, low = n > 1023, n < -1022
        step = b.select(
            high,
            b.const("f64", math.ldexp(1.0, up)),
            b.select(low, b.const("f64", math.ldexp(1.0, down)), b.const("f64", 1.0)),
        )
        x = b.raw("mul", x, step)
        n = b.select(high, n - up, b.select(low, n - down, n))
    return b.raw("mul", x, power_of_two(clamp_int(b, n, -1022, 1023), "f64"))


def fract(b: Lanes, x: Value) -> Value:
    """x - floor(x), below 1."""
    x = b.flush_input(x)
    name, bits = x.type.name, x.type.bits
    below_one = b.const_bits(name, (exponent_bias(bits) << MANTISSA_BITS[bits]) - 1)
    difference = b.raw("sub", x, b.raw_unary("floor", x))
    difference = b.select(difference >= 1.0, below_one, difference)
    return b.with_nan_rule(b.flush_result(difference), x)


def multiply_legacy(b: Lanes, x: Value, y: Value) -> Value:
    """x * y, but +0 if either is zero, whatever the other."""
    zero = (b.flush_input(x) == 0.0) | (b.flush_input(y) == 0.0)
    return b.select(zero, b.const(x.type.name, 0.0), b.fmul(x, y))


# --- cube maps ---------------------------------------------------------------------------------------------------------


def _by_major_axis(b: Lanes, x: Value, y: Value, z: Value, on_x: Value, on_y: Value, on_z: Value) -> Value:
    """The value of the axis on which (x, y, z) is largest; z before y before x."""
    z_major = (b.fabs(z) >= b.fabs(x)) & (b.fabs(z) >= b.fabs(y))
    return b.select(z_major, on_z, b.select(b.fabs(y) >= b.fabs(x), on_y, on_x))


def cube_face(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    """0 to 5: +x -x +y -y +z -z."""

    def face(axis: Value, number: float) -> Value:
        return b.select(axis < 0.0, b.const("f32", number + 1), b.const("f32", number))

    return _by_major_axis(b, x, y, z, face(x, 0.0), face(y, 2.0), face(z, 4.0))


def cube_s(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    on_x = b.select(x < 0.0, z, b.fneg(z))
    on_z = b.select(z < 0.0, b.fneg(x), x)
    return _by_major_axis(b, x, y, z, on_x, x, on_z)


def cube_t(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    on_y = b.select(y < 0.0, b.fneg(z), z)
    return _by_major_axis(b, x, y, z, b.fneg(y), on_y, b.fneg(y))


def cube_major(b: Lanes, x: Value, y: Value, z: Value) -> Value:
    """Twice the largest coordinate."""
    return b.fmul(_by_major_axis(b, x, y, z, x, y, z), 2.0)
