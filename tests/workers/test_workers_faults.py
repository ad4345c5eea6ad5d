"""Workers and launchers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.assemble import build, kernel_text

import rjemu
from rjemu.errors import WorkerLost
from rjemu.shm.orphans import find_orphans, remove_orphan
from rjemu.workers.affinity import assign, parse_cpu_list, placement

ROOT = Path(__file__).parent.parent.parent
ENDLESS = kernel_text("loop:\n  s_branch loop\n")
FILL = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v2, 5
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
    directives={"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8},
)


def fill(gpu: rjemu.Machine) -> np.ndarray:
    """What a small launch writes: 64 fives."""
    out = gpu.zeros(64, np.uint32)
    gpu.load(build(FILL, "gfx950"))["kernel"].launch(1, 64, kernarg=np.uint64(out.address).tobytes())
    return out.to_host()


@pytest.mark.parametrize("victim", [0, 1], ids=["engine", "dispatch"])
def test_a_killed_worker_fails_its_launch_and_is_replaced(victim: int) -> None:
    with rjemu.Machine("gfx950_mi355x", workers=(1, 2)) as gpu:
        gpu.start()
        kept = gpu.to_device(np.arange(100, dtype=np.int32))
        assert (fill(gpu) == 5).all()
        endless = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
        workers = [process for process in psutil.Process().children(recursive=True) if worker_cpu(process) is not None]
        workers.sort(key=lambda process: (worker_cpu(process), process.pid))
        assert len(workers) == 2
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            workers[victim].send_signal(signal.SIGKILL)

        threading.Timer(0.3, kill).start()
        with pytest.raises(WorkerLost, match="was lost in the middle of the launch"):
            endless.launch(8, 64, kernarg=b"", timeout=30)
        assert time.monotonic() - killed[0] < 1.0
        assert np.array_equal(kept.to_host(), np.arange(100))
        for _ in range(4):
            assert (fill(gpu) == 5).all()


def worker_cpu(process: psutil.Process) -> int | None:
    """The CPU of a worker that is pinned to one; None for other children (the fork server, resource tracker)."""
    try:
        parent = process.parent()
        affinity = process.cpu_affinity()
    except psutil.NoSuchProcess:
        return None
    if parent is None or parent.pid == os.getpid():
        return None
    return affinity[0] if affinity is not None and len(affinity) == 1 else None


def run_script(text: str, *, stdin: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-"] if stdin else [sys.executable, "-c", text]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    if stdin:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
    return process


SCRIPT = f"""
import numpy as np, rjemu
from support.assemble import build
gpu = rjemu.Machine("gfx950_mi355x", workers=(1, 2))
gpu.start()
out = gpu.zeros(64, np.uint32)
gpu.load(build({FILL!r}, "gfx950"))["kernel"].launch(1, 64, kernarg=np.uint64(out.address).tobytes())
print(int(out.to_host().sum()), flush=True)
"""


@pytest.mark.parametrize("stdin", [False, True])
def test_scripts_need_no_main_guard(stdin: bool) -> None:
    process = run_script(SCRIPT + "gpu.close()\n", stdin=stdin)
    out, errors = process.communicate(timeout=60)
    assert (out.strip(), process.returncode) == ("320", 0), errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_launcher(number: signal.Signals) -> None:
    process = run_script(SCRIPT + "import time\ntime.sleep(60)\n")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "320"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the fork server and two workers
    process.send_signal(number)
    process.communicate(timeout=20)
    _, alive = psutil.wait_procs(family, timeout=3)
    assert not alive, alive
    orphans = [orphan for orphan in find_orphans() if orphan.name.startswith(f"rjemu-{process.pid}-")]
    for orphan in orphans:
        remove_orphan(orphan)
    assert bool(orphans) == (number != signal.SIGINT)
    assert not list(Path("/dev/shm").glob(f"rjemu-{process.pid}-*"))


def test_placement_takes_cores_before_siblings(tmp_path: Path) -> None:
    """Eight CPUs: CPU k and k + 4 are the threads of one core; cores 0, 1 and 2, 3 share an L3 cache each."""
    for cpu in range(8):
        core = cpu % 4
        topology, cache = tmp_path / f"cpu{cpu}/topology", tmp_path / f"cpu{cpu}/cache/index3"
        topology.mkdir(parents=True)
        cache.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{core},{core + 4}\n")
        (cache / "shared_cpu_list").write_text("0-1,4-5\n" if core < 2 else "2-3,6-7\n")
    assert placement(range(8), tmp_path) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert placement([7, 6, 3, 1, 5], tmp_path) == [1, 3, 6, 5, 7]
    assert placement([2, 5], tmp_path / "nothing") == [2, 5]
    assert assign(5, [3, 9]) == [3, 9, 3, 9, 3]
    assert parse_cpu_list("0-2,8,10-11\n") == [0, 1, 2, 8, 10, 11]
