"""Base-2 exponential and logarithm, sine and cosine, reciprocals and roots of f32 lane vectors.

Only correctly rounded steps are used, so that both executors give the same bits. The instructions round to nearest
whatever MODE says (`FpMode.rounding_of`). Accuracy and special values are those of the CDNA3 and CDNA4 ISA documents
(VOP1 opcodes): at most 1 ulp, denormal sources count as zero and denormal results become zero (not for sine and cosine).
The polynomials come from scripts/fit_transcendentals.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rjemu.isa.lanes import Lanes, Value

EXP2 = (
    1.0,
    0.6931471824645996,
    0.24022647738456726,
    0.05550359934568405,
    0.009618505835533142,
    0.0013390806270763278,
    0.0001532646274426952,
)
"""2**r on [-1/2, 1/2]."""

LOG2_E_HIGH = float.fromhex("0x1.715476p+0")
LOG2_E_LOW = float.fromhex("0x1.4ae0c0p-26")
LOG2_REST = (
    -0.7213473320007324,
    0.4808982014656067,
    -0.3606986701488495,
    0.28857141733169556,
    -0.2395673543214798,
    0.20448657870292664,
    -0.19139085710048676,
    0.1870882213115692,
    -0.11025575548410416,
)
"""(log2(1 + f) - f log2(e)) / f**2 on [sqrt(1/2) - 1, sqrt(2) - 1]."""

TWO_PI_HIGH = float.fromhex("0x1.921fb4p+2")
SINE_REST = (
    2.816453843479394e-07,
    -41.3416633605957,
    81.59268951416016,
    -75.40755462646484,
)
"""(sin(2 pi r) - r TWO_PI_HIGH) / r as a polynomial in r**2, for r on [-1/8, 1/8]."""
COSINE_REST = (
    -19.739208221435547,
    64.93914031982422,
    -85.4231185913086,
    58.561214447021484,
)
"""(cos(2 pi r) - 1) / r**2 as a polynomial in r**2, for r on [-1/8, 1/8]."""

_ROUND_TO_INTEGER = 1.5 * 2**23
"""An integral f32 plus this has the integer in its low bits."""
_SQRT_HALF_BITS = 0x3F3504F3
_MIN_NORMAL = 0x0080_0000
_INFINITY = 0x7F80_0000
_MAGNITUDE = 0x7FFF_FFFF
_TWO_TO_126 = 0x7E80_0000


def polynomial(b: Lanes, coefficients: Sequence[float], x: Value) -> Value:
    """Horner's scheme with fused steps; the coefficient of x**0 comes first."""
    total = b.const(x.type.name, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = b.raw_fma(total, x, c)
    return total


def exp2(b: Lanes, x: Value) -> Value:
    """2**x; exact at integers."""
    whole = b.raw_unary("rint", x)
    power = polynomial(b, EXP2, b.raw("sub", x, whole))
    exponent = b.raw("add", whole, _ROUND_TO_INTEGER).bits("u32") << 23
    result = (power.bits("u32") + exponent).bits("f32")
    result = b.select(x < -126.0, b.const("f32", 0.0), result)
    result = b.select(x >= 128.0, b.const("f32", float("inf")), result)
    return b.select(b.isnan(x), b.quiet(x), result)


def log2(b: Lanes, x: Value) -> Value:
    """log2(x); exact at powers of two. NaN below zero."""
    offset = x.bits("u32") - _SQRT_HALF_BITS
    exponent = (offset.bits("i32") >> 23).to("f32")
    mantissa = ((offset & 0x007F_FFFF) + _SQRT_HALF_BITS).bits("f32")
    f = b.raw("sub", mantissa, 1.0)
    leading = b.raw("mul", f, LOG2_E_HIGH)
    lost = b.raw_fma(f, LOG2_E_LOW, b.raw_fma(f, LOG2_E_HIGH, b.fneg(leading)))
    rest = b.raw_fma(b.raw("mul", f, f), polynomial(b, LOG2_REST, f), lost)
    total = b.raw("add", exponent, leading)
    lost = b.raw("sub", leading, b.raw("sub", total, exponent))
    result = b.raw("add", total, b.raw("add", lost, rest))

    def special() -> Value:
        zero = (x.bits("u32") & _MAGNITUDE) < _MIN_NORMAL
        out = b.select(x == float("inf"), x, b.select(x < 0.0, b.default_nan("f32"), result))
        out = b.select(zero, b.const("f32", float("-inf")), out)
        return b.select(b.isnan(x), b.quiet(x), out)

    return b.unlikely(~_positive_normal(x), result, special)


def reciprocal(b: Lanes, x: Value) -> Value:
    """1 / x."""
    usual = b.raw("div", 1.0, x)

    def special() -> Value:
        return b.select(b.isnan(x), b.quiet(x), b.flush(b.raw("div", 1.0, b.flush(x))))

    ordinary = ((x.bits("u32") & _MAGNITUDE) - _MIN_NORMAL) <= (_TWO_TO_126 - _MIN_NORMAL)
    return b.unlikely(~ordinary, usual, special)


def square_root(b: Lanes, x: Value) -> Value:
    """sqrt(x); NaN below zero."""
    return _of_positive(b, x, b.raw_unary("sqrt", x), lambda y: b.raw_unary("sqrt", y))


def reciprocal_root(b: Lanes, x: Value) -> Value:
    """1 / sqrt(x); NaN below zero."""
    quotient = b.raw("div", 1.0, b.raw_unary("sqrt", x))
    return _of_positive(b, x, _refined_root(b, x, quotient), lambda y: b.raw("div", 1.0, b.raw_unary("sqrt", y)))


def _refined_root(b: Lanes, x: Value, y: Value) -> Value:
    """y = 1 / sqrt(x) after one Newton step, whose residual 1 - x y**2 has twice the precision. (The quotient 1 / sqrt(x)
    alone is off by up to 1.5 ulp.)"""
    root = b.raw("mul", x, y)
    lost = b.raw_fma(x, y, b.fneg(root))
    residual = b.raw_fma(lost, b.fneg(y), b.raw_fma(root, b.fneg(y), 1.0))
    return b.raw_fma(b.raw("mul", y, 0.5), residual, y)


def sine(b: Lanes, x: Value) -> Value:
    """sin(2 pi x); exact at multiples of 1/4. Denormals are kept."""
    turn = b.raw("sub", x, b.raw_unary("rint", x))
    return b.with_nan_rule(b.select(x == 0.0, x, _sine_of_turn(b, turn, 0)), x)


def cosine(b: Lanes, x: Value) -> Value:
    """cos(2 pi x); exact at multiples of 1/4."""
    turn = b.raw("sub", x, b.raw_unary("rint", x))
    return b.with_nan_rule(_sine_of_turn(b, turn, 1), x)


def _sine_of_turn(b: Lanes, turn: Value, quarters: int) -> Value:
    """sin(2 pi (turn + quarters / 4)) for |turn| <= 1/2; zeros are +0."""
    nearest = b.raw_unary("rint", b.raw("mul", turn, 4.0))
    r = b.raw_fma(nearest, -0.25, turn)
    quadrant = b.raw("add", nearest, _ROUND_TO_INTEGER).bits("u32") + quarters
    negative = (quadrant & 2) != 0
    r_squared = b.raw("mul", r, r)
    cosine_ = b.raw_fma(r_squared, polynomial(b, COSINE_REST, r_squared), 1.0)
    cosine_ = b.select(negative, b.fneg(cosine_), cosine_)
    r = b.select(negative, b.raw("sub", 0.0, r), r)
    sine_ = b.raw_fma(r, TWO_PI_HIGH, b.raw("mul", r, polynomial(b, SINE_REST, r_squared)))
    return b.select((quadrant & 1) != 0, cosine_, sine_)


def _positive_normal(x: Value) -> Value:
    return (x.bits("u32") - _MIN_NORMAL) < (_INFINITY - _MIN_NORMAL)


def _of_positive(b: Lanes, x: Value, usual: Value, fn: Callable[[Value], Value]) -> Value:
    """`usual` for positive normal x; else what a square root's special values are: fn of zeros and infinity, NaN below."""

    def special() -> Value:
        y = b.flush(x)
        out = b.select(_positive_normal(x), usual, fn(y))
        return b.select(b.isnan(x), b.quiet(x), b.select(y < 0.0, b.default_nan("f32"), out))

    return b.unlikely(~_positive_normal(x), usual, special)
