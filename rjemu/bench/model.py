"""How a dispatch's time depends on the number of worker processes: a model from costs measured in the same run.

    time(P) = launch + (P - 1) * invitation + rounds(P) * workgroup,    rounds(P) = ceil(W / P)

launch: the host's work for a launch and the hand-over to one worker; invitation: what each further worker adds (its bell,
its entry, its leaving); workgroup: the mean time of one of the dispatch's W workgroups on a worker. It assumes that

- every worker has a core for itself: no SMT siblings share one, and the launcher has one, too;
- workers do not slow each other down: each one's registers, LDS and tiles stay in its core's own caches, and the memory's
  bandwidth suffices for all (true of kernels bound by matrix instructions, not of copies);
- workgroups take equally long, and whole workgroups are dealt out: the last round may leave workers idle;
- handlers are compiled and workers are running; helpers bring nothing (the kernel has more workgroups than workers).
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from rjemu.bench.matmul import PRESET, matmul_grid
from rjemu.bench.processes import empty_machine, matmul_machine
from rjemu.bench.timing import interleaved_medians
from rjemu.config import ThreadAllocation, load_config, resolve_execution_threads

BUDGETS = (1, 2, 4, 8, 16, 24, 32, 34, 36, 40, 48, 64)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of a launch, of each worker beyond the first, of a workgroup; and how many workgroups there are."""

    launch: float
    invitation: float
    workgroup: float
    workgroups: int

    def seconds(self, workers: int) -> float:
        """The model."""
        workers = min(workers, self.workgroups)
        rounds = math.ceil(self.workgroups / workers)
        return self.launch + (workers - 1) * self.invitation + rounds * self.workgroup


@dataclass(frozen=True, slots=True)
class Measured:
    """The matmul on so many workers: seconds of a launch, and a worker's busy seconds for each workgroup."""

    seconds: float
    workgroup: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row of the allocation table: its budget, its allocation, the predicted seconds; and what was measured where this
    host has a CPU for each worker."""

    budget: int
    threads: ThreadAllocation
    seconds: float
    measured: Measured | None


def allocations() -> list[tuple[int, ThreadAllocation]]:
    """The rows of the preset's allocation table, by budget."""
    config = load_config(PRESET)
    return [(budget, resolve_execution_threads(config.threads, config.execution_topology, budget)) for budget in BUDGETS]


def workers_of(threads: ThreadAllocation) -> int:
    """Processes that take workgroups."""
    return threads.total(1) - threads.async_helper_threads


def predict(repeat: int) -> tuple[Costs, list[Prediction]]:
    """The costs on this host and a prediction for each row, with samples of everything in turn. An invitation needs a
    second CPU; with one CPU it counts as nothing."""
    rows = allocations()
    here = {workers_of(threads): threads for _, threads in rows if workers_of(threads) <= _cpus()}
    with ExitStack() as stack:
        matmuls = {workers: stack.enter_context(_timed_matmul(threads)) for workers, threads in here.items()}
        empty = [stack.enter_context(empty_machine((1, n), n)) for n in range(1, min(_cpus(), 2) + 1)]
        medians = interleaved_medians((*(run for run, _ in matmuls.values()), *empty), repeat)
    x, y = matmul_grid()
    measured = {
        workers: Measured(seconds, statistics.median(busy[-repeat:]) / (x * y))
        for (workers, (_, busy)), seconds in zip(matmuls.items(), medians, strict=False)
    }
    one, more = medians[len(matmuls)], medians[-1]
    costs = Costs(one, max(more - one, 0.0), measured[1].workgroup, x * y)
    return costs, [
        Prediction(budget, threads, costs.seconds(workers_of(threads)), measured.get(workers_of(threads)))
        for budget, threads in rows
    ]


@contextmanager
def _timed_matmul(threads: ThreadAllocation) -> Iterator[tuple[Callable[[], None], list[float]]]:
    """A launch of the matmul, and the workers' busy seconds of every launch so far."""
    busy: list[float] = []
    with matmul_machine((threads.num_threads, threads.cpu_dispatch_threads)) as launch:

        def run() -> None:
            busy.append(sum(worker["busy_seconds"] for worker in launch().stats["workers"]))

        yield run, busy


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def as_json(costs: Costs, predictions: Sequence[Prediction]) -> dict[str, object]:
    """Costs and rows in plain values."""
    rows = [
        {
            "budget": row.budget,
            "engines": row.threads.num_threads,
            "dispatch": row.threads.cpu_dispatch_threads,
            "helpers": row.threads.async_helper_threads,
            "seconds": row.seconds,
            "measured": None if row.measured is None else asdict(row.measured),
            "speed_up": predictions[0].seconds / row.seconds,
        }
        for row in predictions
    ]
    seconds = {"launch": costs.launch, "invitation": costs.invitation, "workgroup": costs.workgroup}
    return {"costs": seconds, "workgroups": costs.workgroups, "rows": rows}
