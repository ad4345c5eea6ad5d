"""However a launcher ends, nothing is left of it; what it forks does its machine no harm; closed machines leave nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import psutil
import pytest
from support.assemble import build
from support.launchers import run_python, segments_of, still_running, wait_until_gone
from support.worker_kernels import COUNT, check_fill, worker_processes

import rjemu
from rjemu.errors import ForkedMachine

HOWS = ["inline", (1, 2)]

OPENED = """
import os, signal, sys, threading, time
import numpy as np, rjemu
from support.assemble import build
from support.worker_kernels import ENDLESS, check_fill
gpu = rjemu.Machine("gfx950_mi355x", workers={workers!r})
gpu.start()
check_fill(gpu)
"""
IDLE = "print('ready', flush=True)\ntime.sleep(60)\n"
BUSY = "print('ready', flush=True)\ngpu.load(build(ENDLESS, 'gfx950'))['kernel'].launch(8, 64, kernarg=b'')\n"


def started(workers: object, text: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A program that has opened a machine and says "ready", and its processes."""
    process = run_python(OPENED.format(workers=workers) + text)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready", process.communicate()[1]
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= (1 if workers == "inline" else 5)  # the guardian; fork server, resource tracker, two workers
    return process, family


@pytest.mark.parametrize("workers", HOWS, ids=str)
@pytest.mark.parametrize("doing", [IDLE, BUSY], ids=["idle", "busy"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_outlives_a_launcher_that_a_signal_ends(number: signal.Signals, doing: str, workers: object) -> None:
    process, family = started(workers, doing)
    time.sleep(0.1)
    process.send_signal(number)
    sent = time.monotonic()
    process.communicate(timeout=20)
    # A launch that Ctrl-C interrupts raises an error of its own; all else ends as if there were no machine.
    assert process.returncode == (1 if number == signal.SIGINT and doing == BUSY else -number)
    assert wait_until_gone(process.pid, 1.0) == []
    assert still_running(family, 1.0) == []
    assert time.monotonic() - sent < 2.0


@pytest.mark.parametrize("ending", ["", "gpu.close()", "raise SystemExit(3)", "raise ValueError", "os._exit(4)", "del gpu"])
@pytest.mark.parametrize("workers", HOWS, ids=str)
def test_nothing_outlives_a_launcher_that_ends(ending: str, workers: object) -> None:
    process, family = started(workers, f"print('ready', flush=True)\ninput()\n{ending}\n")
    _, errors = process.communicate("go\n", timeout=20)
    assert process.returncode == {"raise SystemExit(3)": 3, "raise ValueError": 1, "os._exit(4)": 4}.get(ending, 0), errors
    assert ("Traceback" in errors) == (ending == "raise ValueError"), errors
    assert wait_until_gone(process.pid, 1.0) == []
    assert still_running(family, 1.0) == []


def test_stopped_workers_end_with_their_launcher() -> None:
    process, family = started((1, 2), IDLE)
    server = next(child for child in family if any("forkserver" in word for word in child.cmdline()))
    workers = server.children()
    for worker in workers:
        worker.suspend()
    process.kill()
    process.communicate(timeout=20)
    assert still_running(family, 1.0) == []


def test_a_forked_child_keeps_nothing_of_a_launcher_alive() -> None:
    text = "if os.fork() == 0:\n    os.closerange(0, 3)\n    time.sleep(60)\n" + IDLE
    process, family = started((1, 2), text)
    child = next(
        member for member in family if member.ppid() == process.pid and "support.worker_kernels" in str(member.cmdline())
    )
    try:
        process.kill()
        process.wait(timeout=20)
        assert wait_until_gone(process.pid, 1.0) == []
        left = still_running([member for member in family if member != child], 1.0)
        # The tracker is the child's, too: `multiprocess` shares it among all processes of a program.
        assert all("resource_tracker" in str(member.cmdline()) for member in left)
    finally:
        child.kill()
    assert still_running(family, 1.0) == []


def test_a_launcher_keeps_its_signal_handlers() -> None:
    code = "import signal\nfor number in (15, 1, 2): signal.signal(number, lambda *_: sys.exit(7))\n"
    process, family = started((1, 2), code.replace("import signal\n", "") + IDLE)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 7
    assert segments_of(process.pid) == []
    assert still_running(family, 1.0) == []


# --- fork ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=HOWS, ids=str)
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", workers=request.param) as machine:
        machine.start()
        yield machine


def in_forked_child(function: Callable[[], object]) -> str:
    """What a function gives in a forked child, or what it raises, as text; "exit N" if the child ends by itself."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = repr(function())
        except SystemExit:
            raise
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    return answer or f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


def test_a_forked_child_cannot_use_its_parents_machine(gpu: rjemu.Machine) -> None:
    array = gpu.to_device(np.arange(10))
    kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
    stream = gpu.stream()
    uses: list[Callable[[], object]] = [
        gpu.start,
        gpu.stream,
        stream.synchronize,
        array.to_host,
        lambda: array.address,
        lambda: array.copy_from(np.arange(10)),
        lambda: gpu.zeros(10, np.uint8),
        lambda: gpu.load(build(COUNT, "gfx950")),
        lambda: kernel.launch(1, 64, kernarg=bytes(8)),
        lambda: stream.launch(kernel, 1, 64, kernarg=bytes(8)),
        lambda: gpu.vram.free(0),
    ]
    for use in uses:
        answer = in_forked_child(use)
        assert answer.startswith(f"{ForkedMachine.__name__}: ") and "forked" in answer, answer
    for harmless in (gpu.close, array.free, kernel.module.unload, lambda: gpu.__exit__(None, None, None)):
        assert in_forked_child(harmless) == "None"
    assert in_forked_child(lambda: gpu.closed) == "True"
    stream.close()
    assert np.array_equal(array.to_host(), np.arange(10))
    check_fill(gpu)


FORKS = """
import gc
from support.worker_kernels import worker_processes

def workers():
    return [process.pid for process in worker_processes()]

before = workers()
for use in (lambda: None, gc.collect, lambda: globals().pop("gpu"), gpu.close):
    for end in (lambda: sys.exit(0), lambda: os._exit(0)):
        pid = os.fork()
        if pid == 0:
            use()
            end()
        assert os.waitpid(pid, 0)[1] == 0
        check_fill(gpu)
print("ready", workers() == before, flush=True)
"""


@pytest.mark.parametrize("workers", HOWS, ids=str)
def test_a_forked_childs_end_leaves_the_parents_machine(workers: object) -> None:
    """Also where it runs finalizers and what is registered to run at exit: the same workers serve the parent afterwards."""
    process = run_python(OPENED.format(workers=workers) + FORKS)
    output, errors = process.communicate(timeout=60)
    assert (output.strip(), process.returncode, errors) == ("ready True", 0, "")


def test_a_child_of_multiprocessings_fork_context(gpu: rjemu.Machine) -> None:
    before = worker_processes()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def use() -> None:
        try:
            gpu.zeros(1, np.uint8)
        except ForkedMachine as error:
            queue.put(str(error))

    child = context.Process(target=use)
    child.start()
    assert "forked" in queue.get()
    child.join()
    assert child.exitcode == 0
    assert worker_processes() == before
    check_fill(gpu)


def test_a_forked_child_opens_machines_of_its_own(gpu: rjemu.Machine) -> None:
    def use() -> list[str]:
        with rjemu.Machine("gfx950_mi355x", workers=(1, 2)) as own:
            own.start()
            check_fill(own)
            named = segments_of(os.getpid())
        with rjemu.Machine("gfx950_mi355x", workers="inline") as own:
            check_fill(own)
        assert named
        return segments_of(os.getpid())

    assert in_forked_child(use) == "[]"
    check_fill(gpu)


def test_a_fork_in_the_middle_of_other_threads_launches(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
    count = gpu.zeros(1, np.uint32)
    stop = threading.Event()
    launched = [0] * 3

    def launch(k: int) -> None:
        while not stop.is_set():
            kernel.launch(20, 64, kernarg=np.uint64(count.address).tobytes())
            launched[k] += 20

    threads = [threading.Thread(target=launch, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        answer = in_forked_child(lambda: gpu.zeros(10, np.uint8))
        assert answer.startswith(ForkedMachine.__name__)
    stop.set()
    for thread in threads:
        thread.join()
    assert int(count.to_host()[0]) == sum(launched)


# --- machines that come and go ---------------------------------------------------------------------------------------


def belongings() -> tuple[list[str], list[str], int, list[psutil.Process]]:
    """Segments, descriptors, threads and children of this process."""
    children = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    return (
        segments_of(os.getpid()),
        os.listdir("/proc/self/fd"),
        threading.active_count(),
        sorted(children, key=lambda c: c.pid),
    )


def open_and_close(workers: object, count: int, seconds: float) -> int:
    """Open, use and close machines one after another, at most for so long; how many."""
    deadline = time.monotonic() + seconds
    for done in range(count):
        if time.monotonic() > deadline:
            return done
        with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:  # type: ignore[arg-type]
            if done % 10 == 0 or workers != "inline":
                gpu.start()
                check_fill(gpu)
                stream = gpu.stream()
                stream.submit(lambda: None)
    return count


@pytest.mark.parametrize(("workers", "seconds", "least"), [("inline", 60, 300), ((1, 2), 6, 20)], ids=["inline", "workers"])
def test_closed_machines_leave_nothing(workers: object, seconds: float, least: int) -> None:
    open_and_close(workers, 2, 60)
    before = belongings()
    semaphores = set(os.listdir("/dev/shm"))
    assert open_and_close(workers, 300, seconds) >= least
    assert belongings() == before
    assert not [name for name in set(os.listdir("/dev/shm")) - semaphores if name.startswith("sem.")]


@pytest.mark.long
@pytest.mark.parametrize("workers", ["inline", (1, 2), (2, 3)], ids=str)
def test_a_thousand_closed_machines_leave_nothing(workers: object) -> None:
    open_and_close(workers, 2, 60)
    before = belongings()
    assert open_and_close(workers, 1000, 1800) == 1000
    assert belongings() == before


def test_machines_that_are_dropped_leave_nothing() -> None:
    """Not closed, just collected."""
    open_and_close((1, 2), 1, 60)
    gc.collect()
    before = belongings()
    gpu = rjemu.Machine("gfx950_mi355x", workers=(1, 2))
    gpu.start()
    check_fill(gpu)
    workers = [worker for worker in worker_processes() if worker not in before[3]]
    assert len(workers) == 2
    del gpu
    assert still_running(workers, 2.0) == []
    assert belongings() == before


def test_an_endless_launch_is_interrupted_by_ctrl_c_and_the_machine_goes_on() -> None:
    text = (
        "try:\n    print('ready', flush=True)\n    gpu.load(build(ENDLESS, 'gfx950'))['kernel'].launch(8, 64, kernarg=b'')\n"
        "except rjemu.errors.LaunchInterrupted: pass\ncheck_fill(gpu)\nprint('done')\n"
    )
    process, family = started((1, 2), text)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert (output.strip(), process.returncode) == ("done", 0), errors
    assert still_running(family, 1.0) == []
