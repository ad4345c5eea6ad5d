"""What kind of work an instruction is."""

from __future__ import annotations

from rjemu.isa.instruction import Instruction

FAMILIES = ("scalar", "vector", "matrix", "lds", "global", "control", "other")
"""scalar: SALU and scalar memory; global: FLAT, GLOBAL, SCRATCH and buffers; control: jumps, barriers, waits, ends;
other: hints to the hardware, messages and no-operations."""

_SCALAR = ("SOP1", "SOP2", "SOPC", "SOPK", "SMEM")
_GLOBAL = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF")
_MATRIX = ("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_")
_JUMPS = ("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_getpc")
_CONTROL = ("s_endpgm", "s_barrier", "s_waitcnt", "s_sleep", "s_trap", "s_sethalt", "s_setkill", "s_rfe")


def family_of(instr: Instruction) -> str:
    """One of FAMILIES."""
    name, encoding = instr.name, instr.encoding
    if name.startswith((*_JUMPS, *_CONTROL)):
        return "control"
    if name.startswith(_MATRIX):
        return "matrix"
    if encoding in _SCALAR:
        return "scalar"
    if encoding in _GLOBAL:
        return "global"
    if encoding == "DS":
        return "lds"
    return "vector" if encoding.startswith("VOP") else "other"
