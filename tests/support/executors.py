"""A stand-in for an executor, for tests of what surrounds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import rjemu
from rjemu.exec.dispatch import DispatchResult, DispatchSpec, launch_stats, worker_stats
from rjemu.exec.trace import TraceRow
from rjemu.shm.vram import Vram
from rjemu.vm import machine as machine_module


class RecordingExecutor:
    """Executes nothing: keeps the code ranges and the dispatches, and calls `on_run` in place of the kernel."""

    concurrent_launches = 1

    def __init__(self, vram: Vram, target: str, *, lds_bytes: int, cache_dir: Path | None) -> None:
        self.vram = vram
        self.code: dict[int, int] = {}
        self.specs: list[DispatchSpec] = []
        self.on_run: Callable[[DispatchSpec], None] = lambda spec: None

    def start(self) -> None:
        """There is nothing to start."""

    def begin_trace(self) -> None:
        """Nothing is recorded."""

    def end_trace(self) -> list[TraceRow]:
        return []

    def add_code(self, address: int, nbytes: int) -> None:
        self.code[address] = nbytes

    def remove_code(self, address: int) -> None:
        del self.code[address]

    def run(
        self, spec: DispatchSpec, *, timeout: float | None, progress: Callable[[int, int], None] | None, **others: Any
    ) -> DispatchResult:
        self.specs.append(spec)
        self.on_run(spec)
        if progress is not None:
            progress(spec.workgroups, spec.workgroups)
        worker = worker_stats("engine 0", 3, spec.workgroups, 24, 0.4, 0.5)
        stats = launch_stats([worker], 2, 0.25, allocation=(1, 1, 0))
        return DispatchResult(wave_instructions=24, seconds=0.5, stats=stats)

    def close(self) -> None:
        self.code.clear()


@contextmanager
def recording() -> Iterator[None]:
    """Machines made inside get a RecordingExecutor."""
    with mock.patch.object(machine_module, "executor_factory", lambda *arguments: RecordingExecutor):
        yield


def executor_of(gpu: rjemu.Machine) -> RecordingExecutor:
    """The stand-in of a machine made inside `recording`."""
    executor: Any = gpu._executor
    assert isinstance(executor, RecordingExecutor)
    return executor


def kernarg_address(spec: DispatchSpec) -> int:
    """The kernarg pointer of a kernel that asks for no other pointer before it."""
    return int(spec.user_sgprs[0]) | int(spec.user_sgprs[1]) << 32
