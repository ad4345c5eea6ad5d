"""Runs dispatches on worker processes: the launcher's side."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.errors import KernelFault, LaunchInterrupted, LaunchTimeout, RjemuError, UsageError
from rjemu.exec.cache import HandlerCache
from rjemu.exec.codebook import Codebook
from rjemu.exec.dispatch import DispatchResult, DispatchSpec, launch_stats, worker_stats
from rjemu.exec.engine import Runtime
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.issues import Issue, IssueListener, issues_of
from rjemu.exec.layout import ASYNC_COUNTERS, class_key
from rjemu.exec.native import HelperFactory
from rjemu.exec.prepare import slot_layout
from rjemu.exec.residency import affordable_residents
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
from rjemu.exec.trace import ALREADY_TRACED, TraceRow
from rjemu.shm import futex
from rjemu.shm.room import Ranges, promised
from rjemu.shm.vram import Vram
from rjemu.workers.control import CLOSED, DISPATCH_SLOTS, OPEN, SUSPENDED, Control
from rjemu.workers.crew import LOOK_SECONDS, Crew
from rjemu.workers.helpers import HelperPool
from rjemu.workers.part import resident_slots
from rjemu.workers.roles import Role, engines_and_dispatch
from rjemu.workers.start import start_server
from rjemu.workers.tracing import PoolTrace
from rjemu.workers.worker import WAVES_BYTES

Progress = Callable[[int, int], None]

STOP_SECONDS = 5.0
"""How long workers may take to leave a dispatch that is stopped before they are killed."""

SUSPEND_SECONDS = 30.0
"""The same for a dispatch that is to go on: what is being compiled for it is waited for."""

_ASKABLE = frozenset({"mode_class", "decode", "instruction", "text", "nearest", "refresh", "start_helpers"})


@dataclass(frozen=True)
class _UnderWay:
    """The dispatch of slot k (`exec.suspended.Pausable`)."""

    pool: PoolExecutor
    k: int
    spec: DispatchSpec
    takers: Sequence[int]

    def suspend(self) -> SuspendedDispatch | None:
        return self.pool.suspend(self.k, self.spec, self.takers)

    def go_on(self) -> None:
        self.pool.go_on(self.k, self.takers)


class PoolExecutor:
    """Runs dispatches on worker processes. See `vm.executor.Executor` for the interface. Launches may come from several
    threads. A worker starts with the first dispatch that needs it."""

    wave_size = 64
    concurrent_launches = DISPATCH_SLOTS

    def __init__(
        self,
        vram: Vram,
        target: str,
        *,
        lds_bytes: int,
        cache_dir: Path | None = None,
        workers: Sequence[Role],
        helpers: HelperFactory | None = None,
        counting: bool = False,
        notify: Callable[[DispatchSpec], IssueListener] | None = None,
    ) -> None:
        """helpers: makes the helpers that run matrix instructions for the workers. counting: executed instructions are
        counted (`DispatchResult.executed`). notify: makes what is told, in the thread that launches, of the instructions
        that helpers are given."""
        start_server()
        cache = HandlerCache(cache_dir)
        variants = {"asynchronous": helpers is not None, "counting": counting, "notifying": notify is not None}
        runtime_code = runtime_object(cache, self.wave_size, **variants)
        self._runtime = Runtime(runtime_code, **variants)
        self._notify = notify
        self._library = HandlerLibrary(target, self.wave_size, cache, self._runtime.undecoded)
        self._helpers: HelperPool | None = None
        if helpers is not None:
            self._helpers = helpers(target, cache, runtime_code, self._runtime, self._library, len(workers))
        self._codebook = Codebook(vram, target, self._library, self._helpers)
        self._control = Control.create(len(workers))
        template = {
            "wave_size": self.wave_size,
            "runtime": runtime_code,
            "counting": counting,
            "notifying": notify is not None,
            "control": self._control.segment.name,
            "vram": vram.segment_name,
            "table": vram.table.segment.name,
            "links": None if self._helpers is None else self._helpers.links,
        }
        self._allocation = engines_and_dispatch(workers)
        self._crew = Crew(self._control, workers, template, self._runtime, self._helpers)
        self._free_slots = list(range(DISPATCH_SLOTS))
        self._slot_free = threading.Condition()
        self._code_lock = threading.RLock()
        self._helpers_looked = time.monotonic()
        self._faults: dict[int, RjemuError] = {}
        self._executed: list[dict[int, np.ndarray]] = [{} for _ in range(DISPATCH_SLOTS)]
        self._issues: list[deque[Issue]] = [deque() for _ in range(DISPATCH_SLOTS)]
        self._listeners: list[IssueListener | None] = [None] * DISPATCH_SLOTS
        self._trace: PoolTrace | None = None
        self._trace_lock = threading.Lock()

    def start(self) -> None:
        """Start all workers now, and wait until they listen. WorkerLost if one does not come up."""
        self._crew.start()
        if self._helpers is not None:
            self._helpers.wait_until_ready()

    def begin_trace(self) -> None:
        """Record what launches do from now on. UsageError if that is so already."""
        with self._trace_lock:
            if self._trace is not None:
                raise UsageError(ALREADY_TRACED)
            trace = PoolTrace(self._control, [self._crew.name(index) for index in range(len(self._crew))])
            try:
                if self._helpers is not None:
                    self._helpers.begin_trace()
            except BaseException:  # there is no memory for that
                trace.end()
                raise
            self._trace = trace

    def end_trace(self) -> list[TraceRow]:
        """What has been recorded since `begin_trace`."""
        with self._trace_lock:
            trace, self._trace = self._trace, None
        rows = [] if trace is None else trace.end()
        return rows if self._helpers is None else rows + self._helpers.end_trace()

    def add_code(self, address: int, nbytes: int) -> None:
        """Register an executable range of device memory."""
        with self._code_lock:
            self._codebook.add(address, nbytes)

    def remove_code(self, address: int) -> None:
        """Forget a range; nothing may run in it."""
        with self._code_lock:
            self._codebook.remove(address)

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        pauses: Pauses | None = None,
        suspended: SuspendedDispatch | None = None,
    ) -> DispatchResult:
        """Run a dispatch to its end; raises as `NativeExecutor.run`, and WorkerLost if a worker dies in it."""
        trace = self._trace
        if trace is None:
            return self._run(spec, timeout, progress, pauses, suspended, 0)
        with trace.session.launch(spec.kernel) as launch:
            return self._run(spec, timeout, progress, pauses, suspended, launch)

    def _run(
        self,
        spec: DispatchSpec,
        timeout: float | None,
        progress: Progress | None,
        pauses: Pauses | None,
        suspended: SuspendedDispatch | None,
        launch: int,
    ) -> DispatchResult:
        started = time.perf_counter()
        deadline = started + timeout if timeout is not None else None
        compiled, decoding = self._library.compiled, self._codebook.decode_seconds
        k = self._take_slot()
        takers: list[int] = []
        try:
            takers = self._crew.invite(k, spec.device, min(spec.max_resident, spec.workgroups))
            stride = slot_layout(spec)[1]
            resident = min(spec.max_resident, spec.workgroups, max(WAVES_BYTES // stride, 1) * len(takers))
            resident = affordable_residents(spec, resident, len(takers))
            waves = Ranges(self._crew.wave_ranges(k, takers, resident, stride))
            with promised(waves, f"kernel {spec.kernel}, with {resident} workgroups resident,"):
                self._fill(k, spec, takers, resident, launch)
                if suspended is not None:
                    self._put_back(k, spec, takers, suspended)
                self._open(k, takers)
                with nullcontext() if pauses is None else pauses.pausable(_UnderWay(self, k, spec, takers)):
                    self._attend(k, spec, takers, deadline, progress, pauses)
        except KeyboardInterrupt:
            text = self._abandon(k, spec, takers)
            raise LaunchInterrupted(f"kernel {spec.kernel} was interrupted: {text}") from None
        except BaseException:
            self._abandon(k, spec, takers)
            raise
        else:
            seconds = time.perf_counter() - started
            helpers = self._helpers
            stats = launch_stats(
                self._statistics(k, takers, seconds),
                self._library.compiled - compiled,
                self._codebook.decode_seconds - decoding,
                allocation=(*self._allocation, 0 if helpers is None else helpers.board.helpers),
                asynchronous=None if helpers is None else helpers.statistics(self._async_counters(k, takers)),
            )
            return DispatchResult(self._control.slots[k].block.long("instructions"), seconds, stats, self._executed[k])
        finally:
            self._crew.dismiss(k, takers)
            self._give_slot(k)

    def _take_slot(self) -> int:
        with self._slot_free:
            while not self._free_slots:
                self._slot_free.wait(LOOK_SECONDS)
            return self._free_slots.pop()

    def _give_slot(self, k: int) -> None:
        self._listeners[k] = None
        with self._slot_free:
            self._free_slots.append(k)
            self._slot_free.notify()

    def _fill(self, k: int, spec: DispatchSpec, takers: Sequence[int], resident: int, launch: int) -> None:
        """Fill slot k for the workers that are invited, which may hold so many workgroups at once, together. launch: its
        number in the trace, 0 for none."""
        with self._code_lock:
            program = self._codebook.program_of(spec.entry)
            if program is None:
                raise KernelFault(f"kernel {spec.kernel} starts at {spec.entry:#x}, which holds no code")
            self._codebook.refresh()
            mode_class = self._library.mode_class(class_key(spec.mode))
        self._control.slots[k].block.fill(spec, mode_class, program)
        self._faults.pop(k, None)
        self._executed[k] = {}
        self._issues[k].clear()
        self._listeners[k] = None if self._notify is None else self._notify(spec)
        slot = self._control.slots[k]
        words = {
            "device": spec.device,
            "takers": len(takers),
            "launch": launch,
            "resident": resident,
            "lds_bytes": spec.lds_bytes,
        }
        for name, value in words.items():
            slot.set_word(name, value)
        slot.kernel_name = spec.kernel
        slot.places[: len(self._crew)] = 0
        slot.places[takers] = range(1, len(takers) + 1)
        for worker in takers:
            self._control.part(worker, k).clear()

    def _open(self, k: int, takers: Sequence[int]) -> None:
        """Let the invited workers into slot k, which is filled."""
        slot = self._control.slots[k]
        with self._code_lock:
            slot.set_word("journal", len(self._library.journal))
        slot.set_word("generation", slot.word("generation") + 1)
        self._runtime.exchange(slot.field_address("state"), OPEN)
        self._crew.ring(takers)

    def _put_back(self, k: int, spec: DispatchSpec, takers: Sequence[int], suspended: SuspendedDispatch) -> None:
        """Put what was resident into the takers' workgroup slots. OutOfMemory if it does not fit."""
        slots = [self._slots_of(k, worker) for worker in takers]
        shares = [(first, part.count) for first, part in slots]
        places = placement(suspended.slots, shares, keep_numbers=bool(spec.scratch_stride))
        set_counters(self._control.slots[k].block, suspended)
        with self._code_lock:
            for (taker, number), record in zip(places, suspended.workgroups(), strict=True):
                put_workgroup(slots[taker][1], number, record, spec, self._codebook)
        for taker, worker in enumerate(takers):
            used = [number for other, number in places if other == taker]
            opened = max(used, default=-1) + 1
            free_slots(slots[taker][1], opened, used)
            self._control.part(worker, k).set_word("opened", opened)

    def _slots_of(self, k: int, worker: int) -> tuple[int, Slots]:
        """(number of the first, the workgroup slots) of a worker in the dispatch of slot k."""
        return resident_slots(self._control.slots[k], worker, self._crew.wave_memory(worker, k), self.wave_size)

    def suspend(self, k: int, spec: DispatchSpec, takers: Sequence[int]) -> SuspendedDispatch | None:
        """Have all workers leave the dispatch of slot k, with their workgroups as they are; see `Pausable`."""
        slot = self._control.slots[k]
        if k not in self._faults and slot.word("state") == OPEN:
            self._runtime.exchange(slot.field_address("state"), SUSPENDED)
            slot.block.set_word("suspend", 1)
            self._crew.ring(takers)
            self._leave(k, takers, time.perf_counter() + SUSPEND_SECONDS)
            # What they have said last.
            self._crew.answer(self._carry_out)
            self._tell_of_issues(k)
        if k in self._faults:
            return None
        running = []
        for worker in takers:
            first, slots = self._slots_of(k, worker)
            opened = self._control.part(worker, k).word("opened")
            running += [(slots, number, first) for number in running_slots(slots, opened)]
        return SuspendedDispatch(
            *counters(slot.block),
            tuple(first + number for _, number, first in running),
            lambda: (record_workgroup(slots, number, first, spec) for slots, number, first in running),
        )

    def go_on(self, k: int, takers: Sequence[int]) -> None:
        """Let the workers in again that `suspend` has sent away."""
        slot = self._control.slots[k]
        if slot.word("state") == SUSPENDED and k not in self._faults:
            slot.block.set_word("suspend", 0)
            self._open(k, takers)

    def _attend(
        self,
        k: int,
        spec: DispatchSpec,
        takers: Sequence[int],
        deadline: float | None,
        progress: Progress | None,
        pauses: Pauses | None,
    ) -> None:
        """Answer questions until the dispatch is over."""
        slot = self._control.slots[k]
        block = slot.block
        looked = time.monotonic()
        self._look_at_helpers(looked)
        while True:
            seen = slot.word("attention")
            if pauses is not None:
                paused = pauses.look()
                deadline = deadline and deadline + paused
            self._crew.answer(self._carry_out)
            self._tell_of_issues(k)
            if k in self._faults:
                raise self._faults.pop(k)
            if block.long("completed") >= spec.workgroups:
                break
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                self._crew.replace_dead(self._fail)
                self._look_at_helpers(now)
                if progress is not None:
                    progress(block.long("completed"), spec.workgroups)
                if deadline is not None and time.perf_counter() > deadline:
                    raise LaunchTimeout(f"kernel {spec.kernel} ran out of time: {self._standing(k, spec, takers)}")
            futex.wait(slot.field_address("attention"), seen, LOOK_SECONDS)
        self._close(k, takers, deadline)
        self._tell_of_issues(k)
        if progress is not None:
            progress(spec.workgroups, spec.workgroups)

    def _tell_of_issues(self, k: int) -> None:
        """Tell of the instructions that the workers in the dispatch of slot k have given to helpers."""
        listener = self._listeners[k]
        issues = self._issues[k]
        if listener is not None and issues:
            listener([issues.popleft() for _ in range(len(issues))])

    def _look_at_helpers(self, now: float) -> None:
        """Send the helpers what they lack and replace dead ones now and then, also where launches are shorter than that."""
        if self._helpers is not None and now - self._helpers_looked > LOOK_SECONDS:
            self._helpers_looked = now
            self._helpers.update()

    def _close(self, k: int, takers: Sequence[int], deadline: float | None) -> None:
        """Let no worker enter any more, and wait until all have left; those that are in it past the deadline are killed."""
        self._runtime.exchange(self._control.slots[k].field_address("state"), CLOSED)
        self._leave(k, takers, deadline)

    def _leave(self, k: int, takers: Sequence[int], deadline: float | None) -> None:
        """Wait until no worker is in the dispatch of slot k; those that are past the deadline are killed."""
        slot = self._control.slots[k]
        while True:
            seen = slot.word("attention")
            busy = self._crew.busy(k, takers)
            if not busy:
                # What they have sent before they left.
                self._crew.answer(self._carry_out)
                return
            if deadline is not None and time.perf_counter() > deadline:
                self._crew.kill(busy)
            self._crew.answer(self._carry_out)
            self._crew.replace_dead(self._fail)
            futex.wait(slot.field_address("attention"), seen, LOOK_SECONDS)

    def _abandon(self, k: int, spec: DispatchSpec, takers: Sequence[int]) -> str:
        """Stop what is under way in slot k; gives where it stood."""
        text = self._standing(k, spec, takers)
        self._control.slots[k].block.set_word("stop", 1)
        self._close(k, takers, time.perf_counter() + STOP_SECONDS)
        if self._control.slots[k].block.word("suspend"):
            self._crew.discard_waves(k, takers)
        self._faults.pop(k, None)
        return text

    def _fail(self, k: int, error: RjemuError) -> None:
        """Make slot k's launch raise, unless something else was first."""
        slot = self._control.slots[k]
        if slot.word("state") != CLOSED:
            self._faults.setdefault(k, error)
            self._control.slots[k].block.set_word("stop", 1)
            self._runtime.increment(slot.field_address("attention"))
            futex.wake(slot.field_address("attention"))

    def _carry_out(self, message: tuple[Any, ...]) -> tuple[Any, RjemuError | None, list[Any]] | None:
        """What a worker says or asks; for a question (result, error, new journal entries)."""
        kind, *content = message
        if kind == "executed":
            k, generation, executed = content
            if self._control.slots[k].word("generation") == generation:
                sums = self._executed[k]
                for base, counts in executed.items():
                    sums[base] = sums[base] + counts if base in sums else counts
            return None
        if kind == "issued":
            k, generation, entries = content
            if self._control.slots[k].word("generation") == generation:
                self._issues[k].extend(issues_of(entries, self._codebook))
            return None
        if kind == "fault":
            k, generation, fault = content
            if self._control.slots[k].word("generation") == generation:
                self._fail(k, fault)
            return None
        name, arguments, applied = content
        with self._code_lock:
            result, failure = None, None
            if name in _ASKABLE:
                trace = self._trace if name == "decode" else None
                try:
                    with nullcontext() if trace is None else trace.session.compile(arguments[0]):
                        result = getattr(self._codebook, name)(*arguments)
                except RjemuError as error:
                    failure = error
            return result, failure, self._library.journal[applied:]

    def _standing(self, k: int, spec: DispatchSpec, takers: Sequence[int]) -> str:
        """Where a dispatch stands, for messages."""
        text = f"{self._control.slots[k].block.long('completed')} of {spec.workgroups} workgroups had ended"
        waiting: list[str] = []
        for worker in self._crew.busy(k, takers):
            _, slots = self._slots_of(k, worker)
            waiting += slots.waiting(self._control.part(worker, k).word("opened"))
        return f"{text}; waiting at a barrier: {', '.join(waiting[:8])}" if waiting else text

    def _statistics(self, k: int, takers: Sequence[int], seconds: float) -> list[dict[str, Any]]:
        """What each worker did in the dispatch of slot k, which took so long."""
        out = []
        for worker in takers:
            part = self._control.part(worker, k)
            out.append(
                worker_stats(
                    self._crew.name(worker),
                    self._crew.cpu(worker),
                    part.long("workgroups"),
                    part.long("instructions"),
                    part.long("busy_ns") / 1e9,
                    seconds,
                )
            )
        return out

    def _async_counters(self, k: int, takers: Sequence[int]) -> dict[str, int]:
        """The sums of what the workers' asynchronous loops counted in the dispatch of slot k."""
        parts = [self._control.part(worker, k) for worker in takers]
        return {name: sum(part.long(name) for part in parts) for name in ASYNC_COUNTERS}

    def close(self) -> None:
        """End the workers and release everything."""
        self._crew.close()
        if self._helpers is not None:
            self._helpers.close()
        self._codebook.close()
        self._control.close()
