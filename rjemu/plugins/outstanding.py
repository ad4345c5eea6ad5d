"""The memory operations of one wave that may be outstanding, by the wait counters of gfx9 (CDNA3 and CDNA4 ISA, "Manually
Inserted Wait States", "Data Dependency Resolution").

An operation counts up when it is issued and down when it is complete. vmcnt: vector memory, loads and stores alike, which
complete in order. lgkmcnt: LDS, scalar memory and messages; LDS operations complete in order among themselves, scalar ones
in any. FLAT operations count in both, and complete in any order. A wait for n is over when n at most are left, whichever
these are. expcnt: nothing that a compute kernel does. A store's data is read when it is issued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rjemu.isa.instruction import Instruction
from rjemu.plugins.contract import RegisterAccess, Step, WaitCounters

Order = Literal["vector memory", "LDS", "scalar memory", "message", "FLAT"]
_ANY_ORDER = ("scalar memory", "FLAT")
_VECTOR_MEMORY = ("GLOBAL", "SCRATCH", "MUBUF", "MTBUF")
_UNCOUNTED = ("buffer_inv", "ds_nop")
_MESSAGES = ("s_sendmsg", "s_sendmsghalt")


@dataclass(slots=True, eq=False)
class Operation:
    """A memory operation under way. counters: those that it has not been waited for by yet. results: register -> lanes and
    bytes of it that the operation writes."""

    step: Step
    order: Order
    counters: set[str]
    results: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """What has to be waited for, in words."""
        return " and ".join(sorted(self.counters))


def counted(instr: Instruction) -> tuple[Order, tuple[str, ...]] | None:
    """How an instruction's completion is ordered, and the counters that it counts in; None if in none."""
    if instr.name in _UNCOUNTED:
        return None
    if instr.encoding in _VECTOR_MEMORY:
        return "vector memory", ("vmcnt",)
    if instr.encoding == "FLAT":
        return "FLAT", ("vmcnt", "lgkmcnt")
    if instr.encoding == "DS":
        return "LDS", ("lgkmcnt",)
    if instr.encoding == "SMEM":
        return "scalar memory", ("lgkmcnt",)
    return ("message", ("lgkmcnt",)) if instr.name in _MESSAGES else None


class Outstanding:
    """The operations of a wave that its waits have not covered yet, oldest first."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []

    def issue(self, step: Step) -> Operation | None:
        """Enter an instruction; None if it counts in no counter."""
        kind = counted(step.instr)
        if kind is None:
            return None
        operation = Operation(step, kind[0], set(kind[1]))
        self._operations.append(operation)
        return operation

    def wait(self, limits: WaitCounters) -> None:
        """Take out what is complete for sure."""
        for counter, limit in (("vmcnt", limits.vmcnt), ("lgkmcnt", limits.lgkmcnt)):
            if limit is not None:
                self._wait(counter, limit)
        self._operations = [operation for operation in self._operations if operation.counters]

    def _wait(self, counter: str, limit: int) -> None:
        """An operation can only be among the `limit` that are left if no more than that are: itself, and the younger ones
        that cannot complete before it."""
        younger: dict[Order, int] = {}
        for operation in reversed(self._operations):
            if counter in operation.counters:
                behind = 0 if operation.order in _ANY_ORDER else younger.get(operation.order, 0)
                younger[operation.order] = younger.get(operation.order, 0) + 1
                if 1 + behind > limit:
                    operation.counters.discard(counter)

    def conflict(self, access: RegisterAccess, *, unless: Order | None = None) -> Operation | None:
        """The youngest operation whose results the access meets. unless: that of the accessing instruction, with whose
        results those of operations of the same order do not come into conflict."""
        key = (access.file, access.index)
        for operation in reversed(self._operations):
            result = operation.results.get(key)
            if result is None or not operation.counters or (operation.order == unless and unless not in _ANY_ORDER):
                continue
            lanes, covered = result
            if covered & access.bytes and (access.file != "vector" or lanes & access.lanes):
                return operation
        return None
