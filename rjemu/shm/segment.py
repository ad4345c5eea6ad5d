"""Named shared-memory segments: sparse files of /dev/shm, mapped here and in every process that attaches.

A segment is created by `Segment.create` and named `rjemu-<pid>-<id>-<role>`, so that one left behind by a killed
process can be told from one in use (`rjemu.shm.orphans`). Pages take memory only once they are touched: a segment may
be far larger than the host's memory. The files are opened directly rather than through
`multiprocessing.shared_memory`, whose resource tracker would unlink a segment when any process that attached it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.errors import OutOfMemory

SHM_DIRECTORY = Path("/dev/shm")
NAME_PREFIX = "rjemu"

_ids = itertools.count()


class Segment:
    """A mapped segment. `address` is where it starts in this process; `bytes` is the whole of it as uint8.

    The creator unlinks the name on `close`, when the object is collected, and at interpreter exit. Every process that
    maps a segment holds a shared lock on its file, which the kernel drops with the process.
    """

    def __init__(self, name: str, descriptor: int, *, owner: bool) -> None:
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._map = mmap.mmap(descriptor, self.size)
        except OSError as error:
            os.close(descriptor)
            if owner:
                _unlink(name)
            raise OutOfMemory(f"cannot map {self.size} bytes of shared memory: {error.strerror}") from error
        self.bytes: np.ndarray = np.frombuffer(self._map, np.uint8)
        self.address: int = self.bytes.ctypes.data
        self._release = weakref.finalize(self, _release, name, descriptor, os.getpid() if owner else None)

    @classmethod
    def create(cls, role: str, size: int) -> Segment:
        """A new segment of `size` bytes, all zero. OutOfMemory if the host cannot hold even its page tables."""
        while True:
            name = f"{NAME_PREFIX}-{os.getpid()}-{next(_ids)}-{role}"
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(SHM_DIRECTORY / name, flags, 0o600)
            except FileExistsError:  # left behind by a killed process that had the same pid
                continue
            break
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            os.close(descriptor)
            _unlink(name)
            raise OutOfMemory(f"cannot create {size} bytes of shared memory: {error.strerror}") from error
        return cls(name, descriptor, owner=True)

    @classmethod
    def attach(cls, name: str) -> Segment:
        """The existing segment of that name; FileNotFoundError if there is none."""
        descriptor = os.open(SHM_DIRECTORY / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return cls(name, descriptor, owner=False)

    def array(self, dtype: Any, shape: int | tuple[int, ...], offset: int = 0) -> np.ndarray:
        """The memory from byte `offset` on as an array, not a copy."""
        # Through `bytes`, whose buffer export keeps the mapping alive: np.ndarray(buffer=) would not.
        return np.ndarray(shape, dtype, buffer=self.bytes[offset:])

    def discard(self, offset: int, nbytes: int) -> None:
        """Gives whole pages back to the host; they read as zero from now on, in every process."""
        self._map.madvise(mmap.MADV_REMOVE, offset, nbytes)

    @property
    def resident_bytes(self) -> int:
        """Bytes of host memory that the segment's touched pages take."""
        return os.fstat(self._descriptor).st_blocks * 512

    @property
    def closed(self) -> bool:
        return not self._release.alive

    def close(self) -> None:
        """Unlinks the name (creator only) and drops the mapping; arrays still held keep theirs until collected."""
        self._release()
        del self.bytes
        with contextlib.suppress(BufferError):  # an array over it is still alive: the mapping goes with the last one
            self._map.close()


def _release(name: str, descriptor: int, owner: int | None) -> None:
    os.close(descriptor)
    if owner == os.getpid():  # a forked child must not unlink its parent's segments
        _unlink(name)


def _unlink(name: str) -> None:
    (SHM_DIRECTORY / name).unlink(missing_ok=True)
