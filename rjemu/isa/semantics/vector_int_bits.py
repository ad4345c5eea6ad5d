"""Integer vector ALU: bit fields, three-input logic, byte permutation, sums of absolute differences (VOP3)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.instruction import Operand
from rjemu.isa.integers import mask_of, saturate
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, write_mask
from rjemu.isa.semantics.registry import custom, define

# --- bit fields -------------------------------------------------------------------------------------------------------


def _extract_signed(b: Context, x: Value, offset: Value, width: Value) -> Value:
    count = (width & 31).bits("i32")
    unused = 32 - count
    part = ((x >> offset.bits("i32")) << unused) >> unused
    return b.select(count == 0, 0, part)


def _align_bits(b: Context, high: Value, low: Value, count: Value) -> Value:
    """The low dword of (high, low) >> count; high moves in two steps because a count may be 0."""
    return (low >> count) | ((high << 1) << (31 - (count & 31)))


define("v_bfe_u32", "u32 = u32 u32 u32", lambda b, x, offset, width: (x >> offset) & mask_of(b, width))
define("v_bfe_i32", "i32 = i32 u32 u32", _extract_signed)
define("v_bfi_b32", "u32 = u32 u32 u32", lambda b, mask, x, y: (mask & x) | (~mask & y))
define("v_bfm_b32", "u32 = u32 u32", lambda b, width, offset: mask_of(b, width) << offset)
define("v_alignbit_b32", "u32 = u32 u32 u32", _align_bits)
define("v_alignbyte_b32", "u32 = u32 u32 u32", lambda b, high, low, n: _align_bits(b, high, low, (n & 3) << 3))

# --- three-input logic ------------------------------------------------------------------------------------------------


TWO_INPUT_LOGIC: tuple[Callable[[Value, Value], Value], ...] = (
    lambda y, z: y ^ y,
    lambda y, z: ~(y | z),
    lambda y, z: ~y & z,
    lambda y, z: ~y,
    lambda y, z: y & ~z,
    lambda y, z: ~z,
    lambda y, z: y ^ z,
    lambda y, z: ~(y & z),
    lambda y, z: y & z,
    lambda y, z: ~(y ^ z),
    lambda y, z: z,
    lambda y, z: ~y | z,
    lambda y, z: y,
    lambda y, z: y | ~z,
    lambda y, z: y | z,
    lambda y, z: ~(y ^ y),
)
"""By truth table: bit 2 * y + z of the index is the result."""


def _three_input_logic(b: Context, x: Value, y: Value, z: Value) -> Value:
    """Bit 4 * x + 2 * y + z of the instruction's truth table, for every bit."""
    table = b.instr.mod("bitop3")
    return (x & TWO_INPUT_LOGIC[table >> 4](y, z)) | (~x & TWO_INPUT_LOGIC[table & 15](y, z))


define("v_bitop3_b32", "u32 = u32 u32 u32", _three_input_logic)
define("v_bitop3_b16", "u16 = u16 u16 u16", _three_input_logic)

# --- bytes ------------------------------------------------------------------------------------------------------------


def _byte(x: Value, k: int) -> Value:
    return (x >> 8 * k) & 0xFF


def _permute_bytes(b: Context, high: Value, low: Value, selector: Value) -> Value:
    """Each selector byte names a byte of (high, low), a sign, 0x00 or 0xff."""

    def named(k: int) -> Value:
        choice = selector >> 8 * k
        word = b.select((choice & 4) != 0, high, low)
        return (word >> (choice << 3)) & 0xFF

    def constant(k: int) -> Value:
        """Selector bytes from 8 on: the signs of bytes 1, 3, 5 and 7, then 0x00 for 12 and 0xff above."""
        choice = _byte(selector, k)
        word = b.select((choice & 2) != 0, high, low)
        sign = (word >> (15 + ((choice & 1) << 4))) & 1
        return b.select(choice < 12, sign * 0xFF, b.select(choice == 12, 0, b.const("u32", 0xFF)))

    def joined(byte: Callable[[int], Value]) -> Value:
        return byte(0) | (byte(1) << 8) | (byte(2) << 16) | (byte(3) << 24)

    usual = joined(named)

    def general() -> Value:
        return joined(lambda k: b.select(_byte(selector, k) < 8, _byte(usual, k), constant(k)))

    return b.unlikely((selector & 0xF8F8F8F8) != 0, usual, general)


def _lerp(b: Context, x: Value, y: Value, rounding: Value) -> Value:
    """Per byte (x + y + rounding bit 0) >> 1: what both have, and half of what one has."""
    differ = x ^ y
    return (x & y) + ((differ >> 1) & 0x7F7F7F7F) + (differ & rounding & 0x01010101)


define("v_perm_b32", "u32 = u32 u32 u32", _permute_bytes)
define("v_lerp_u8", "u32 = u32 u32 u32", _lerp)

# --- sums of absolute differences -------------------------------------------------------------------------------------

Difference = Callable[[Context, Value, Value], Value]
"""(context, x, y) -> the sum for one pair of dwords, before the addend."""


def _absolute_difference(b: Context, x: Value, y: Value) -> Value:
    return b.max(x, y) - b.min(x, y)


def _sum(parts: list[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _bytes_difference(b: Context, x: Value, y: Value) -> Value:
    return _sum([_absolute_difference(b, _byte(x, k), _byte(y, k)) for k in range(4)])


def _masked_bytes_difference(b: Context, x: Value, y: Value) -> Value:
    """Bytes whose y is 0 do not count."""
    parts = []
    for k in range(4):
        reference = _byte(y, k)
        parts.append(b.select(reference == 0, 0, _absolute_difference(b, _byte(x, k), reference)))
    return _sum(parts)


def _halves_difference(b: Context, x: Value, y: Value) -> Value:
    return _absolute_difference(b, x & 0xFFFF, y & 0xFFFF) + _absolute_difference(b, x >> 16, y >> 16)


def _accumulate(b: Context, difference: Value, addend: Value, type_name: str = "u32") -> Value:
    """difference + addend in the type, saturated under clamp."""
    if b.instr.mod("clamp"):
        return saturate(b, difference.to("i64") + addend.to("i64"), type_name)
    return difference.to(type_name) + addend.to(type_name)


def _accumulating(difference: Difference) -> Callable[..., Value]:
    return lambda b, x, y, addend: _accumulate(b, difference(b, x, y), addend)


def _high_bytes_difference(b: Context, x: Value, y: Value) -> Value:
    return _bytes_difference(b, x, y) << 16


define("v_sad_u8", "u32 = u32 u32 u32", _accumulating(_bytes_difference))
define("v_sad_hi_u8", "u32 = u32 u32 u32", _accumulating(_high_bytes_difference))
define("v_sad_u16", "u32 = u32 u32 u32", _accumulating(_halves_difference))
define("v_sad_u32", "u32 = u32 u32 u32", _accumulating(_absolute_difference))
define("v_msad_u8", "u32 = u32 u32 u32", _accumulating(_masked_bytes_difference))


def _windows(x: Value) -> list[Value]:
    """The four dwords of a u64 that start at its bytes 0 to 3."""
    return [(x >> 8 * k).to("u32") for k in range(4)]


def _packed(difference: Difference) -> Callable[..., Value]:
    """Four 16-bit sums side by side."""

    def run(b: Context, x: Value, y: Value, addend: Value) -> Value:
        result = b.const("u64", 0)
        for k, window in enumerate(_windows(x)):
            total = _accumulate(b, difference(b, window, y), (addend >> 16 * k).to("u16"), "u16")
            result = result | (total.to("u64") << 16 * k)
        return result

    return run


define("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", _packed(_bytes_difference))
define("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", _packed(_masked_bytes_difference))


@custom("v_mqsad_u32_u8")
def _four_masked_sums(b: Context) -> None:
    def operand(name: str) -> Operand:
        return b.instr.operand(name)

    windows = _windows(raw_source(b, operand("src0"), "u64"))
    reference = raw_source(b, operand("src1"), "u32")
    addends = [b.vgpr(operand("src2"), k) for k in range(4)]
    sums = [
        _accumulate(b, _masked_bytes_difference(b, window, reference), addend)
        for window, addend in zip(windows, addends, strict=True)
    ]
    mask = write_mask(b)
    for k, total in enumerate(sums):
        b.set_vgpr(operand("vdst"), k, total, mask)


# --- packing with saturation ------------------------------------------------------------------------------------------


def _saturate_pair(b: Context, x: Value) -> Value:
    low, high = (saturate(b, (x >> shift).to("u16").bits("i16"), "u8").to("u16") for shift in (0, 16))
    return low | (high << 8)


define("v_sat_pk_u8_i16", "u16 = u32", _saturate_pair)
