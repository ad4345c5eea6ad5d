"""What happened when: rings of timed events that native code and Python of one process write, and the slices made of them.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes share.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rjemu.errors import UsageError
from rjemu.exec.layout import TRACE_EVENT, TRACE_EVENT_BYTES, TRACE_EVENTS, TRACE_HEADER, TRACE_JOB, TRACE_TURN

ALREADY_TRACED = "the machine is being traced already"

RING_EVENTS = 65536
RING_BYTES = TRACE_EVENTS + RING_EVENTS * TRACE_EVENT_BYTES

TURN, WAIT, DECODE, MODE, JOB = TRACE_TURN, 1, 2, 3, TRACE_JOB
"""Kinds of events: a workgroup's turn (detail: its number), sleep without work, decoding and compiling of new code (detail:
its address), preparing a new MODE setting, a helper's job (detail: its matrix instructions)."""

_NAMES = {WAIT: "wait", DECODE: "decode", MODE: "new MODE", JOB: "job"}
_EVENT = np.dtype(
    {
        "names": list(TRACE_EVENT)[:-1],
        "formats": ["<u8", "<u8", "<u8", "<u4", "<u4"],
        "offsets": list(TRACE_EVENT.values())[:-1],
        "itemsize": TRACE_EVENT_BYTES,
    }
)


class TraceRing:
    """The events of one process. It keeps the first RING_EVENTS, and counts the others."""

    def __init__(self, memory: np.ndarray) -> None:
        """memory: uint8 [RING_BYTES], zero at first, 8-byte aligned."""
        self.address = memory.ctypes.data
        self._header = memory[:TRACE_EVENTS].view(np.uint64)
        self._events = memory[TRACE_EVENTS:RING_BYTES].view(_EVENT)
        self._header[TRACE_HEADER["capacity"] // 8] = RING_EVENTS

    @property
    def _recorded(self) -> int:
        return int(self._header[TRACE_HEADER["recorded"] // 8])

    def append(self, kind: int, launch: int, detail: int, start: int, end: int) -> None:
        """An event of a launch (0: of none) from `start` to `end`."""
        recorded = self._recorded
        if recorded < RING_EVENTS:
            self._events[recorded] = start, end, detail, kind, launch
        self._header[TRACE_HEADER["recorded"] // 8] = recorded + 1

    @property
    def lost(self) -> int:
        """Events that there was no room for."""
        return max(self._recorded - RING_EVENTS, 0)

    def slices(self, kernels: dict[int, str]) -> list[Slice]:
        """The events, in order. kernels: names by launch number."""
        return [_slice(event, kernels) for event in self._events[: min(self._recorded, RING_EVENTS)].tolist()]


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasted from `start` to `end`."""

    name: str
    start: int
    end: int
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceRow:
    """The slices of one process or thread; lost: events beside them that there was no room for."""

    name: str
    slices: list[Slice]
    lost: int = 0


def _slice(event: tuple[int, int, int, int, int], kernels: dict[int, str]) -> Slice:
    start, end, detail, kind, launch = event
    kernel = kernels.get(launch)
    details: dict[str, Any] = {} if kernel is None else {"kernel": kernel, "launch": launch}
    if kind == TURN:
        return Slice(f"workgroup {detail}", start, end, details | {"workgroup": detail})
    if kind == DECODE:
        details["pc"] = f"{detail:#x}"
    if kind == JOB:
        details["instructions"] = detail
    return Slice(_NAMES[kind], start, end, details)


class TraceSession:
    """The launcher's part of a trace: launches by thread, and the numbers by which rings refer to them."""

    def __init__(self) -> None:
        self.kernels: dict[int, str] = {}
        self.started = time.monotonic_ns()
        self._numbers = itertools.count(1)
        self._threads: dict[str, list[Slice]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def launch(self, kernel: str) -> Iterator[int]:
        """For the time of a launch; gives its number."""
        with self._lock:
            number = next(self._numbers)
            self.kernels[number] = kernel
        start = time.monotonic_ns()
        try:
            yield number
        finally:
            self._add(threading.current_thread().name, Slice(kernel, start, time.monotonic_ns(), {"launch": number}))

    @contextmanager
    def compile(self, pc: int) -> Iterator[None]:
        """For the time that the launcher spends on a worker's new code."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self._add("compiler", Slice("compile", start, time.monotonic_ns(), {"pc": f"{pc:#x}"}))

    def _add(self, row: str, piece: Slice) -> None:
        with self._lock:
            self._threads.setdefault(row, []).append(piece)

    def rows(self) -> list[TraceRow]:
        """A row for each thread that launched, and one for compiling."""
        with self._lock:
            return [TraceRow(f"launcher, {name}", list(slices)) for name, slices in self._threads.items()]


class LocalTracing:
    """For executors that run in the caller's thread: one ring for all."""

    _session: TraceSession | None = None
    _ring: TraceRing | None = None

    def begin_trace(self) -> None:
        """Record what launches do from now on. UsageError if that is so already."""
        if self._session is not None:
            raise UsageError(ALREADY_TRACED)
        self._session, self._ring = TraceSession(), TraceRing(np.zeros(RING_BYTES // 8, np.uint64).view(np.uint8))

    def end_trace(self) -> list[TraceRow]:
        """What has been recorded since `begin_trace`."""
        session, ring = self._session, self._ring
        self._session = self._ring = None
        if session is None or ring is None:
            return []
        slices = ring.slices(session.kernels)
        return [*session.rows(), *([TraceRow("inline", slices, ring.lost)] if slices else [])]

    @contextmanager
    def traced(self, kernel: str) -> Iterator[tuple[TraceRing, int] | None]:
        """For the time of a launch: where its events go, and its number; None while nothing is traced."""
        if self._session is None or self._ring is None:
            yield None
        else:
            with self._session.launch(kernel) as number:
                yield self._ring, number
