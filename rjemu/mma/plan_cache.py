"""Plans for the sites of a machine's matrix instructions: made once, kept by pc and register bound, checked against the code
bytes after the instruction cache has been invalidated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rjemu.exec.plans import (
    FIRST_PLAN,
    SITE_NOT_ELIGIBLE,
    SITE_REJECTED,
    SITE_SCALAR_OPERAND,
    PlannedMma,
    PlanTable,
)
from rjemu.exec.program import Program
from rjemu.isa.instruction import Instruction
from rjemu.mma.admission import TYPICAL_HANDOFF, HandoffCost, MmaCost, shares
from rjemu.mma.candidates import Fitness
from rjemu.mma.planner import Footprint, Loops, collect_group, footprint

MAX_ENTRIES = 16 << 10
MAX_FOOTPRINTS = 64 << 10
VECTOR_REGISTERS = 512

_SITES = {Fitness.ORDINARY: 0, Fitness.SCALAR_OPERAND: SITE_SCALAR_OPERAND, Fitness.NOT_ELIGIBLE: SITE_NOT_ELIGIBLE}


@dataclass(slots=True)
class _Entry:
    """A plan or a rejection. code: the bytes that it comes from; epoch: when they were last compared."""

    site: int
    code: bytes
    epoch: int


@dataclass(slots=True)
class PlanStatistics:
    """plans_built: also those rejected."""

    plans_built: int = 0
    plans_accepted: int = 0
    plan_hits: int = 0
    plan_revalidations: int = 0


@dataclass(slots=True)
class PlanCache:
    """Plans sites of programs (`exec.codebook.Analyst`).

    table: where accepted plans go. cost: what an execution of the instruction at an address of a program costs, in
    nanoseconds. handoff may be replaced as it gets known better; plans that exist stay.
    """

    target: str
    table: PlanTable
    cost: Callable[[Program, int], float]
    handoff: HandoffCost = TYPICAL_HANDOFF
    statistics: PlanStatistics = field(default_factory=PlanStatistics)
    _entries: dict[tuple[int, int], _Entry] = field(default_factory=dict)
    _footprints: dict[tuple[object, ...], Footprint] = field(default_factory=dict)
    _loops: tuple[tuple[Program, int, int], Loops] | None = None
    _epoch: int = 0

    def registers(self, instr: Instruction) -> tuple[int, int]:
        """The sets of vector registers that an instruction reads and writes."""
        found = self._footprint(instr)
        return found.reads, found.writes

    def _footprint(self, instr: Instruction) -> Footprint:
        key = (instr.name, instr.encoding, instr.operands, tuple(instr.mods.items()))
        found = self._footprints.get(key)
        if found is None:
            if len(self._footprints) == MAX_FOOTPRINTS:
                del self._footprints[next(iter(self._footprints))]
            found = self._footprints[key] = footprint(instr, self.target)
        return found

    def invalidate(self) -> None:
        """The instruction cache has been invalidated: every plan is to be compared with its code before it is used again."""
        self._epoch += 1

    def site(self, program: Program, pc: int, bound: int = VECTOR_REGISTERS) -> int:
        """The site of a decoded instruction (`exec.plans`)."""
        found = self._footprint(program.instructions[pc])
        if found.fitness is not Fitness.CANDIDATE:
            return _SITES[found.fitness]
        entry = self._entries.get((pc, bound))
        if entry is not None and self._valid(entry, program, pc):
            return entry.site
        if entry is None and len(self._entries) == MAX_ENTRIES:
            return SITE_REJECTED
        site, span = self._plan(program, pc, bound)
        self._entries[pc, bound] = _Entry(site, program.code_at(pc, span), self._epoch)
        return site

    def _valid(self, entry: _Entry, program: Program, pc: int) -> bool:
        if entry.epoch == self._epoch:
            self.statistics.plan_hits += 1
            return True
        if program.code_at(pc, len(entry.code)) != entry.code:
            return False
        self.statistics.plan_revalidations += 1
        entry.epoch = self._epoch
        return True

    def _plan(self, program: Program, pc: int, bound: int) -> tuple[int, int]:
        """(site, bytes of code that it depends on)."""

        def look(at: int) -> tuple[Footprint, int] | None:
            instr = program.instructions.get(at)
            return None if instr is None else (self._footprint(instr), instr.size)

        self.statistics.plans_built += 1
        group = collect_group(pc, look, bound)
        if len(group.offsets) < 2:
            return SITE_REJECTED, group.span
        members = [self._member(program, pc, offset) for offset in group.offsets]
        written = self._loops_of(program).written_around(pc)
        costs = [
            MmaCost(self.cost(program, pc + offset), member.size, member.reads & ~member.writes & written)
            for member, offset in zip(members, group.offsets, strict=True)
        ]
        following = sum(self.cost(program, pc + offset) for offset in group.following)
        split = shares(costs, self.handoff, following)
        number = self.table.add(members, split) if split else None
        if number is None:
            return SITE_REJECTED, group.span
        self.statistics.plans_accepted += 1
        return FIRST_PLAN + number, group.span

    def _loops_of(self, program: Program) -> Loops:
        """The loops of what has been decoded of a program."""
        known = program, len(program.instructions), self._epoch
        if self._loops is None or self._loops[0] != known:
            branches = []
            for at, instr in program.instructions.items():
                if instr.name.startswith(("s_branch", "s_cbranch")) and instr.imm("simm16") < 0:
                    branches.append((at, at + 4 + 4 * instr.imm("simm16")))
            steps = {at: self._footprint(instr) for at, instr in program.instructions.items()}
            self._loops = known, Loops(branches, steps)
        return self._loops[1]

    def _member(self, program: Program, pc: int, offset: int) -> PlannedMma:
        instr = program.instructions[pc + offset]
        found = self._footprint(instr)
        result = instr.operand("vdst")
        row_bytes = 4 * program.wave_size
        return PlannedMma(
            program.record_at(pc + offset),
            offset // 4,
            result.index * row_bytes,
            result.dwords * row_bytes,
            found.reads,
            found.writes,
        )
