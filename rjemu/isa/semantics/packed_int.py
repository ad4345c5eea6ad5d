"""Packed 16-bit integer arithmetic and integer dot products (VOP3P, VOP2)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.instruction import Operand
from rjemu.isa.integers import clamped, saturate
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, source, write_vector
from rjemu.isa.semantics.registry import register

Semantic = Callable[[Context], None]


def _sources(b: Context) -> list[Operand]:
    return [op for op in b.instr.operands if not op.is_dst]


def _halves(b: Context, index: int, op: Operand, type_name: str) -> tuple[Value, Value]:
    """(low, high): the halves that op_sel and op_sel_hi pick for the two results."""
    word = raw_source(b, op, "u32")

    def half(upper: int) -> Value:
        return (word >> 16 if upper else word).to("u16").bits(type_name)

    return half(b.instr.mod("op_sel") >> index & 1), half(b.instr.mod("op_sel_hi") >> index & 1)


def _joined(low: Value, high: Value) -> Value:
    return low.bits("u16").to("u32") | (high.bits("u16").to("u32") << 16)


# --- two 16-bit operations side by side -------------------------------------------------------------------------------


def _packed(type_name: str, fn: Callable[..., Value]) -> Semantic:
    """fn(b, ...) on each half."""

    def run(b: Context) -> None:
        pairs = [_halves(b, k, op, type_name) for k, op in enumerate(_sources(b))]
        low, high = (fn(b, *(pair[side] for pair in pairs)) for side in (0, 1))
        write_vector(b, b.instr.operand("vdst"), _joined(low, high))

    return run


def _add(x: Value, y: Value) -> Value:
    return x + y


def _subtract(x: Value, y: Value) -> Value:
    return x - y


def _multiply_add(x: Value, y: Value, z: Value) -> Value:
    return x * y + z


for _type in ("i16", "u16"):
    register(f"v_pk_add_{_type}", _packed(_type, clamped(_type, _add)))
    register(f"v_pk_sub_{_type}", _packed(_type, clamped(_type, _subtract)))
    register(f"v_pk_mad_{_type}", _packed(_type, clamped(_type, _multiply_add)))
    register(f"v_pk_min_{_type}", _packed(_type, lambda b, x, y: b.min(x, y)))
    register(f"v_pk_max_{_type}", _packed(_type, lambda b, x, y: b.max(x, y)))
register("v_pk_mul_lo_u16", _packed("u16", clamped("u16", lambda x, y: x * y)))
register("v_pk_lshlrev_b16", _packed("u16", lambda b, n, x: x << n))
register("v_pk_lshrrev_b16", _packed("u16", lambda b, n, x: x >> n))
register("v_pk_ashrrev_i16", _packed("i16", lambda b, n, x: x >> n))

# --- dot products: exact products and sums of a dword's elements, plus a 32-bit addend --------------------------------


def _elements(x: Value, bits: int, kind: str) -> list[Value]:
    """The fields of a dword, low ones first, extended to 32 bits by their sign."""
    word = x.bits(f"{kind}32")
    return [(word << (32 - bits - start)) >> (32 - bits) for start in range(0, 32, bits)]


def _dot(b: Context, first: list[Value], second: list[Value], addend: Value) -> Value:
    """Wraps, or saturates the exact sum under clamp. Products of two 16-bit numbers fit their 32-bit type."""
    if b.instr.mod("clamp"):
        exact = addend.to("i64")
        for x, y in zip(first, second, strict=True):
            exact = exact + (x * y).to("i64")
        return saturate(b, exact, addend.type.name)
    total = addend
    for x, y in zip(first, second, strict=True):
        total = total + x * y
    return total


def _dot_product(bits: int, kind: str) -> Semantic:
    """The three-source form (VOP3P)."""

    def run(b: Context) -> None:
        x, y, addend = (raw_source(b, op, "u32") for op in _sources(b))
        result = _dot(b, _elements(x, bits, kind), _elements(y, bits, kind), addend.bits(f"{kind}32"))
        write_vector(b, b.instr.operand("vdst"), result)

    return run


def _dot_accumulate(bits: int) -> Semantic:
    """The form whose addend is the destination (v_dot*c), always signed."""

    def run(b: Context) -> None:
        vdst = b.instr.operand("vdst")
        first, second = (_elements(source(b, op, "u32"), bits, "i") for op in _sources(b))
        write_vector(b, vdst, _dot(b, first, second, raw_source(b, vdst, "i32")))

    return run


for _count, _bits in ((2, 16), (4, 8), (8, 4)):
    for _kind in "iu":
        register(f"v_dot{_count}_{_kind}32_{_kind}{_bits}", _dot_product(_bits, _kind))
    register(f"v_dot{_count}c_i32_i{_bits}", _dot_accumulate(_bits))

# --- pair move --------------------------------------------------------------------------------------------------------


def _pair_move(b: Context) -> None:
    """The low dword from the first source, the high one from the second; op_sel says which dword of each."""

    def dword(index: int) -> Value:
        pair = raw_source(b, _sources(b)[index], "u64")
        return b.high32(pair) if b.instr.mod("op_sel") >> index & 1 else b.low32(pair)

    write_vector(b, b.instr.operand("vdst"), b.join64(dword(0), dword(1)))


register("v_pk_mov_b32", _pair_move)
