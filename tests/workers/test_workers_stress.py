"""The shared-memory protocol under stress: launches from many threads on few slots, while workers are stopped, go on and die
at random moments. What a launch counts is exact whenever it ends well."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import psutil
import pytest
from support.assemble import build
from support.worker_kernels import COUNT, check_fill, workers_of

import rjemu
from rjemu.errors import LaunchTimeout, WorkerLost

Chaos = Callable[[rjemu.Machine, random.Random], None]


@pytest.fixture
def often_switching() -> Iterator[None]:
    """The launcher's threads take turns every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@dataclass
class Tally:
    """What one thread has launched: workgroups of launches that ended well, launches of each ending, wrong counts."""

    workgroups: int = 0
    launches: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)


def launch_until(gpu: rjemu.Machine, stop: threading.Event, tally: Tally, seed: int, grid: int) -> None:
    """Launches of random sizes, each with a counter of its own and all with one in common."""
    rng = random.Random(seed)
    kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
    counter = gpu.zeros(1, np.uint32)
    expected = 0
    while not stop.is_set():
        count = rng.randint(1, grid)
        try:
            kernel.launch(count, 64, kernarg=np.uint64(counter.address).tobytes(), timeout=60)
        except WorkerLost:
            tally.lost += 1
            found = int(counter.to_host()[0])
            if not expected <= found <= expected + count:
                tally.wrong.append(f"{found} after a lost launch of {count} from {expected}")
            expected = found
            continue
        except LaunchTimeout as error:
            tally.wrong.append(str(error))
            return
        expected += count
        tally.launches += 1
        tally.workgroups += count
        if tally.launches % 16 == 0:
            found = int(counter.to_host()[0])
            if found != expected:
                tally.wrong.append(f"{found} instead of {expected}")
                expected = found


def run_threads(gpu: rjemu.Machine, threads: int, grid: int, seed: int, seconds: float, chaos: Chaos) -> Tally:
    """Launch from so many threads for a while, calling chaos(gpu, rng) again and again meanwhile; the tallies in one."""
    stop = threading.Event()
    tallies = [Tally() for _ in range(threads)]
    running = [
        threading.Thread(target=launch_until, args=(gpu, stop, tally, seed + k, grid), daemon=True)
        for k, tally in enumerate(tallies)
    ]
    rng = random.Random(seed)
    for thread in running:
        thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        chaos(gpu, rng)
    stop.set()
    for thread in running:
        thread.join(90)
        assert not thread.is_alive(), "a launch hangs"
    return Tally(
        sum(tally.workgroups for tally in tallies),
        sum(tally.launches for tally in tallies),
        sum(tally.lost for tally in tallies),
        [text for tally in tallies for text in tally.wrong],
    )


def pause(gpu: rjemu.Machine, rng: random.Random) -> None:
    """Stop a worker wherever it is, for up to 20 ms."""
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        worker = rng.choice(workers_of(gpu))
        worker.suspend()
        time.sleep(rng.random() * 0.02)
        worker.resume()
    time.sleep(rng.random() * 0.02)


def kill(gpu: rjemu.Machine, rng: random.Random) -> None:
    """Kill a worker, after a while."""
    time.sleep(rng.random() * 0.3)
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        rng.choice(workers_of(gpu)).kill()


def idle(gpu: rjemu.Machine, rng: random.Random) -> None:
    time.sleep(0.05)


@pytest.mark.parametrize(
    ("workers", "threads", "grid", "seconds"),
    [
        ((1, 2), 3, 20, 2.0),
        ((2, 3), 24, 3, 2.0),
        pytest.param((1, 2), 4, 100, 120.0, marks=pytest.mark.long),
        pytest.param((4, 5), 40, 20, 120.0, marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize("chaos", [idle, pause])
def test_every_launch_counts_exactly(
    workers: tuple[int, int], threads: int, grid: int, seconds: float, chaos: Chaos, often_switching: None
) -> None:
    """Also with more threads than dispatch slots."""
    with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:
        gpu.start()
        tally = run_threads(gpu, threads, grid, 1, seconds, chaos)
        assert tally.wrong == []
        assert tally.lost == 0
        assert tally.launches > 20 * seconds


@pytest.mark.parametrize(
    ("workers", "threads", "seconds"),
    [((1, 2), 4, 3.0), pytest.param((2, 4), 24, 120.0, marks=pytest.mark.long)],
    ids=str,
)
def test_launches_survive_workers_that_die(workers: tuple[int, int], threads: int, seconds: float) -> None:
    with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:
        gpu.start()
        tally = run_threads(gpu, threads, 40, 2, seconds, kill)
        assert tally.wrong == []
        assert tally.launches > 0
        check_fill(gpu)


@pytest.mark.long
def test_millions_of_workgroups(often_switching: None) -> None:
    with rjemu.Machine("gfx950_mi355x", workers=(1, 2)) as gpu:
        gpu.start()
        workgroups = 0
        seed = 3
        while workgroups < 5_000_000:
            tally = run_threads(gpu, 4, 300, seed, 20.0, pause)
            assert tally.wrong == []
            workgroups += tally.workgroups
            seed += 100
