"""Which lanes and bytes of which registers an instruction reads and writes, as the architecture defines its effect.

`isa.registers` says which registers; here EXEC, DPP, lane numbers, op_sel, SDWA and 16-bit forms narrow that down. Reads of
a destination only to keep the bytes or lanes that are not written do not count, nor does their writing back. The stack of
pending paths that s_cbranch_*_fork and s_cbranch_join keep in SGPRs is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rjemu.exec.wave import WaveState
from rjemu.isa.dpp import dpp_enabled_lanes, dpp_sources
from rjemu.isa.instruction import EXEC, M0, Instruction, Operand
from rjemu.isa.operands import SOURCE_INDEX
from rjemu.isa.registers import reads
from rjemu.plugins.contract import DWORD_BYTES, RegisterAccess

_ACCUMULATES = re.compile(r"v_(mac|fmac|dot\dc|pk_fmac|swap|permlane\d+_swap|smfmac|cvt_pkaccum)")
"""Instructions with tied destinations whose old value goes into the result; the others only keep parts of it."""

_SWAPPED_ROWS = {"v_permlane16_swap_b32": 16, "v_permlane32_swap_b32": 32}
_MIX = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
_LOW_HALF, _HIGH_HALF = 0b0011, 0b1100
_SDWA_BYTES = (0b0001, 0b0010, 0b0100, 0b1000, _LOW_HALF, _HIGH_HALF, DWORD_BYTES)
_UNUSED_PRESERVE = 2


def register_reads(instr: Instruction, state: WaveState, moves: Mapping[str, int]) -> Iterator[RegisterAccess]:
    """What the instruction reads of a wave in that state. moves: operand name -> registers that VGPR indexing adds."""
    accumulates = _ACCUMULATES.match(instr.name) is not None
    seen: dict[tuple[int, int], int] = {}
    for op in instr.operands:
        if op.kind == "v" and (not op.is_dst or accumulates):
            lanes = _source_lanes(instr, op, state)
            for k in range(op.dwords):
                key = (op.index + moves.get(op.name, 0) + k, lanes)
                seen[key] = seen.get(key, 0) | source_bytes(instr, op, k)
    for (index, lanes), covered in seen.items():
        if lanes and covered:
            yield RegisterAccess("vector", index, lanes, covered)
    registers = reads(instr)
    for part in registers.scalar:
        for index in part:
            yield RegisterAccess("scalar", index, 0)
    if registers.scc:
        yield RegisterAccess("scc", 0, 0)


def matrix_writes(instr: Instruction, wave_size: int) -> Iterator[RegisterAccess]:
    """What a matrix instruction without VGPR indexing writes: all lanes of its result."""
    result = instr.operand("vdst")
    for k in range(result.dwords):
        yield RegisterAccess("vector", result.index + k, (1 << wave_size) - 1)


def active_lanes(state: WaveState) -> int:
    """EXEC, bit l for lane l."""
    low, high = state.scalars[EXEC : EXEC + 2].tolist()
    return int(low | high << 32) & ((1 << state.wave_size) - 1)


def _source_lanes(instr: Instruction, op: Operand, state: WaveState) -> int:
    active = active_lanes(state)
    everywhere = (1 << state.wave_size) - 1
    if "mfma" in instr.name or "smfmac" in instr.name:
        return everywhere
    if instr.name == "v_readfirstlane_b32":
        return active & -active or 1
    if instr.name == "v_readlane_b32":
        return 1 << _lane_number(instr.operand("src1"), state)
    if instr.name == "ds_bpermute_b32" and op.name == "data0":
        named = state.vgpr[instr.operand("addr").index].astype(int) + instr.imm("offset")
        sources = {int(byte) // 4 % state.wave_size for lane, byte in enumerate(named) if active >> lane & 1}
        return sum(1 << lane for lane in sources) & active
    if instr.name in _SWAPPED_ROWS:
        lanes = _swapped_lanes(op, _SWAPPED_ROWS[instr.name], active, state.wave_size)
        return lanes if instr.mod("fi") else lanes & active
    if op.name == "src0" and "dpp_ctrl" in instr.mods:
        enabled = dpp_enabled_lanes(instr.mod("row_mask"), instr.mod("bank_mask"), state.wave_size)
        sources = {
            source
            for lane, source in enumerate(dpp_sources(instr.mod("dpp_ctrl"), state.wave_size))
            if active & enabled & 1 << lane and source >= 0
        }
        return sum(1 << lane for lane in sources) & active
    return active


def _swapped_lanes(op: Operand, rows: int, active: int, wave_size: int) -> int:
    """The lanes that go from vdst's upper or src0's lower rows to active lanes of the other operand."""
    upper = sum(1 << lane for lane in range(wave_size) if lane & rows)
    return (active & ~upper) << rows if op.name == "vdst" else (active & upper) >> rows


def _lane_number(op: Operand, state: WaveState) -> int:
    if op.kind == "k":
        return op.value % state.wave_size
    return int(state.scalars[op.index if op.kind == "s" else M0]) % state.wave_size


def source_bytes(instr: Instruction, op: Operand, k: int) -> int:
    """The bytes of dword k of a vector operand that the instruction reads, bit b for byte b."""
    index = SOURCE_INDEX.get(op.name)
    if index is not None and f"src{index}_sel" in instr.mods:
        return _SDWA_BYTES[instr.mod(f"src{index}_sel")]
    if index is not None and instr.encoding == "VOP3P" and op.bits == 32:
        return _packed_bytes(instr, op, index)
    if op.name == "src0" and (byte := _converted_byte(instr)) is not None:
        return 1 << byte
    bits = min(op.bits - 32 * k, 32)
    if op.name in ("data", "vdata", "data0") and not op.is_dst:
        stored = _stored_bytes(instr.name)
        if stored is not None:
            return stored
    if bits == 16:
        return _HIGH_HALF if index is not None and instr.mod("op_sel") >> index & 1 else _LOW_HALF
    return (1 << -(-bits // 8)) - 1


def _packed_bytes(instr: Instruction, op: Operand, index: int) -> int:
    low, high = instr.mod("op_sel") >> index & 1, instr.mod("op_sel_hi") >> index & 1
    if instr.name in _MIX:  # op_sel_hi: the source is a half, op_sel: which one
        return (_HIGH_HALF if low else _LOW_HALF) if high else DWORD_BYTES
    if not re.match(r"pk_\w*16", op.fmt) or instr.name.startswith("v_dot2"):  # dot products take no op_sel
        return DWORD_BYTES
    return (_HIGH_HALF if low else _LOW_HALF) | (_HIGH_HALF if high else _LOW_HALF)


def _converted_byte(instr: Instruction) -> int | None:
    """The only byte of src0 that a conversion without SDWA takes."""
    if found := re.match(r"v_cvt_f32_ubyte(\d)$", instr.name):
        return int(found[1])
    if re.match(r"v_cvt_f32_(fp8|bf8)$", instr.name):
        return 0
    if re.match(r"v_cvt_scalef32_(f32|f16)_(fp8|bf8)$|v_cvt_scalef32_pk_(f32|f16|bf16)_fp4$", instr.name):
        return instr.mod("op_sel") & 3
    return None


def _stored_bytes(name: str) -> int | None:
    """The bytes of the register that a store below a dword takes."""
    found = re.search(r"(?:store_|ds_write_)(byte|short|b8|b16)(_d16_hi)?$", name)
    if found is None:
        return None
    size = 0b0001 if found[1] in ("byte", "b8") else _LOW_HALF
    return size << 2 if found[2] else size


def written_lanes(instr: Instruction, lanes: int, state: WaveState) -> int:
    """Which of the lanes that a destination gets a value in may change, in the state before the instruction."""
    if instr.name == "v_writelane_b32":  # the others get their old value
        return 1 << _lane_number(instr.operand("src1"), state)
    return lanes


def written_bytes(instr: Instruction, op: Operand, *, preserves: bool) -> int:
    """The bytes of a destination dword that the instruction writes. preserves: it has kept some of the old ones."""
    if not preserves or _ACCUMULATES.match(instr.name) or instr.name == "v_writelane_b32":
        return DWORD_BYTES
    if instr.mod("dst_unused") == _UNUSED_PRESERVE:
        return _SDWA_BYTES[instr.mod("dst_sel")]
    if op.bits == 8:
        return 1 << (instr.mod("op_sel") >> 2 & 3)
    high = "_d16_hi" in instr.name or "mixhi" in instr.name or (op.bits == 16 and instr.mod("op_sel") >> 3 & 1)
    return _HIGH_HALF if high else _LOW_HALF
