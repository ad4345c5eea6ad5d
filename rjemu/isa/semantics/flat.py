"""FLAT, GLOBAL and SCRATCH instructions (CDNA3 and CDNA4 ISA, "Flat Memory Instructions")."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.apertures import LDS_APERTURE, SCRATCH_APERTURE
from rjemu.isa.context import Context, Semantic
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source
from rjemu.isa.semantics.registry import register
from rjemu.isa.transfers import (
    ATOMICS,
    LDS_LOADS,
    LOADS,
    STORES,
    Access,
    Transfer,
    atomic,
    load,
    load_to_lds,
    optional,
    store,
)

Addressing = Callable[[Context, int], list[Access]]
"""The accesses of an instruction that moves so many bytes per lane."""


def _offset(b: Context) -> Value:
    """u64 scalar: the sign-extended immediate."""
    return b.imm("offset").to("i64").bits("u64")


def _vgpr_address(b: Context) -> Value:
    op = b.instr.operand("addr")
    return b.join64(b.vgpr(op, 0), b.vgpr(op, 1)) + _offset(b)


def global_accesses(b: Context, nbytes: int) -> list[Access]:
    """A 64-bit address in VGPRs, or one in SGPRs plus an unsigned 32-bit offset in a VGPR; plus the immediate."""
    saddr = optional(b, "saddr")
    if saddr is None:
        address = _vgpr_address(b)
    else:
        address = (raw_source(b, saddr, "u64") + _offset(b)) + b.vgpr(b.instr.operand("addr")).to("u64")
    lanes = b.exec_lanes()
    return [Access("global", address, lanes, lanes)]


def scratch_address(b: Context, offset: Value, nbytes: int) -> Value:
    """u64 vector: the GPU address of each lane's private bytes at `offset` (u32).

    An access that leaves the private segment gets its address in the scratch aperture, where nothing is mapped, so that
    it faults and the fault tells the offset.
    """
    size = b.scratch_size()
    inside = (size >= nbytes) & (offset <= size - nbytes)
    address = (b.scratch_base() + b.lane_ids().to("u64") * size.to("u64")) + offset.to("u64")
    return b.select(inside, address, offset.to("u64") + SCRATCH_APERTURE)


def scratch_accesses(b: Context, nbytes: int) -> list[Access]:
    """A private offset: SGPR, VGPR, both or neither, plus the signed immediate, modulo 2^32."""
    offset = b.imm("offset").bits("u32")
    saddr, vaddr = optional(b, "saddr"), optional(b, "addr")
    if saddr is not None:
        offset = offset + b.scalar(saddr)
    if vaddr is not None:
        offset = offset + b.vgpr(vaddr)
    lanes = b.exec_lanes()
    return [Access("global", scratch_address(b, b.vector(offset), nbytes), lanes, lanes)]


def flat_accesses(b: Context, nbytes: int) -> list[Access]:
    """A 64-bit address whose upper half may name the LDS or the scratch aperture."""
    address = _vgpr_address(b)
    aperture, low, lanes = b.high32(address), b.low32(address), b.exec_lanes()
    in_lds = aperture == LDS_APERTURE >> 32
    in_scratch = aperture == SCRATCH_APERTURE >> 32
    memory = b.unlikely(in_scratch, address, lambda: b.select(in_scratch, scratch_address(b, low, nbytes), address))
    outside, inside = lanes & ~in_lds, lanes & in_lds
    return [Access("global", memory, outside, outside), Access("lds", low, inside, inside)]


def _load(addressing: Addressing, transfer: Transfer) -> Semantic:
    return lambda b: load(b, addressing(b, transfer.nbytes), transfer, b.instr.operand("vdst"))


def _load_to_lds(addressing: Addressing, transfer: Transfer) -> Semantic:
    return lambda b: load_to_lds(b, addressing(b, transfer.nbytes)[0], transfer)


def _store(addressing: Addressing, transfer: Transfer) -> Semantic:
    return lambda b: store(b, addressing(b, transfer.nbytes), transfer, b.instr.operand("data"))


def _atomic(addressing: Addressing, name: str) -> Semantic:
    def semantic(b: Context) -> None:
        dst = b.instr.operand("vdst") if b.instr.mod("sc0") else None
        nbytes = 8 if ATOMICS[name][1].endswith("64") else 4
        atomic(b, addressing(b, nbytes), ATOMICS[name], b.instr.operand("data"), dst)

    return semantic


_FAMILIES: dict[str, Addressing] = {"flat": flat_accesses, "global": global_accesses, "scratch": scratch_accesses}

for _family, _addressing in _FAMILIES.items():
    for _name, _transfer in LOADS.items():
        register(f"{_family}_load_{_name}", _load(_addressing, _transfer))
    for _name, _transfer in STORES.items():
        register(f"{_family}_store_{_name}", _store(_addressing, _transfer))
    if _family != "scratch":
        for _name in ATOMICS:
            register(f"{_family}_atomic_{_name}", _atomic(_addressing, _name))
    if _family != "flat":
        for _name, _transfer in LDS_LOADS.items():
            if _family == "global" or _transfer.nbytes <= 4:
                register(f"{_family}_load_lds_{_name}", _load_to_lds(_addressing, _transfer))
