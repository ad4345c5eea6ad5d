"""Workers that die, stop, or cannot start: the launch that needs them fails, and the machine goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.launchers import run_python, still_running
from support.worker_kernels import ENDLESS, check_fill, fork_server, workers_of

import rjemu
from rjemu.errors import LaunchTimeout, MemoryFault, WorkerLost
from rjemu.workers import start


@pytest.fixture
def gpu() -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", workers=(1, 2)) as machine:
        machine.start()
        yield machine


def launch_endless(gpu: rjemu.Machine, grid: int = 8, timeout: float = 30) -> None:
    gpu.load(build(ENDLESS, "gfx950"))["kernel"].launch(grid, 64, kernarg=b"", timeout=timeout)


@pytest.mark.parametrize("victim", [0, 1], ids=["engine", "dispatch"])
@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGKILL, "SIGKILL .*out of memory"), (signal.SIGBUS, "SIGBUS .*shared memory is full")],
    ids=["SIGKILL", "SIGBUS"],
)
def test_a_worker_that_dies_fails_its_launch_and_is_replaced(
    gpu: rjemu.Machine, victim: int, number: signal.Signals, why: str
) -> None:
    kept = gpu.to_device(np.arange(100, dtype=np.int32))
    check_fill(gpu)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        workers_of(gpu)[victim].send_signal(number)

    threading.Timer(0.3, kill).start()
    with pytest.raises(WorkerLost, match=f"was lost in the middle of the launch: it was ended by {why}"):
        launch_endless(gpu)
    assert time.monotonic() - killed[0] < 1.0
    assert np.array_equal(kept.to_host(), np.arange(100))
    for _ in range(4):
        check_fill(gpu)


def test_an_idle_worker_that_dies_is_replaced_unnoticed(gpu: rjemu.Machine) -> None:
    for victim in workers_of(gpu):
        victim.kill()
        check_fill(gpu)


def test_the_fork_servers_end_ends_its_workers_and_both_come_back(gpu: rjemu.Machine) -> None:
    workers = workers_of(gpu)
    threading.Timer(0.3, fork_server().kill).start()
    with pytest.raises(WorkerLost):
        launch_endless(gpu)
    assert not still_running(workers, 1)
    for _ in range(3):
        check_fill(gpu)


def test_a_stopped_worker_does_not_outlast_the_timeout(gpu: rjemu.Machine) -> None:
    check_fill(gpu)
    worker = workers_of(gpu)[0]
    threading.Timer(0.2, worker.suspend).start()
    started = time.monotonic()
    with pytest.raises(LaunchTimeout):
        launch_endless(gpu, timeout=0.5)
    assert time.monotonic() - started < 8
    assert not still_running([worker], 1)
    for _ in range(3):
        check_fill(gpu)


def test_a_worker_stopped_for_a_while_loses_nothing(gpu: rjemu.Machine) -> None:
    check_fill(gpu)
    for worker in workers_of(gpu):
        worker.suspend()
        threading.Timer(0.3, worker.resume).start()
        check_fill(gpu)


def test_a_worker_that_does_not_read_its_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after a question whose answer is larger than what the connection buffers."""
    monkeypatch.setattr(start, "ANSWER_SECONDS", 0.2)
    with rjemu.Machine("gfx950_mi355x", workers=(1, 1)) as gpu:
        gpu.start()
        crew = gpu._executor._crew  # type: ignore[attr-defined]
        (worker,) = workers_of(gpu)
        worker.suspend()
        (member,) = crew._members
        with pytest.raises(BlockingIOError):
            member.connection.send(bytes(10_000_000))
        assert not crew._answer_one(member, lambda message: None)  # announced, but it never comes
        assert still_running([worker], 1) == []
        check_fill(gpu)


def test_a_machine_closes_with_stopped_workers(gpu: rjemu.Machine) -> None:
    workers = workers_of(gpu)
    for worker in workers:
        worker.suspend()
    started = time.monotonic()
    gpu.close()
    assert time.monotonic() - started < 4
    assert not still_running(workers, 1)


def test_a_worker_that_cannot_start_says_why_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    with rjemu.Machine("gfx950_mi355x", workers=(1, 1)) as gpu:
        crew = gpu._executor._crew  # type: ignore[attr-defined]
        monkeypatch.setitem(crew._template, "runtime", b"no object code")
        for use in (gpu.start, lambda: check_fill(gpu), gpu.start):
            with pytest.raises(WorkerLost, match="worker engine 0 did not start, 3 times: CompileError: object"):
                use()
    with rjemu.Machine("gfx950_mi355x", workers=(1, 1)) as gpu:
        check_fill(gpu)


def test_a_worker_that_cannot_import_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'forkserver' in ' '.join(sys.orig_argv): sys.modules['rjemu.workers.worker'] = None\n"
    )
    process = run_python(
        "import rjemu\ngpu = rjemu.Machine('gfx950_mi355x', workers=(1, 1))\n"
        "try: gpu.start()\nexcept rjemu.errors.WorkerLost as error: print(error)\n",
        path=[str(tmp_path)],
    )
    output, _ = process.communicate(timeout=60)
    assert output.startswith("worker engine 0 did not start, 3 times: ModuleNotFoundError: import of rjemu.workers.worker")


def test_a_fault_stops_all_the_others() -> None:
    """Workgroup 40 strays; the others never end by themselves."""
    text = kernel_text(
        """
  s_cmp_eq_u32 s2, 40
  s_cbranch_scc1 stray
loop:
  s_branch loop
stray:
  v_mov_b32 v0, 0
  v_mov_b32 v1, 0
  global_load_dword v2, v[0:1], off
  s_endpgm
"""
    )
    with rjemu.Machine("gfx950_mi355x", workers=(4, 5), time_slice=4096) as gpu:
        gpu.start()
        kernel = gpu.load(build(text, "gfx950"))["kernel"]
        started = time.monotonic()
        with pytest.raises(MemoryFault) as caught:
            kernel.launch(80, 64, kernarg=b"", timeout=60)
        assert time.monotonic() - started < 10
        assert caught.value.place is not None and caught.value.place.workgroup == (40, 0, 0)
        check_fill(gpu)
