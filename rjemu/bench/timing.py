"""Timing two things in turn, so that what disturbs the host disturbs both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Figure = tuple[float, dict[str, float]]
"""A row's figure, and the medians that it comes from."""

SAMPLE_SECONDS = 0.01
"""A sample repeats what is quicker than this."""

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_TUNING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def fair_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment for a process whose numpy runs on one thread, tuned for the host's own CPU."""
    kept = {name: value for name, value in environment.items() if name not in _TUNING}
    return {**kept, **dict.fromkeys(_THREADS, "1")}


def interleaved_medians(runs: Sequence[Callable[[], object]], repeat: int) -> list[float]:
    """Median seconds of one call of each function. Each is called once beforehand; then samples alternate."""
    counts = []
    for run in runs:
        run()
        counts.append(max(1, round(SAMPLE_SECONDS / max(_sample(run, 1), 1e-6))))
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, count, found in zip(runs, counts, samples, strict=True):
            found.append(_sample(run, count))
    return [statistics.median(found) for found in samples]


def _sample(run: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - started) / count
