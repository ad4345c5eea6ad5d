"""What happens to the file that is there when a new one cannot be written, or its writer is killed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.asm_kernels import kernarg, load_assembly
from support.interrupted import SHORT_SLICES, WORKS, uninterrupted
from support.launchers import run_python

import rjemu
from rjemu.checkpoint.info import describe
from rjemu.errors import CheckpointError


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """A disk on which no file can be longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_tmpfs(path: Path) -> Iterator[None]:
    """A file system of 1 MiB. Skips the test where this process may not mount one."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True).returncode:
        pytest.skip("this process may not mount file systems")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(gpu: rjemu.Machine, nbytes: int) -> rjemu.DeviceArray:
    """An array that does not compress."""
    return gpu.to_device(np.random.default_rng(1).integers(0, 256, nbytes, np.uint8))


def test_a_disk_that_is_too_small_keeps_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "machine"
    with rjemu.Machine(workers="inline") as gpu:
        gpu.save(path)
        before = path.read_bytes()
        array = fill(gpu, 8 << 20)
        with largest_file(1 << 20), pytest.raises(CheckpointError, match=r"cannot write .*machine: File too large"):
            gpu.save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        gpu.save(path)
        assert describe(path)["arrays"][0]["address"] == array.address


def test_a_full_disk_keeps_the_file_before(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "disk"), rjemu.Machine(workers="inline") as gpu:
        path = tmp_path / "disk" / "machine"
        gpu.save(path)
        before = path.read_bytes()
        array = fill(gpu, 8 << 20)
        with pytest.raises(CheckpointError, match="No space left"):
            gpu.save(path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]
        array.free()
        gpu.save(path)


@pytest.mark.parametrize("place", ["missing/machine", "file/machine", "/proc/machine"])
def test_a_place_that_cannot_be_written_to(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with rjemu.Machine(workers="inline") as gpu, pytest.raises(CheckpointError, match=r"cannot write .*machine: "):
        gpu.save(tmp_path / place)


@pytest.mark.parametrize(
    "make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/null", path)], ids=["dir", "fifo", "dev"]
)
def test_what_is_no_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "machine"
    make(path)
    before = path.lstat()
    with rjemu.Machine(workers="inline") as gpu, pytest.raises(CheckpointError, match=r"cannot write .*no regular file"):
        gpu.save(path)
    after = path.lstat()
    assert (after.st_mode, after.st_ino, after.st_mtime_ns) == (before.st_mode, before.st_ino, before.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", ".", "/", "no\0name", "x" * 5000])
def test_what_names_no_file(name: str) -> None:
    with rjemu.Machine(workers="inline") as gpu, pytest.raises(CheckpointError, match="cannot write"):
        gpu.save(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_keeps_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "machine"
    with rjemu.Machine(workers="inline") as gpu:
        gpu.save(path)
        before = path.read_bytes()
        tmp_path.chmod(0o555)
        try:
            with pytest.raises(CheckpointError, match="Permission denied"):
                gpu.save(path)
        finally:
            tmp_path.chmod(0o755)
        assert path.read_bytes() == before


def test_a_launch_goes_on_after_a_save_that_failed(tmp_path: Path) -> None:
    expected = uninterrupted(WORKS["barriers"], **SHORT_SLICES)
    failed = []
    for workers in ("inline", (1, 2)):
        with rjemu.Machine(workers=workers, **SHORT_SLICES) as gpu:
            out, kernel, launch = WORKS["barriers"].start(gpu)

            def save(done: int, total: int, gpu: rjemu.Machine = gpu) -> None:
                try:
                    gpu.save(tmp_path / "missing" / "machine", stop=True)
                except CheckpointError:
                    failed.append(done)

            kernel.launch(**launch, progress=save, timeout=300)
            assert out.to_host().tobytes() == expected.tobytes()
    assert failed


KILLED = """
import numpy as np
import rjemu
with rjemu.Machine(workers="inline") as gpu:
    array = gpu.to_device(np.random.default_rng(1).integers(0, 256, 24 << 20, np.uint8))
    count = 0
    while True:
        gpu.save(PATH, data=count)
        print(count, flush=True)
        count += 1
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """At whatever moment it is killed: the file is one of those that were complete."""
    path = tmp_path / "machine"
    for k in range(4):
        process = run_python(KILLED.replace("PATH", repr(str(path))))
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n", process.communicate()
        time.sleep(0.03 + 0.037 * k)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=300)[0].split()
        said = int(rest[-1]) if rest else 0
        facts = describe(path)
        assert facts["allocations"]["bytes"] > 24 << 20
        with rjemu.restore(path, workers="inline") as gpu:
            assert gpu.data in (said, said + 1)


def test_threads_save_at_the_same_time(tmp_path: Path) -> None:
    """One after another; each file is whole, whichever comes last."""
    expected = uninterrupted(WORKS["flags"], **SHORT_SLICES)
    with rjemu.Machine(workers=(1, 2), **SHORT_SLICES) as gpu:
        out, kernel, launch = WORKS["flags"].start(gpu)
        gpu.start()

        def save(k: int) -> None:
            for _ in range(3):
                gpu.save(tmp_path / f"machine{k % 2}", data={"out": out.address})

        threads = [threading.Thread(target=save, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        kernel.launch(**launch, progress=lambda done, total: gpu.save(tmp_path / "own"), timeout=300)
        for thread in threads:
            thread.join()
        assert out.to_host().tobytes() == expected.tobytes()
    for k in range(2):
        with rjemu.restore(tmp_path / f"machine{k}", workers="inline") as restored:
            resumed = restored.resume(timeout=300)
            result = restored.arrays[restored.data["out"]].to_host()
            # The last save may have come before the launch.
            assert result.tobytes() == expected.tobytes() or not (resumed or result.any())


@pytest.mark.parametrize("workers", ["inline", (1, 1)])
def test_a_signal_handler_in_the_middle_of_a_launch_is_refused(tmp_path: Path, workers: str | tuple[int, int]) -> None:
    expected = uninterrupted(WORKS["atomics"], **SHORT_SLICES)
    errors = []

    def handler(number: int, frame: object) -> None:
        with pytest.raises(CheckpointError, match="not its progress callback") as caught:
            gpu.save(tmp_path / "machine")
        errors.append(caught.value)

    with rjemu.Machine(workers=workers, **SHORT_SLICES) as gpu:
        out, kernel, launch = WORKS["atomics"].start(gpu)
        gpu.start()
        before = signal.signal(signal.SIGUSR1, handler)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            timer.start()
            kernel.launch(**launch, timeout=300)
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert out.to_host().tobytes() == expected.tobytes()
    assert errors


def test_the_reference_executor_is_waited_for(tmp_path: Path) -> None:
    """It runs launches to their ends: a save of another thread waits, one of the launch's own cannot."""
    with rjemu.Machine(workers="inline", executor="reference") as gpu:
        out = gpu.zeros(1, np.uint32)
        errors: list[str] = []

        def save(done: int, total: int) -> None:
            try:
                gpu.save(tmp_path / "machine")
            except CheckpointError as error:
                errors.append(str(error))

        kernel = load_assembly(gpu, "s_endpgm\n")
        kernel.launch(2, 64, kernarg=kernarg(out), progress=save)
        assert any("cannot be suspended" in error for error in errors)
        gpu.save(tmp_path / "machine")
