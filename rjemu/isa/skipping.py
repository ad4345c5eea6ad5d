"""VSKIP: while the bit of MODE is set, vector instructions are skipped (CDNA3 ISA, "S_SETVSKIP").

All that go to the vector, memory and LDS units are, whatever EXEC says; scalar ones are executed.
"""

from __future__ import annotations

from rjemu.isa.instruction import Instruction

VSKIP = 28
"""Bit of MODE."""

_SCALAR = frozenset({"SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM"})


def is_skippable(instr: Instruction) -> bool:
    """Whether VSKIP skips the instruction."""
    return instr.encoding not in _SCALAR
