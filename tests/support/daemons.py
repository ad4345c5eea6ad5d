"""Daemons in processes of their own, and their clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from support.launchers import run_python, segments_of

from rjemu.daemon.connection import daemon_status

CONFIG = "gfx950_mi355x_kmd"

CLIENT = r"""
import sys
import numpy as np
import rjemu
from rjemu import errors
from support.assemble import build
from support.worker_kernels import COUNT, ENDLESS, FILL, check_fill

gpu = rjemu.connect({socket!r})

def say(text):
    sys.stdout.write(str(text) + "\n")  # at once, also where others write
    sys.stdout.flush()
"""
"""How the programs of `start_client` begin."""


def launch_daemon(socket: Path | None, *options: str, config: str = CONFIG) -> subprocess.Popen[str]:
    """A `rjemu daemon` process, which may not listen yet."""
    words = ["--config", config, *(["--socket", str(socket)] if socket else []), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "rjemu", "daemon", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@contextlib.contextmanager
def running_daemon(socket: Path, *options: str, config: str = CONFIG) -> Iterator[subprocess.Popen[str]]:
    """A daemon that listens. It must end by SIGTERM within seconds, and leave nothing behind."""
    process = launch_daemon(socket, *options, config=config)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert str(socket) in line, line + process.communicate(timeout=60)[1]
        yield process
        if process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            _, errors = process.communicate(timeout=30)
            assert (process.returncode, errors) == (0, "")
            assert psutil.wait_procs(children, timeout=3)[1] == []
            assert not socket.exists()
            assert segments_of(process.pid) == []
    finally:
        process.kill()
        process.communicate()


def start_client(socket: Path, program: str, *lines: str) -> subprocess.Popen[str]:
    """A client process, `gpu` being its machine in the daemon, that has printed those lines (`say`)."""
    process = run_python(CLIENT.format(socket=str(socket)) + program)
    assert process.stdout is not None
    for line in lines:
        said = process.stdout.readline().strip()
        if said != line:
            process.kill()
            raise AssertionError(f"{said!r} instead of {line!r}: {process.communicate()[1]}")
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """What a process prints until its end, which must be a good one."""
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out


def clients(socket: Path) -> list[dict[str, Any]]:
    """The clients that a daemon has."""
    found: list[dict[str, Any]] = daemon_status(socket)["clients"]
    return found


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> float:
    """The seconds until a condition was true; it must be in time."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it does not become true"
        time.sleep(0.01)
    return time.monotonic() - started
