"""What the samples of a budget experiment say: medians with ranges, the best allocation of each budget, and a
`thread_allocations` table from which the thread policy chooses these. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from rjemu.config.threads import ThreadAllocation
from rjemu.tune.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the job. seconds: of its dispatches together; compile_seconds: of these, decoding and compiling; host:
    where; interrupted: whether it went on from a checkpoint."""

    candidate: Candidate
    seconds: float
    compile_seconds: float
    host: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate's samples: how many, and their median and range in seconds. best: whether no other of its budget has a
    smaller median."""

    candidate: Candidate
    samples: int
    median: float
    low: float
    high: float
    best: bool


def summarise(samples: Iterable[Sample], socs: int) -> list[Row]:
    """A row for each candidate, by budget, processes, then allocation. Of equal medians the one with fewer processes, and
    among these the first in that order, is the best."""
    seconds: dict[Candidate, list[float]] = {}
    for sample in samples:
        seconds.setdefault(sample.candidate, []).append(sample.seconds)
    medians = {candidate: statistics.median(found) for candidate, found in seconds.items()}
    best: dict[int, Candidate] = {}
    order = sorted(medians, key=lambda candidate: _order(candidate, socs))
    for candidate in order:
        known = best.get(candidate.budget)
        if known is None or medians[candidate] < medians[known]:
            best[candidate.budget] = candidate
    return [
        Row(
            candidate,
            samples=len(seconds[candidate]),
            median=medians[candidate],
            low=min(seconds[candidate]),
            high=max(seconds[candidate]),
            best=best[candidate.budget] == candidate,
        )
        for candidate in order
    ]


def _order(candidate: Candidate, socs: int) -> tuple[int, ...]:
    allocation = candidate.allocation
    engines, helpers = allocation.num_threads, allocation.async_helper_threads
    return candidate.budget, allocation.total(socs), engines, helpers


def allocation_table(rows: Iterable[Row], socs: int) -> list[ThreadAllocation]:
    """The best allocation of the smallest budget, and of each further one the best of those that need more CPUs than the
    entry before was measured with, if it is quicker than that.

    The policy takes the largest entry that fits. So for every budget that gave an entry it resolves to this entry; where
    more processes did not pay it keeps to the smaller one.
    """
    entries: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.candidate.budget, row.median)):
        needed = row.candidate.allocation.total(socs)
        if not entries or (needed > entries[-1].candidate.budget and row.median < entries[-1].median):
            entries.append(row)
    return [row.candidate.allocation for row in entries]


def as_configuration(table: Iterable[ThreadAllocation]) -> dict[str, list[dict[str, int]]]:
    """The table as a configuration has it."""
    return {
        "thread_allocations": [
            {
                "num_threads": entry.num_threads,
                "cpu_dispatch_threads": entry.cpu_dispatch_threads,
                "async_helper_threads": entry.async_helper_threads,
            }
            for entry in table
        ]
    }
