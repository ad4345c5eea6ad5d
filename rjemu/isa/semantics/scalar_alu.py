"""Scalar arithmetic, logic, shifts, bit fields, moves and compares (SOP1, SOP2, SOPC, SOPK)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.integers import first_or_none, leading_sign_bits, mask_of, multiply_high
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import define

Binary = Callable[[Value, Value], Value]

# --- logic and shifts: SCC says whether the result is not zero --------------------------------------------------------

LOGIC: dict[str, Binary] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
}


def _with_nonzero(fn: Callable[..., Value]) -> Callable[..., tuple[Value, Value]]:
    """The result of fn(b, ...), and whether it is not zero."""

    def run(b: Context, *sources: Value) -> tuple[Value, Value]:
        result = fn(b, *sources)
        return result, result != 0

    return run


def _plain(fn: Binary) -> Callable[..., tuple[Value, Value]]:
    return _with_nonzero(lambda b, x, y: fn(x, y))


for _name, _fn in LOGIC.items():
    for _bits in (32, 64):
        define(f"s_{_name}_b{_bits}", f"u{_bits} scc = u{_bits} u{_bits}", _plain(_fn))

for _bits in (32, 64):
    _u, _i = f"u{_bits}", f"i{_bits}"
    define(f"s_lshl_b{_bits}", f"{_u} scc = {_u} u32", _with_nonzero(lambda b, x, n: x << n.to(x.type.name)))
    define(f"s_lshr_b{_bits}", f"{_u} scc = {_u} u32", _with_nonzero(lambda b, x, n: x >> n.to(x.type.name)))
    define(f"s_ashr_{_i}", f"{_i} scc = {_i} u32", _with_nonzero(lambda b, x, n: x >> n.to(x.type.name)))
    define(f"s_not_b{_bits}", f"{_u} scc = {_u}", _with_nonzero(lambda b, x: ~x))

# --- arithmetic: SCC is carry, borrow, signed overflow, or "the first source is the result" ---------------------------


def _add_unsigned(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
    total = x + y
    return total, total < x


def _add_with_carry(b: Context, x: Value, y: Value, carry: Value) -> tuple[Value, Value]:
    total = x.to("u64") + y.to("u64") + carry.to("u64")
    return total.to("u32"), (total >> 32) != 0


def _subtract_with_borrow(b: Context, x: Value, y: Value, borrow: Value) -> tuple[Value, Value]:
    difference = x.to("i64") - y.to("i64") - borrow.to("i64")
    return difference.to("u32"), difference < 0


def _add_signed(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
    total = x + y
    return total, ((x ^ total) & (y ^ total)) < 0


def _subtract_signed(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
    difference = x - y
    return difference, ((x ^ y) & (x ^ difference)) < 0


def _shift_add(amount: int) -> Callable[..., tuple[Value, Value]]:
    def run(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
        total = (x.to("u64") << amount) + y.to("u64")
        return total.to("u32"), (total >> 32) != 0

    return run


def _choose(first: Callable[[Value, Value], Value]) -> Callable[..., tuple[Value, Value]]:
    def run(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
        chosen = first(x, y)
        return b.select(chosen, x, y), chosen

    return run


def _absolute(b: Context, x: Value) -> Value:
    return b.select(x < 0, 0 - x, x)


define("s_add_u32", "u32 scc = u32 u32", _add_unsigned)
define("s_sub_u32", "u32 scc = u32 u32", lambda b, x, y: (x - y, x < y))
define("s_add_i32", "i32 scc = i32 i32", _add_signed)
define("s_sub_i32", "i32 scc = i32 i32", _subtract_signed)
define("s_addc_u32", "u32 scc = u32 u32 scc", _add_with_carry)
define("s_subb_u32", "u32 scc = u32 u32 scc", _subtract_with_borrow)
define("s_addk_i32", "i32 scc = +i32 simm16", _add_signed)
define("s_mulk_i32", "i32 = +i32 simm16", lambda b, x, y: x * y)
define("s_mul_i32", "i32 = i32 i32", lambda b, x, y: x * y)
define("s_mul_hi_u32", "u32 = u32 u32", lambda b, x, y: multiply_high(x, y))
define("s_mul_hi_i32", "i32 = i32 i32", lambda b, x, y: multiply_high(x, y))
define("s_min_i32", "i32 scc = i32 i32", _choose(lambda x, y: x < y))
define("s_min_u32", "u32 scc = u32 u32", _choose(lambda x, y: x < y))
define("s_max_i32", "i32 scc = i32 i32", _choose(lambda x, y: x >= y))
define("s_max_u32", "u32 scc = u32 u32", _choose(lambda x, y: x >= y))
define("s_abs_i32", "i32 scc = i32", _with_nonzero(_absolute))
define("s_absdiff_i32", "i32 scc = i32 i32", _with_nonzero(lambda b, x, y: _absolute(b, x - y)))
for _amount in (1, 2, 3, 4):
    define(f"s_lshl{_amount}_add_u32", "u32 scc = u32 u32", _shift_add(_amount))

# --- bit fields and counts --------------------------------------------------------------------------------------------


def _extract(b: Context, x: Value, field: Value) -> Value:
    """Bits of x from field[5:0] on, field[22:16] wide, extended by the type's sign. All bits for larger widths."""
    name, bits = x.type.name, x.type.bits
    width = b.min((field >> 16) & 0x7F, bits).to(name)
    unused = bits - width
    part = ((x >> field.to(name)) << unused) >> unused
    return b.select(width == 0, 0, part)


def _bit_set(b: Context, position: Value, old: Value) -> Value:
    return old | (b.const(old.type.name, 1) << position.to(old.type.name))


def _bit_clear(b: Context, position: Value, old: Value) -> Value:
    return old & ~(b.const(old.type.name, 1) << position.to(old.type.name))


def _bit(x: Value, position: Value) -> Value:
    return (x >> position.to(x.type.name)) & 1


def _field_mask(b: Context, width: Value, offset: Value, name: str) -> Value:
    return mask_of(b, width.to(name)) << offset.to(name)


def _count(b: Context, x: Value) -> Value:
    return b.popcount(x).to("i32")


define("s_bfe_u32", "u32 scc = u32 u32", _with_nonzero(_extract))
define("s_bfe_i32", "i32 scc = i32 u32", _with_nonzero(_extract))
define("s_bfe_u64", "u64 scc = u64 u32", _with_nonzero(_extract))
define("s_bfe_i64", "i64 scc = i64 u32", _with_nonzero(_extract))
define("s_bfm_b32", "u32 = u32 u32", lambda b, width, offset: _field_mask(b, width, offset, "u32"))
define("s_bfm_b64", "u64 = u32 u32", lambda b, width, offset: _field_mask(b, width, offset, "u64"))
define("s_flbit_i32", "i32 = i32", leading_sign_bits)
define("s_flbit_i32_i64", "i32 = i64", leading_sign_bits)
for _bits in (32, 64):
    _u = f"u{_bits}"
    define(f"s_brev_b{_bits}", f"{_u} = {_u}", lambda b, x: b.bit_reverse(x))
    define(f"s_bcnt0_i32_b{_bits}", f"i32 scc = {_u}", _with_nonzero(lambda b, x: _count(b, ~x)))
    define(f"s_bcnt1_i32_b{_bits}", f"i32 scc = {_u}", _with_nonzero(_count))
    define(f"s_ff0_i32_b{_bits}", f"i32 = {_u}", lambda b, x: first_or_none(b, b.ctz(~x)))
    define(f"s_ff1_i32_b{_bits}", f"i32 = {_u}", lambda b, x: first_or_none(b, b.ctz(x)))
    define(f"s_flbit_i32_b{_bits}", f"i32 = {_u}", lambda b, x: first_or_none(b, b.clz(x)))
    define(f"s_bitset0_b{_bits}", f"{_u} = u32 +{_u}", _bit_clear)
    define(f"s_bitset1_b{_bits}", f"{_u} = u32 +{_u}", _bit_set)
    define(f"s_bitcmp0_b{_bits}", f"scc = {_u} u32", lambda b, x, n: _bit(x, n) == 0)
    define(f"s_bitcmp1_b{_bits}", f"scc = {_u} u32", lambda b, x, n: _bit(x, n) == 1)

# --- moves ------------------------------------------------------------------------------------------------------------

define("s_mov_b32", "u32 = u32", lambda b, x: x)
define("s_mov_b64", "u64 = u64", lambda b, x: x)
define("s_movk_i32", "i32 = simm16", lambda b, k: k)
define("s_cmov_b32", "u32 = scc u32 +u32", lambda b, scc, x, old: b.select(scc, x, old))
define("s_cmov_b64", "u64 = scc u64 +u64", lambda b, scc, x, old: b.select(scc, x, old))
define("s_cmovk_i32", "i32 = scc simm16 +i32", lambda b, scc, k, old: b.select(scc, k, old))
define("s_cselect_b32", "u32 = scc u32 u32", lambda b, scc, x, y: b.select(scc, x, y))
define("s_cselect_b64", "u64 = scc u64 u64", lambda b, scc, x, y: b.select(scc, x, y))
define("s_sext_i32_i8", "i32 = i8", lambda b, x: x.to("i32"))
define("s_sext_i32_i16", "i32 = i16", lambda b, x: x.to("i32"))
define("s_pack_ll_b32_b16", "u32 = u32 u32", lambda b, x, y: (x & 0xFFFF) | (y << 16))
define("s_pack_lh_b32_b16", "u32 = u32 u32", lambda b, x, y: (x & 0xFFFF) | (y & 0xFFFF0000))
define("s_pack_hh_b32_b16", "u32 = u32 u32", lambda b, x, y: (x >> 16) | (y & 0xFFFF0000))

# --- compares ---------------------------------------------------------------------------------------------------------

COMPARE: dict[str, Binary] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}


def _compare(fn: Binary) -> Callable[..., Value]:
    return lambda b, x, y: fn(x, y)


def _compare_unsigned_immediate(fn: Binary) -> Callable[..., Value]:
    return lambda b, x, k: fn(x, k.bits("u32") & 0xFFFF)


for _name, _fn in COMPARE.items():
    for _type in ("i32", "u32"):
        define(f"s_cmp_{_name}_{_type}", f"scc = {_type} {_type}", _compare(_fn))
    define(f"s_cmpk_{_name}_i32", "scc = i32 simm16", _compare(_fn))
    define(f"s_cmpk_{_name}_u32", "scc = u32 simm16", _compare_unsigned_immediate(_fn))
for _name in ("eq", "lg"):
    define(f"s_cmp_{_name}_u64", "scc = u64 u64", _compare(COMPARE[_name]))
