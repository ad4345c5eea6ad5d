"""Segments: sparse, shared, named after their creator, and gone when it is gone, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.launchers import SHM, guardian_of, kill_unguarded, run_python, segments_of, wait_until_gone

from rjemu.errors import OutOfMemory
from rjemu.shm.orphans import find_orphans, remove_orphan
from rjemu.shm.segment import Segment


def test_name_says_who_and_what() -> None:
    segment = Segment.create("probe", 4096)
    assert re.fullmatch(rf"rjemu-{os.getpid()}-[0-9a-f]{{8}}-\d+-probe", segment.name)
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


KEEPER = """
import time
from rjemu.shm.segment import Segment
segment = Segment.create("kept", 1 << 20)
segment.bytes[:] = 1
print(segment.name, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGABRT])
def test_nothing_is_left_when_a_signal_ends_the_creator(number: signal.Signals) -> None:
    child = run_python(KEEPER)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    guardian = guardian_of(child.pid)
    assert (SHM / name).exists()
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == -number
    assert wait_until_gone(child.pid) == []
    guardian.wait(timeout=3)


def test_signals_to_the_whole_group_do_not_reach_the_guardian() -> None:
    """What Ctrl-C, a closed terminal and `kill -TERM -- -group` do."""
    child = run_python("import os\nos.setsid()\n" + KEEPER)
    assert child.stdout is not None
    assert (SHM / child.stdout.readline().strip()).exists()
    guardian = guardian_of(child.pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        guardian.send_signal(number)
    os.killpg(child.pid, signal.SIGTERM)
    child.communicate(timeout=60)
    assert wait_until_gone(child.pid) == []


def test_a_program_keeps_its_own_signal_handlers() -> None:
    child = run_python(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + KEEPER,
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 7
    assert segments_of(child.pid) == []


def test_a_killed_guardian_is_replaced_with_the_next_segment() -> None:
    segment = Segment.create("first", 4096)
    first = guardian_of(os.getpid())
    first.kill()
    first.wait(timeout=10)
    other = Segment.create("second", 4096)
    assert guardian_of(os.getpid()).pid != first.pid
    segment.close()
    other.close()


def test_the_guardian_waits_for_no_forked_child() -> None:
    child = run_python(
        "import os, time\nfrom rjemu.shm.segment import Segment\nsegment = Segment.create('fork', 4096)\n"
        "pid = os.fork()\nif pid == 0:\n    os.closerange(0, 3)\n    time.sleep(60)\n"
        "print(pid, flush=True)\ntime.sleep(60)\n"
    )
    assert child.stdout is not None
    forked = int(child.stdout.readline())
    try:
        child.kill()
        child.communicate(timeout=60)
        assert wait_until_gone(child.pid) == []
    finally:
        os.kill(forked, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_parents_lock() -> None:
    child = run_python(
        "import os, time\nfrom rjemu.shm.segment import Segment\nsegment = Segment.create('fork', 4096)\n"
        "pid = os.fork()\nif pid == 0:\n    os.closerange(0, 3)\n    time.sleep(60)\n"
        "print(pid, segment.name, flush=True)\ntime.sleep(60)\n"
    )
    assert child.stdout is not None
    forked, name = child.stdout.readline().split()
    try:
        kill_unguarded(child)
        orphan = next(orphan for orphan in find_orphans() if orphan.name == name)
        assert remove_orphan(orphan)
    finally:
        os.kill(int(forked), signal.SIGKILL)


def test_a_forked_child_has_no_mapping_and_segments_of_its_own() -> None:
    segment = Segment.create("fork", 4096)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open("/proc/self/maps") as maps:
                mapped = segment.name in maps.read()
            own = Segment.create("own", 4096)
            own.bytes[:] = 5
            answer = f"{mapped} {segment.closed} {int(own.bytes.sum())} {own.name} {segments_of(os.getpid()) == [own.name]}"
            segment.close()
            own.close()
            os.write(write, answer.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        mapped, closed, total, name, named = pipe.read().split()
    os.waitpid(pid, 0)
    assert (mapped, closed, total, named) == ("False", "True", str(5 * 4096), "True")
    assert name.startswith(f"rjemu-{pid}-")
    assert (SHM / segment.name).exists() and not segment.closed
    segment.close()
    assert wait_until_gone(pid) == []


def test_segments_of_a_killed_process_are_found_and_removed() -> None:
    child = run_python(KEEPER)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert name not in [orphan.name for orphan in find_orphans()]
    kill_unguarded(child)
    orphan = next(orphan for orphan in find_orphans() if orphan.name == name)
    assert (orphan.pid, orphan.resident_bytes) == (child.pid, 1 << 20)
    assert remove_orphan(orphan)
    assert not remove_orphan(orphan)
    assert not (SHM / name).exists()


def test_the_pid_of_an_orphan_may_be_another_process_s() -> None:
    """Only the lock tells: here the name has this process's own pid."""
    child = run_python(KEEPER)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    kill_unguarded(child)
    renamed = name.replace(f"-{child.pid}-", f"-{os.getpid()}-")
    (SHM / name).rename(SHM / renamed)
    orphan = next(orphan for orphan in find_orphans() if orphan.name == renamed)
    assert remove_orphan(orphan)


@pytest.mark.parametrize(
    "make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)], ids=["dir", "fifo", "link"]
)
def test_what_only_has_a_segments_name_is_no_orphan(make: Callable[[Path], object]) -> None:
    """The directory is everybody's: what others put there must not keep orphans from being found."""
    path = SHM / f"rjemu-{os.getpid()}-0-0-strange"
    make(path)
    try:
        assert path.name not in [orphan.name for orphan in find_orphans()]
    finally:
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_segment_still_mapped_by_another_process_is_no_orphan() -> None:
    child = run_python(KEEPER)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    attached = Segment.attach(name)
    kill_unguarded(child)
    assert name not in [orphan.name for orphan in find_orphans()]
    attached.close()
    orphan = next(orphan for orphan in find_orphans() if orphan.name == name)
    attached = Segment.attach(name)
    assert not remove_orphan(orphan)
    attached.close()
    assert remove_orphan(orphan)
    assert not (SHM / name).exists()


def test_a_living_process_of_another_pid_namespace_has_no_orphans() -> None:
    """Seen from a namespace in which its pid is nobody's, or somebody else's."""
    words = ["unshare", "-rpf", "--mount-proc"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespaces for this user")
    segment = Segment.create("elsewhere", 4096)
    child = run_python(
        "import os\nfrom rjemu.shm.orphans import find_orphans\nfrom rjemu.shm.segment import Segment\n"
        f"assert not os.path.exists('/proc/{os.getpid()}')\n"
        f"name = {segment.name!r}\n"
        "print(name in [orphan.name for orphan in find_orphans()], os.path.exists('/dev/shm/' + name))\n",
        prefix=words,
    )
    output, errors = child.communicate(timeout=60)
    assert (output, errors) == ("False True\n", "")
    segment.close()


def test_reserved_memory_is_there_and_resident_ranges_are_counted() -> None:
    segment = Segment.create("reserved", 1 << 20, reserve=True)
    assert segment.resident_bytes == 1 << 20
    segment.close()
    segment = Segment.create("partly", 1 << 20)
    segment.reserve(8192, 4096, "a page")
    assert segment.resident_bytes == 4096
    segment.bytes[8192] = segment.bytes[65536] = 1
    assert segment.resident_in(0, 1 << 20) == 8192
    assert segment.resident_in(0, 8192) == 0
    assert segment.resident_in(8192 + 1024, 1 << 19) == 3072 + 4096
    segment.close()


def test_no_descriptors_are_left() -> None:
    Segment.create("warm", 4096).close()
    before = os.listdir("/proc/self/fd")
    for _ in range(50):
        segment = Segment.create("many", 1 << 30)
        Segment.attach(segment.name).close()
        segment.close()
    assert os.listdir("/proc/self/fd") == before
