"""Programs in processes of their own, that tests end in all ways."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

SHM = Path("/dev/shm")


def run_python(code: str, *, path: Sequence[str] = (), prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A process that runs a program given as text, with the test suite's modules at hand. path: further folders of modules;
    prefix: words of a command before the interpreter's."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, *sys.path])},
    )


def guardian_of(pid: int) -> psutil.Process:
    """The process that unlinks another's segments when that ends."""
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("guardian_main" in word for word in child.cmdline()):
                return child
    raise AssertionError(f"process {pid} has no guardian")


def kill_unguarded(process: subprocess.Popen[str]) -> None:
    """End a process as if the whole host had gone down: its segments stay behind."""
    guardian_of(process.pid).kill()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def segments_of(pid: int) -> list[str]:
    """The names of the segments that a process has created and that still have a name."""
    return sorted(name for name in os.listdir(SHM) if name.startswith(f"rjemu-{pid}-"))


def wait_until_gone(pid: int, seconds: float = 3.0) -> list[str]:
    """What is left of a process's segments after so long at most."""
    deadline = time.monotonic() + seconds
    while (left := segments_of(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def still_running(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Which of the processes have not ended after so long; one that nobody has waited for yet has."""
    deadline = time.monotonic() + seconds
    while (left := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
