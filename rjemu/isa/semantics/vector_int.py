"""Integer vector ALU: arithmetic, shifts, logic, moves and lane counts (VOP1, VOP2, VOP3)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.integers import add_carry, clamped, first_or_none, leading_sign_bits, multiply_high, subtract_borrow
from rjemu.isa.lanes import Value
from rjemu.isa.operands import write_vector
from rjemu.isa.semantics.registry import custom, define

# --- add and subtract -------------------------------------------------------------------------------------------------

_Sum = Callable[[Value, Value], Value]


def _add(x: Value, y: Value) -> Value:
    return x + y


def _subtract(x: Value, y: Value) -> Value:
    return x - y


def _subtract_reversed(x: Value, y: Value) -> Value:
    return y - x


for _name, _fn, _types in (
    ("add", _add, ("u16", "i16", "u32", "i32")),
    ("sub", _subtract, ("u16", "i16", "u32", "i32")),
    ("subrev", _subtract_reversed, ("u16", "u32")),
):
    for _type in _types:
        _run = clamped(_type, _fn)
        define(f"v_{_name}_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y, run=_run: run(b, x, y))

define("v_add_co_u32", "u32 mask = u32 u32", add_carry)
define("v_sub_co_u32", "u32 mask = u32 u32", subtract_borrow)
define("v_subrev_co_u32", "u32 mask = u32 u32", lambda b, x, y: subtract_borrow(b, y, x))
define("v_addc_co_u32", "u32 mask = u32 u32 mask", add_carry)
define("v_subb_co_u32", "u32 mask = u32 u32 mask", subtract_borrow)
define("v_subbrev_co_u32", "u32 mask = u32 u32 mask", lambda b, x, y, borrow: subtract_borrow(b, y, x, borrow))
define("v_add3_u32", "u32 = u32 u32 u32", lambda b, x, y, z: x + y + z)
define("v_xad_u32", "u32 = u32 u32 u32", lambda b, x, y, z: (x ^ y) + z)

# --- multiply ---------------------------------------------------------------------------------------------------------


def _low24(x: Value) -> Value:
    """The low 24 bits, extended by the type's sign."""
    return (x << 8) >> 8


_product = {name: clamped(name, lambda x, y: x * y) for name in ("u16", "i32", "u32")}
_multiply_add = {name: clamped(name, lambda x, y, z: x * y + z) for name in ("u16", "i16", "i32", "u32")}


def _multiply_add_u64(b: Context, x: Value, y: Value, addend: Value) -> tuple[Value, Value]:
    """In halves, as `_shift_add_u64`. A product's upper half is never all ones, so that adding a carry cannot overflow."""
    product = x * y
    low = product + b.low32(addend)
    carry = (low < product).to("u32")
    high = multiply_high(x, y) + carry
    total = high + b.high32(addend)
    out = total < high
    result = b.join64(low, total)
    return (b.select(out, -1, result) if b.instr.mod("clamp") else result), out


def _multiply_add_i64(b: Context, x: Value, y: Value, addend: Value) -> tuple[Value, Value]:
    """The carry is bit 64 of the exact sum, its sign."""
    product = x.to("i64") * y.to("i64")
    total = product + addend
    overflow = ((product ^ total) & (addend ^ total)) < 0
    negative = (total < 0) ^ overflow
    if b.instr.mod("clamp"):
        total = b.select(overflow, b.select(negative, b.const("i64", -(1 << 63)), (1 << 63) - 1), total)
    return total, negative


define("v_mul_lo_u16", "u16 = u16 u16", _product["u16"])
define("v_mul_lo_u32", "u32 = u32 u32", lambda b, x, y: x * y)
define("v_mul_hi_u32", "u32 = u32 u32", lambda b, x, y: multiply_high(x, y))
define("v_mul_hi_i32", "i32 = i32 i32", lambda b, x, y: multiply_high(x, y))
define("v_mul_i32_i24", "i32 = i32 i32", lambda b, x, y: _product["i32"](b, _low24(x), _low24(y)))
define("v_mul_u32_u24", "u32 = u32 u32", lambda b, x, y: _product["u32"](b, _low24(x), _low24(y)))
define("v_mul_hi_i32_i24", "i32 = i32 i32", lambda b, x, y: multiply_high(_low24(x), _low24(y)))
define("v_mul_hi_u32_u24", "u32 = u32 u32", lambda b, x, y: multiply_high(_low24(x), _low24(y)))
define("v_mad_i32_i24", "i32 = i32 i32 i32", lambda b, x, y, z: _multiply_add["i32"](b, _low24(x), _low24(y), z))
define("v_mad_u32_u24", "u32 = u32 u32 u32", lambda b, x, y, z: _multiply_add["u32"](b, _low24(x), _low24(y), z))
define("v_mad_i32_i16", "i32 = i16 i16 i32", _multiply_add["i32"])
define("v_mad_u32_u16", "u32 = u16 u16 u32", _multiply_add["u32"])
define("v_mad_u16", "u16 = u16 u16 u16", _multiply_add["u16"], keep_high=True)
define("v_mad_i16", "i16 = i16 i16 i16", _multiply_add["i16"], keep_high=True)
define("v_mad_legacy_u16", "u16 = u16 u16 u16", _multiply_add["u16"])
define("v_mad_legacy_i16", "i16 = i16 i16 i16", _multiply_add["i16"])
define("v_mad_u64_u32", "u64 mask = u32 u32 u64", _multiply_add_u64)
define("v_mad_i64_i32", "i64 mask = i32 i32 i64", _multiply_add_i64)

# --- minimum, maximum, median -----------------------------------------------------------------------------------------


def _median(b: Context, x: Value, y: Value, z: Value) -> Value:
    return b.max(b.min(x, y), b.min(b.max(x, y), z))


for _type in ("u16", "i16", "u32", "i32"):
    define(f"v_min_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.min(x, y))
    define(f"v_max_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.max(x, y))
    _three = f"{_type} = {_type} {_type} {_type}"
    define(f"v_min3_{_type}", _three, lambda b, x, y, z: b.min(b.min(x, y), z))
    define(f"v_max3_{_type}", _three, lambda b, x, y, z: b.max(b.max(x, y), z))
    define(f"v_med3_{_type}", _three, _median)

# --- shifts and logic -------------------------------------------------------------------------------------------------

for _name, _type, _amount in (
    ("v_lshlrev_b16", "u16", "u16"),
    ("v_lshlrev_b32", "u32", "u32"),
    ("v_lshlrev_b64", "u64", "u32"),
):
    define(_name, f"{_type} = {_amount} {_type}", lambda b, n, x: x << n.to(x.type.name))
for _name, _type, _amount in (
    ("v_lshrrev_b16", "u16", "u16"),
    ("v_lshrrev_b32", "u32", "u32"),
    ("v_lshrrev_b64", "u64", "u32"),
    ("v_ashrrev_i16", "i16", "u16"),
    ("v_ashrrev_i32", "i32", "u32"),
    ("v_ashrrev_i64", "i64", "u32"),
):
    define(_name, f"{_type} = {_amount} {_type}", lambda b, n, x: x >> n.to(x.type.name))

define("v_and_b32", "u32 = u32 u32", lambda b, x, y: x & y)
define("v_or_b32", "u32 = u32 u32", lambda b, x, y: x | y)
define("v_xor_b32", "u32 = u32 u32", lambda b, x, y: x ^ y)
define("v_xnor_b32", "u32 = u32 u32", lambda b, x, y: ~(x ^ y))
define("v_not_b32", "u32 = u32", lambda b, x: ~x)
define("v_or3_b32", "u32 = u32 u32 u32", lambda b, x, y, z: x | y | z)
define("v_and_or_b32", "u32 = u32 u32 u32", lambda b, x, y, z: (x & y) | z)
define("v_lshl_or_b32", "u32 = u32 u32 u32", lambda b, x, n, z: (x << n) | z)
define("v_lshl_add_u32", "u32 = u32 u32 u32", lambda b, x, n, z: (x << n) + z)
define("v_add_lshl_u32", "u32 = u32 u32 u32", lambda b, x, y, n: (x + y) << n)


def _shift_add_u64(b: Context, x: Value, n: Value, z: Value) -> Value:
    """A shift count is 0 to 4; the three bits' other values shift by 0 (CDNA4 ISA, V_LSHL_ADD_U64).

    Done in halves, because 64-bit lanes would have to be put together and taken apart again.
    """
    count = n & 7
    count = b.select(count > 4, 0, count)
    low, carried = b.low32(x) << count, (b.low32(x) >> 1) >> (31 - count)
    high = (b.high32(x) << count) | carried
    total = low + b.low32(z)
    carry = (total < low).to("u32")
    return b.join64(total, high + b.high32(z) + carry)


define("v_lshl_add_u64", "u64 = u64 u32 u64", _shift_add_u64)

# --- moves, counts, selection -----------------------------------------------------------------------------------------

define("v_mov_b32", "u32 = u32", lambda b, x: x)
define("v_mov_b64", "u64 = u64", lambda b, x: x)
define("v_bfrev_b32", "u32 = u32", lambda b, x: b.bit_reverse(x))
define("v_ffbh_u32", "i32 = u32", lambda b, x: first_or_none(b, b.clz(x)))
define("v_ffbl_b32", "i32 = u32", lambda b, x: first_or_none(b, b.ctz(x)))
define("v_ffbh_i32", "i32 = i32", leading_sign_bits)
define("v_bcnt_u32_b32", "u32 = u32 u32", lambda b, x, y: b.popcount(x) + y)
# The sources are floats as far as abs and neg are concerned; the chosen one passes unchanged.
define("v_cndmask_b32", "f32 = f32 f32 mask", lambda b, x, y, mask: b.select(mask, y, x), modifiers=False)


@custom("v_swap_b32")
def _swap(b: Context) -> None:
    first, second = b.instr.operand("vdst"), b.instr.operand("src0")
    x, y = b.vgpr(first), b.vgpr(second)
    write_vector(b, first, y)
    write_vector(b, second, x)


@custom("v_nop")
def _nothing(b: Context) -> None:
    """No effect."""


@custom("v_clrexcp")
def _clear_exceptions(b: Context) -> None:
    """TRAPSTS.EXCP is bits 8:0."""
    b.set_hardware("trapsts", b.hardware("trapsts") & 0xFFFF_FE00)
