"""The native executor in one process: runs dispatches as threaded code compiled by LLVM (docs/architecture.md).

Python is entered only at the ends of native runs: to decode and compile what is reached for the first time, to look at
the clock, and to turn faults into exceptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.errors import KernelFault, LaunchInterrupted, LaunchTimeout
from rjemu.exec.cache import HandlerCache
from rjemu.exec.codebook import Codebook
from rjemu.exec.compiler import Host
from rjemu.exec.dispatch import DispatchResult, DispatchSpec, launch_stats, worker_stats
from rjemu.exec.engine import Engine, Runtime, aligned_bytes
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.issues import IssueListener, issues_of
from rjemu.exec.layout import DISPATCH_BYTES, class_key
from rjemu.exec.prepare import DispatchBlock, slot_layout
from rjemu.exec.residency import affordable_residents
from rjemu.exec.runner import Runner, Watcher
from rjemu.exec.runtime_code import runtime_object
from rjemu.exec.slots import Slots
from rjemu.exec.suspended import (
    Pauses,
    SuspendedDispatch,
    counters,
    free_slots,
    placement,
    put_workgroup,
    record_workgroup,
    running_slots,
    set_counters,
)
from rjemu.exec.trace import LocalTracing, TraceRing, TraceRow
from rjemu.shm.room import Ranges, promised
from rjemu.shm.segment import Segment
from rjemu.shm.vram import Vram

Progress = Callable[[int, int], None]
HelperFactory = Callable[..., Any]
"""Makes `rjemu.workers.helpers.HelperPool` from (target, cache, code of the run time, run time, library, CPUs in use)."""


@dataclass(frozen=True)
class _UnderWay:
    """The dispatch that an executor carries out (`exec.suspended.Pausable`)."""

    executor: NativeExecutor
    spec: DispatchSpec
    slots: Slots
    runner: Runner

    def suspend(self) -> SuspendedDispatch:
        return self.executor.suspend(self.spec, self.slots, self.runner)

    def go_on(self) -> None:
        """It has not been stopped: its thread does something else meanwhile."""


class NativeExecutor(LocalTracing):
    """Runs dispatches in this process. See `vm.machine.Executor` for the interface."""

    wave_size = 64
    concurrent_launches = 1

    def __init__(
        self,
        vram: Vram,
        target: str,
        *,
        lds_bytes: int,
        cache_dir: Path | None = None,
        host: Host | None = None,
        helpers: HelperFactory | None = None,
        counting: bool = False,
        watch: Callable[[DispatchSpec], Watcher] | None = None,
        notify: Callable[[DispatchSpec], IssueListener] | None = None,
    ) -> None:
        """host: the CPU to compile for, by default this one; cache_dir: see `HandlerCache`; helpers: makes the helpers that
        run matrix instructions; counting: executed instructions are counted (`DispatchResult.executed`); watch: makes what
        is told of a dispatch's waves; notify: makes what is told, with helpers, of the instructions that they are given."""
        cache = HandlerCache(cache_dir, host)
        self._watch = watch
        self._notify = notify
        variants = {"asynchronous": helpers is not None, "counting": counting, "notifying": notify is not None}
        code = runtime_object(cache, self.wave_size, **variants, watching=watch is not None)
        runtime = Runtime(code, **variants)
        self._library = HandlerLibrary(target, self.wave_size, cache, runtime.undecoded)
        self._helpers = None if helpers is None else helpers(target, cache, code, runtime, self._library, 1)
        self._codebook = Codebook(vram, target, self._library, self._helpers)
        self._engine = Engine(runtime, self._library.table, vram.host_base, vram.table_address)
        if self._helpers is not None:
            self._helpers.connect(self._engine, owner=1)
        self._block = DispatchBlock(aligned_bytes(DISPATCH_BYTES))
        self._segment: Segment | None = None

    def start(self) -> None:
        """Start the helpers, if there are to be some; all else runs in the caller's thread."""
        if self._helpers is not None:
            self._helpers.wait_until_ready()

    def begin_trace(self) -> None:
        """Record what launches do from now on. UsageError if that is so already."""
        super().begin_trace()
        try:
            if self._helpers is not None:
                self._helpers.begin_trace()
        except BaseException:  # there is no memory for that
            super().end_trace()
            raise

    def end_trace(self) -> list[TraceRow]:
        """What has been recorded since `begin_trace`."""
        rows = super().end_trace()
        return rows if self._helpers is None else rows + self._helpers.end_trace()

    def add_code(self, address: int, nbytes: int) -> None:
        """Register an executable range of device memory."""
        index = self._codebook.add(address, nbytes)
        program = self._codebook.programs[index]
        assert program is not None
        self._engine.set_program(index, program.address, program.base, program.nbytes, program.notes_addresses)

    def remove_code(self, address: int) -> None:
        """Forget a range; nothing may run in it."""
        for index in self._codebook.remove(address):
            self._engine.set_program(index, 0, 0, 0)

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        pauses: Pauses | None = None,
        suspended: SuspendedDispatch | None = None,
    ) -> DispatchResult:
        """Run a dispatch to its end. pauses: where it can be made to wait; suspended: what to go on with.

        Raises a KernelFault for what the kernel does wrong, LaunchTimeout after `timeout` seconds, LaunchInterrupted on
        Ctrl-C; memory keeps what had been written, and the executor can be used again.
        """
        with self.traced(spec.kernel) as trace:
            return self._run(spec, timeout, progress, pauses, suspended, trace)

    def _run(
        self,
        spec: DispatchSpec,
        timeout: float | None,
        progress: Progress | None,
        pauses: Pauses | None,
        suspended: SuspendedDispatch | None,
        trace: tuple[TraceRing, int] | None,
    ) -> DispatchResult:
        started = time.perf_counter()
        program = self._codebook.program_of(spec.entry)
        if program is None:
            raise KernelFault(f"kernel {spec.kernel} starts at {spec.entry:#x}, which holds no code")
        self._codebook.refresh()
        compiled, decoding = self._library.compiled, self._codebook.decode_seconds
        slots = self._slots(spec)
        self._block.fill(spec, self._library.mode_class(class_key(spec.mode)), program)
        assert self._segment is not None
        waves = Ranges([(self._segment, 0, slots.count * slots.stride)])
        runner = Runner(
            self._engine,
            self._codebook,
            spec.kernel,
            spec.lds_bytes,
            self._block.address,
            slots,
            trace,
            None if self._watch is None else self._watch(spec),
            None if self._notify is None else self._issued(self._notify(spec)),
        )
        busy = time.perf_counter()
        try:
            with promised(waves, f"kernel {spec.kernel}, with {slots.count} workgroups resident,"):
                self._engine.begin(1, 0, 0, self._put_back(spec, slots, suspended))
                with nullcontext() if pauses is None else pauses.pausable(_UnderWay(self, spec, slots, runner)):
                    try:
                        self._to_end(
                            runner, spec, slots, started + timeout if timeout is not None else None, progress, pauses
                        )
                    finally:
                        runner.drain()
        except KeyboardInterrupt:
            raise LaunchInterrupted(f"kernel {spec.kernel} was interrupted: {self._standing(spec, slots)}") from None
        ended = time.perf_counter()
        instructions = self._block.long("instructions")
        worker = worker_stats("inline", None, spec.workgroups, instructions, ended - busy, ended - started)
        helpers = self._helpers
        stats = launch_stats(
            [worker],
            self._library.compiled - compiled,
            self._codebook.decode_seconds - decoding,
            allocation=(0, 0, 0 if helpers is None else helpers.board.helpers),
            asynchronous=None if helpers is None else helpers.statistics(self._engine.async_counters()),
        )
        return DispatchResult(instructions, ended - started, stats, self._engine.executed())

    def _issued(self, listener: IssueListener) -> Callable[[np.ndarray], None]:
        """What gives log entries to a listener."""
        return lambda entries: listener(issues_of(entries, self._codebook))

    def _put_back(self, spec: DispatchSpec, slots: Slots, suspended: SuspendedDispatch | None) -> int:
        """Make the first slot ready, or put what was resident into the slots; how many are in use then."""
        if suspended is None or not suspended.slots:
            slots.clear()
        if suspended is None:
            return 1
        set_counters(self._block, suspended)
        places = placement(suspended.slots, [(0, slots.count)], keep_numbers=bool(spec.scratch_stride))
        used = [number for _, number in places]
        for number, record in zip(used, suspended.workgroups(), strict=True):
            put_workgroup(slots, number, record, spec, self._codebook)
        opened = max(used, default=0) + 1
        free_slots(slots, opened, used)
        return opened

    def suspend(self, spec: DispatchSpec, slots: Slots, runner: Runner) -> SuspendedDispatch:
        """What the dispatch is between two native runs."""
        while not runner.settle():
            pass
        self._engine.share_matrices()
        running = running_slots(slots, self._engine.opened)
        return SuspendedDispatch(
            *counters(self._block), tuple(running), lambda: (record_workgroup(slots, number, 0, spec) for number in running)
        )

    def _to_end(
        self,
        runner: Runner,
        spec: DispatchSpec,
        slots: Slots,
        deadline: float | None,
        progress: Progress | None,
        pauses: Pauses | None,
    ) -> None:
        done = False
        while not done:
            if pauses is not None:
                paused = pauses.look()
                deadline = deadline and deadline + paused
            done = runner.step()
            if self._helpers is not None:
                self._helpers.update()
            if progress is not None:
                progress(self._block.long("completed"), spec.workgroups)
            if not done and deadline is not None and time.perf_counter() > deadline:
                raise LaunchTimeout(f"kernel {spec.kernel} ran out of time: {self._standing(spec, slots)}")

    def _standing(self, spec: DispatchSpec, slots: Slots) -> str:
        """Where the dispatch stands, for messages: workgroups done, and what waits at barriers."""
        text = f"{self._block.long('completed')} of {spec.workgroups} workgroups had ended"
        waiting = slots.waiting(self._engine.opened)
        return f"{text}; waiting at a barrier: {', '.join(waiting[:8])}" if waiting else text

    def _slots(self, spec: DispatchSpec) -> Slots:
        """Free slots for the workgroups that may be resident, in shared memory kept from dispatch to dispatch."""
        count = affordable_residents(spec, min(spec.max_resident, spec.workgroups), 1)
        nbytes = slot_layout(spec)[1] * count
        if self._segment is None or self._segment.size < nbytes:
            if self._segment is not None:
                self._segment.close()
            self._segment = Segment.create("waves", nbytes)
            if self._helpers is not None:
                self._engine.set_waves(self._helpers.add_waves(self._segment.name), self._segment.address)
        return Slots(self._segment.bytes, slot_layout(spec), count, self.wave_size)

    def close(self) -> None:
        """Release shared memory and programs."""
        if self._helpers is not None:
            self._helpers.close()
        self._codebook.close()
        if self._segment is not None:
            self._segment.close()
            self._segment = None
