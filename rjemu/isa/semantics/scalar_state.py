"""Scalar instructions on the wave's hardware registers (s_getreg, s_setreg), register indexing and relative moves."""

from __future__ import annotations

from rjemu.isa.apertures import LDS_APERTURE, SCRATCH_APERTURE
from rjemu.isa.context import Context
from rjemu.isa.gpr_index import GPR_IDX_EN
from rjemu.isa.instruction import M0
from rjemu.isa.integers import mask_of
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, write_scalar
from rjemu.isa.semantics.registry import custom, define
from rjemu.isa.skipping import VSKIP

HARDWARE_REGISTERS = {
    1: "mode",
    2: "status",
    3: "trapsts",
    4: "hw_id",
    5: "gpr_alloc",
    6: "lds_alloc",
    7: "ib_sts",
    20: "xcc_id",
}
"""Id in an hwreg operand -> name. Others (trap handler and performance snapshot addresses) read as 0."""

_SH_MEM_BASES = 15
_APERTURES = LDS_APERTURE >> 48 << 16 | SCRATCH_APERTURE >> 48

USER_WRITABLE = {"mode": 0xFFFF_FFFF, "trapsts": 0xFFFF_FFFF}
"""What an unprivileged wave may write of them."""

_SCC, _EXECZ, _VCCZ = 0, 9, 10
"""STATUS bits that follow other registers."""


def _read(b: Context, name: str) -> Value:
    value = b.hardware(name)
    if name != "status":
        return value
    live = b.scc().to("u32") << _SCC | (b.exec() == 0).to("u32") << _EXECZ | (b.vcc() == 0).to("u32") << _VCCZ
    return (value & ~b.const("u32", 1 << _SCC | 1 << _EXECZ | 1 << _VCCZ)) | live


def _field(b: Context) -> tuple[Value, Value, Value]:
    """(register id, offset, mask before the shift) of the hwreg operand."""
    hwreg = b.imm("simm16").bits("u32")
    size = ((hwreg >> 11) & 31) + 1
    mask = b.select(size == 32, 0xFFFF_FFFF, mask_of(b, size))
    return hwreg & 0x3F, (hwreg >> 6) & 31, mask


@custom("s_getreg_b32")
def _get(b: Context) -> None:
    register, offset, mask = _field(b)
    value = b.select(register == _SH_MEM_BASES, _APERTURES, b.const("u32", 0))
    for number, name in HARDWARE_REGISTERS.items():
        value = b.select(register == number, _read(b, name), value)
    write_scalar(b, b.instr.operand("sdst"), (value >> offset) & mask)


def _set(b: Context, source: Value) -> None:
    register, offset, mask = _field(b)
    for number, name in HARDWARE_REGISTERS.items():
        if name in USER_WRITABLE:
            written = b.select(register == number, (mask << offset) & USER_WRITABLE[name], 0)
            old = b.hardware(name)
            b.set_hardware(name, (old & ~written) | ((source << offset) & written))


@custom("s_setreg_b32")
def _set_from_register(b: Context) -> None:
    _set(b, raw_source(b, b.instr.operand("src0"), "u32"))


@custom("s_setreg_imm32_b32")
def _set_from_literal(b: Context) -> None:
    _set(b, raw_source(b, b.instr.operand("simm32"), "u32"))


# --- vector register indexing: M0[7:0] is the index, M0[15:12] says which operands it moves --------------


def _set_mode_bit(b: Context, bit: int, value: Value) -> None:
    mode = b.hardware("mode")
    b.set_hardware("mode", (mode & (0xFFFF_FFFF ^ 1 << bit)) | value << bit)


def _set_m0(b: Context, value: Value, field: int) -> None:
    b.set_fixed_scalar(M0, (b.m0() & (0xFFFF_FFFF ^ field)) | (value & field))


@custom("s_set_gpr_idx_on")
def _index_on(b: Context) -> None:
    index = raw_source(b, b.instr.operand("src0"), "u32") & 0xFF
    _set_m0(b, index | (b.imm("gpr_idx").bits("u32") << 12), 0xF0FF)
    _set_mode_bit(b, GPR_IDX_EN, b.const("u32", 1))


@custom("s_set_gpr_idx_off")
def _index_off(b: Context) -> None:
    _set_mode_bit(b, GPR_IDX_EN, b.const("u32", 0))


@custom("s_set_gpr_idx_idx")
def _index(b: Context) -> None:
    _set_m0(b, raw_source(b, b.instr.operand("src0"), "u32"), 0xFF)


@custom("s_set_gpr_idx_mode")
def _index_mode(b: Context) -> None:
    _set_m0(b, b.imm("simm16").bits("u32") << 12, 0xF000)


@custom("s_setvskip")
def _set_skip(b: Context) -> None:
    bits = raw_source(b, b.instr.operand("src0"), "u32")
    position = raw_source(b, b.instr.operand("src1"), "u32") & 31
    _set_mode_bit(b, VSKIP, (bits >> position) & 1)


# --- relative moves ---------------------------------------------------------------------------------------------------


def _source_at_m0(b: Context, type_name: str) -> Value:
    number = b.scalar_number(b.instr.operand("src0")) + b.m0()
    if type_name == "u32":
        return b.scalar_at(number)
    return b.join64(b.scalar_at(number), b.scalar_at(number + 1))


def _move_to_m0(b: Context, value: Value) -> None:
    number = b.scalar_number(b.instr.operand("sdst")) + b.m0()
    if value.type.bits == 32:
        b.set_scalar_at(number, value)
        return
    b.set_scalar_at(number, b.low32(value))
    b.set_scalar_at(number + 1, b.high32(value))


define("s_movrels_b32", "u32 =", lambda b: _source_at_m0(b, "u32"))
define("s_movrels_b64", "u64 =", lambda b: _source_at_m0(b, "u64"))


@custom("s_movreld_b32")
def _move_relative(b: Context) -> None:
    _move_to_m0(b, raw_source(b, b.instr.operand("src0"), "u32"))


@custom("s_movreld_b64")
def _move_relative_pair(b: Context) -> None:
    _move_to_m0(b, raw_source(b, b.instr.operand("src0"), "u64"))
