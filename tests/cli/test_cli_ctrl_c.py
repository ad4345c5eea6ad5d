"""Ctrl-C goes to all processes of a terminal's foreground group: the command says so in one line, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.assemble import build
from support.launchers import run_python, still_running, wait_until_gone
from support.worker_kernels import ENDLESS

JOB = """
code = "endless.hsaco"
async_helper_threads = 2

[[dispatches]]
kernel = "kernel"
grid = 8
block = 64
kernarg = []
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "endless.hsaco").write_bytes(build(ENDLESS, "gfx950"))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def interrupted(arguments: list[str], seconds: float) -> tuple[int, str]:
    """The status and the last words of a command that is interrupted so long after it has started a process."""
    options: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = subprocess.Popen([sys.executable, "-m", "rjemu", *arguments], start_new_session=True, **options)  # type: ignore[call-overload]
    while not (begun := psutil.Process(command.pid).children()):
        assert command.poll() is None
        time.sleep(0.001)
    time.sleep(seconds)
    begun = psutil.Process(command.pid).children(recursive=True)
    os.killpg(command.pid, signal.SIGINT)
    started = time.monotonic()
    _, errors = command.communicate(timeout=60)
    assert time.monotonic() - started < 5
    assert still_running(begun, 2.0) == []
    assert wait_until_gone(command.pid) == []
    return command.returncode, errors


@pytest.mark.parametrize("seconds", [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("workers", ["1/1", "2/3"])
def test_run(job: Path, workers: str, seconds: float) -> None:
    status, errors = interrupted(["run", str(job), "--workers", workers], seconds)
    # CPython itself ends by SIGINT if that came in the middle of an `exec`, such as those that make dataclasses on import.
    assert status in (1, -signal.SIGINT), errors
    assert (len(errors.splitlines()), errors[:7]) == (1, "rjemu: "), errors


@pytest.mark.parametrize("seconds", [0, 0.02, 0.1, 0.3, 0.6, 1.0])
def test_bench(seconds: float) -> None:
    status, errors = interrupted(["bench", "open16", "launches"], seconds)
    assert (status in (1, -signal.SIGINT), errors) == (True, "rjemu: interrupted\n")


def test_one_that_comes_in_a_finaliser_is_not_lost() -> None:
    program = """
import signal, sys, time
from rjemu.cli.main import main

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

sys.argv = ["rjemu", "plugins"]
main()
try:
    Finalised()
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = run_python(program)
    output, errors = process.communicate(timeout=60)
    assert (output.splitlines()[-1], errors) == ("interrupted", "")
