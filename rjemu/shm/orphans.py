"""Segments that killed processes left behind in shared memory.

Whether a process still maps a segment is asked of its lock and not of the process table: a pid says nothing about
processes of other pid namespaces, and may be another process's by now.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rjemu.shm.segment import NAME_PREFIX, SHM_DIRECTORY

_NAME = re.compile(rf"{NAME_PREFIX}-(\d+)-[0-9a-f]+-\d+-\w+")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A segment that no process maps: its file name, the pid that its creator had, bytes of memory that it holds."""

    name: str
    pid: int
    resident_bytes: int


def find_orphans() -> list[Orphan]:
    """The segments of this user that no process maps, by name."""
    found = []
    for entry in os.scandir(SHM_DIRECTORY):
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            if status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode):  # anybody may put anything there
                with _unmapped(Path(entry.path)) as unmapped:
                    if unmapped:
                        found.append(Orphan(entry.name, int(match[1]), status.st_blocks * 512))
        except FileNotFoundError:  # unlinked since it was listed
            continue
    return sorted(found, key=lambda orphan: orphan.name)


def remove_orphan(orphan: Orphan) -> bool:
    """Unlinks the segment; False if it is gone already, or a process maps it after all."""
    path = SHM_DIRECTORY / orphan.name
    try:
        with _unmapped(path) as unmapped:
            if unmapped:
                path.unlink()
            return unmapped
    except FileNotFoundError:
        return False


@contextmanager
def _unmapped(path: Path) -> Iterator[bool]:
    """Whether no process holds the lock that every mapping process takes. If so none can take it meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
