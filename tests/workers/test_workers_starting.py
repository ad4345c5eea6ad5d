"""Workers start where little is given to them: few open files, no current directory, or one with foreign modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rjemu

PROGRAM = """
import os
import resource

from support.assemble import build
from support.worker_kernels import FILL, check_fill

import rjemu

build(FILL, "gfx950")  # kept, so that nothing runs a tool below a limit


def limit(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
"""
ROOT = Path(rjemu.__file__).parent.parent
SHADOWED = ("pickle", "signal", "random", "socket", "selectors", "numpy", "llvmlite", "multiprocess", "rjemu")
"""Modules that a fork server, its resource tracker and workers import."""


def run(text: str, folder: Path, current: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program that is a file of `folder`, in another current directory."""
    program = folder / "program.py"
    program.write_text(PROGRAM + text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])}
    command = [sys.executable, str(program)]
    return subprocess.run(command, cwd=current, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("spare", (1, 4, 8, 13, 18, 25))
def test_too_few_open_files(spare: int, tmp_path: Path) -> None:
    """Whatever first meets the limit, the error is one of rjemu's, and when files are allowed again the machine works."""
    text = f"""
with rjemu.Machine(workers=(2, 2)) as gpu:
    limit(open_files() + {spare})
    try:
        check_fill(gpu)
        print("ran")
    except rjemu.errors.WorkerLost as error:
        print("refused:", error)
    except rjemu.errors.OutOfMemory as error:
        print("refused:", error)
    limit(1000)
    for _ in range(3):
        check_fill(gpu)
    gpu.start()
    check_fill(gpu)
print("closed")
"""
    done = run(text, tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert last == "closed"
    if spare < 8:
        assert "refused: " in first and ("open files" in first), first


def test_a_machine_larger_than_the_limit_of_open_files(tmp_path: Path) -> None:
    text = """
limit(60)
for _ in range(2):
    with rjemu.Machine(workers=(8, 32)) as gpu:
        try:
            gpu.start()
        except rjemu.errors.WorkerLost as error:
            print(error)
    print(open_files() < 20)
"""
    done = run(text, tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines()[::2]:
        assert "cannot be started: the limit of open files (ulimit -n) is 60, and a machine takes three for each" in line
    assert done.stdout.splitlines()[1::2] == ["True", "True"]


def test_modules_in_the_current_directory_are_not_imported(tmp_path: Path) -> None:
    current = tmp_path / "job"
    current.mkdir()
    for name in SHADOWED:
        (current / f"{name}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'a').write('{name}')\nraise SystemExit(1)\n"
        )
    before = "import sys; environment = dict(os.environ)\n"
    text = "with rjemu.Machine(workers=(1, 2), async_helper_threads=1) as gpu:\n    gpu.start(); check_fill(gpu)\n"
    after = "print(environment == dict(os.environ))\n"
    done = run(before + text + after, tmp_path, current)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert not (tmp_path / "imported").exists()


def test_no_current_directory(tmp_path: Path) -> None:
    """What is not there cannot be told to a child; the error says so, and elsewhere the machine can be made."""
    current = tmp_path / "gone"
    current.mkdir()
    text = """
os.rmdir(os.getcwd())
try:
    rjemu.Machine(workers=(1, 1))
except rjemu.errors.WorkerLost as error:
    print(error)
os.chdir("/")
with rjemu.Machine(workers=(1, 1)) as gpu:
    check_fill(gpu)
print("done")
"""
    done = run(text, tmp_path, current)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "the fork server cannot be started: No such file or directory (has the current directory been removed?)"
    assert last == "done"
