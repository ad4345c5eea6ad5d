"""How much device memory there is, for one `Vram` or for several that share it."""

from __future__ import annotations

import threading
import weakref

import psutil

from rjemu.errors import OutOfMemory
from rjemu.shm import room
from rjemu.shm.segment import SHM_DIRECTORY, Segment, free_bytes

WORTH_ASKING = 1 << 20
"""Smaller allocations do not ask how much memory the host has left, which costs more than they do: theirs is reserved."""


class MemoryQuota:
    """`size` bytes on each of `devices` GPUs. Calls may come from several threads."""

    def __init__(self, size: int, devices: int = 1) -> None:
        self.size = size
        self._used = [0] * devices
        self._segments: weakref.WeakSet[Segment] = weakref.WeakSet()
        self._lock = threading.Lock()
        room.keep(self)

    @property
    def nbytes(self) -> int:
        """Bytes in use on all GPUs (`room.Promise`)."""
        return sum(self._used)

    def outstanding(self) -> int:
        """Bytes in use whose pages have not been touched yet."""
        resident = sum(segment.resident_bytes for segment in list(self._segments) if not segment.closed)
        return max(self.nbytes - resident, 0)

    def join(self, segment: Segment) -> None:
        """Say where allocations have their pages, to tell how much host memory they will still need."""
        with self._lock:
            self._segments.add(segment)

    def take(self, device: int, taken: int, nbytes: int) -> None:
        """Take `taken` bytes (whole pages) for an allocation of `nbytes`; OutOfMemory where device or host lack them."""
        with self._lock:
            left = self.size - self._used[device]
            if taken > left:
                raise OutOfMemory(f"{nbytes} bytes asked for, {left} of {self.size} bytes of device memory left")
            if taken >= WORTH_ASKING:
                self._check_host(taken, nbytes)
            self._used[device] += taken

    def give(self, device: int, taken: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._used[device] -= taken

    def _check_host(self, taken: int, nbytes: int) -> None:
        # What is allocated but not yet touched will still have to find its place in the host.
        promised = room.outstanding()
        host_left = psutil.virtual_memory().available - promised
        shm_left = free_bytes() - promised
        if taken > min(host_left, shm_left):
            raise OutOfMemory(
                f"{nbytes} bytes asked for; the host has {max(host_left, 0)} bytes of memory and "
                f"{max(shm_left, 0)} bytes in {SHM_DIRECTORY} left"
            )
