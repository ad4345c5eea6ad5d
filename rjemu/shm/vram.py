"""Device memory: one sparse shared segment, an allocator, and the table of live allocations that kernels run against.

A GPU address is `GPU_BASE + offset` in the segment. The address space is larger than the memory: a guard gap follows
every allocation so that an overrun meets no neighbour, and neither gaps nor fragmentation use up VRAM, as with a
GPU's page tables. The table is in a segment of its own, for native code and other processes to search. The memories of
several GPUs are consecutive ranges of one address space, which all of them reach.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rjemu.errors import OutOfMemory, UsageError
from rjemu.shm.quota import WORTH_ASKING, MemoryQuota
from rjemu.shm.segment import Segment

GPU_BASE = 0x6000_0000_0000
"""First GPU address: in the upper half of the 47-bit user space, as a driver's addresses are; no offset of it is null."""

PAGE = 4096
GUARD = 64 * 1024
MAPPED_GRANULE = 4
"""Allocations end at a whole dword: compilers widen scalar loads of smaller data to an aligned dword."""

TABLE_CAPACITY = 64 * 1024
TABLE_COUNT, TABLE_GENERATION, TABLE_ROWS = 0, 8, 64
"""Byte offsets in the table's segment: the header's words, then the rows."""

_NULL_PAGE = PAGE


@dataclass(frozen=True, slots=True)
class Allocation:
    """A live allocation: GPU address, bytes asked for, what it is for, and the GPU whose memory it is in."""

    address: int
    nbytes: int
    label: str
    device: int = 0

    @property
    def end(self) -> int:
        """First address that an access faults at."""
        return self.address + round_up(self.nbytes, MAPPED_GRANULE)

    def __str__(self) -> str:
        return f"{self.label or 'an allocation'} [{self.address:#x}, {self.end:#x})"


class AllocationTable:
    """The live allocations in shared memory, for readers that search by address.

    header: uint64 words `count` and `generation`; from byte TABLE_ROWS on `rows`, uint64 [capacity, 2], of which the first
    `count` are (start, end) GPU addresses sorted by start. `generation` is odd while a change is under way.
    """

    def __init__(self, capacity: int = TABLE_CAPACITY) -> None:
        self.segment = Segment.create("table", TABLE_ROWS + capacity * 16, reserve=True)
        self.capacity = capacity
        self.address = self.segment.address
        self._header = self.segment.array(np.uint64, 2)
        self.rows = self.segment.array(np.uint64, (capacity, 2), TABLE_ROWS)

    @property
    def count(self) -> int:
        return int(self._header[0])

    @property
    def generation(self) -> int:
        return int(self._header[1])

    def insert(self, start: int, end: int) -> None:
        count = self.count
        row = int(np.searchsorted(self.rows[:count, 0], np.uint64(start)))
        self._header[1] += np.uint64(1)
        self.rows[row + 1 : count + 1] = self.rows[row:count].copy()
        self.rows[row] = start, end
        self._header[0] = count + 1
        self._header[1] += np.uint64(1)

    def remove(self, start: int) -> None:
        count = self.count
        row = int(np.searchsorted(self.rows[:count, 0], np.uint64(start)))
        self._header[1] += np.uint64(1)
        self.rows[row : count - 1] = self.rows[row + 1 : count].copy()
        self._header[0] = count - 1
        self._header[1] += np.uint64(1)

    def close(self) -> None:
        del self._header, self.rows
        self.segment.close()


class FreeSpace:
    """The free blocks of an offset range: best fit, neighbours joined. Every search is a bisection."""

    def __init__(self, start: int, end: int) -> None:
        self._by_start = [(start, end - start)]
        self._by_size = [(end - start, start)]

    def take(self, size: int, align: int) -> int | None:
        """The offset of `size` bytes (a multiple of PAGE) at a multiple of `align`, or None if there is no such block."""
        index = bisect.bisect_left(self._by_size, (size + max(align - PAGE, 0), 0))
        if index == len(self._by_size):
            return None
        block_size, start = self._by_size[index]
        offset = round_up(start, align)
        self._remove(start, block_size)
        self._insert(start, offset - start)
        self._insert(offset + size, start + block_size - offset - size)
        return offset

    def take_at(self, start: int, size: int) -> bool:
        """Takes just that range; whether it is free."""
        index = bisect.bisect_right(self._by_start, start, key=lambda block: block[0]) - 1
        if index < 0 or start + size > sum(self._by_start[index]):
            return False
        block_start, block_size = self._by_start[index]
        self._remove(block_start, block_size)
        self._insert(block_start, start - block_start)
        self._insert(start + size, block_start + block_size - start - size)
        return True

    def give(self, start: int, size: int) -> None:
        """Makes a taken range free again."""
        index = bisect.bisect_left(self._by_start, (start, 0))
        if index < len(self._by_start) and self._by_start[index][0] == start + size:
            next_start, next_size = self._by_start[index]
            self._remove(next_start, next_size)
            size += next_size
        if index > 0:
            before, before_size = self._by_start[index - 1]
            if before + before_size == start:
                self._remove(before, before_size)
                start, size = before, size + before_size
        self._insert(start, size)

    def blocks(self) -> list[tuple[int, int]]:
        """(start, size) of every free block, by start."""
        return list(self._by_start)

    def _insert(self, start: int, size: int) -> None:
        if size:
            bisect.insort(self._by_start, (start, size))
            bisect.insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._by_start[bisect.bisect_left(self._by_start, (start, size))]
        del self._by_size[bisect.bisect_left(self._by_size, (size, start))]


class _Memory:
    """One GPU's part of the address space: what is free of it, and bytes of memory in use."""

    def __init__(self, start: int, end: int) -> None:
        self.space = FreeSpace(start, end)
        self.used = 0


class Vram:
    """The memory of `devices` GPUs, `size` bytes each, less what others take of the quota. Fresh memory reads as zero.

    host_base: address in this process of GPU_BASE. table_address: address in this process of the table's header.
    Calls may come from several threads.
    """

    def __init__(self, size: int, devices: int = 1, quota: MemoryQuota | None = None) -> None:
        self.size = round_up(size, PAGE)
        self._quota = quota or MemoryQuota(self.size, devices)
        space = 2 * self.size + (TABLE_CAPACITY + 1) * GUARD
        self._segment = Segment.create("vram", devices * space)
        self._quota.join(self._segment)
        self.table = AllocationTable()
        self.host_base = self._segment.address
        self.table_address = self.table.address
        self._memories = [_Memory(max(k * space, _NULL_PAGE), (k + 1) * space) for k in range(devices)]
        self._live: dict[int, Allocation] = {}
        self._dropped: deque[int] = deque()
        self._lock = threading.Lock()

    @property
    def segment_name(self) -> str:
        """The name under which other processes attach the memory."""
        return self._segment.name

    @property
    def closed(self) -> bool:
        return self._segment.closed

    @property
    def used(self) -> int:
        """Bytes of memory in use on all GPUs, whole pages."""
        return sum(memory.used for memory in self._memories)

    def used_on(self, device: int) -> int:
        """Bytes of one GPU's memory in use."""
        return self._memories[device].used

    def check_open(self, what: str = "the device memory") -> None:
        """MachineClosed, saying what has been closed; ForkedMachine in a forked child."""
        self._segment.check_open(what)

    def allocate(self, nbytes: int, align: int = PAGE, label: str = "", device: int = 0) -> int:
        """The GPU address of `nbytes` new bytes, all zero, at a multiple of `align` (a power of two; at least PAGE holds).

        UsageError for a negative size or a bad alignment; OutOfMemory if device or host have not that much left.
        """
        if nbytes < 0 or align < 1 or align & (align - 1):
            raise UsageError(f"cannot allocate {nbytes} bytes aligned to {align}")
        self.check_open()
        with self._lock:
            self.check_open()
            while self._dropped:
                self._free_now(self._dropped.popleft())
            memory = self._memories[device]
            taken = round_up(max(nbytes, 1), PAGE)
            if self.table.count == self.table.capacity:
                raise OutOfMemory(f"{self.table.capacity} allocations are live, which is the most there can be")
            self._quota.take(device, taken, nbytes)
            offset = memory.space.take(taken + GUARD, max(align, PAGE))
            if offset is None:
                self._quota.give(device, taken)
                raise OutOfMemory(f"no {nbytes} contiguous bytes aligned to {align} are left in device memory")
            allocation = Allocation(GPU_BASE + offset, nbytes, label, device)
            self._enter(allocation, taken)
        return allocation.address

    def place(self, allocation: Allocation) -> None:
        """Makes just that allocation, all zero. UsageError if it is not possible there, OutOfMemory as `allocate`."""
        self.check_open()
        with self._lock:
            self.check_open()
            taken = round_up(max(allocation.nbytes, 1), PAGE)
            offset = allocation.address - GPU_BASE
            if self.table.count == self.table.capacity:
                raise OutOfMemory(f"{self.table.capacity} allocations are live, which is the most there can be")
            self._quota.take(allocation.device, taken, allocation.nbytes)
            if offset % PAGE or not self._memories[allocation.device].space.take_at(offset, taken + GUARD):
                self._quota.give(allocation.device, taken)
                raise UsageError(f"{allocation} cannot be in the memory of GPU {allocation.device}, or overlaps another")
            self._enter(allocation, taken)

    def _enter(self, allocation: Allocation, taken: int) -> None:
        """Make an allocation live whose range and quota, of `taken` bytes, have been taken."""
        memory = self._memories[allocation.device]
        offset = allocation.address - GPU_BASE
        if taken < WORTH_ASKING:
            try:
                self._segment.reserve(offset, taken, allocation.label or "an allocation")
            except OutOfMemory:
                memory.space.give(offset, taken + GUARD)
                self._quota.give(allocation.device, taken)
                raise
        self._live[allocation.address] = allocation
        self.table.insert(allocation.address, allocation.end)
        memory.used += taken

    @contextmanager
    def held(self) -> Iterator[list[Allocation]]:
        """For a block in which no thread allocates or frees: the live allocations by address."""
        self.check_open()
        with self._lock:
            self.check_open()
            while self._dropped:
                self._free_now(self._dropped.popleft())
            yield self.allocations()

    def written(self, allocation: Allocation, most: int) -> Iterator[tuple[int, np.ndarray]]:
        """What has been written of an allocation, in pieces of at most `most` bytes (a multiple of PAGE): address, and uint8
        of whole pages, not a copy. What is left out reads as zero."""
        offset = allocation.address - GPU_BASE
        for start, end in self._segment.written_in(offset, round_up(max(allocation.nbytes, 1), PAGE)):
            for at in range(start, end, most):
                yield GPU_BASE + at, self._segment.bytes[at : min(at + most, end)]

    def free(self, address: int) -> None:
        """Ends an allocation and gives its pages back to the host; UsageError if `address` does not start one."""
        self.check_open()
        with self._lock:
            self.check_open()
            self._free_now(address)

    def free_later(self, address: int) -> None:
        """Frees before the next allocation. For finalizers, which may run while this thread is inside a call above."""
        self._dropped.append(address)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """uint8 array over [address, address + nbytes), not a copy; UsageError if that leaves the live allocation."""
        self.check_open()
        allocation = self.find(address)
        if nbytes < 0 or allocation is None or address + nbytes > allocation.end:
            raise UsageError(f"{nbytes} bytes at {address:#x} are no device memory: {self.nearest(address)}")
        offset = address - GPU_BASE
        return self._segment.bytes[offset : offset + nbytes]

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """uint8: a copy of [address, address + nbytes). UsageError as `view`."""
        return self.view(address, nbytes).copy()

    def write(self, address: int, data: np.ndarray) -> None:
        """Overwrites memory from an address on with a uint8 array. UsageError as `view`."""
        self.view(address, len(data))[:] = data

    def backed(self, address: int, nbytes: int) -> np.ndarray:
        """`view` of memory for which the host's pages have been taken, so that its use cannot end this process. It costs as
        much as half a copy. OutOfMemory if the host has no pages left."""
        view = self.view(address, nbytes)
        if nbytes:
            self._segment.reserve(address - GPU_BASE, nbytes, f"a copy of {nbytes} bytes")
        return view

    def pages(self, address: int, nbytes: int) -> np.ndarray:
        """uint8 over whole pages of a live allocation, not a copy, with the bytes beyond its end. OutOfMemory if the host
        has no pages left for them."""
        offset = address - GPU_BASE
        if nbytes:
            self._segment.reserve(offset, nbytes, f"a copy of {nbytes} bytes")
        return self._segment.bytes[offset : offset + nbytes]

    def find(self, address: int) -> Allocation | None:
        """The live allocation that holds `address`; the start of an empty one counts as inside."""
        with self._lock:
            below = self._last_starting_at_or_below(address)
        return below if below is not None and (address < below.end or address == below.address) else None

    def nearest(self, address: int) -> str:
        """Where `address` lies relative to the nearest allocation, in words for a fault's message."""
        if not self._live:
            return "nothing is allocated"
        with self._lock:
            below = self._last_starting_at_or_below(address)
            after = self._first_starting_above(address)
        if below is not None and address < below.end:
            return f"{address - below.address} bytes into {below}"
        if below is not None and (after is None or address - below.end <= after.address - address):
            return f"{address - below.end} bytes past the end of {below}"
        assert after is not None
        return f"{after.address - address} bytes before {after}"

    def allocations(self) -> list[Allocation]:
        """The live allocations by address."""
        return sorted(self._live.values(), key=lambda allocation: allocation.address)

    def close(self) -> None:
        """Releases all memory; a second call does nothing."""
        if self.closed:
            return
        with self._lock:
            if not self.closed:
                self._live.clear()
                for device, memory in enumerate(self._memories):
                    self._quota.give(device, memory.used)
                self.table.close()
                self._segment.close()

    def _free_now(self, address: int) -> None:
        allocation = self._live.pop(address, None)
        if allocation is None:
            raise UsageError(f"{address:#x} is not the start of an allocation")
        self.table.remove(address)
        taken = round_up(max(allocation.nbytes, 1), PAGE)
        offset = address - GPU_BASE
        memory = self._memories[allocation.device]
        self._segment.discard(offset, taken)
        memory.space.give(offset, taken + GUARD)
        memory.used -= taken
        self._quota.give(allocation.device, taken)

    def _last_starting_at_or_below(self, address: int) -> Allocation | None:
        starts = self.table.rows[: self.table.count, 0]
        if not 0 <= address < 1 << 64:
            return None
        row = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        return self._live[int(starts[row])] if row >= 0 else None

    def _first_starting_above(self, address: int) -> Allocation | None:
        starts = self.table.rows[: self.table.count, 0]
        row = int(np.searchsorted(starts, np.uint64(address), side="right"))
        return self._live[int(starts[row])] if row < len(starts) else None


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below `value`."""
    return -(-value // multiple) * multiple
