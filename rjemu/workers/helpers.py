"""The launcher's side of the helpers: one pool for a machine, started with the first instruction that a helper may run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from multiprocess.connection import Connection

from rjemu.errors import WorkerLost
from rjemu.exec.cache import HandlerCache
from rjemu.exec.engine import Engine, Runtime
from rjemu.exec.handler_clock import HandlerClock
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.handoff import NOBODY
from rjemu.exec.layout import MAX_SEGMENTS
from rjemu.exec.plans import PlanTable
from rjemu.exec.program import Program
from rjemu.exec.trace import RING_BYTES, TraceRing, TraceRow
from rjemu.mma.admission import TYPICAL_HANDOFF, HandoffCost
from rjemu.mma.plan_cache import PlanCache
from rjemu.shm.scoreboard import POSTED, Scoreboard
from rjemu.shm.segment import Segment
from rjemu.workers.affinity import assign_with_helpers, available_cpus, places
from rjemu.workers.helper import HelperSetup, Message, NewCode, NewTrace, NewWaves
from rjemu.workers.helper_code import HelperCode
from rjemu.workers.start import start_worker
from rjemu.workers.worker import HelperLinks

START_SECONDS = 60.0
"""How long helpers may take to start."""

END_SECONDS = 2.0
"""How long helpers may take to end before they are killed."""

_NO_SEGMENT = MAX_SEGMENTS - 1
"""The number of segments of waves beyond those that helpers can map: they refuse the jobs of these."""
PLAUSIBLE_NS = 5000.0
"""A handoff that seems to cost more has been disturbed."""
_ROUND_TRIPS, _SAMPLES = 20, 20
_COST_FILE = "handoff_nanoseconds"


class _Member:
    """A helper as the launcher sees it."""

    def __init__(self, setup: HelperSetup, process: Any, connection: Connection) -> None:
        self.setup = setup
        self.process = process
        self.connection = connection

    def send(self, message: Message) -> bool:
        """False if it has died."""
        try:
            self.connection.send(message)
        except OSError:
            return False
        return True


class HelperPool:
    """At most `count` helpers. Calls may come from several threads."""

    def __init__(
        self,
        count: int,
        window: int,
        target: str,
        cache: HandlerCache,
        code: bytes,
        runtime: Runtime,
        library: HandlerLibrary,
        workers: int,
    ) -> None:
        """window: see `Engine.connect`; code, runtime: the asynchronous variant; workers: processes that give jobs, on the
        CPUs of `worker_cpus`."""
        assert runtime.handoff is not None
        self._calls = runtime.handoff
        self._window = window
        self._cache = cache
        self._clock = HandlerClock(self._calls, library)
        self.board = Scoreboard.create(count)
        self.plans = PlanTable()
        self.analyst = PlanCache(target, self.plans, self._cost, self._kept_cost())
        order = places(available_cpus())
        self.worker_cpus, cpus = assign_with_helpers(workers, count, order)
        self._setups = [
            HelperSetup(
                k,
                cpus[k],
                workers + count > len(order),
                code,
                self.board.segment.name,
                self.plans.segment_name,
            )
            for k in range(count)
        ]
        self._members: list[_Member] = []
        self._waves: list[str] = []
        self._trace: Segment | None = None
        self._code = HelperCode(library, target)
        self._measured = False
        self._lost = 0
        self._lock = threading.RLock()
        self._clock_start = self._calls.ticks(), time.perf_counter()
        self._busy_ticks = 0

    @property
    def links(self) -> HelperLinks:
        """Where workers reach the helpers."""
        return HelperLinks(self.board.segment.name, self.plans.segment_name, self._window)

    def connect(self, engine: Engine, owner: int) -> None:
        """Let an engine of this process use the helpers."""
        engine.connect(self.board.address, self.plans.address, owner, self._window)

    # --- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the helpers, if they do not run yet; they are not waited for. WorkerLost if one cannot be started."""
        with self._lock:
            if not self._members:
                self._code.news()
            for setup in self._setups[len(self._members) :]:
                self._members.append(self._started(setup))

    def wait_until_ready(self) -> None:
        """Start the helpers, and wait until all of them take jobs. WorkerLost if one does not come up."""
        self.start()
        limit = time.monotonic() + START_SECONDS
        for k, member in enumerate(self._members):
            while not self.board.word(k, "ready"):
                if not member.process.is_alive() or time.monotonic() > limit:
                    raise WorkerLost(f"{member.setup.name} did not start")
                time.sleep(0.001)
        self.update()

    def _started(self, setup: HelperSetup) -> _Member:
        self.board.set_word(setup.index, "ready", 0)
        member = _Member(setup, *start_worker(setup))
        member.send(NewCode(self._code.sent))
        for number, segment in enumerate(self._waves):
            member.send(NewWaves(number, segment))
        if self._trace is not None:
            member.send(NewTrace(self._trace.name))
        self._calls.ring(self.board.helper_address(setup.index))
        return member

    def update(self) -> None:
        """Send the helpers the code that they lack, and replace those that have died."""
        with self._lock:
            if not self._members:
                return
            news = self._code.news()
            if news:
                self._send(NewCode(news))
            self._replace_dead()
            if not self._measured:
                self._measure()

    def add_waves(self, segment: str) -> int:
        """Tell the helpers of a segment that waves lie in; its number."""
        with self._lock:
            self._waves.append(segment)
            number = min(len(self._waves) - 1, _NO_SEGMENT)
            if number < _NO_SEGMENT:
                self._send(NewWaves(number, segment))
            return number

    def remove_waves(self, number: int) -> None:
        """Forget a segment; nobody runs waves in it any more."""
        with self._lock:
            self._waves[number] = ""
            self._send(NewWaves(number, ""))

    def begin_trace(self) -> None:
        """Have the helpers record their jobs. One that is busy begins when it has nothing to do for a moment."""
        with self._lock:
            self._trace = Segment.create("trace", self.board.helpers * RING_BYTES, reserve=True)
            self._send(NewTrace(self._trace.name))

    def end_trace(self) -> list[TraceRow]:
        """Stop recording; gives the rows of the helpers that have had jobs since `begin_trace`."""
        with self._lock:
            segment, self._trace = self._trace, None
            if segment is None:
                return []
            self._send(NewTrace(""))
            rings = [TraceRing(segment.bytes[k * RING_BYTES :][:RING_BYTES]) for k in range(self.board.helpers)]
            rows = [
                TraceRow(setup.name, ring.slices({}), ring.lost) for setup, ring in zip(self._setups, rings, strict=True)
            ]
            segment.close()
            return [row for row in rows if row.slices]

    def _send(self, message: Message) -> None:
        for member in self._members:
            if member.send(message):
                self._calls.ring(self.board.helper_address(member.setup.index))

    def _replace_dead(self) -> None:
        for k, member in enumerate(self._members):
            if member.process.is_alive() or not self._detached(k):
                continue
            self.board.set_word(k, "lost", 0)
            try:
                self._members[k] = self._started(member.setup)
            except WorkerLost:  # the issuers do without it, and the next look tries again
                self.board.set_word(k, "lost", 1)
                continue
            member.connection.close()
            member.process.close()
            self._lost += 1

    def _detached(self, helper: int) -> bool:
        """Whether nobody can have a job on a dead helper any more: its issuer has said so, it has died before anybody could
        take it, or nobody has."""
        if self.board.word(helper, "lost") or not self.board.word(helper, "ready"):
            return True
        return bool(self.board.free >> helper & 1) and self._take(helper)

    def _take(self, helper: int) -> bool:
        """Whether the helper could be taken, so that nobody else does."""
        taken = self._calls.reserve(self.board.address, helper)
        if taken not in (helper, NOBODY):
            self._calls.give_back(self.board.address, taken)
        return taken == helper

    def reclaim(self, owner: int) -> None:
        """A process that gave jobs away has died: its helpers are free again when they are through."""
        for helper in range(self.board.helpers):
            if self.board.word(helper, "owner") == owner:
                limit = time.monotonic() + END_SECONDS
                while self.board.word(helper, "state") & POSTED and time.monotonic() < limit:
                    time.sleep(0.0005)
                self.board.set_word(helper, "owner", 0)
                self._calls.give_back(self.board.address, helper)

    def close(self) -> None:
        """End the helpers and release everything."""
        with self._lock:
            for member in self._members:
                member.connection.close()
                self._calls.ring(self.board.helper_address(member.setup.index))
            deadline = time.monotonic() + END_SECONDS
            for member in self._members:
                member.process.join(max(deadline - time.monotonic(), 0))
                if member.process.is_alive():
                    member.process.kill()
                    member.process.join()
                member.process.close()
            self._members.clear()
            if self._trace is not None:
                self._trace.close()
            self.plans.close()
            self.board.close()

    # --- costs ---------------------------------------------------------------------------------------------------------

    def _cost(self, program: Program, pc: int) -> float:
        return self._clock.nanoseconds(program.handler_at(pc), program.record_at(pc))

    def _kept_cost(self) -> HandoffCost:
        """What a handoff cost when an earlier machine measured it on this host; a bad figure may come from a busy host, and
        would keep helpers from ever starting."""
        if self._cache.directory is not None:
            with suppress(OSError, ValueError):
                kept = float((self._cache.directory / _COST_FILE).read_text())
                if 0 < kept < TYPICAL_HANDOFF.round_trip:
                    return HandoffCost.of(kept)
        return TYPICAL_HANDOFF

    def _measure(self) -> None:
        """Time handoffs to a helper that is free, once, and keep the result with the handlers."""
        helper = self._calls.reserve(self.board.address, 0)
        if helper == NOBODY:
            return
        try:
            with self._apart_from(self._members[helper].setup.cpu):
                cost = self._round_trip(helper)
        finally:
            self._calls.give_back(self.board.address, helper)
        self._measured = True
        if cost > PLAUSIBLE_NS:  # the host is busy with other things
            return
        self.analyst.handoff = HandoffCost.of(cost)
        if self._cache.directory is not None:
            with suppress(OSError):
                (self._cache.directory / _COST_FILE).write_text(f"{cost:.0f}\n")

    @contextmanager
    def _apart_from(self, cpu: int) -> Iterator[None]:
        """This thread keeps off a CPU for the block, where there are others."""
        allowed = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, allowed - {cpu} or allowed)
            yield
        finally:
            os.sched_setaffinity(0, allowed)

    def _round_trip(self, helper: int) -> float:
        """Nanoseconds of the best of a few runs of empty jobs."""
        slot = self.board.helper_address(helper)
        self.board.set_word(helper, "count", 0)
        samples = []
        for _ in range(_SAMPLES):
            started = time.perf_counter_ns()
            self._calls.round_trips(slot, _ROUND_TRIPS)
            samples.append((time.perf_counter_ns() - started) / _ROUND_TRIPS)
        return min(samples)

    # --- statistics ------------------------------------------------------------------------------------------------------

    def statistics(self, counters: Mapping[str, int]) -> dict[str, Any]:
        """What a dispatch's `result.stats` says of asynchronous work. counters: sums of `layout.ASYNC_COUNTERS`."""
        with self._lock:
            ticks = sum(self.board.long(helper, "busy_ticks") for helper in range(self.board.helpers))
            now_ticks, now = self._calls.ticks(), time.perf_counter()
            start_ticks, start = self._clock_start
            rate = (now_ticks - start_ticks) / max(now - start, 1e-9)
            busy, self._busy_ticks = (ticks - self._busy_ticks) / rate, ticks
            return {
                **counters,
                **asdict(self.analyst.statistics),
                "helpers": len(self._members),
                "helpers_lost": self._lost,
                "helper_busy_seconds": busy,
                "handoff_nanoseconds": self.analyst.handoff.round_trip,
            }
