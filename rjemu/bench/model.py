"""How a dispatch's time depends on the number of worker processes: a model from costs measured in the same run.

    time(P) = launch + (P - 1) * invitation + rounds(P) * workgroup,    rounds(P) = ceil(W / P)

launch: the host's work for a launch and the hand-over to one worker; invitation: what each further worker adds (its bell,
its entry, its leaving); workgroup: the mean time of one of the dispatch's W workgroups on a worker. It assumes that

- every worker has a core for itself: no SMT siblings share one, and the launcher sleeps meanwhile;
- workers do not slow each other down: each one's registers, LDS and tiles stay in its core's own caches, and the memory's
  bandwidth suffices for all (true of kernels bound by matrix instructions, not of copies);
- workgroups take equally long, and whole workgroups are dealt out: the last round may leave workers idle;
- handlers are compiled and workers are running; helpers bring nothing (the kernel has more workgroups than workers).
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rjemu.bench.matmul import PRESET, matmul_grid
from rjemu.bench.processes import Launch, empty_machine, matmul_machine
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
class Prediction:
    """A row of the allocation table: its budget, its allocation, the workers that take workgroups, the predicted seconds;
    and the measured ones where this host has the CPUs."""

    budget: int
    threads: ThreadAllocation
    workers: int
    seconds: float
    measured: float | None


def measure_costs(repeat: int) -> Costs:
    """The costs on this host. An invitation needs a second CPU; with one CPU it counts as nothing."""
    x, y = matmul_grid()
    with ExitStack() as stack:
        matmul = stack.enter_context(matmul_machine((1, 1)))
        launches = [
            stack.enter_context(empty_machine((1, dispatch), dispatch)) for dispatch in range(1, min(_cpus(), 2) + 1)
        ]
        _, *empty = interleaved_medians((matmul, *launches), repeat)
        workgroup = statistics.median(_busy(matmul) for _ in range(repeat)) / (x * y)
    return Costs(empty[0], max(empty[-1] - empty[0], 0.0), workgroup, x * y)


def _busy(launch: Launch) -> float:
    return float(sum(worker["busy_seconds"] for worker in launch().stats["workers"]))


def predict(costs: Costs, repeat: int) -> list[Prediction]:
    """A prediction for each row of the preset's allocation table."""
    config = load_config(PRESET)
    out = []
    for budget in BUDGETS:
        threads = resolve_execution_threads(config.threads, config.execution_topology, budget)
        workers = threads.total(1) - threads.async_helper_threads
        measured = _measured(threads, repeat) if workers <= _cpus() else None
        out.append(Prediction(budget, threads, workers, costs.seconds(workers), measured))
    return out


def _measured(threads: ThreadAllocation, repeat: int) -> float:
    with matmul_machine((threads.num_threads, threads.cpu_dispatch_threads)) as launch:
        (seconds,) = interleaved_medians((launch,), repeat)
    return seconds


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
            "measured": row.measured,
            "speed_up": predictions[0].seconds / row.seconds,
        }
        for row in predictions
    ]
    seconds = {"launch": costs.launch, "invitation": costs.invitation, "workgroup": costs.workgroup}
    return {"costs": seconds, "workgroups": costs.workgroups, "rows": rows}
