"""A daemon's machine through `rjemu.connect`: what `Machine` does, and the same errors."""

from __future__ import annotations

import gc
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.daemons import CONFIG, clients, finish, running_daemon, start_client, wait_until
from support.worker_kernels import COUNT, ENDLESS, FILL, check_fill

import rjemu
from rjemu.daemon.staging import STAGING_BYTES
from rjemu.errors import LaunchInterrupted, LaunchTimeout, MachineClosed, MemoryFault, RjemuError, UsageError
from rjemu.examples.gemm.run import code_object

STRAY = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v0, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v1, v0, s[4:5]
  s_waitcnt vmcnt(0)
  s_endpgm
""",
    directives={"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8},
)
"""Every lane loads a dword from the array on."""


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("daemon") / "socket"
    with running_daemon(path, "--workers", "inline"):
        yield path


@pytest.fixture
def gpu(socket: Path) -> Iterator[rjemu.Machine]:
    with rjemu.connect(socket) as machine:
        yield machine


def pointer(array: rjemu.DeviceArray) -> bytes:
    return np.uint64(array.address).tobytes()


def test_a_gemm_gives_the_bits_that_a_machine_of_this_process_gives(gpu: rjemu.Machine) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(256, 128)).astype(np.float16) for _ in range(2))
    outs = []
    with rjemu.Machine(CONFIG, workers="inline") as here:
        for machine in (gpu, here):
            out = machine.empty((256, 256), np.float32)
            args = [machine.to_device(a), machine.to_device(b), out, np.int32(256), np.int32(128)]
            result = machine.load(code_object())["gemm"].launch((2, 2), 256, args, timeout=60)
            outs.append((out.to_host().tobytes(), result.wave_instructions))
        assert machine.config.target == gpu.config.target
    assert outs[0] == outs[1]


def test_the_configuration_is_the_daemons(gpu: rjemu.Machine) -> None:
    with rjemu.Machine(CONFIG, workers="inline") as here:
        assert gpu.config == here.config
        assert len(gpu.devices) == len(here.devices)


@pytest.mark.parametrize("nbytes", [0, 1, 4095, STAGING_BYTES - 1, STAGING_BYTES, STAGING_BYTES + 1, 3 * STAGING_BYTES + 77])
def test_copies_of_all_sizes(gpu: rjemu.Machine, nbytes: int) -> None:
    host = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    array = gpu.to_device(host)
    assert np.array_equal(array.to_host(), host)
    array.copy_from(host[::-1])
    assert np.array_equal(array.to_host(), host[::-1])


@pytest.mark.parametrize("dtype", [np.float64, np.bool_, ml_dtypes.bfloat16, "float8_e4m3fn", ">i4"])
def test_arrays_of_other_types_and_orders(gpu: rjemu.Machine, dtype: Any) -> None:
    host = np.arange(60).reshape(3, 4, 5).transpose(2, 0, 1).astype(rjemu.vm.array.resolve_dtype(dtype)).astype(dtype)
    assert np.array_equal(gpu.to_device(host).to_host(), host)
    assert gpu.zeros((2, 3), dtype).to_host().tobytes() == bytes(6 * host.itemsize)


def failures() -> dict[str, Callable[[rjemu.Machine], Any]]:
    def launch(text: str, *args: Any, **options: Any) -> Callable[[rjemu.Machine], Any]:
        def act(gpu: rjemu.Machine) -> None:
            array = gpu.to_device(np.arange(10, dtype=np.uint32))
            kernel = gpu.load(build(text, "gfx950"))["kernel"]
            kernel.launch(*args, **{"kernarg": pointer(array), **options})

        return act

    def freed(gpu: rjemu.Machine) -> None:
        array = gpu.empty(4, np.int32)
        array.free()
        array.to_host()

    def unloaded(gpu: rjemu.Machine) -> None:
        module = gpu.load(build(FILL, "gfx950"))
        module.unload()
        module["kernel"].launch(1, 64, kernarg=bytes(8))

    def foreign(gpu: rjemu.Machine) -> None:
        with rjemu.Machine(CONFIG, workers="inline") as other:
            args = [other.empty(4, np.float16)] * 3
            gpu.load(code_object())["gemm"].launch(1, 256, [*args, np.int32(1), np.int32(1)])

    return {
        "stray load": launch(STRAY, 1, 64),
        "bad kernarg": launch(FILL, 1, 64, kernarg=bytes(9)),
        "block too large": launch(FILL, 1, 2048),
        "too much LDS": launch(FILL, 1, 64, lds_bytes=1 << 20),
        "endless": launch(ENDLESS, 1, 64, kernarg=b"", timeout=0.1),
        "bad timeout": launch(FILL, 1, 64, timeout=-1),
        "trap": launch(kernel_text("  s_trap 2\n  s_endpgm\n"), 1, 64, kernarg=b""),
        "code to nowhere": launch(kernel_text("  s_setpc_b64 s[0:1]\n"), 1, 64, kernarg=b""),
        "wrong arguments": lambda gpu: gpu.load(code_object())["gemm"].launch(1, 256, [1.5, None, None, 1, 1]),
        "no such kernel": lambda gpu: gpu.load(code_object())["gemv"],
        "no code object": lambda gpu: gpu.load(b"\x7fELF, but no more"),
        "no such file": lambda gpu: gpu.load("no/such/file.hsaco"),
        "another shape": lambda gpu: gpu.empty(4, np.int32).copy_from(np.zeros(5, np.int32)),
        "no dtype": lambda gpu: gpu.empty(4, "float5"),
        "too much memory": lambda gpu: gpu.empty(1 << 50, np.uint8),
        "freed": freed,
        "unloaded": unloaded,
        "of another machine": foreign,
    }


@pytest.mark.parametrize("name", failures())
def test_failures_are_the_same_errors_as_in_a_machine_of_this_process(gpu: rjemu.Machine, name: str) -> None:
    def outcome(machine: rjemu.Machine) -> tuple[type, str, dict[str, Any]]:
        with pytest.raises(RjemuError) as caught:
            failures()[name](machine)
        # Code lies at another place after it has been uploaded, and more memory is in use.
        text = re.sub(r"(pc|jump to) 0x\w+|\d+ of \d+ bytes", "...", str(caught.value))
        facts = dict(vars(caught.value))
        if facts.get("place"):
            facts["place"] = replace(facts["place"], pc=0)
        return type(caught.value), text, facts

    with rjemu.Machine(CONFIG, workers="inline") as here:
        assert outcome(gpu) == outcome(here)
    check_fill(gpu)


def test_a_fault_tells_its_place(gpu: rjemu.Machine) -> None:
    array = gpu.to_device(np.arange(10, dtype=np.uint32))
    with pytest.raises(MemoryFault) as caught:
        gpu.load(build(STRAY, "gfx950"))["kernel"].launch(1, 64, kernarg=pointer(array))
    assert caught.value.place is not None
    assert (caught.value.place.lane, caught.value.address) == (10, array.address + 40)


def test_memory_is_released_by_free_and_by_collection(gpu: rjemu.Machine) -> None:
    before = gpu.memory_used
    arrays = [gpu.empty(1 << 20, np.uint8) for _ in range(3)]
    assert gpu.memory_used == before + (3 << 20)
    arrays[0].free()
    assert gpu.memory_used == before + (2 << 20)
    del arrays
    gc.collect()
    gpu.empty(0, np.uint8).free()
    assert gpu.memory_used == before


def test_a_module_is_released_by_unload_and_symbols_have_addresses(gpu: rjemu.Machine) -> None:
    before = gpu.memory_used
    module = gpu.load(build(FILL, "gfx950"))
    assert module.symbol_address("kernel.kd") > module.address
    with pytest.raises(KeyError):
        module.symbol_address("nothing")
    module.unload()
    assert gpu.memory_used == before


def test_a_module_that_is_unloaded_while_it_runs_goes_on(socket: Path, gpu: rjemu.Machine) -> None:
    module = gpu.load(build(ENDLESS, "gfx950"))
    ends: list[BaseException] = []

    def run() -> None:
        try:
            module["kernel"].launch(1, 64, timeout=0.5)
        except LaunchTimeout as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: any(client["launches"] for client in clients(socket)))
    module.unload()
    thread.join(10)
    assert len(ends) == 1
    check_fill(gpu)


def test_streams_run_in_order_and_are_cancelled(gpu: rjemu.Machine) -> None:
    total = gpu.zeros(1, np.uint32)
    count, endless = (gpu.load(build(text, "gfx950"))["kernel"] for text in (COUNT, ENDLESS))
    with gpu.stream() as stream:
        for workgroups in range(1, 6):
            stream.launch(count, workgroups, 64, kernarg=pointer(total))
        copied = stream.submit(total.to_host)
    assert copied.result() == [15]
    stream = gpu.stream()
    future = stream.launch(endless, 1, 64)
    time.sleep(0.1)
    stream.cancel()
    with pytest.raises(LaunchInterrupted, match="its stream was closed"):
        future.result(10)
    check_fill(gpu)


def test_progress_is_told_and_can_end_a_launch(gpu: rjemu.Machine) -> None:
    seen: list[tuple[int, int]] = []
    kernel = gpu.load(build(FILL, "gfx950"))["kernel"]
    out = gpu.empty(64, np.uint32)
    kernel.launch(7, 64, kernarg=pointer(out), progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (7, 7)

    def refuse(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gpu.load(build(ENDLESS, "gfx950"))["kernel"].launch(1, 64, progress=refuse)
    check_fill(gpu)


def test_ctrl_c_ends_a_launch_and_not_the_machine(socket: Path) -> None:
    program = """
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
say("loaded")
try:
    kernel.launch(1, 64)
except errors.LaunchInterrupted as error:
    check_fill(gpu)
    say(error)
"""
    client = start_client(socket, program, "loaded")
    wait_until(lambda: any(entry["launches"] for entry in clients(socket)))
    client.send_signal(signal.SIGINT)
    assert "kernel kernel was interrupted: 0 of 1 workgroups had ended" in finish(client)


def test_ctrl_c_is_seen_where_it_does_not_wake_the_main_thread(socket: Path) -> None:
    """As when it comes just before that blocks: the signal's handler runs in another thread, and no system call is cut."""
    program = """
import signal, threading, time
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]

def interrupt():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

for wait in (lambda: kernel.launch(1, 64), lambda: [stream.launch(kernel, 1, 64), stream.synchronize()]):
    stream = gpu.stream()
    threading.Thread(target=interrupt).start()
    try:
        wait()
    except (KeyboardInterrupt, errors.LaunchInterrupted) as error:
        stream.cancel()
        check_fill(gpu)
        say(type(error).__name__)
"""
    assert finish(start_client(socket, program)).split() == ["LaunchInterrupted", "KeyboardInterrupt"]


def test_ctrl_c_in_copies_leaves_them_whole(socket: Path) -> None:
    """What has been interrupted does not write into the memory of later copies."""
    program = """
hosts = [np.full(24 << 20, k, np.uint8) for k in range(2)]
arrays = [gpu.to_device(host) for host in hosts]
interrupted = 0
say("ready")
while interrupted < 3:
    try:
        while True:
            arrays[0].to_host()
            arrays[1].copy_from(hosts[1])
    except KeyboardInterrupt:
        interrupted += 1
        assert all((array.to_host() == k).all() for k, array in enumerate(arrays))
        say("whole")
"""
    client = start_client(socket, program, "ready")
    assert client.stdout is not None
    for _ in range(3):
        time.sleep(0.05)
        client.send_signal(signal.SIGINT)
        line = client.stdout.readline()
        assert line == "whole\n", client.communicate(timeout=60)[1]
    finish(client)


def test_nothing_can_be_used_after_close(socket: Path) -> None:
    with rjemu.connect(socket) as gpu:
        array, module, stream = gpu.zeros(4, np.int32), gpu.load(build(FILL, "gfx950")), gpu.stream()
    assert gpu.closed
    gpu.close()
    module.unload()
    array.free()
    uses = [
        lambda: gpu.empty(4, np.int32),
        lambda: gpu.memory_used,
        array.to_host,
        lambda: module["kernel"].launch(1, 64, kernarg=bytes(8)),
        stream.synchronize,
    ]
    for use in uses:
        with pytest.raises(MachineClosed):
            use()
    assert clients(socket) == []


def test_a_machine_that_is_dropped_is_released(socket: Path) -> None:
    gpu = rjemu.connect(socket)
    gpu.zeros(4, np.int32).free()
    assert len(clients(socket)) == 1
    del gpu
    wait_until(lambda: not clients(socket))


def test_a_daemon_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no daemon can be reached"):
        rjemu.connect(tmp_path / "nothing")
    with pytest.raises(UsageError, match="too long"):
        rjemu.connect(tmp_path / ("x" * 200))
