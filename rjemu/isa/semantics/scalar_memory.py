"""Scalar memory instructions (SMEM): loads, stores and atomics of global memory, buffers and scratch; time; caches.

Addresses (CDNA4 ISA, "Scalar Memory Operations" and the notes on each instruction): base + immediate + register offset in
bytes, each without its two low bits. s_scratch_* count the register offset in units of 64 bytes. A buffer's base is 48
bits; its size is NUM_RECORDS bytes, or STRIDE * NUM_RECORDS where STRIDE is not 0; dwords past the end read as 0, are not
stored, and are not touched by atomics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rjemu.isa.context import AtomicOp, Context
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, write_scalar
from rjemu.isa.semantics.registry import custom, define, register
from rjemu.isa.transfers import INTEGER_ATOMICS

_DWORD_BASE = 0xFFFF_FFFF_FFFF_FFFC
_BUFFER_BASE = 0x0000_FFFF_FFFF_FFFC


@dataclass(frozen=True, slots=True)
class Place:
    """address: u64 scalar. limit: u32 scalar, how many dwords from there are inside; None for no limit."""

    address: Value
    limit: Value | None = None


Addressing = Callable[[Context, int], Place]
"""(context, dwords) -> place."""


def _offset(b: Context, register_shift: int = 0) -> Value:
    """Immediate and register offset as i64."""
    offset = b.imm("offset").to("i64") & -4
    if b.instr.has("soffset"):
        in_bytes = raw_source(b, b.instr.operand("soffset"), "u32").to("i64") << register_shift
        offset = offset + (in_bytes & -4)
    return offset


def _base(b: Context) -> Value:
    op = b.instr.operand("sbase")
    return b.join64(b.scalar(op, 0), b.scalar(op, 1))


def _global(b: Context, dwords: int) -> Place:
    return Place((_base(b) & _DWORD_BASE) + _offset(b).bits("u64"))


def _scratch(b: Context, dwords: int) -> Place:
    return Place((_base(b) & _DWORD_BASE) + _offset(b, register_shift=6).bits("u64"))


def _buffer(b: Context, dwords: int) -> Place:
    descriptor = b.instr.operand("sbase")
    stride = (b.scalar(descriptor, 1) >> 16) & 0x3FFF
    records = b.scalar(descriptor, 2).to("i64")
    size = b.select(stride == 0, records, records * stride.to("i64"))
    offset = _offset(b)
    inside = b.max(b.min((size - offset) >> 2, dwords), 0)
    return Place((_base(b) & _BUFFER_BASE) + offset.bits("u64"), b.select(offset < 0, 0, inside).to("u32"))


# --- loads and stores -------------------------------------------------------------------------------------------------


def _load(addressing: Addressing) -> Callable[[Context], None]:
    def run(b: Context) -> None:
        op = b.instr.operand("sdata")
        place = addressing(b, op.dwords)
        for k, word in enumerate(b.scalar_load(place.address, op.dwords, place.limit)):
            b.set_scalar(op, k, word)

    return run


def _store(addressing: Addressing) -> Callable[[Context], None]:
    def run(b: Context) -> None:
        op = b.instr.operand("sdata")
        place = addressing(b, op.dwords)
        b.scalar_store(place.address, [b.scalar(op, k) for k in range(op.dwords)], place.limit)

    return run


SPACES: dict[str, Addressing] = {"": _global, "scratch_": _scratch, "buffer_": _buffer}
LOAD_SIZES = {"": ("", "x2", "x4", "x8", "x16"), "scratch_": ("", "x2", "x4"), "buffer_": ("", "x2", "x4", "x8", "x16")}
STORE_SIZES = ("", "x2", "x4")

for _space, _addressing in SPACES.items():
    for _size in LOAD_SIZES[_space]:
        register(f"s_{_space}load_dword{_size}", _load(_addressing))
    for _size in STORE_SIZES:
        register(f"s_{_space}store_dword{_size}", _store(_addressing))

# --- atomics: on one lane of the vector operation ---------------------------------------------------------------------


def _value(b: Context, op: Operand, k: int, type_name: str) -> Value:
    """Element k of a register tuple."""
    if type_name == "u32":
        return b.scalar(op, k)
    return b.join64(b.scalar(op, 2 * k), b.scalar(op, 2 * k + 1))


def _atomic(operation: AtomicOp, addressing: Addressing, type_name: str) -> Callable[[Context], None]:
    dwords = 1 if type_name == "u32" else 2

    def run(b: Context) -> None:
        op = b.instr.operand("sdata")
        place = addressing(b, dwords)
        data = _value(b, op, 0, type_name)
        compare = b.vector(_value(b, op, 1, type_name)) if operation == "cmpswap" else None
        lane = b.lane_ids() == 0
        if place.limit is not None:
            lane = lane & b.vector(place.limit == dwords)
        old = b.atomic(operation, "global", type_name, b.vector(place.address), b.vector(data), lane, compare)
        if b.instr.has("sdst"):
            write_scalar(b, b.instr.operand("sdst"), b.read_lane(old, b.const("u32", 0)))

    return run


for _space in ("", "buffer_"):
    for _name, _operation in INTEGER_ATOMICS.items():
        for _suffix, _type in (("", "u32"), ("_x2", "u64")):
            register(f"s_{_space}atomic_{_name}{_suffix}", _atomic(_operation, SPACES[_space], _type))

# --- time and caches --------------------------------------------------------------------------------------------------

define("s_memtime", "u64 =", lambda b: b.clock())
define("s_memrealtime", "u64 =", lambda b: b.clock())


@custom(
    "s_dcache_inv",
    "s_dcache_inv_vol",
    "s_dcache_wb",
    "s_dcache_wb_vol",
    "s_dcache_discard",
    "s_dcache_discard_x2",
    "s_atc_probe",
    "s_atc_probe_buffer",
)
def _nothing(b: Context) -> None:
    """There is no scalar cache, and a probe only fetches a translation."""
