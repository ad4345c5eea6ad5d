"""The thread policy: how many engines, dispatch workers and helpers a machine has within a budget of CPUs.

The execution processes of an allocation are E + sum over SoCs of (D - 1) + H: engines, dispatch workers beside them (D
counts the engine's part), helpers. Source: rocJITsu's documentation, configuration.md, "Simulation threading".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_HELPERS = 128
"""A configuration may ask for at most so many."""


@dataclass(frozen=True, slots=True)
class ThreadAllocation:
    """Engines of the machine, dispatch width of each SoC (which counts the engines as one), helpers of the machine."""

    num_threads: int
    cpu_dispatch_threads: int
    async_helper_threads: int = 0

    def total(self, socs: int) -> int:
        """Execution processes on a machine of so many SoCs."""
        return self.num_threads + socs * (self.cpu_dispatch_threads - 1) + self.async_helper_threads


SERIAL = ThreadAllocation(1, 1, 0)


@dataclass(frozen=True, slots=True)
class ThreadRequest:
    """What a configuration asks for; None: not given.

    For engines and the dispatch width 0 asks for automatic choice, as None does; a dispatch width of 0 also asks for it
    where several SoCs have no table. table: the allocations to choose from.
    """

    num_threads: int | None = None
    cpu_dispatch_threads: int | None = None
    async_helper_threads: int | None = None
    table: Sequence[ThreadAllocation] = ()


@dataclass(frozen=True, slots=True)
class ExecutionTopology:
    """What bounds an allocation: SoCs of the machine, XCDs of each, CUs of each XCD's command processor."""

    socs: int
    xcds: int
    cus_per_xcd: int


def resolve_execution_threads(request: ThreadRequest, topology: ExecutionTopology, budget: int) -> ThreadAllocation:
    """The allocation of a machine: the largest of the table whose cost fits the budget, later entries first among equals,
    after explicit values and the topology's bounds have been applied to each entry.

    Explicit values are honoured even above the budget; what is not given is then serial. Without a table that is so, too,
    except that several SoCs with an explicit dispatch width of 0 get D = 1 + floor((budget - E - H) / SoCs).
    """
    socs = topology.socs
    chosen: ThreadAllocation | None = None
    for entry in request.table:
        candidate = _bounded(request, topology, entry)
        cost = candidate.total(socs)
        if cost <= budget and (chosen is None or cost >= chosen.total(socs)):
            chosen = candidate
    if chosen is not None:
        return chosen
    serial = _bounded(request, topology, SERIAL)
    if request.table or socs == 1 or request.cpu_dispatch_threads != 0:
        return serial
    left = max(budget - serial.total(socs), 0)
    return _bounded(request, topology, ThreadAllocation(1, 1 + left // socs, 0))


def _bounded(request: ThreadRequest, topology: ExecutionTopology, entry: ThreadAllocation) -> ThreadAllocation:
    """An entry with what the request gives explicitly, within what the topology has."""
    helpers = request.async_helper_threads
    return ThreadAllocation(
        num_threads=min(request.num_threads or entry.num_threads, topology.socs * topology.xcds),
        cpu_dispatch_threads=min(request.cpu_dispatch_threads or entry.cpu_dispatch_threads, topology.cus_per_xcd),
        async_helper_threads=entry.async_helper_threads if helpers is None else helpers,
    )
