"""Segments: sparse, shared, named after their creator, and gone when it is gone, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rjemu.errors import OutOfMemory
from rjemu.shm.orphans import find_orphans, remove_orphan
from rjemu.shm.segment import Segment

SHM = Path("/dev/shm")


def run_python(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_name_says_who_and_what() -> None:
    segment = Segment.create("probe", 4096)
    assert re.fullmatch(rf"rjemu-{os.getpid()}-\d+-probe", segment.name)
    assert (SHM / segment.name).stat().st_mode & 0o777 == 0o600
    segment.close()
    assert not (SHM / segment.name).exists()


def test_larger_than_the_host_takes_only_touched_pages() -> None:
    segment = Segment.create("sparse", 1 << 40)
    assert segment.resident_bytes == 0
    segment.bytes[(1 << 39) : (1 << 39) + 10] = 7
    assert 0 < segment.resident_bytes <= 1 << 21
    segment.discard(1 << 39, 1 << 21)
    assert segment.resident_bytes == 0
    assert segment.bytes[1 << 39] == 0
    segment.close()


def test_impossible_size_is_out_of_memory_and_leaves_no_file() -> None:
    before = set(os.listdir(SHM))
    with pytest.raises(OutOfMemory, match="shared memory"):
        Segment.create("huge", 1 << 60)
    assert set(os.listdir(SHM)) == before


def test_address_and_arrays_are_the_same_memory() -> None:
    segment = Segment.create("views", 8192)
    words = segment.array(np.uint32, (4, 8), offset=4096)
    words[1, 2] = 0xDEADBEEF
    assert words.ctypes.data == segment.address + 4096
    assert segment.bytes[4096 + 40 : 4096 + 44].tobytes() == bytes.fromhex("efbeadde")
    segment.close()


def test_other_process_sees_and_writes_the_same_bytes_and_leaves_the_segment_alone() -> None:
    segment = Segment.create("shared", 4096)
    segment.bytes[0] = 41
    child = run_python(
        f"from rjemu.shm.segment import Segment\ns = Segment.attach({segment.name!r})\ns.bytes[1] = s.bytes[0] + 1\n"
    )
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")
    assert segment.bytes[1] == 42
    assert (SHM / segment.name).exists()
    segment.close()


def test_closing_with_a_live_view_unlinks_and_keeps_the_view_readable() -> None:
    segment = Segment.create("held", 4096)
    view = segment.array(np.uint8, 16)
    view[:] = 9
    segment.close()
    assert segment.closed
    assert not (SHM / segment.name).exists()
    assert view.tolist() == [9] * 16


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)", "raise ValueError", "del segment"])
def test_nothing_is_left_when_the_creator_ends(ending: str) -> None:
    child = run_python(
        f"from rjemu.shm.segment import Segment\nsegment = Segment.create('end', 4096)\nprint(segment.name)\n{ending}\n"
    )
    output, _ = child.communicate(timeout=60)
    assert output.startswith("rjemu-")
    assert not (SHM / output.strip()).exists()


def test_a_forked_child_that_exits_leaves_the_parents_segment() -> None:
    child = run_python(
        "import os, sys\nfrom rjemu.shm.segment import SHM_DIRECTORY, Segment\nsegment = Segment.create('fork', 4096)\n"
        "if os.fork() == 0: sys.exit(0)\nos.wait()\nprint((SHM_DIRECTORY / segment.name).exists())\n"
    )
    assert child.communicate(timeout=60) == ("True\n", "")


def test_segments_of_a_killed_process_are_found_and_removed() -> None:
    child = run_python(
        "from rjemu.shm.segment import Segment\nsegment = Segment.create('killed', 1 << 20)\nsegment.bytes[:] = 1\n"
        "print(segment.name, flush=True)\nimport time\ntime.sleep(60)\n"
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert name not in [orphan.name for orphan in find_orphans()]
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    child.communicate()
    orphan = next(orphan for orphan in find_orphans() if orphan.name == name)
    assert (orphan.pid, orphan.resident_bytes) == (child.pid, 1 << 20)
    remove_orphan(orphan)
    remove_orphan(orphan)
    assert not (SHM / name).exists()


def test_a_segment_still_mapped_by_another_process_is_no_orphan() -> None:
    child = run_python(
        "from rjemu.shm.segment import Segment\nsegment = Segment.create('kept', 4096)\nprint(segment.name, flush=True)\n"
        "import time\ntime.sleep(60)\n"
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    attached = Segment.attach(name)
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    child.communicate()
    assert name not in [orphan.name for orphan in find_orphans()]
    attached.close()
    for orphan in find_orphans():
        if orphan.name == name:
            remove_orphan(orphan)
    assert not (SHM / name).exists()
