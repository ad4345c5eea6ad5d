"""How much device memory there is, for one `Vram` or for several that share it."""

from __future__ import annotations

import os
import threading
import weakref

import psutil

from rjemu.errors import OutOfMemory
from rjemu.shm.segment import SHM_DIRECTORY, Segment

_WORTH_ASKING = 1 << 20
"""Bytes after which the host is asked how much memory it has left: asking costs more than a small allocation."""


class MemoryQuota:
    """`size` bytes on each of `devices` GPUs. Calls may come from several threads."""

    def __init__(self, size: int, devices: int = 1) -> None:
        self.size = size
        self._used = [0] * devices
        self._unasked = 0
        self._segments: weakref.WeakSet[Segment] = weakref.WeakSet()
        self._lock = threading.Lock()

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
            self._unasked += taken
            if self._unasked >= _WORTH_ASKING:
                self._check_host(taken, nbytes)
                self._unasked = 0
            self._used[device] += taken

    def give(self, device: int, taken: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._used[device] -= taken

    def _check_host(self, taken: int, nbytes: int) -> None:
        # What is allocated but not yet touched will still have to find its place in the host.
        resident = sum(segment.resident_bytes for segment in self._segments if not segment.closed)
        promised = max(sum(self._used) - resident, 0)
        host_left = psutil.virtual_memory().available - promised
        file_system = os.statvfs(SHM_DIRECTORY)
        shm_left = file_system.f_bavail * file_system.f_frsize - promised
        if taken > min(host_left, shm_left):
            raise OutOfMemory(
                f"{nbytes} bytes asked for; the host has {max(host_left, 0)} bytes of memory and "
                f"{max(shm_left, 0)} bytes in {SHM_DIRECTORY} left"
            )
