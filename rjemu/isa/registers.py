"""Which registers an instruction reads and writes, from its operands and its table row alone.

Lanes that EXEC masks off keep their old value in a destination; that alone does not make the destination a register read.
Not covered, because only known at run time: vector registers under `s_set_gpr_idx`. s_movrel* count as touching all SGPRs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rjemu.isa.encodings import LAST_SGPR
from rjemu.isa.instruction import EXEC, EXECZ, FLAT_SCRATCH, M0, SCC, VCC, VCCZ, Instruction, Operand

IMPLICIT = {"vcc": range(VCC, VCC + 2), "exec": range(EXEC, EXEC + 2), "m0": range(M0, M0 + 1)}
IMPLICIT |= {"flat_scratch": range(FLAT_SCRATCH, FLAT_SCRATCH + 2)}
"""Scalar codes of the implicit registers of a row; "scc" and "mode" are bits of their own, "pc" is no register here."""

SPECIAL_SOURCES = {VCCZ: "vcc", EXECZ: "exec", SCC: "scc"}
"""Special operand -> the register whose value it is derived from. The others are constant for a wave."""

_ALL_SGPRS = range(LAST_SGPR + 1)
_DST_PRESERVED = 2
"""dst_unused of SDWA: the destination's other bits keep their value."""


@dataclass(frozen=True, slots=True)
class RegisterSet:
    """Disjoint ascending ranges. vector: 0-255 VGPRs, 256-511 AGPRs. scalar: hardware codes 0-127."""

    vector: tuple[range, ...] = ()
    scalar: tuple[range, ...] = ()
    scc: bool = False
    mode: bool = False


def reads(instr: Instruction) -> RegisterSet:
    """The registers whose values the instruction's effect depends on."""
    operands = [op for op in instr.operands if not op.is_dst or _reads_destination(instr, op)]
    implicit = set(instr.row.reads) | {SPECIAL_SOURCES[op.index] for op in operands if _is_derived(op)}
    if instr.mod("lds"):
        implicit.add("m0")
    return _collect(operands, implicit, _ALL_SGPRS if instr.name.startswith("s_movrels") else None)


def writes(instr: Instruction) -> RegisterSet:
    """The registers that the instruction may change."""
    operands = [op for op in instr.operands if op.is_dst]
    implicit = set(instr.row.writes)
    if any(op.kind == "s" for op in operands):  # the encoding names the mask that VCC stands for elsewhere
        implicit.discard("vcc")
    return _collect(operands, implicit, _ALL_SGPRS if instr.name.startswith("s_movreld") else None)


def _reads_destination(instr: Instruction, op: Operand) -> bool:
    """Whether the destination's old value goes into the new one."""
    if instr.row.tied or instr.mod("dst_unused") == _DST_PRESERVED:
        return True
    to_high_half = instr.encoding == "VOP3" and instr.mod("op_sel") >> 3 & 1
    return bool(to_high_half and op.bits == 16)


def _is_derived(op: Operand) -> bool:
    return op.kind == "special" and op.index in SPECIAL_SOURCES


def _collect(operands: Iterable[Operand], implicit: set[str], extra_scalars: range | None) -> RegisterSet:
    vector = [range(op.index, op.index + op.dwords) for op in operands if op.kind == "v"]
    scalar = [range(op.index, op.index + op.dwords) for op in operands if op.kind == "s"]
    scalar += [IMPLICIT[name] for name in implicit if name in IMPLICIT]
    if extra_scalars is not None:
        scalar.append(extra_scalars)
    return RegisterSet(_merge(vector), _merge(scalar), "scc" in implicit, "mode" in implicit)


def _merge(ranges: list[range]) -> tuple[range, ...]:
    merged: list[range] = []
    for part in sorted(ranges, key=lambda r: r.start):
        if merged and part.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)
