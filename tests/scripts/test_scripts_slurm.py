"""`scripts/slurm_array.sh` and the loops of docs/batch.md, from job file to merged table, with preemption in the middle."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.fake_slurm import install

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "slurm_array.sh"

LONG, SHORT = 4_000_000, 1_000
"""Steps of half a second, and of none worth mentioning."""
MULTIPLIER, INCREMENT = 1664525, 1013904223

KERNEL = kernel_text(
    f"""
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dword s6, s[0:1], 0x8
  s_mov_b32 s8, {MULTIPLIER}
  s_mov_b32 s9, {INCREMENT}
  v_lshl_add_u32 v1, s2, 6, v0
  v_lshlrev_b32 v1, 2, v1
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
loop:
  v_mul_lo_u32 v2, v2, s8
  v_add_u32 v2, s9, v2
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 loop
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
    directives={"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 12},
)
"""Every lane steps a linear congruential generator: what is lost or done twice changes the result."""

JOB = """
local_mem_size = 1048576
code = "steps.hsaco"
[[buffers]]
name = "x"
file = "x.npy"
[[dispatches]]
kernel = "kernel"
grid = 8
block = 64
kernarg = ["x", { u32 = STEPS }]
[[outputs]]
buffer = "x"
file = "y.npy"
expect = "expected.npy"
exact = true
"""


def after_steps(x: np.ndarray, steps: int) -> np.ndarray:
    """The generator's states so many steps after these, by squaring its affine map."""
    done, power = (1, 0), (MULTIPLIER, INCREMENT)
    while steps:
        if steps & 1:
            done = _composed(power, done)
        power, steps = _composed(power, power), steps >> 1
    return (x.astype(np.uint64) * done[0] + done[1]).astype(np.uint32)


def _composed(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int]:
    return outer[0] * inner[0] % 2**32, (outer[0] * inner[1] + outer[1]) % 2**32


def write_job(tmp_path: Path, steps: int) -> Path:
    """A job file in a folder `job`."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "steps.hsaco").write_bytes(build(KERNEL, "gfx950"))
    x = np.arange(512, dtype=np.uint32)
    np.save(folder / "x.npy", x)
    np.save(folder / "expected.npy", after_steps(x, steps))
    (folder / "job.toml").write_text(JOB.replace("STEPS", str(steps)))
    return folder / "job.toml"


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment in which Slurm's commands and `rjemu` are found."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    environment = install(folder)
    command = folder / "rjemu"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rjemu "$@"\n')
    command.chmod(0o755)
    return {**environment, "PYTHONPATH": str(ROOT), "FAKE_SLURM_PREEMPTIONS": "", "FAKE_SLURM_WATCH": str(tmp_path)}


def call(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Runs a command, and gives what it printed."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """Budget, engines, dispatch width, helpers, and samples, of what was merged."""
    document = json.loads((folder / "tune.json").read_text())
    return [tuple(row[key] for key in ("budget", "engines", "dispatch", "helpers", "samples")) for row in document["rows"]]


def test_a_preempted_array_gives_what_an_uninterrupted_run_gives(slurm: dict[str, str], tmp_path: Path) -> None:
    job = write_job(tmp_path, LONG)
    call(["rjemu", "run", str(job)], slurm, tmp_path)
    uninterrupted = (job.parent / "y.npy").read_bytes()
    (job.parent / "y.npy").unlink()

    # Every task: before its first checkpoint, in the middle of the dispatch, where `rjemu resume` begins, and once more.
    preempted = {
        **slurm,
        "FAKE_SLURM_PREEMPTIONS": "start checkpoint start grace",
        "EVERY": "0.1s",
        "REPEAT": "2",
        "ALLOCATIONS": "1/1,1/2",
    }
    script = ["bash", str(SCRIPT), "job/job.toml", "results", "2", "--partition=preempt"]
    assert call(script, preempted, tmp_path) == "Submitted batch job 100\n"
    ended = (tmp_path / "slurm" / "ended").read_text().splitlines()
    assert ended == [f"2 {task} {run} {75 if run < 4 else 0}" for task in range(2) for run in range(5)]
    for candidate in ("2-1-1-0", "2-1-2-0"):
        for number in "12":
            own = tmp_path / "results" / candidate / number
            assert (own / "y.npy").read_bytes() == uninterrupted
            assert not (own / "checkpoint").exists()
        parts = json.loads((own.parent / "1" / "report.json").read_text())["parts"]
        assert {"SIGUSR1", "SIGTERM"} <= {part["ended_by"] for part in parts}
    assert not (job.parent / "y.npy").exists()

    printed = call(["rjemu", "tune", "--merge", "results"], slurm, tmp_path)
    assert rows(tmp_path / "results") == [(2, 1, 1, 0, 2), (2, 1, 2, 0, 2)]
    assert "2 of 4 runs went on from a checkpoint" in printed
    assert (tmp_path / "results" / "tune.svg").exists()


def test_a_job_that_fails_is_not_requeued(slurm: dict[str, str], tmp_path: Path) -> None:
    job = write_job(tmp_path, SHORT)
    np.save(job.parent / "expected.npy", np.zeros(512, np.uint32))
    script = ["bash", str(SCRIPT), str(job), "results", "2,1", "--partition=any"]
    call(script, {**slurm, "ALLOCATIONS": "1/1"}, tmp_path)
    arrays = (tmp_path / "slurm" / "submitted").read_text().splitlines()
    assert [re.findall(r"--(?:array|cpus-per-task|partition)=\S+", line) for line in arrays] == [
        ["--array=0-0", "--cpus-per-task=1", "--partition=any"],
        ["--array=0-0", "--cpus-per-task=2", "--partition=any"],
    ]
    assert (tmp_path / "slurm" / "ended").read_text() == "1 0 0 1\n2 0 0 1\n"
    done = subprocess.run(["rjemu", "tune", "--merge", "results"], env=slurm, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "mismatch" in done.stderr


def test_without_arguments_it_says_how_it_is_used(slurm: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(["bash", str(SCRIPT), "job.toml"], env=slurm, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def loops() -> list[Any]:
    """The shell blocks of docs/batch.md."""
    text = (ROOT / "docs" / "batch.md").read_text()
    return [pytest.param(block, id=str(k)) for k, block in enumerate(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))]


@pytest.mark.parametrize("loop", loops())
def test_the_loops_of_the_documentation_run(loop: str, slurm: dict[str, str], tmp_path: Path) -> None:
    """With fewer budgets, and once."""
    if 0 not in os.sched_getaffinity(0):
        pytest.skip("CPU 0 may not be used here")
    text = loop.replace("1,2,4,8", "1").replace("1 2 4 8", "1").replace("1 2 3", "1")
    assert text != loop
    job = write_job(tmp_path, SHORT)
    call(["bash", "-euo", "pipefail", "-c", text], slurm, tmp_path)
    assert rows(tmp_path / "results") == [(1, 1, 1, 0, 1)]
    (output,) = (tmp_path / "results").glob("**/y.npy")
    assert output.read_bytes() == (job.parent / "expected.npy").read_bytes()
    if "/done" in text:
        assert "kernel" not in call(["bash", "-euo", "pipefail", "-c", text], slurm, tmp_path)
