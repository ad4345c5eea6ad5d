"""Whether shared memory can hold what is about to be written to it.

Segments are sparse, and a write that finds the file system full ends the process by SIGBUS. What is small is therefore
reserved (`Segment.reserve`); what is large, and perhaps never touched, is promised here first. Promises are those of this
process: others may still fill the file system after one has been made.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rjemu.errors import OutOfMemory
from rjemu.shm.segment import SHM_DIRECTORY, Segment, free_bytes


class Promise(Protocol):
    """Shared memory that may be written at any time: `nbytes` at most, of which part may be there already."""

    @property
    def nbytes(self) -> int: ...

    def outstanding(self) -> int:
        """Bytes that still have to find their place."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """A promise to write ranges of segments, (segment, offset, bytes) each."""

    ranges: Sequence[tuple[Segment, int, int]]

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, _, nbytes in self.ranges)

    def outstanding(self) -> int:
        return self.nbytes - sum(segment.resident_in(offset, nbytes) for segment, offset, nbytes in self.ranges)


_lock = threading.Lock()
_promises: weakref.WeakSet[Promise] = weakref.WeakSet()


def keep(promise: Promise) -> None:
    """Count a promise for as long as it exists; how much it promises may change."""
    with _lock:
        _promises.add(promise)


def outstanding() -> int:
    """Bytes that have been promised and still have to find their place."""
    with _lock:
        return sum(promise.outstanding() for promise in _promises)


def room_left(enough: int) -> int:
    """Bytes of shared memory that are neither taken nor promised; `enough` if it is at least that much."""
    with _lock:
        left = free_bytes()
        if enough <= left - sum(made.nbytes for made in _promises):  # even if nothing promised is there yet
            return enough
        return min(max(left - sum(made.outstanding() for made in _promises), 0), enough)


@contextmanager
def promised(promise: Promise, what: str) -> Iterator[None]:
    """Count a promise for the time of a block. OutOfMemory, naming `what`, if there is not that much shared memory."""
    with _lock:
        _check(promise, what)
        _promises.add(promise)
    try:
        yield
    finally:
        with _lock:
            _promises.discard(promise)


def _check(promise: Promise, what: str) -> None:
    left = free_bytes()
    if promise.nbytes <= left - sum(made.nbytes for made in _promises):  # it fits even if nothing promised is there yet
        return
    needed = promise.outstanding()
    left -= sum(made.outstanding() for made in _promises)
    if needed > left:
        raise OutOfMemory(
            f"{what} needs up to {needed} bytes of shared memory; {SHM_DIRECTORY} has {max(left, 0)} bytes left"
        )
