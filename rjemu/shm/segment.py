"""Named shared-memory segments: sparse files of /dev/shm, mapped here and in every process that attaches.

A segment is named `rjemu-<pid>-<token>-<number>-<role>` after the process that created it; the token keeps apart processes
that have the same pid, one after the other or in different containers. Pages take memory only once they are touched: a
segment may be far larger than the host's memory. The files are opened directly rather than through
`multiprocessing.shared_memory`, whose resource tracker would unlink a segment when any process that attached it ends.

Every process that maps a segment holds a shared lock on its file, which the kernel drops with the process: a file that
nobody has locked is one that a killed process left behind (`rjemu.shm.orphans`). A file gets its name only when it is
complete and locked. Forked children get neither the mapping nor the lock.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.errors import ForkedMachine, MachineClosed, OutOfMemory
from rjemu.shm.guardian import guard

SHM_DIRECTORY = Path("/dev/shm")
NAME_PREFIX = "rjemu"

_MADV_REMOVE, _MADV_DONTFORK = 9, 10
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Segment:
    """A mapped segment. `address` is where it starts in this process; `bytes` is the whole of it as uint8.

    The creator unlinks the name on `close`, when the object is collected, and at interpreter exit; its guardian does if it
    is killed.
    """

    def __init__(self, name: str, descriptor: int, *, owner: bool) -> None:
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self.forked = False
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self.bytes = _mapped(descriptor, self.size)
        except OSError as error:
            os.close(descriptor)
            if owner:
                _unlink(name)
            raise OutOfMemory(f"cannot map {self.size} bytes of shared memory: {error.strerror}") from error
        self.address: int = self.bytes.ctypes.data
        self._release = weakref.finalize(self, _release, name, descriptor, owner)
        _live.add(self)

    @classmethod
    def create(cls, role: str, size: int, *, reserve: bool = False) -> Segment:
        """A new segment of `size` bytes, all zero.

        reserve: take its memory now, so that writing to it cannot fail. OutOfMemory if the host cannot hold that, or not
        even the page tables of a sparse segment.
        """
        guard(SHM_DIRECTORY, _names.prefix)
        try:
            descriptor = os.open(SHM_DIRECTORY, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OutOfMemory(f"cannot create shared memory in {SHM_DIRECTORY}: {error.strerror}") from error
        try:
            os.ftruncate(descriptor, size)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if reserve:
                reserve_range(descriptor, 0, size, f"the segment {role!r}")
            name = _give_name(descriptor, role)
        except OSError as error:
            os.close(descriptor)
            raise OutOfMemory(f"cannot create {size} bytes of shared memory: {error.strerror}") from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(name, descriptor, owner=True)

    @classmethod
    def attach(cls, name: str) -> Segment:
        """The existing segment of that name; FileNotFoundError if there is none."""
        descriptor = os.open(SHM_DIRECTORY / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return cls(name, descriptor, owner=False)

    def array(self, dtype: Any, shape: int | tuple[int, ...], offset: int = 0) -> np.ndarray:
        """The memory from byte `offset` on as an array, not a copy."""
        # Through `bytes`, which keeps the mapping alive: np.ndarray(buffer=) of the raw memory would not.
        return np.ndarray(shape, dtype, buffer=self.bytes[offset:])

    def reserve(self, offset: int, nbytes: int, what: str) -> None:
        """Take the memory of a range now, so that writing to it cannot fail. OutOfMemory, which names `what`, else."""
        reserve_range(self._descriptor, offset, nbytes, what)

    def discard(self, offset: int, nbytes: int) -> None:
        """Gives whole pages back to the host; they read as zero from now on, in every process."""
        if _libc.madvise(self.address + offset, nbytes, _MADV_REMOVE):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    @property
    def resident_bytes(self) -> int:
        """Bytes of host memory that the segment's touched pages take."""
        return os.fstat(self._descriptor).st_blocks * 512

    def resident_in(self, offset: int, nbytes: int) -> int:
        """Bytes of host memory that the written pages of a range take."""
        return sum(end - start for start, end in self.written_in(offset, nbytes))

    def written_in(self, offset: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """(start, end) of the parts of a range that have been written; the others read as zero."""
        end, at = offset + nbytes, offset
        while at < end:
            try:
                start = os.lseek(self._descriptor, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data from here to the end of the file
                    return
                raise
            at = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            if start < end:
                yield start, min(at, end)

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more: closed, or the parent's where this is a forked child."""
        return not self._release.alive

    def check_open(self, what: str) -> None:
        """MachineClosed, saying that `what` has been closed; ForkedMachine in a child that was forked while it was open."""
        if self.forked:
            raise ForkedMachine.of(what)
        if self.closed:
            raise MachineClosed(f"{what} has been closed")

    def close(self) -> None:
        """Unlinks the name (creator only) and drops the mapping; arrays still held keep theirs until collected."""
        self._release()
        self.bytes = np.empty(0, np.uint8)

    def _leave_to_parent(self) -> None:
        """In a forked child, which has no mapping of it."""
        if self._release.detach():
            self.forked = True
            os.close(self._descriptor)


class _Names:
    """What the names of this process's segments start with, and their numbers."""

    def __init__(self) -> None:
        self.prefix = f"{NAME_PREFIX}-{os.getpid()}-{os.urandom(4).hex()}-"
        self.numbers = itertools.count()


_live: weakref.WeakSet[Segment] = weakref.WeakSet()
_names = _Names()


def reserve_range(descriptor: int, offset: int, nbytes: int, what: str) -> None:
    """Take the memory of a range of a file of SHM_DIRECTORY. OutOfMemory if there is not that much."""
    try:
        os.posix_fallocate(descriptor, offset, nbytes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        left = free_bytes()
        raise OutOfMemory(f"{what} needs {nbytes} bytes of shared memory; {SHM_DIRECTORY} has {left} bytes left") from error


def free_bytes() -> int:
    """Bytes that SHM_DIRECTORY can still take."""
    status = os.statvfs(SHM_DIRECTORY)
    return status.f_bavail * status.f_frsize


def _give_name(descriptor: int, role: str) -> str:
    name = f"{_names.prefix}{next(_names.numbers)}-{role}"
    # A directory descriptor, unused as the path is absolute, makes os.link follow the symbolic link of /proc.
    os.link(f"/proc/self/fd/{descriptor}", SHM_DIRECTORY / name, src_dir_fd=descriptor)
    return name


def _mapped(descriptor: int, size: int) -> np.ndarray:
    """uint8 [size]: the file's memory, which is unmapped when no array refers to it any more."""
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    _libc.madvise(address, size, _MADV_DONTFORK)
    memory = (ctypes.c_uint8 * size).from_address(address)
    # At exit the kernel unmaps: other threads may still use it.
    weakref.finalize(memory, _unmap, address, size, os.getpid()).atexit = False
    return np.ctypeslib.as_array(memory)


def _unmap(address: int, size: int, pid: int) -> None:
    if pid == os.getpid():  # a forked child has no mapping there, or one of its own
        _libc.munmap(address, size)


def _release(name: str, descriptor: int, owner: bool) -> None:
    os.close(descriptor)
    if owner:
        _unlink(name)


def _unlink(name: str) -> None:
    (SHM_DIRECTORY / name).unlink(missing_ok=True)


def _leave_all_to_parent() -> None:
    global _names
    for segment in list(_live):
        segment._leave_to_parent()
    _live.clear()
    _names = _Names()


os.register_at_fork(after_in_child=_leave_all_to_parent)
