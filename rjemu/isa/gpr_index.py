"""VGPR indexing: which vector registers of an instruction M0 moves while MODE's GPR_IDX_EN is set (CDNA3 ISA, "VGPR
Indexing").

The index M0[7:0] is added to the register number of every operand that its bit in M0[15:12] enables. VALU instructions
take part, packed and matrix ones and moves from and to AGPRs too; memory and LDS instructions do not.
"""

from __future__ import annotations

from rjemu.isa.instruction import Instruction, Operand

GPR_IDX_EN = 27
"""Bit of MODE."""

FILE_SIZE = 256
"""Registers of a file (VGPRs, AGPRs): an indexed operand must stay inside its own."""

_SOURCE_BITS = {"src0": 12, "src1": 13, "src2": 14}
_DESTINATION_BIT = 15
_THIRD_SOURCE_LAST = ("v_madmk_f32", "v_madmk_f16", "v_fmamk_f32", "v_fmamk_f16")
"""The register that these encode as src1 is the addend, the third source."""


def index_bit(instr: Instruction, op: Operand) -> int | None:
    """The bit of M0 that enables indexing of a vector operand; None if the instruction does not index it.

    A destination that is read too (v_fmac, SDWA's UNUSED_PRESERVE) counts as a destination, a source that is written too
    (v_swap_b32) as a source.
    """
    if op.kind != "v" or not instr.encoding.startswith("VOP"):
        return None
    if op.name == "src1" and instr.name in _THIRD_SOURCE_LAST:
        return _SOURCE_BITS["src2"]
    return _SOURCE_BITS.get(op.name, _DESTINATION_BIT if op.is_dst else None)
