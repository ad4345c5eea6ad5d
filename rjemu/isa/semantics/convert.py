"""Conversions between integers, f16, bf16, f32 and f64, and the packing ones (CDNA3 and CDNA4 ISA, VOP1 and VOP3)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.operands import clamp01
from rjemu.isa.semantics.registry import define
from rjemu.isa.smallfloat import F16, bf16_to_f32, f32_to_bf16, narrow

# --- floats to floats -------------------------------------------------------------------------------------------------


def _f32_to_f16(b: Context, x: Value) -> Value:
    source = b.flush_input(x)
    return b.flush_result(b.limit_f16(source.to("f16"), source))


define("v_cvt_f16_f32", "f16 = f32", _f32_to_f16)
define("v_cvt_f32_f16", "f32 = f16", lambda b, x: b.flush_input(x).to("f32"))
define("v_cvt_f32_f64", "f32 = f64", lambda b, x: b.flush_result(b.flush_input(x).to("f32")))
define("v_cvt_f64_f32", "f64 = f32", lambda b, x: b.flush_input(x).to("f64"))


def _f32_of_bf16(b: Context, pattern: Value) -> Value:
    """The pattern with abs and neg, which the operand reader applies to float types only, widened."""
    if b.instr.mod("abs") & 1:
        pattern = pattern & 0x7FFF
    if b.instr.mod("neg") & 1:
        pattern = pattern ^ 0x8000
    return bf16_to_f32(pattern.to("u32"))


define("v_cvt_f32_bf16", "f32 = u16", _f32_of_bf16)

# --- integers to floats -----------------------------------------------------------------------------------------------

define("v_cvt_f32_i32", "f32 = i32", lambda b, x: x.to("f32"))
define("v_cvt_f32_u32", "f32 = u32", lambda b, x: x.to("f32"))
define("v_cvt_f64_i32", "f64 = i32", lambda b, x: x.to("f64"))
define("v_cvt_f64_u32", "f64 = u32", lambda b, x: x.to("f64"))
define("v_cvt_f16_i16", "f16 = i16", lambda b, x: x.to("f16"))
define("v_cvt_f16_u16", "f16 = u16", lambda b, x: b.limit_f16(x.to("f16")))
define("v_cvt_f32_ubyte0", "f32 = u32", lambda b, x: (x & 0xFF).to("f32"))
define("v_cvt_f32_ubyte1", "f32 = u32", lambda b, x: ((x >> 8) & 0xFF).to("f32"))
define("v_cvt_f32_ubyte2", "f32 = u32", lambda b, x: ((x >> 16) & 0xFF).to("f32"))
define("v_cvt_f32_ubyte3", "f32 = u32", lambda b, x: (x >> 24).to("f32"))


def _four_bits_to_f32(b: Context, x: Value) -> Value:
    """Bits 3:0 as a signed number of sixteenths, from -0.5 to 0.4375."""
    signed = (x << 28).bits("i32") >> 28
    return b.raw("mul", signed.to("f32"), 0.0625)


define("v_cvt_off_f32_i4", "f32 = u32", _four_bits_to_f32)

# --- floats to integers: towards zero, saturating, NaN gives 0 --------------------------------------------------------

define("v_cvt_i32_f32", "i32 = f32", lambda b, x: b.float_to_int(x, "i32"))
define("v_cvt_u32_f32", "u32 = f32", lambda b, x: b.float_to_int(x, "u32"))
define("v_cvt_i32_f64", "i32 = f64", lambda b, x: b.float_to_int(x, "i32"))
define("v_cvt_u32_f64", "u32 = f64", lambda b, x: b.float_to_int(x, "u32"))
define("v_cvt_i16_f16", "i16 = f16", lambda b, x: b.float_to_int(x, "i16"))
define("v_cvt_u16_f16", "u16 = f16", lambda b, x: b.float_to_int(x, "u16"))
define("v_cvt_flr_i32_f32", "i32 = f32", lambda b, x: b.float_to_int(b.ffloor(b.flush_input(x)), "i32"))


def _to_nearest_integer(b: Context, x: Value) -> Value:
    """floor(x + 0.5) without a rounding of the sum: halves go up."""
    source = b.flush_input(x)
    below = b.ffloor(source)
    whole = b.float_to_int(below, "i32")
    up = (b.raw("sub", source, below) >= 0.5) & (whole < 0x7FFFFFFF)
    return b.select(up, whole + 1, whole)


define("v_cvt_rpi_i32_f32", "i32 = f32", _to_nearest_integer)


Unary = Callable[[Context, Value], Value]


def _normalized(type_name: str) -> Unary:
    """-1..1 to -32767..32767 (i16) or 0..1 to 0..65535 (u16), to the nearest, ties to even, whatever the mode."""
    largest = 32767 if type_name == "i16" else 65535
    lowest = -largest if type_name == "i16" else 0

    def convert(b: Context, x: Value) -> Value:
        exact = b.raw("mul", b.flush_input(x).to("f64"), float(largest))
        whole = b.float_to_int(b.frint(exact), "i32")
        return b.max(b.min(whole, largest), lowest).to(type_name)

    return convert


define("v_cvt_norm_i16_f16", "i16 = f16", _normalized("i16"))
define("v_cvt_norm_u16_f16", "u16 = f16", _normalized("u16"))

# --- two results in the halves of one register ------------------------------------------------------------------------


def pack16(low: Value, high: Value) -> Value:
    """u32 from two 16-bit values of any type."""
    return low.bits("u16").to("u32") | (high.bits("u16").to("u32") << 16)


def _packed(convert: Unary) -> Callable[[Context, Value, Value], Value]:
    return lambda b, x, y: pack16(convert(b, x), convert(b, y))


def _half_toward_zero(b: Context, x: Value) -> Value:
    """f32 to f16 toward zero: a result beyond the source, whatever the mode made of it, goes one step back."""
    source = b.flush_input(x)
    half = source.to("f16")
    beyond = b.fabs(half.to("f32")) > b.fabs(source)
    result = b.flush_result(b.select(beyond, half.bits("u16") - 1, half.bits("u16")).bits("f16"))
    return _clamped(b, result)


def _half_to_nearest(b: Context, x: Value) -> Value:
    source = b.flush_input(x)
    half = source.to("f16")
    if b.rounding:
        nearest = narrow(b, source, F16).to("u16").bits("f16")
        half = b.select(b.isnan(source), half, nearest)
    return _clamped(b, b.flush_result(b.limit_f16(half, source)))


def _bf16_to_nearest(b: Context, x: Value) -> Value:
    return f32_to_bf16(b, _clamped(b, b.flush_input(x))).to("u16")


def _clamped(b: Context, x: Value) -> Value:
    return clamp01(b, x) if b.instr.mod("clamp") else x


def _saturated(low: int, high: int, type_name: str) -> Unary:
    return lambda b, x: b.max(b.min(x, high), low).to(type_name)


define("v_cvt_pkrtz_f16_f32", "u32 = f32 f32", _packed(_half_toward_zero))
define("v_cvt_pk_f16_f32", "u32 = f32 f32", _packed(_half_to_nearest))
define("v_cvt_pk_bf16_f32", "u32 = f32 f32", _packed(_bf16_to_nearest))
define("v_cvt_pknorm_i16_f32", "u32 = f32 f32", _packed(_normalized("i16")))
define("v_cvt_pknorm_u16_f32", "u32 = f32 f32", _packed(_normalized("u16")))
define("v_cvt_pknorm_i16_f16", "u32 = f16 f16", _packed(_normalized("i16")))
define("v_cvt_pknorm_u16_f16", "u32 = f16 f16", _packed(_normalized("u16")))
define("v_cvt_pk_i16_i32", "u32 = i32 i32", _packed(_saturated(-0x8000, 0x7FFF, "i16")))
define("v_cvt_pk_u16_u32", "u32 = u32 u32", _packed(lambda b, x: b.min(x, 0xFFFF).to("u16")))

# --- bytes ------------------------------------------------------------------------------------------------------------


def _byte_of_f32(b: Context, x: Value) -> Value:
    """u32 0 to 255: rounded as MODE says, saturated; NaN gives 0."""
    rounded = (b.frint, b.fceil, b.ffloor, b.ftrunc)[b.rounding](b.flush_input(x))
    return b.min(b.float_to_int(rounded, "u32"), 0xFF)


def _insert_byte(b: Context, x: Value, position: Value, into: Value) -> Value:
    shift = (position & 3) << 3
    return (into & ~(b.const("u32", 0xFF) << shift)) | (_byte_of_f32(b, x) << shift)


define("v_cvt_pk_u8_f32", "u32 = f32 u32 u32", _insert_byte)
define("v_cvt_pkaccum_u8_f32", "u32 = f32 u32 +u32", _insert_byte)


def _shifted_byte(low: int, high: int) -> Callable[[Context, Value, Value], Value]:
    return lambda b, x, shift: b.max(b.min(x >> shift.bits("i32"), high), low).bits("u32") & 0xFF


def _shift_and_pack(low: int, high: int) -> Callable[[Context, Value, Value, Value], Value]:
    byte = _shifted_byte(low, high)
    return lambda b, x, y, shift: (byte(b, x, shift) | (byte(b, y, shift) << 8)).to("u16")


define("v_ashr_pk_i8_i32", "u16 = i32 i32 u32", _shift_and_pack(-0x80, 0x7F), keep_high=True)
define("v_ashr_pk_u8_i32", "u16 = i32 i32 u32", _shift_and_pack(0, 0xFF), keep_high=True)
