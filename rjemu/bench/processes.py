"""The measurements of worker processes: scaling, launches, start, memory, overhead."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import psutil

from rjemu.bench.ir_kernels import EMPTY
from rjemu.bench.matmul import PRESET, SIZE, TARGET, compile_matmul, matmul_grid
from rjemu.bench.timing import Figure, interleaved_medians
from rjemu.exec.dispatch import DispatchResult
from rjemu.integrations.llvm_ir import compile_ir
from rjemu.integrations.triton import load
from rjemu.vm.executor import Workers
from rjemu.vm.machine import Machine

LAUNCHES = 1000
SETTLED_SECONDS = 1.0

Launch = Callable[[], DispatchResult]


@contextmanager
def matmul_machine(workers: Workers) -> Iterator[Launch]:
    """The fp16 matmul on a machine of its own, all workers started, to be launched any number of times."""
    a, b = np.random.default_rng(2).normal(size=(2, SIZE, SIZE)).astype(np.float16)
    with Machine(PRESET, workers=workers) as gpu:
        kernel = load(gpu, compile_matmul())
        args = [gpu.to_device(a), gpu.to_device(b), gpu.empty((SIZE, SIZE), np.float32), SIZE, SIZE]
        gpu.start()
        yield lambda: kernel.launch(matmul_grid(), args)


@contextmanager
def empty_machine(workers: Workers, workgroups: int = 1) -> Iterator[Launch]:
    """A kernel that ends at once, in so many workgroups."""
    with Machine(PRESET, workers=workers) as gpu:
        kernel = gpu.load(compile_ir(EMPTY, TARGET))["empty"]
        gpu.start()
        yield lambda: kernel.launch(workgroups, 64)


def scaling(repeat: int) -> Figure:
    """The matmul's time on one worker over that on two."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(matmul_machine((1, dispatch))) for dispatch in (1, 2))
        seconds, both = interleaved_medians((one, two), repeat)
    return seconds / both, {"1/1": seconds, "1/2": both}


def launches(repeat: int) -> Figure:
    """Launches per second, one after another."""
    with empty_machine((1, 1)) as launch:

        def many() -> None:
            for _ in range(LAUNCHES):
                launch()

        (seconds,) = interleaved_medians((many,), repeat)
    return LAUNCHES / seconds, {"rjemu": seconds}


_OPEN = """
import sys, time
import rjemu
machine = rjemu.Machine
started = time.perf_counter()
with machine({preset!r}, workers=(int(sys.argv[1]), 1 + int(sys.argv[2]))) as gpu:
    gpu.start()
    print(time.perf_counter() - started)
"""
"""A process that has imported rjemu opens its first machine, and waits until all workers listen."""


def opening(workers: int, repeat: int) -> Figure:
    """Seconds from the call of Machine until so many workers listen, in a new process: the fork server starts, too."""
    engines = min(workers, 8)
    command = [sys.executable, "-c", _OPEN.format(preset=PRESET), str(engines), str(workers - engines)]
    samples = []
    for _ in range(repeat + 1):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        samples.append(float(done.stdout))
    seconds = statistics.median(samples[1:])
    return seconds, {"rjemu": seconds}


def memory(repeat: int) -> Figure:
    """MiB that a worker has for itself after a matmul: its unique set size, which leaves out what it shares with other
    processes: segments, libraries, and pages of the fork server that it has not written to."""
    with matmul_machine((1, 2)) as launch:
        launch()
        time.sleep(SETTLED_SECONDS)
        sizes = [process.memory_full_info().uss for process in _workers()]
    return max(sizes) / (1 << 20), {f"worker {k}": size / (1 << 20) for k, size in enumerate(sizes)}


def _workers() -> list[psutil.Process]:
    """The worker processes below this one: children of its fork server."""
    servers = psutil.Process().children()
    return [child for server in servers for child in server.children() if len(child.cpu_affinity()) == 1]


def overhead(repeat: int) -> Figure:
    """What the matmul takes longer on one worker than inline, in percent, where both have the same CPU."""
    with ExitStack() as stack:
        inline, worker = (stack.enter_context(matmul_machine(workers)) for workers in ("inline", (1, 1)))
        seconds, apart = interleaved_medians((inline, worker), 2 * repeat)
    return 100 * (apart / seconds - 1), {"inline": seconds, "1/1": apart}


MEASUREMENTS: dict[str, Callable[[int], Figure]] = {
    "scaling": scaling,
    "launches": launches,
    "open1": lambda repeat: opening(1, repeat),
    "open16": lambda repeat: opening(16, repeat),
    "memory": memory,
    "overhead": overhead,
}
