"""What a handler costs on this host: it is run a few times on a scratch wave."""

from __future__ import annotations

import time

import numpy as np

from rjemu.exec.engine import aligned_bytes
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.handoff_calls import HandoffCalls
from rjemu.exec.layout import CTX, WAVE_BYTES

_REPEATS, _SAMPLES = 256, 3


class HandlerClock:
    """Times handlers that are free of side effects beyond vector registers: matrix instructions."""

    def __init__(self, calls: HandoffCalls, library: HandlerLibrary) -> None:
        self._calls = calls
        self._library = library
        self._known: dict[int, float] = {}
        self._context = aligned_bytes(-(-CTX["end"] // 8) * 8)
        self._wave = aligned_bytes(WAVE_BYTES)

    def nanoseconds(self, number: int, record: bytes) -> float:
        """Nanoseconds of one execution of the handler of that number, which has been provided, warm."""
        if number not in self._known:
            self._known[number] = self._measure(number, np.frombuffer(record, np.uint8).copy())
        return self._known[number]

    def _measure(self, number: int, record: np.ndarray) -> float:
        table = self._library.table
        code = next(
            address
            for address in (self._library.address(number, k) for k in range(len(table.mode_keys)))
            if address != table.undecoded
        )
        samples = []
        for _ in range(_SAMPLES + 1):
            started = time.perf_counter_ns()
            self._calls.repeat(code, self._context.ctypes.data, self._wave.ctypes.data, record.ctypes.data, _REPEATS)
            samples.append((time.perf_counter_ns() - started) / _REPEATS)
        return min(samples[1:])
