"""The daemon's socket: where it is, who may use it, and whether a daemon lives behind it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rjemu.errors import UsageError

MAX_PATH_BYTES = 107
"""Of a Unix socket's address (unix(7)), without the terminating zero."""

_BACKLOG = 64
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, as the kernel tells it."""

    pid: int
    uid: int


def default_path() -> Path:
    """`rjemu/daemon.sock` in $XDG_RUNTIME_DIR, or in a directory of the user's own among the temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) / "rjemu" if runtime else Path(tempfile.gettempdir()) / f"rjemu-{os.geteuid()}"
    return directory / "daemon.sock"


def make_private(directory: Path) -> None:
    """Makes a directory that only this user can enter. UsageError if there is one that is not so."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise UsageError(f"cannot make the directory {directory}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(f"{directory} must be a directory of this user with mode 0700")


def listen(path: Path) -> socket.socket:
    """A socket that listens at a path, for this user only. What a dead daemon left there is replaced; UsageError if a daemon
    lives there, or the path cannot be used."""
    _check_length(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the mode that `bind` gives the file
        with _locked(path.parent):
            _remove_stale(path)
            listener.bind(os.fspath(path))
            listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen at {path}: {error.strerror}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def reach(path: Path) -> socket.socket:
    """A connection to the daemon at a path. UsageError if there is none, or it is another user's."""
    _check_length(path)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.connect(os.fspath(path))
        owner = peer_of(connected).uid
        if owner not in (os.geteuid(), 0):
            raise UsageError(f"the daemon at {path} is user {owner}'s")
    except OSError as error:
        connected.close()
        raise UsageError(f"no daemon can be reached at {path}: {error.strerror}") from error
    except BaseException:
        connected.close()
        raise
    return connected


def peer_of(connected: socket.socket) -> Peer:
    """Who is at the other end of a connected Unix socket."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise UsageError(f"{path} is too long for a socket: at most {MAX_PATH_BYTES} bytes")


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{path} is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a living daemon may have too much to do to take it
        status = probe.connect_ex(os.fspath(path))
    if status in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise UsageError(f"a daemon listens at {path} already")
    if status != errno.ECONNREFUSED:
        raise OSError(status, os.strerror(status))
    path.unlink()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One starting daemon at a time looks at what is there and takes its place."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
