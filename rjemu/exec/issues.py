"""The matrix instructions that helpers are given, as listeners in the launcher's process are told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rjemu.exec.codebook import Codebook
from rjemu.isa.instruction import Instruction


@dataclass(frozen=True, slots=True)
class Issue:
    """A matrix instruction that a helper was given. workgroup: number in the grid, x fastest; wave: number in the
    workgroup; instr: None if its code has been overwritten since by what is no instruction."""

    workgroup: int
    wave: int
    pc: int
    helper: int
    instr: Instruction | None


IssueListener = Callable[[Sequence[Issue]], None]
"""Called with what has been issued since the last call; in order for each wave."""


def issues_of(entries: np.ndarray, codebook: Codebook) -> list[Issue]:
    """The entries of a log (`exec.issue_log`) with their instructions."""
    instructions = {pc: codebook.executed_instruction(pc) for pc in np.unique(entries["pc"]).tolist()}
    return [Issue(workgroup, wave, pc, helper, instructions[pc]) for workgroup, pc, wave, helper in entries.tolist()]
