"""Shared memory that is too small or full: an error that says how much is needed, and never a process ended by SIGBUS."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from support.launchers import run_python

from rjemu.errors import OutOfMemory
from rjemu.shm import room
from rjemu.shm.segment import Segment

MOUNT = 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"'


def small_shm(size: str) -> list[str]:
    """Words before a command that run it with a /dev/shm of that size; skips where mounting is not allowed."""
    words = ["unshare", "-rm", "sh", "-c", MOUNT, size]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces for this user")
    return words


def run_in(size: str, code: str) -> str:
    """What a program prints that has a /dev/shm of that size."""
    process = run_python("import numpy as np, rjemu\nfrom rjemu.errors import OutOfMemory\n" + code, prefix=small_shm(size))
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return output


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=str)
def test_a_machine_that_does_not_fit_is_not_opened(workers: object) -> None:
    code = f"try: rjemu.Machine('gfx950_mi355x', workers={workers!r})\nexcept OutOfMemory as error: print(error)\n"
    output = run_in("512k", code + "import os\nprint(os.listdir('/dev/shm'))\n")
    assert "the segment 'table' needs 1048640 bytes of shared memory; /dev/shm has 524288 bytes left" in output
    assert output.endswith("[]\n")


LAUNCH = """
import os, warnings
from support.assemble import build
from support.worker_kernels import COUNT, check_fill
gpu = rjemu.Machine("gfx950_mi355x", workers={workers!r})
check_fill(gpu)
kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
counter = gpu.zeros(1, np.uint32)
def launch(**options):
    try:
        kernel.launch(1000, 64, kernarg=np.uint64(counter.address).tobytes(), timeout=50, **options)
    except OutOfMemory as error:
        print(error)
    print(int(counter.to_host()[0]))
"""


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=str)
def test_fewer_workgroups_are_resident_where_they_do_not_fit(workers: object) -> None:
    """1,000 resident workgroups of a wave each take 139 MB."""
    code = """
with warnings.catch_warnings(record=True) as caught:
    launch()
print(*(warning.message for warning in caught))
gpu.close()
"""
    count, warning = run_in("16m", LAUNCH.format(workers=workers) + code).splitlines()
    assert count == "1000"
    found = re.match(
        r"kernel kernel: /dev/shm has room for (\d+) of 1000 resident workgroups, which take 139264 bytes", warning
    )
    assert found is not None
    assert 20 < int(found[1]) < 16 * (1 << 20) // 139264


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=str)
def test_a_launch_that_does_not_fit_does_not_begin(workers: object) -> None:
    """Not even one workgroup for each worker: nothing has been written to this LDS yet."""
    code = """
warnings.simplefilter("ignore")
gpu.to_device(np.ones(1, np.uint8))
with open("/dev/shm/other", "wb", buffering=0) as other:
    try:
        while True: other.write(bytes(1 << 12))
    except OSError: pass
launch(lds_bytes=65536)
os.unlink("/dev/shm/other")
launch(lds_bytes=65536)
gpu.close()
"""
    message, *counts = run_in("16m", LAUNCH.format(workers=workers) + code).splitlines()
    pattern = (
        r"kernel kernel, with [12] workgroups resident, needs up to \d+ bytes of shared memory; /dev/shm has \d+ bytes left"
    )
    assert re.match(pattern, message)
    assert counts == ["0", "1000"]


def test_arrays_fill_shared_memory_to_the_last_page() -> None:
    """Small ones, large ones, and both after the file system has been filled by somebody else."""
    code = """
import os
with rjemu.Machine("gfx950_mi355x", workers="inline") as gpu:
    for nbytes in (4096, 100_000, 2_000_000):
        arrays = []
        try:
            while True:
                arrays.append(gpu.to_device(np.ones(nbytes, np.uint8)))
        except OutOfMemory as error:
            message = str(error)
        print(nbytes, len(arrays) * nbytes >> 20, all(array.to_host().all() for array in arrays), "left" in message)
        for array in arrays: array.free()
    with open("/dev/shm/other", "wb") as other:
        try:
            while True: os.write(other.fileno(), bytes(1 << 16))
        except OSError: pass
    for nbytes in (1, 2_000_000):
        try:
            gpu.to_device(np.ones(nbytes, np.uint8))
        except OutOfMemory as error:
            print("full")
    os.unlink("/dev/shm/other")
    print(gpu.to_device(np.ones(100, np.uint8)).to_host().sum())
"""
    lines = [line.split() for line in run_in("16m", code).splitlines()]
    for line, most in zip(lines[:3], (14, 14, 13), strict=True):
        assert int(line[1]) >= most - 1 and line[2:] == ["True", "True"], lines
    assert lines[3:] == [["full"], ["full"], ["100"]]


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_code_that_cannot_be_decoded_for_lack_of_memory(workers: object) -> None:
    code = f"""
import os
from support.assemble import build
from support.worker_kernels import COUNT, check_fill
with rjemu.Machine("gfx950_mi355x", workers={workers!r}) as gpu:
    check_fill(gpu)
    kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
    counter = gpu.zeros(1, np.uint32)
    with open("/dev/shm/other", "wb", buffering=0) as other:
        try:
            while True: other.write(bytes(4096))
        except OSError: pass
    try:
        kernel.launch(1, 64, kernarg=np.uint64(counter.address).tobytes(), timeout=50)
    except OutOfMemory as error:
        print("needs" in str(error))
    os.unlink("/dev/shm/other")
    kernel.launch(1, 64, kernarg=np.uint64(counter.address).tobytes(), timeout=50)
    print(int(counter.to_host()[0]))
"""
    assert run_in("16m", code) == "True\n1\n"


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create("probe", 1 << 20)
    yield segment
    segment.close()


def test_promises_count_what_is_not_there_yet(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    before = room.outstanding()
    made = before + 100_000
    monkeypatch.setattr(room, "free_bytes", lambda: made)
    half = room.Ranges([(segment, 0, 40960), (segment, 65536, 20480)])
    with room.promised(half, "one half"):
        assert room.outstanding() == before + 61440
        with (
            pytest.raises(OutOfMemory, match=r"the rest needs up to 61440 bytes of shared memory; \S+ has 38560 bytes left"),
            room.promised(half, "the rest"),
        ):
            pass
        segment.bytes[: 7 * 4096] = 1  # what has been written is not needed any more
        made -= 7 * 4096
        assert room.outstanding() == before + 61440 - 7 * 4096
        with room.promised(room.Ranges([(segment, 131072, 36864)]), "a third"):
            pass
    assert room.outstanding() == before
