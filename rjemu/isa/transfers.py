"""What memory instructions of all families share: widths, sign extension, 16-bit halves, atomics, the way to registers.

The families (`semantics.ds`, `semantics.flat`, `semantics.buffer`) differ in how they form addresses. They hand over
`Access`es; the functions here move the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rjemu.isa.context import AtomicOp, Context, Space
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import TYPES, Value


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one lane moves. half: the half of the register that a D16 form uses (0 low, 1 high), None for all of it."""

    nbytes: int
    signed: bool = False
    half: int | None = None

    @property
    def whole_dwords(self) -> bool:
        return self.nbytes >= 4


LOADS: dict[str, Transfer] = {
    "ubyte": Transfer(1),
    "sbyte": Transfer(1, signed=True),
    "ushort": Transfer(2),
    "sshort": Transfer(2, signed=True),
    "ubyte_d16": Transfer(1, half=0),
    "ubyte_d16_hi": Transfer(1, half=1),
    "sbyte_d16": Transfer(1, signed=True, half=0),
    "sbyte_d16_hi": Transfer(1, signed=True, half=1),
    "short_d16": Transfer(2, half=0),
    "short_d16_hi": Transfer(2, half=1),
    "dword": Transfer(4),
    "dwordx2": Transfer(8),
    "dwordx3": Transfer(12),
    "dwordx4": Transfer(16),
}
"""The loads of FLAT, GLOBAL, SCRATCH and MUBUF by the end of their names."""

LDS_LOADS: dict[str, Transfer] = {
    name: LOADS[name] for name in ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4")
}
"""Those that can go straight to LDS."""

STORES: dict[str, Transfer] = {
    "byte": Transfer(1),
    "byte_d16_hi": Transfer(1, half=1),
    "short": Transfer(2),
    "short_d16_hi": Transfer(2, half=1),
    "dword": Transfer(4),
    "dwordx2": Transfer(8),
    "dwordx3": Transfer(12),
    "dwordx4": Transfer(16),
}

INTEGER_ATOMICS: dict[str, AtomicOp] = {
    "swap": "swap",
    "cmpswap": "cmpswap",
    "add": "add",
    "sub": "sub",
    "smin": "smin",
    "umin": "umin",
    "smax": "smax",
    "umax": "umax",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "inc": "inc",
    "dec": "dec",
}
"""The integer atomics of device memory, by what their mnemonics call them: vector and scalar ones alike."""

ATOMICS: dict[str, tuple[AtomicOp, str]] = {
    **{name: (op, "u32") for name, op in INTEGER_ATOMICS.items()},
    **{f"{name}_x2": (op, "u64") for name, op in INTEGER_ATOMICS.items()},
    "add_f32": ("fadd", "f32"),
    "add_f64": ("fadd", "f64"),
    "min_f64": ("fmin", "f64"),
    "max_f64": ("fmax", "f64"),
    "pk_add_f16": ("pk_add_f16", "u32"),
    "pk_add_bf16": ("pk_add_bf16", "u32"),
}
"""The atomics of FLAT, GLOBAL and MUBUF by the end of their names: (what they do, the type of memory)."""


@dataclass(frozen=True, slots=True)
class Access:
    """The lanes of an instruction that go to one address space.

    address: u64 (global) or u32 (lds) vector. mask: b1 vector of the lanes that touch memory. receive: the lanes whose
    registers a load writes; those of them that touch no memory get zero.
    """

    space: Space
    address: Value
    mask: Value
    receive: Value


def optional(b: Context, name: str) -> Operand | None:
    """The operand of that role, None where the instruction leaves it out."""
    if not b.instr.has(name):
        return None
    op = b.instr.operand(name)
    return None if op.kind == "off" else op


def registers(b: Context, op: Operand, first: int, type_name: str) -> Value:
    """A 32 or 64-bit vector from the registers op.index + first on."""
    word = b.vgpr(op, first)
    if TYPES[type_name].bits == 64:
        return b.join64(word, b.vgpr(op, first + 1)).bits(type_name)
    return word.bits(type_name)


def set_registers(b: Context, op: Operand, first: int, value: Value, mask: Value) -> None:
    """Write a 32 or 64-bit vector to the registers op.index + first on."""
    b.set_vgpr(op, first, b.low32(value) if value.type.bits == 64 else value.bits("u32"), mask)
    if value.type.bits == 64:
        b.set_vgpr(op, first + 1, b.high32(value), mask)


def each_access(b: Context, accesses: list[Access], move: Callable[[Access], None]) -> None:
    """The usual address space at once, the others only if some lane goes there."""
    usual, *others = accesses
    move(usual)
    for access in others:
        b.when(access.mask, lambda access=access: move(access))  # type: ignore[misc]


def extend(transfer: Transfer, loaded: Value) -> Value:
    """The u32 that a sub-dword load makes of the bytes, which come zero extended."""
    if not transfer.signed:
        return loaded
    bits = 8 * transfer.nbytes
    return loaded.to(f"i{bits}").to("i32").bits("u32")


def load(b: Context, accesses: list[Access], transfer: Transfer, dst: Operand) -> None:
    """A load to registers. D16 forms leave the other half of the register alone."""

    def move(access: Access) -> None:
        if transfer.whole_dwords:
            b.load_registers(access.space, access.address, dst, transfer.nbytes, access.mask)
            return
        (loaded,) = b.load(access.space, access.address, transfer.nbytes, access.mask)
        b.set_vgpr(dst, 0, merge_half(b, transfer.half, extend(transfer, loaded), dst), access.receive)

    each_access(b, accesses, move)


def merge_half(b: Context, half: int | None, value: Value, dst: Operand) -> Value:
    """The register's new contents where a D16 form writes one half of it."""
    if half is None:
        return value
    if half == 0:
        return (b.vgpr(dst) & 0xFFFF0000) | (value & 0xFFFF)
    return (b.vgpr(dst) & 0xFFFF) | (value << 16)


def store(b: Context, accesses: list[Access], transfer: Transfer, data: Operand) -> None:
    """A store from registers."""

    def move(access: Access) -> None:
        if transfer.whole_dwords:
            b.store_registers(access.space, access.address, data, transfer.nbytes, access.mask)
        else:
            b.store(access.space, access.address, [stored_part(b, transfer, data)], transfer.nbytes, access.mask)

    each_access(b, accesses, move)


def stored_part(b: Context, transfer: Transfer, data: Operand) -> Value:
    """The u32 whose low bytes a sub-dword store writes."""
    word = b.vgpr(data)
    return word >> 16 if transfer.half == 1 else word


def atomic(b: Context, accesses: list[Access], kind: tuple[AtomicOp, str], data: Operand, dst: Operand | None) -> None:
    """An atomic whose comparison value, if it has one, follows the new value in data. dst: where memory's old value goes."""
    op, type_name = kind
    value = registers(b, data, 0, type_name)
    compare = registers(b, data, TYPES[type_name].bits // 32, type_name) if op == "cmpswap" else None

    def move(access: Access) -> None:
        old = b.atomic(op, access.space, type_name, access.address, value, access.mask, compare)
        if dst is not None:
            set_registers(b, dst, 0, old, access.receive)

    each_access(b, accesses, move)


def lds_direct_address(b: Context, transfer: Transfer) -> Value:
    """u32 vector: where in LDS each lane's data of a direct load goes (CDNA4 ISA, "Memory Buffer Load to LDS").

    One dword per lane side by side, sub-dword data extended to a dword; three and four dwords at 16 bytes per lane.
    """
    pitch = 16 if transfer.nbytes > 4 else 4
    base = lds_base_of_m0(b) + b.imm("offset").bits("u32")
    return base + b.lane_ids() * pitch


def lds_base_of_m0(b: Context) -> Value:
    """u32 scalar: the byte offset in LDS that M0[17:0] holds for instructions without an address register."""
    return b.m0() & 0x3FFFF


def load_to_lds(b: Context, access: Access, transfer: Transfer) -> None:
    """A load from global memory straight to LDS."""
    target = lds_direct_address(b, transfer)
    if transfer.whole_dwords:
        b.copy_to_lds(access.address, target, transfer.nbytes, access.mask)
    else:
        (loaded,) = b.load(access.space, access.address, transfer.nbytes, access.mask)
        b.store("lds", target, [extend(transfer, loaded)], 4, access.receive)
    end_direct_load(b)


def end_direct_load(b: Context) -> None:
    """Last effect of a load straight to LDS: it ends the wave's turn.

    Hardware issues such loads of a workgroup's waves in step, and hand-written kernels (AITER's MLA decoding) let the
    padding of one wave's rows land where another wave's next load then puts data.
    """
    b.event("yield")
