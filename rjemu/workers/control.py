"""The machine's control block in shared memory: what the launcher and its workers tell each other without messages.

One segment: a header, a record per worker, a record per worker and dispatch slot, and the dispatch slots (each a header,
a DISPATCH block and its templates). Words that both sides change are written by atomic exchange
(`exec.engine.Runtime.exchange`).
"""

from __future__ import annotations

import numpy as np

from rjemu.exec.layout import ASYNC_COUNTERS, DISPATCH_BYTES, fields
from rjemu.exec.prepare import DispatchBlock
from rjemu.shm.segment import Segment

DISPATCH_SLOTS = 16
"""Dispatches that can be under way at once, from different threads."""

MAX_WORKERS = 1024
KERNEL_NAME_BYTES = 256
SEGMENT_NAME_BYTES = 256

HEADER = fields(
    0,
    ("attention", 4),  # futex: counts up when a worker has started
    ("doorbell", 4),  # futex: idle workers sleep on it, in group `sleep_group`; counts up with any of their bells
    ("shutdown", 4),  # not 0: workers end
    ("workers", 4),
    ("trace_name_bytes", 4),
    ("trace_name", 8),  # the segment with the workers' trace rings, RING_BYTES each; empty: nothing is traced
    ("_trace_name", SEGMENT_NAME_BYTES - 8),
)
HEADER_BYTES = 4096

WORKER = fields(
    0,
    ("bell", 4),  # counts up when there is something new for the worker
    ("invited", 4),  # bit k: it shall take part in the dispatch of slot k
    ("active", 4),  # bit k: it is in that dispatch
    ("pid", 4),
    ("ready", 4),  # set up and listening
    ("cpu", 4),
    ("requests", 4),  # counts the messages sent to the launcher
)
WORKER_BYTES = 64

PART = fields(
    0,
    ("opened", 4),  # workgroup slots that hold or have held workgroups
    ("workgroups", 8),
    ("instructions", 8),
    ("busy_ns", 8),
    ("started_ns", 8),  # CLOCK_MONOTONIC
    ("ended_ns", 8),
    *((name, 8) for name in ASYNC_COUNTERS),
)
"""What a worker does, or did, in the dispatch of a slot: prepared by the launcher, counted up by the worker."""
PART_BYTES = -(-PART["end"] // 64) * 64

CLOSED, OPEN, SUSPENDED = 0, 1, 2
SLOT_HEADER = fields(
    0,
    ("state", 4),  # OPEN: workers may enter; SUSPENDED: they may not, until it goes on
    ("generation", 4),  # counts the dispatches that the slot has held, and how often each of them has gone on
    ("attention", 4),  # futex: the launching thread sleeps on it; a worker has left the dispatch or asks for something
    ("journal", 4),  # journal entries that a worker must have applied
    ("device", 4),
    ("takers", 4),  # workers that take part
    ("resident", 4),  # workgroups that they may hold at once, together
    ("lds_bytes", 4),
    ("launch", 4),  # number of the launch in the trace, 0 if it is not traced
    ("name_bytes", 4),
    ("name", 8),
    ("_name", KERNEL_NAME_BYTES - 8),
    ("places", 8),  # u16 [MAX_WORKERS]: 1 + the worker's place among those that take part, 0: it does not
    ("_places", MAX_WORKERS * 2 - 8),
)
SLOT_HEADER_BYTES = 4096
SLOT_BYTES = -(-(SLOT_HEADER_BYTES + DISPATCH_BYTES) // 4096) * 4096
PARTS_OFFSET = HEADER_BYTES + MAX_WORKERS * WORKER_BYTES
SLOTS_OFFSET = PARTS_OFFSET + MAX_WORKERS * DISPATCH_SLOTS * PART_BYTES


def sleep_group(worker: int) -> int:
    """The futex group in which a worker sleeps. More workers than groups share, and wake each other for nothing."""
    return worker % 32


class Record:
    """u32 and u64 fields of one structure in the control block."""

    def __init__(self, memory: np.ndarray, layout: dict[str, int]) -> None:
        self._words = memory[: len(memory) // 8 * 8].view(np.uint32)
        self._longs = memory[: len(memory) // 8 * 8].view(np.uint64)
        self._memory = memory
        self._layout = layout
        self.address = memory.ctypes.data

    def clear(self) -> None:
        self._longs[:] = 0

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

    def text(self, name: str) -> str:
        """A string field, whose length is in the field of that name with `_bytes` added."""
        return self._memory[self._layout[name] :][: self.word(f"{name}_bytes")].tobytes().decode("utf-8", "replace")

    def set_text(self, name: str, text: str, most: int) -> None:
        """Set a string field of at most so many bytes, and cut what is longer."""
        data = text.encode()[:most]
        self._memory[self._layout[name] :][: len(data)] = np.frombuffer(data, np.uint8)
        self.set_word(f"{name}_bytes", len(data))


class DispatchSlot(Record):
    """A dispatch slot: its header, its DISPATCH block, and places, uint16 [MAX_WORKERS]."""

    def __init__(self, memory: np.ndarray) -> None:
        super().__init__(memory[:SLOT_HEADER_BYTES], SLOT_HEADER)
        self.block = DispatchBlock(memory[SLOT_HEADER_BYTES : SLOT_HEADER_BYTES + DISPATCH_BYTES])
        self.places = memory[SLOT_HEADER["places"] :][: 2 * MAX_WORKERS].view(np.uint16)

    @property
    def kernel_name(self) -> str:
        """The kernel's name, cut to KERNEL_NAME_BYTES."""
        return self.text("name")

    @kernel_name.setter
    def kernel_name(self, name: str) -> None:
        self.set_text("name", name, KERNEL_NAME_BYTES)


class Control:
    """Views of a control block."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        memory = segment.bytes
        self.header = Record(memory[:HEADER_BYTES], HEADER)
        self.workers = [
            Record(memory[start : start + WORKER_BYTES], WORKER)
            for start in range(HEADER_BYTES, HEADER_BYTES + self.header.word("workers") * WORKER_BYTES, WORKER_BYTES)
        ]
        self.slots = [DispatchSlot(memory[SLOTS_OFFSET + k * SLOT_BYTES :][:SLOT_BYTES]) for k in range(DISPATCH_SLOTS)]

    @classmethod
    def create(cls, workers: int) -> Control:
        segment = Segment.create("control", SLOTS_OFFSET + DISPATCH_SLOTS * SLOT_BYTES, reserve=True)
        Record(segment.bytes[:HEADER_BYTES], HEADER).set_word("workers", workers)
        return cls(segment)

    def part(self, worker: int, slot: int) -> Record:
        """What a worker does in the dispatch of a slot."""
        start = PARTS_OFFSET + (worker * DISPATCH_SLOTS + slot) * PART_BYTES
        return Record(self.segment.bytes[start : start + PART_BYTES], PART)

    def close(self) -> None:
        self.header = self.workers = self.slots = None  # type: ignore[assignment]
        self.segment.close()
