"""Floating-point formats narrower than f32: encodings, and conversions from and to f32 on lane vectors.

Conversions work on bit patterns, so that they depend on no rounding or denormal mode: what MODE has to say about a
source is the caller's matter. Facts: CDNA4 ISA, "BF8 / FP8 and Smaller Formats and Conversions"; the patterns of NaNs,
the alignment of random bits (what is shifted out below the normal numbers is lost before they are added) and the overflow
to infinity follow AMD's host emulation of these instructions (amd_hip_ocp_host.hpp of HIP), written after gfx950.
"""

from __future__ import annotations

from dataclasses import dataclass

from rjemu.isa.lanes import Lanes, Value

_F32_MANTISSA = 23
_F32_BIAS = 127
_F32_INFINITY = 0x7F800000
_F32_NAN = 0x7FC00000
_HIDDEN_BIT = 1 << _F32_MANTISSA
_EXPONENT_OFFSET = 32
"""Added to the exponent of an f32 while a denormal is brought to normal form, so that it stays positive."""


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A format: sign, `exponent` bits, `mantissa` bits. Codes are unsigned, the magnitudes here without their sign.

    largest: the largest finite magnitude. infinity: None where the format has none. nan: what a NaN becomes; None where
    the format has no NaN. overflow: what a result that is too large becomes without saturation. fnuz: one zero, and NaN
    is the code of -0.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    fnuz: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def overflow(self) -> int:
        if self.infinity is not None:
            return self.infinity
        return self.largest if self.nan is None else self.nan


FP8 = SmallFloat(4, 3, 7, largest=0x7E, nan=0x7F)
BF8 = SmallFloat(5, 2, 15, largest=0x7B, infinity=0x7C, nan=0x7E)
FP8_FNUZ = SmallFloat(4, 3, 8, largest=0x7F, nan=0x80, fnuz=True)
BF8_FNUZ = SmallFloat(5, 2, 16, largest=0x7F, nan=0x80, fnuz=True)
FP6 = SmallFloat(2, 3, 1, largest=0x1F)
BF6 = SmallFloat(3, 2, 3, largest=0x1F)
FP4 = SmallFloat(2, 1, 1, largest=0x7)
F16 = SmallFloat(5, 10, 15, largest=0x7BFF, infinity=0x7C00, nan=0x7FFF)
BF16 = SmallFloat(8, 7, 127, largest=0x7F7F, infinity=0x7F80, nan=0x7FFF)


def format_of(name: str, target: str) -> SmallFloat:
    """The format that fp8, bf8, fp6, bf6, fp4, f16 or bf16 means on a target: gfx942's 8-bit formats are the FNUZ ones."""
    if target == "gfx942" and name in ("fp8", "bf8"):
        return {"fp8": FP8_FNUZ, "bf8": BF8_FNUZ}[name]
    return {"fp8": FP8, "bf8": BF8, "fp6": FP6, "bf6": BF6, "fp4": FP4, "f16": F16, "bf16": BF16}[name]


@dataclass(frozen=True, slots=True)
class Scale:
    """A block scale 2^exponent: i32 exponent -127 to 127, and b1 `nan` where it is no number."""

    exponent: Value
    nan: Value


def e8m0_scale(operand: Value) -> Scale:
    """The scale that an f32 operand carries in its exponent field (bits 30:23, as u32): 255 means NaN."""
    byte = (operand >> _F32_MANTISSA) & 0xFF
    return Scale(byte.bits("i32") - _F32_BIAS, byte == 0xFF)


@dataclass(frozen=True, slots=True)
class Stochastic:
    """Stochastic rounding: the random number (u32), and the mantissa bits of the source's own format.

    The random number's leading bits are added below the kept mantissa bits, down to the source's last one.
    """

    random: Value
    source_mantissa: int = _F32_MANTISSA


def narrow(
    b: Lanes,
    x: Value,
    fmt: SmallFloat,
    *,
    scale: Scale | None = None,
    stochastic: Stochastic | None = None,
    saturate: bool = False,
) -> Value:
    """The code (u32) of x / 2^scale in `fmt`, rounded to nearest even or stochastically.

    x: f32 (or a narrower format's value widened). saturate: too large a result becomes the largest finite value; so
    does an infinity, except in f16 and bf16, whose infinities stay.
    """
    bits = x.bits("u32")
    magnitude = bits & 0x7FFFFFFF
    normal = _normal_form(b, magnitude)
    fraction = normal & (_HIDDEN_BIT - 1)
    rebias = fmt.bias - _F32_BIAS - _EXPONENT_OFFSET
    exponent = (normal >> _F32_MANTISSA).bits("i32") + rebias
    if scale is not None:
        exponent = exponent - scale.exponent
    aligned = _aligned(b, exponent, fraction, fmt, sticky=stochastic is None)
    dropped = _F32_MANTISSA - fmt.mantissa
    if stochastic is None:
        code = (aligned + ((1 << (dropped - 1)) - 1) + ((aligned >> dropped) & 1)) >> dropped
    else:
        kept = 0xFFFFFFFF ^ ((1 << (_F32_MANTISSA - stochastic.source_mantissa)) - 1)
        code = ((aligned & kept) + ((stochastic.random >> (32 - dropped)) & kept)) >> dropped
    overflow = b.const("u32", fmt.largest if saturate else fmt.overflow)
    code = b.select(code > fmt.largest, overflow, code)
    code = b.select(magnitude == 0, 0, code)
    if fmt in (F16, BF16):
        assert fmt.infinity is not None
        overflow = b.const("u32", fmt.infinity)
    code = b.select(magnitude >= _F32_INFINITY, overflow, code)
    signed = code | _sign(bits, fmt)
    if fmt.fnuz:
        signed = b.select((code == 0) | (code == fmt.sign), code, signed)
    is_nan = magnitude > _F32_INFINITY
    if scale is not None:
        is_nan = is_nan | scale.nan
    return b.unlikely(is_nan, signed, lambda: b.select(is_nan, _nan_code(bits, fmt), signed))


def _sign(bits: Value, fmt: SmallFloat) -> Value:
    return (bits >> (32 - fmt.bits)) & fmt.sign


def _nan_code(bits: Value, fmt: SmallFloat) -> Value | int:
    if fmt.fnuz:
        return fmt.sign
    return _sign(bits, fmt) | (fmt.largest if fmt.nan is None else fmt.nan)


def _normal_form(b: Lanes, magnitude: Value) -> Value:
    """u32: exponent + _EXPONENT_OFFSET over the 23 fraction bits, denormals brought to normal form. 0 gives nonsense."""
    usual = magnitude + (_EXPONENT_OFFSET << _F32_MANTISSA)
    denormal = (magnitude - 1) < (_HIDDEN_BIT - 1)

    def shifted() -> Value:
        shift = b.clz(magnitude) - 8
        value = ((magnitude << shift) & (_HIDDEN_BIT - 1)) | ((_EXPONENT_OFFSET + 1 - shift) << _F32_MANTISSA)
        return b.select(denormal, value, usual)

    return b.unlikely(denormal, usual, shifted)


def _aligned(b: Lanes, exponent: Value, fraction: Value, fmt: SmallFloat, *, sticky: bool) -> Value:
    """u32: the biased exponent over a 23-bit mantissa, as `fmt` has them before rounding.

    Below the format's normal numbers the exponent is 0 and the mantissa is shifted right; with `sticky`, bits that fall
    out are remembered in the last one.
    """
    ceiling = b.const("i32", 1 << fmt.exponent)
    high = b.min(exponent, ceiling).bits("u32")
    normal = (high << _F32_MANTISSA) | fraction
    significand = fraction | _HIDDEN_BIT
    shift = b.min(1 - exponent, 31).bits("u32")
    denormal = significand >> shift
    if sticky:
        denormal = denormal | ((denormal << shift) != significand).to("u32")
    return b.select(exponent > 0, normal, denormal)


def widen(b: Lanes, code: Value, fmt: SmallFloat, *, scale: Scale | None = None) -> Value:
    """f32: the value of a code (u32, no bits above the format's) times 2^scale.

    The result is exact, denormals included; above f32's range it is infinite. A NaN is the quiet one of the code's sign.
    """
    magnitude = code & (fmt.sign - 1)
    raised = magnitude << (_F32_MANTISSA - fmt.mantissa)
    normal = raised + ((_F32_BIAS - fmt.bias) << _F32_MANTISSA)
    hidden = (_F32_BIAS + 1 - fmt.bias) << _F32_MANTISSA
    denormal = b.raw("sub", (raised + hidden).bits("f32"), b.const_bits("f32", hidden)).bits("u32") & 0x7FFFFFFF
    bits = b.select(magnitude < (1 << fmt.mantissa), denormal, normal)
    if scale is not None:
        bits = _scaled(b, bits, scale.exponent)
    if fmt.infinity is not None:
        bits = b.select(magnitude == fmt.infinity, _F32_INFINITY, bits)
    is_nan = _is_nan(code, magnitude, fmt)
    if scale is not None:
        is_nan = scale.nan if is_nan is None else is_nan | scale.nan
    if is_nan is not None:
        bits = b.select(is_nan, b.const("u32", _F32_NAN), bits)
    return (bits | ((code & fmt.sign) << (32 - fmt.bits))).bits("f32")


def _is_nan(code: Value, magnitude: Value, fmt: SmallFloat) -> Value | None:
    if fmt.fnuz:
        return code == fmt.sign
    if fmt.nan is None:
        return None
    return magnitude > (fmt.largest if fmt.infinity is None else fmt.infinity)


def _scaled(b: Lanes, bits: Value, exponent: Value) -> Value:
    """The f32 pattern `bits` (positive, zero or normal, few significant bits) times 2^exponent."""
    total = (bits >> _F32_MANTISSA).bits("i32") + exponent
    usual = b.select(bits == 0, 0, bits + (exponent.bits("u32") << _F32_MANTISSA))
    outside = ((total - 1).bits("u32") >= 254) & (bits != 0)

    def rare() -> Value:
        significand = (bits & (_HIDDEN_BIT - 1)) | _HIDDEN_BIT
        denormal = significand >> b.min(1 - total, 31).bits("u32")
        extreme = b.select(total > 0, b.const("u32", _F32_INFINITY), denormal)
        return b.select(outside, extreme, usual)

    return b.unlikely(outside, usual, rare)


def bf16_to_f32(code: Value) -> Value:
    """f32 of a bf16 pattern in a u32's low half."""
    return (code << 16).bits("f32")


def f32_to_bf16(b: Lanes, x: Value) -> Value:
    """u32: the bf16 pattern nearest to an f32, ties to even. A NaN keeps its sign and upper payload, quieted."""
    bits = x.bits("u32")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > _F32_INFINITY
    return b.unlikely(is_nan, rounded, lambda: b.select(is_nan, (bits >> 16) | 0x40, rounded))
