"""The machine's control block in shared memory: what the launcher and its workers tell each other without messages.

One segment: a header, a record per worker, and the dispatch slots (each a header, a DISPATCH block and its templates).
Words that both sides change are written by atomic exchange (`exec.engine.Runtime.exchange`).
"""

from __future__ import annotations

import numpy as np

from rjemu.exec.layout import DISPATCH_BYTES, fields
from rjemu.shm.segment import Segment

DISPATCH_SLOTS = 16
"""Dispatches that can be under way at once, from different threads."""

MAX_WORKERS = 1024
KERNEL_NAME_BYTES = 256

HEADER = fields(
    0,
    ("doorbell", 4),  # futex: the workers sleep on it; counts up when there is something new to look at
    (
        "attention",
        4,
    ),  # futex: launching threads sleep on it; a worker has left a dispatch or asks for something
    ("shutdown", 4),  # not 0: workers end
    ("workers", 4),
)
HEADER_BYTES = 64

WORKER = fields(
    0,
    ("active", 4),  # 1 + the dispatch slot that the worker is in, 0 for none
    ("pid", 4),
    ("ready", 4),  # set up and listening
    ("cpu", 4),
    ("requests", 4),  # counts the messages sent to the launcher
    ("generation", 4),  # of the dispatch that the figures below are about
    ("opened", 4),  # slots in use in that dispatch
    ("workgroups", 8),
    ("instructions", 8),
    ("busy_ns", 8),
    ("started_ns", 8),  # CLOCK_MONOTONIC
    ("ended_ns", 8),
)
WORKER_BYTES = 128

OPEN, CLOSED = 1, 0
SLOT_HEADER = fields(
    0,
    ("state", 4),  # OPEN: workers may enter
    ("generation", 4),  # counts the dispatches that the slot has held
    ("journal", 4),  # journal entries that a worker must have applied
    ("first_worker", 4),  # workers first_worker ... last_worker - 1 take part
    ("last_worker", 4),
    ("resident", 4),  # workgroups that the workers together may hold at once
    ("lds_bytes", 4),
    ("name_bytes", 4),
    ("name", 8),
    ("_name", KERNEL_NAME_BYTES - 8),
)
SLOT_HEADER_BYTES = 512
SLOT_BYTES = -(-(SLOT_HEADER_BYTES + DISPATCH_BYTES) // 4096) * 4096
SLOTS_OFFSET = 4096 + MAX_WORKERS * WORKER_BYTES


class Record:
    """u32 and u64 fields of one structure in the control block."""

    def __init__(self, memory: np.ndarray, layout: dict[str, int]) -> None:
        self._words = memory[: len(memory) // 8 * 8].view(np.uint32)
        self._longs = memory[: len(memory) // 8 * 8].view(np.uint64)
        self._layout = layout
        self.address = memory.ctypes.data

    def word(self, name: str) -> int:
        return int(self._words[self._layout[name] // 4])

    def set_word(self, name: str, value: int) -> None:
        self._words[self._layout[name] // 4] = value & 0xFFFFFFFF

    def long(self, name: str) -> int:
        return int(self._longs[self._layout[name] // 8])

    def set_long(self, name: str, value: int) -> None:
        self._longs[self._layout[name] // 8] = value

    def field_address(self, name: str) -> int:
        return self.address + self._layout[name]


class Control:
    """Views of a control block."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        memory = segment.bytes
        self.header = Record(memory[:HEADER_BYTES], HEADER)
        self.workers = [
            Record(memory[4096 + k * WORKER_BYTES : 4096 + (k + 1) * WORKER_BYTES], WORKER)
            for k in range(self.header.word("workers"))
        ]
        self.slots = [self._slot(memory, k) for k in range(DISPATCH_SLOTS)]
        self.dispatches = [self._dispatch(memory, k) for k in range(DISPATCH_SLOTS)]

    @classmethod
    def create(cls, workers: int) -> Control:
        segment = Segment.create("control", SLOTS_OFFSET + DISPATCH_SLOTS * SLOT_BYTES)
        Record(segment.bytes[:HEADER_BYTES], HEADER).set_word("workers", workers)
        return cls(segment)

    @staticmethod
    def _slot(memory: np.ndarray, k: int) -> Record:
        start = SLOTS_OFFSET + k * SLOT_BYTES
        return Record(memory[start : start + SLOT_HEADER_BYTES], SLOT_HEADER)

    @staticmethod
    def _dispatch(memory: np.ndarray, k: int) -> np.ndarray:
        """uint8 [DISPATCH_BYTES] of slot k."""
        start = SLOTS_OFFSET + k * SLOT_BYTES + SLOT_HEADER_BYTES
        return memory[start : start + DISPATCH_BYTES]

    def kernel_name(self, k: int) -> str:
        """The name of the kernel in slot k, cut to KERNEL_NAME_BYTES."""
        start = SLOTS_OFFSET + k * SLOT_BYTES + SLOT_HEADER["name"]
        count = self.slots[k].word("name_bytes")
        return self.segment.bytes[start : start + count].tobytes().decode("utf-8", "replace")

    def set_kernel_name(self, k: int, name: str) -> None:
        data = name.encode()[:KERNEL_NAME_BYTES]
        start = SLOTS_OFFSET + k * SLOT_BYTES + SLOT_HEADER["name"]
        self.segment.bytes[start : start + len(data)] = np.frombuffer(data, np.uint8)
        self.slots[k].set_word("name_bytes", len(data))

    def close(self) -> None:
        self.header = self.workers = self.slots = self.dispatches = None  # type: ignore[assignment]
        self.segment.close()
