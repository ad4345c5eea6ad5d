"""Groups of independent matrix instructions: found by looking ahead in decoded code, never by executing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_

from rjemu.isa.instruction import EXEC, Instruction
from rjemu.isa.registers import RegisterSet, reads, writes
from rjemu.mma.candidates import Fitness, fitness
from rjemu.shm.scoreboard import JOB_MMAS

LOOKAHEAD = 16
"""Instructions looked at after the first for members of its group."""
FOLLOWING = 24
"""Instructions looked at after a group for what its issuer does meanwhile."""
PAGE = 4096
"""The bytes of code that are looked at lie in one page of so many."""
GROUP_LIMIT = JOB_MMAS + 1

_ALL_VECTORS = (1 << 512) - 1
_BOUNDARIES = (
    "s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_rfe", "s_endpgm", "s_barrier", "s_sethalt", "s_trap",
    "s_setreg", "s_setkill", "s_set_gpr_idx", "s_icache_inv", "s_sleep", "s_wait_idle", "v_movrel", "s_set_vgpr_msb",
)  # fmt: skip
"""Instructions that no group extends over, by the beginnings of their names, beside those that write EXEC or MODE."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What planning needs of an instruction. reads, writes: sets of vector registers, bit n for register n (256 on: AGPRs).
    boundary: no group extends over it."""

    fitness: Fitness
    reads: int
    writes: int
    boundary: bool

    def depends_on(self, other: Footprint) -> bool:
        """Whether the two must stay in order: RAW, WAR or WAW."""
        return bool(self.writes & (other.reads | other.writes) | self.reads & other.writes)


def footprint(instr: Instruction, target: str) -> Footprint:
    """The footprint of an instruction."""
    read, written = reads(instr), writes(instr)
    changes_exec = any(code in part for part in written.scalar for code in (EXEC, EXEC + 1))
    boundary = instr.name.startswith(_BOUNDARIES) or changes_exec or written.mode or "pc" in instr.row.writes
    return Footprint(fitness(instr, target), vector_set(read), vector_set(written), boundary)


def vector_set(registers: RegisterSet) -> int:
    """The vector registers as a set."""
    out = 0
    for part in registers.vector:
        out |= (1 << part.stop) - (1 << part.start)
    return out & _ALL_VECTORS


@dataclass(frozen=True, slots=True)
class Group:
    """Independent candidates. offsets: bytes from the first one's pc; following: the same for candidates after the group
    that need none of its results, and all between them neither; span: bytes of code that were looked at."""

    offsets: tuple[int, ...]
    following: tuple[int, ...]
    span: int


def collect_group(pc: int, look: Callable[[int], tuple[Footprint, int] | None], bound: int = 512) -> Group:
    """The independent group that starts with the candidate at pc.

    look: the (footprint, bytes) of the instruction at an address, None where nothing is decoded. bound: vector registers
    that the wave has; an instruction that names others ends the group. Every member could be executed at pc: no
    instruction before it touches its registers.
    """
    code = _Straight(pc, look, bound)
    offsets: list[int] = []
    before: list[Footprint] = []
    for at, step in islice(code, LOOKAHEAD + 1):
        if any(step.depends_on(earlier) for earlier in before if _together(step, earlier)):
            return Group(tuple(offsets), (), code.end - pc)
        if step.fitness is Fitness.CANDIDATE:
            offsets.append(at - pc)
        elif step.fitness is not Fitness.ORDINARY:
            return Group(tuple(offsets), (), code.end - pc)
        before.append(step)
        if len(offsets) == GROUP_LIMIT:
            break
    members = [step for step in before if step.fitness is Fitness.CANDIDATE]
    following = []
    for at, step in islice(code, FOLLOWING):
        if any(step.depends_on(member) for member in members):
            break
        if step.fitness is Fitness.CANDIDATE:
            following.append(at - pc)
    return Group(tuple(offsets), tuple(following), code.end - pc)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of decoded code, for what changes between two executions of an instruction. branches: (address, target) of
    direct ones that lead back; steps: the decoded instructions' footprints by address."""

    branches: Sequence[tuple[int, int]]
    steps: Mapping[int, Footprint]
    _written: dict[tuple[int, int], int] = field(default_factory=dict)

    def written_around(self, pc: int) -> int:
        """The vector registers that the innermost loop around an address writes; all of them where there is none."""
        around = [(at - target, at, target) for at, target in self.branches if target <= pc <= at]
        if not around:
            return _ALL_VECTORS
        _, last, first = min(around)
        if (first, last) not in self._written:
            steps = (step for at, step in self.steps.items() if first <= at <= last)
            self._written[first, last] = reduce(or_, (step.writes for step in steps), 0)
        return self._written[first, last]


class _Straight:
    """The instructions from pc on as (address, footprint), up to the end of what straight execution is known to reach.
    end: that of the last one given."""

    def __init__(self, pc: int, look: Callable[[int], tuple[Footprint, int] | None], bound: int) -> None:
        self.end = pc
        self._page = pc // PAGE
        self._look = look
        self._outside = ~((1 << bound) - 1)

    def __iter__(self) -> Iterator[tuple[int, Footprint]]:
        return self

    def __next__(self) -> tuple[int, Footprint]:
        at = self.end
        found = self._look(at)
        if found is None or (at + found[1] - 1) // PAGE != self._page:
            raise StopIteration
        step, nbytes = found
        if step.boundary or (step.reads | step.writes) & self._outside:
            raise StopIteration
        self.end = at + nbytes
        return at, step


def _together(step: Footprint, earlier: Footprint) -> bool:
    """Whether the order of the two matters here: that of two ordinary instructions stays as it is."""
    return Fitness.CANDIDATE in (step.fitness, earlier.fitness)
