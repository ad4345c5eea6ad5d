"""Several clients of one daemon: apart from each other, sharing its memory, and gone without a trace when they die."""

from __future__ import annotations

import json
import os
import signal
import socket as sockets
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.daemons import CONFIG, clients, finish, running_daemon, start_client, wait_until
from support.worker_kernels import check_fill

import rjemu
from rjemu.config.source import read_source
from rjemu.errors import LaunchError, MemoryFault, OutOfMemory, UsageError
from rjemu.examples.gemm.run import code_object

RECLAIM_SECONDS = 1.0

COPY_DWORD = kernel_text(
    """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_mov_b32 v0, 0
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
  global_load_dword v1, v0, s[4:5]
  s_waitcnt vmcnt(0)
  global_store_dword v0, v1, s[6:7]
  s_endpgm
""",
    directives={"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 16},
)
"""One dword from the first address to the second."""

RUN_ENDLESS = """
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
kept = gpu.to_device(np.ones(1 << 22, np.uint8))
say("ready")
kernel.launch(4, 64)
"""

STREAM_ENDLESS = """
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
streams = [gpu.stream() for _ in range(2)]
futures = [stream.launch(kernel, 4, 64) for stream in streams]
say("ready")
futures[0].result()
"""
"""Launches that are told of their progress."""

COPY_FOREVER = """
host = np.ones(64 << 20, np.uint8)
array = gpu.to_device(host)
say("ready")
while True:
    array.copy_from(host)
    array.to_host()
"""


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("daemon") / "socket"
    with running_daemon(path, "--workers", "inline"):
        yield path


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A daemon whose clients have a worker process each."""
    path = tmp_path_factory.mktemp("pooled") / "socket"
    with running_daemon(path, "--workers", "1/1"):
        yield path


@pytest.fixture(params=["socket", "pooled"])
def either(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def pid_of(socket: Path) -> int:
    return int(rjemu.daemon.connection.daemon_status(socket)["pid"])


def test_clients_run_beside_each_other(either: Path) -> None:
    program = """
total = gpu.zeros(1, np.uint32)
kernel = gpu.load(build(COUNT, "gfx950"))["kernel"]
for k in range(30):
    kernel.launch(20, 64, kernarg=np.uint64(total.address).tobytes(), timeout=60)
say(total.to_host()[0])
"""
    processes = [start_client(either, program) for _ in range(3)]
    assert [int(finish(process)) for process in processes] == [600] * 3


def test_an_address_of_another_client_is_no_address_here(either: Path) -> None:
    """Neither in copies nor in kernels: what lies there for the other client does not exist for this one."""
    with rjemu.connect(either) as theirs, rjemu.connect(either) as ours:
        secrets = [theirs.to_device(np.full(1 << 16, 0x5EC4E7, np.uint32)) for _ in range(4)]
        mine = ours.zeros(4, np.uint32)
        kernel = ours.load(build(COPY_DWORD, "gfx950"))["kernel"]
        for secret in secrets[2:]:
            with pytest.raises(MemoryFault) as caught:
                kernel.launch(1, 64, kernarg=struct.pack("<2Q", secret.address, mine.address))
            assert caught.value.address == secret.address
            with pytest.raises(MemoryFault):
                kernel.launch(1, 64, kernarg=struct.pack("<2Q", mine.address, secret.address))
            for request in ("read", "write"):
                with pytest.raises(UsageError, match="no device memory"):
                    ours._connection.call(request, {"address": secret.address, "nbytes": 4})
            with pytest.raises(UsageError, match="not the start of an allocation"):
                ours._connection.call("free", {"addresses": [secret.address]})
        assert all((secret.to_host() == 0x5EC4E7).all() for secret in secrets)
        assert (mine.to_host() == 0).all()


def test_the_same_address_is_each_clients_own_memory(either: Path) -> None:
    with rjemu.connect(either) as left, rjemu.connect(either) as right:
        arrays = [gpu.to_device(np.full(1024, value, np.uint32)) for gpu, value in ((left, 1), (right, 2))]
        assert arrays[0].address == arrays[1].address
        for array, value in zip(arrays, (1, 2), strict=True):
            assert (array.to_host() == value).all()


def test_handles_of_another_client_are_not_known(socket: Path) -> None:
    with rjemu.connect(socket) as theirs, rjemu.connect(socket) as ours:
        padding = theirs.empty(1 << 20, np.uint8)
        kernel = theirs.load(build(COPY_DWORD, "gfx950"))["kernel"]
        queue = theirs.new_queue()
        with pytest.raises(UsageError, match="no module"):
            ours._connection.call("unload", {"address": kernel.module.address})
        with pytest.raises(UsageError, match="no queue"):
            ours._connection.call("free_queue", {"address": queue.address})
        with pytest.raises(LaunchError, match="another machine's"):
            ours.load(code_object())["gemm"].launch(1, 256, [padding, padding, padding, np.int32(1), np.int32(1)])


def test_what_is_no_array_cannot_be_copied_or_freed(socket: Path) -> None:
    """A client's own code and queues are not what copies are for."""
    with rjemu.connect(socket) as gpu:
        module = gpu.load(build(COPY_DWORD, "gfx950"))
        for address in (module.address, gpu.queue.address):
            for request in ("read", "write"):
                with pytest.raises(UsageError, match="are no array's"):
                    gpu._connection.call(request, {"address": address, "nbytes": 4})
            with pytest.raises(UsageError, match="not the start of an allocation"):
                gpu._connection.call("free", {"addresses": [address]})


@pytest.mark.parametrize("program", [RUN_ENDLESS, STREAM_ENDLESS, COPY_FOREVER], ids=["launch", "stream", "copy"])
def test_a_killed_client_is_gone_within_a_second(either: Path, program: str) -> None:
    with rjemu.connect(either) as other:
        check_fill(other)
        descriptors = Path(f"/proc/{pid_of(either)}/fd")
        before = len(list(descriptors.iterdir()))
        victim = start_client(either, program, "ready")
        wait_until(lambda: program is COPY_FOREVER or any(client["launches"] for client in clients(either)))
        check_fill(other)
        victim.send_signal(signal.SIGKILL)
        seconds = wait_until(lambda: len(clients(either)) == 1)
        victim.communicate()
        assert seconds < RECLAIM_SECONDS
        check_fill(other)
        wait_until(lambda: len(list(descriptors.iterdir())) <= before)


def test_a_client_that_dies_in_the_middle_of_a_frame(socket: Path) -> None:
    for part in (b"", b"\x10", b"\x10\0\0\0", b"\x10\0\0\0\x93\x01"):
        connected = sockets.socket(sockets.AF_UNIX)
        connected.connect(str(socket))
        connected.sendall(part)
        connected.close()
    wait_until(lambda: not clients(socket))


def test_a_client_that_stops_in_the_middle_of_a_frame_stops_nobody_else(socket: Path) -> None:
    with rjemu.connect(socket) as stuck, rjemu.connect(socket) as other:
        stuck._connection._channel.socket.sendall(b"\xff\0\0\0\x93")
        check_fill(other)


def test_a_forked_child_leaves_the_machine_to_its_parent(socket: Path) -> None:
    """It cannot use it, and does not keep it alive: the daemon sees the parent's end."""
    program = """
import os, time
array = gpu.to_device(np.arange(5))
pid = os.fork()
if pid == 0:
    for use in (array.to_host, lambda: gpu.empty(3, np.int32), lambda: gpu.memory_used):
        try:
            use()
        except errors.ForkedMachine as error:
            assert "forked" in str(error)
        else:
            os._exit(1)
    del array
    say("child")
    time.sleep(30)
    os._exit(0)
assert (array.to_host() == np.arange(5)).all()
say(pid)
sys.stdin.read()
"""
    parent = start_client(socket, program)
    assert parent.stdout is not None
    said = {parent.stdout.readline().strip() for _ in range(2)}
    assert "child" in said
    (child,) = said - {"child"}
    assert len(clients(socket)) == 1
    parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not clients(socket), 1.0)
    os.kill(int(child), signal.SIGKILL)
    parent.communicate()


def test_status_counts_what_a_client_has(socket: Path) -> None:
    with rjemu.connect(socket) as gpu:
        (before,) = clients(socket)
        check_fill(gpu)
        gpu.load(build(COPY_DWORD, "gfx950"))
        array = gpu.zeros(1 << 20, np.uint8)
        (after,) = clients(socket)
        assert (after["pid"], after["uid"]) == (os.getpid(), os.getuid())
        assert (after["arrays"], after["modules"]) == (1, 1)
        assert after["launches_ended"] == before["launches_ended"] + 1
        assert after["memory_used"] > array.nbytes


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A daemon of 64 MiB for two clients."""
    folder = tmp_path_factory.mktemp("small")
    data = dict(read_source(CONFIG).data)
    device = {**data["vm"]["gpu"]["device"], "local_mem_size": 64 << 20}
    data["vm"] = {**data["vm"], "gpu": {**data["vm"]["gpu"], "device": device}}
    (folder / "small.json").write_text(json.dumps(data))
    path = folder / "socket"
    with running_daemon(path, "--workers", "inline", "--max-clients", "2", config=str(folder / "small.json")):
        yield path


def test_clients_share_the_memory_and_give_back_what_they_had(small: Path) -> None:
    hold = 'array = gpu.zeros(48 << 20, np.uint8)\nsay("ready")\nsys.stdin.read()'
    holder = start_client(small, hold, "ready")
    with rjemu.connect(small) as gpu:
        assert gpu.config.name.endswith("small.json")
        kept = gpu.zeros(8 << 20, np.uint8)
        with pytest.raises(OutOfMemory, match="device memory left"):
            gpu.zeros(16 << 20, np.uint8)
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        wait_until(lambda: len(clients(small)) == 1)
        gpu.zeros(48 << 20, np.uint8).free()
        assert (kept.to_host() == 0).all()


def test_more_clients_than_there_may_be_are_refused(small: Path) -> None:
    with rjemu.connect(small), rjemu.connect(small):
        with pytest.raises(UsageError, match="serves 2 clients already"):
            rjemu.connect(small)
        assert len(clients(small)) == 2
    with rjemu.connect(small) as gpu:
        check_fill(gpu)


def test_many_connections_that_say_nothing_leave_room_for_clients(small: Path) -> None:
    silent = []
    for _ in range(40):
        connected = sockets.socket(sockets.AF_UNIX)
        connected.connect(str(small))
        silent.append(connected)
    time.sleep(0.1)
    for _ in range(5):
        with pytest.raises(UsageError, match="more connections than it takes"):
            rjemu.connect(small)
    for connected in silent:
        connected.close()
    wait_until(lambda: _can_connect(small))


def _can_connect(path: Path) -> bool:
    try:
        rjemu.connect(path).close()
    except UsageError:
        return False
    return True
