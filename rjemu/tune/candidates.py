"""What a budget experiment measures: budgets of CPUs, and allocations worth a try within each. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rjemu.config.threads import (
    MAX_HELPERS,
    ExecutionTopology,
    ThreadAllocation,
    ThreadRequest,
    resolve_execution_threads,
)
from rjemu.errors import UsageError


@dataclass(frozen=True, slots=True)
class Candidate:
    """An allocation on a machine that is confined to so many CPUs."""

    budget: int
    allocation: ThreadAllocation


def default_budgets(cpus: int) -> list[int]:
    """The powers of two up to the CPUs that there are, and these."""
    powers = [1 << bit for bit in range(cpus.bit_length())]
    return powers if powers[-1] == cpus else [*powers, cpus]


def default_allocations(
    request: ThreadRequest, topology: ExecutionTopology, budget: int, *, helpers: bool
) -> list[ThreadAllocation]:
    """At most six allocations that fit a budget: what the thread policy resolves to; one engine, the policy's engines and as
    many engines as there can be, each with dispatch workers on all CPUs left; and, where `helpers` can do anything, the
    policy's engines with a quarter and a half of the budget as helpers, with dispatch workers on the rest.

    request: the job's, whose explicit values bind the policy's choice, but not the others.
    """
    policy = resolve_execution_threads(request, topology, budget)
    most = min(budget, topology.socs * topology.xcds)
    engines = min(policy.num_threads, most)
    found = [policy] if policy.total(topology.socs) <= budget else []
    found += [_filled(count, 0, topology, budget) for count in (1, engines, most)]
    if helpers:
        for count in (budget // 4, budget // 2):
            if count:
                found.append(_filled(min(engines, budget - count), count, topology, budget))
    return list(dict.fromkeys(found))


def _filled(engines: int, helpers: int, topology: ExecutionTopology, budget: int) -> ThreadAllocation:
    """So many engines and helpers, and dispatch workers on what they leave of the budget."""
    helpers = min(helpers, MAX_HELPERS)
    width = 1 + (budget - engines - helpers) // topology.socs
    return ThreadAllocation(engines, min(width, topology.cus_per_xcd), helpers)


def plan(
    budgets: Sequence[int],
    given: Sequence[ThreadAllocation],
    request: ThreadRequest,
    topology: ExecutionTopology,
    *,
    helpers: bool,
) -> list[Candidate]:
    """The candidates of an experiment, smallest budget first: of each budget those of the `given` allocations that fit it,
    or `default_allocations` where none are given.

    UsageError for a budget or an allocation that nothing would be run for, and for allocations that the topology would
    cut down.
    """
    for allocation in given:
        _check(allocation, topology, helpers)
    found = []
    for budget in sorted(set(budgets)):
        if given:
            fitting = [entry for entry in dict.fromkeys(given) if entry.total(topology.socs) <= budget]
            if not fitting:
                raise UsageError(f"no allocation of those given fits a budget of {budget} CPUs")
        else:
            fitting = default_allocations(request, topology, budget, helpers=helpers)
        found += [Candidate(budget, allocation) for allocation in fitting]
    for allocation in given:
        if all(candidate.allocation != allocation for candidate in found):
            total = allocation.total(topology.socs)
            raise UsageError(f"allocation {allocation_name(allocation)} has {total} processes, more than any budget given")
    return found


def _check(allocation: ThreadAllocation, topology: ExecutionTopology, helpers: bool) -> None:
    engines, width = topology.socs * topology.xcds, topology.cus_per_xcd
    name = allocation_name(allocation)
    if allocation.num_threads > engines:
        raise UsageError(f"allocation {name}: the machine has {engines} XCDs, and so at most as many engines")
    if allocation.cpu_dispatch_threads > width:
        raise UsageError(f"allocation {name}: an XCD has {width} compute units, the largest dispatch width")
    if allocation.async_helper_threads and not helpers:
        raise UsageError(f"allocation {name}: helpers have nothing to do for this job's target")


def allocation_name(allocation: ThreadAllocation) -> str:
    """E/D/H, as `parse_allocation` takes it."""
    return f"{allocation.num_threads}/{allocation.cpu_dispatch_threads}/{allocation.async_helper_threads}"


def parse_allocation(text: str) -> ThreadAllocation:
    """Engines, dispatch width and helpers from E/D/H or E/D; UsageError for anything else."""
    parts = text.split("/")
    if len(parts) in (2, 3) and all(part.isascii() and part.isdecimal() for part in parts):
        engines, width, helpers = (int(part) for part in (*parts, "0")[:3])
        if engines >= 1 and width >= 1 and helpers <= MAX_HELPERS:
            return ThreadAllocation(engines, width, helpers)
    raise UsageError(f"{text!r} is no allocation: expected engines/dispatch width/helpers, as in 2/7/0 or 2/7")


def parse_budget(text: str) -> int:
    """A number of CPUs; UsageError for anything else."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise UsageError(f"{text!r} is no budget: expected a number of CPUs")
    return int(text)
