"""The guardian: a small process that unlinks this process's segments when this process has ended, however it ended.

A signal handler could not do that for SIGKILL, and would take SIGTERM away from the program. The guardian reads from a pipe
whose other end only this process has, so that the kernel tells it. It is in a session of its own with all signals
blocked: what ends a process group or closes a terminal does not reach it. It starts with the first segment and ends with
this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from multiprocess.spawn import get_executable

from rjemu.errors import RjemuError

_PROGRAM = Path(__file__).with_name("guardian_main.py")


@dataclass(frozen=True, slots=True)
class _Guardian:
    pid: int
    pipe: int

    def lives(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:  # the program has waited for all its children, or ignores SIGCHLD
            return False


_lock = threading.Lock()
_guardian: _Guardian | None = None


def guard(directory: Path, prefix: str) -> None:
    """Have the files of a directory whose names start with `prefix` unlinked when this process ends. Further calls, all with
    the same arguments, cost next to nothing. RjemuError if the guardian cannot be started."""
    global _guardian
    with _lock:
        if _guardian is not None:
            if _guardian.lives():
                return
            os.close(_guardian.pipe)
            _guardian = None
        _guardian = _start(directory, prefix)


def _start(directory: Path, prefix: str) -> _Guardian:
    executable = os.fsdecode(get_executable() or "")
    read, write = os.pipe()
    try:
        pid = os.posix_spawn(
            executable,
            [executable, "-I", "-S", str(_PROGRAM), str(directory), prefix],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=signal.valid_signals(),
        )
    except OSError as error:
        os.close(write)
        raise RjemuError(f"cannot start {executable or 'a Python interpreter'}: {error.strerror}") from error
    finally:
        os.close(read)
    return _Guardian(pid, write)


def _dismiss() -> None:
    """At a normal end: have it end, too, and leave no zombie to whoever adopts orphans."""
    global _guardian
    guardian, _guardian = _guardian, None
    if guardian is not None:
        os.close(guardian.pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(guardian.pid, 0)


def _forget() -> None:
    """In a forked child: the guardian is the parent's, and must not wait for the child's end."""
    global _guardian, _lock
    guardian, _guardian = _guardian, None
    _lock = threading.Lock()
    if guardian is not None:
        os.close(guardian.pipe)


atexit.register(_dismiss)
os.register_at_fork(after_in_child=_forget)
