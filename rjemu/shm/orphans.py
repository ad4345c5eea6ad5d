"""Segments that killed processes left behind in shared memory."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass

import psutil

from rjemu.shm.segment import NAME_PREFIX, SHM_DIRECTORY

_NAME = re.compile(rf"{NAME_PREFIX}-(\d+)-\d+-\w+")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A segment without a process: its file name, the dead creator's pid, bytes of memory that it holds."""

    name: str
    pid: int
    resident_bytes: int


def find_orphans() -> list[Orphan]:
    """The segments of this user whose creator is gone and that no process has mapped, by name."""
    found = []
    for entry in os.scandir(SHM_DIRECTORY):
        match = _NAME.fullmatch(entry.name)
        if match is None or psutil.pid_exists(int(match[1])):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            if status.st_uid == os.getuid() and not _is_mapped(entry.path):
                found.append(Orphan(entry.name, int(match[1]), status.st_blocks * 512))
        except FileNotFoundError:  # unlinked since it was listed
            continue
    return sorted(found, key=lambda orphan: orphan.name)


def remove_orphan(orphan: Orphan) -> None:
    """Unlinks the segment; no error if somebody else has done so."""
    (SHM_DIRECTORY / orphan.name).unlink(missing_ok=True)


def _is_mapped(path: str) -> bool:
    """True while a process, perhaps of another pid namespace, holds the lock that every mapping process takes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
