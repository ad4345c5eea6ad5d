"""Futexes: who sleeps, who is woken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from rjemu.shm import futex
from rjemu.shm.segment import Segment


@pytest.fixture
def word() -> Iterator[np.ndarray]:
    segment = Segment.create("test", 4096)
    yield segment.array(np.uint32, 1)
    segment.close()


def sleeper(wait: Callable[[], None]) -> tuple[threading.Thread, list[float]]:
    """A thread that sleeps, and how long it did."""
    slept: list[float] = []

    def run() -> None:
        started = time.monotonic()
        wait()
        slept.append(time.monotonic() - started)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, slept


def test_groups_are_woken_apart(word: np.ndarray) -> None:
    address = word.ctypes.data
    sleepers = [sleeper(lambda group=group: futex.wait_in_group(address, 0, 20.0, group)) for group in (0, 5, 31)]  # type: ignore[misc]
    deadline = time.monotonic() + 10
    for group, (thread, slept) in zip((0, 5, 31), sleepers, strict=True):
        while not futex.wake_groups(address, 1 << group):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        thread.join(10)
        assert len(slept) == 1
        assert futex.wake_groups(address, 1 << group) == 0
    assert sum(len(slept) for _, slept in sleepers) == 3


def test_one_call_wakes_several_groups(word: np.ndarray) -> None:
    address = word.ctypes.data
    sleepers = [sleeper(lambda group=group: futex.wait_in_group(address, 0, 20.0, group)) for group in (1, 1, 7)]  # type: ignore[misc]
    time.sleep(0.2)
    woken, deadline = 0, time.monotonic() + 10
    while woken < 3 and time.monotonic() < deadline:
        woken += futex.wake_groups(address, 1 << 1 | 1 << 7)
    assert woken == 3
    for thread, _ in sleepers:
        thread.join(10)


@pytest.mark.parametrize(
    "wait", [lambda *of: futex.wait(*of), lambda *of: futex.wait_in_group(*of, 3)], ids=["alone", "group"]
)
def test_sleep_ends_by_itself_and_does_not_begin_at_another_value(word: np.ndarray, wait: Callable[..., None]) -> None:
    started = time.monotonic()
    wait(word.ctypes.data, 1, 20.0)
    assert time.monotonic() - started < 5
    started = time.monotonic()
    wait(word.ctypes.data, 0, 0.2)
    assert 0.15 < time.monotonic() - started < 5


def test_waking_what_is_no_memory_fails() -> None:
    for wake in (futex.wake, lambda address: futex.wake_groups(address, 1)):
        with pytest.raises(OSError, match="address"):
            wake(8)
