"""The measurements of checkpoints: size, time to save and to restore, and what periodic ones cost a run."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rjemu.bench.ir_kernels import alu_loop
from rjemu.bench.matmul import PRESET, TARGET
from rjemu.bench.timing import Figure
from rjemu.checkpoint.restore import restore
from rjemu.integrations.llvm_ir import compile_ir
from rjemu.vm.machine import Machine

GIB = 1 << 30
ROUNDS = 2000
RUN_SECONDS = 3.0
SAVES_PER_RUN = 3


def _live_bytes(repeat: int) -> int:
    """Of the machine that is saved: enough for the disk to matter, unless a quick look is wanted."""
    return GIB if repeat > 2 else GIB // 16


@contextmanager
def _filled_machine(live: int) -> Iterator[tuple[Machine, Path]]:
    """A machine with normal f16 numbers in so many bytes of memory, and a place for its checkpoint."""
    numbers = np.random.default_rng(6).standard_normal(live // 8, np.float32).astype(np.float16)
    with tempfile.TemporaryDirectory() as folder, Machine(PRESET) as gpu:
        _arrays = [gpu.to_device(numbers) for _ in range(4)]  # kept for as long as the machine is
        yield gpu, Path(folder) / "checkpoint"


def size(repeat: int) -> Figure:
    """Per cent of the live bytes that the file has."""
    live = _live_bytes(repeat)
    with _filled_machine(live) as (gpu, path):
        started = time.perf_counter()
        gpu.save(path)
        return 100 * path.stat().st_size / live, {"save": time.perf_counter() - started}


def save(repeat: int) -> Figure:
    """Seconds for a GiB, against those that a plain write takes to reach the disk."""
    live = _live_bytes(repeat)
    with _filled_machine(live) as (gpu, path):
        content = np.random.default_rng(7).bytes(live)

        def write() -> None:
            with path.with_name("plain").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

        saved, plain = _alternating((lambda: gpu.save(path), write), min(repeat, 5))
    return saved * GIB / live, {"save": saved, "plain write": plain}


def restoration(repeat: int) -> Figure:
    """Seconds for a GiB."""
    live = _live_bytes(repeat)
    with _filled_machine(live) as (gpu, path):
        gpu.save(path)
        (seconds,) = _alternating((lambda: restore(path).close(),), min(repeat, 5))
    return seconds * GIB / live, {"restore": seconds}


def cost(interval: float) -> Callable[[int], Figure]:
    """Per cent that checkpoints of a GiB every so many seconds add to a run: what one adds to a shorter run, over the
    interval. That is more than the run stands still: caches are cold afterwards."""

    def measured(repeat: int) -> Figure:
        live = _live_bytes(repeat)
        with _filled_machine(live) as (gpu, path):
            kernel, out = gpu.load(compile_ir(alu_loop(), TARGET))["alu"], gpu.empty(64, np.uint32)
            arguments = [out, np.int32(ROUNDS)]
            kernel.launch(8, 64, arguments)
            workgroups = max(int(64 * RUN_SECONDS / kernel.launch(64, 64, arguments).seconds), 8)

            def run(saves: int) -> None:
                """With so many checkpoints, evenly spread."""
                count = 0

                def progress(done: int, total: int) -> None:
                    nonlocal count
                    if count < saves and done * (saves + 1) >= total * (count + 1):
                        gpu.save(path)
                        count += 1

                kernel.launch(workgroups, 64, arguments, progress=progress)

            with_saves, without = _alternating((lambda: run(SAVES_PER_RUN), lambda: run(0)), min(repeat, 5))
        added = (with_saves - without) / SAVES_PER_RUN * GIB / live
        return 100 * added / interval, {"with": with_saves, "without": without}

    return measured


def _alternating(runs: tuple[Callable[[], object], ...], repeat: int) -> list[float]:
    """Median seconds of each, without running any of them beforehand: they are long."""
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, found in zip(runs, samples, strict=True):
            started = time.perf_counter()
            run()
            found.append(time.perf_counter() - started)
    return [statistics.median(found) for found in samples]


MEASUREMENTS: dict[str, Callable[[int], Figure]] = {
    "size": size,
    "save": save,
    "restore": restoration,
    "every10s": cost(10.0),
    "every10m": cost(600.0),
}
