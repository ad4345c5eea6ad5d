"""Machines of several GPUs: memories and queues of their own, engines for all, dispatch workers for each, peer access."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.assemble import build, kernel_text
from support.worker_kernels import SQUARES, pointer

import rjemu
from rjemu.errors import LaunchError, MemoryFault, OutOfMemory
from rjemu.workers.roles import roles

MEMORY = 1 << 26

WHERE = kernel_text(
    """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_u32 v2, 1, v2
  global_store_dword v1, v2, s[6:7]
  s_endpgm
""",
    directives={"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 16},
)
"""Loads 64 dwords from the first pointer, adds 1, and stores them at the second."""


@pytest.fixture(scope="module", params=["inline", (1, 1), (2, 2), (3, 3)], ids=str)
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x_kmd_2gpu", workers=request.param, local_mem_size=MEMORY) as machine:
        yield machine


def test_memories_are_apart(gpu: rjemu.Machine) -> None:
    first, second = gpu.devices
    assert first is gpu
    assert [device.index for device in gpu.devices] == [0, 1]
    used = [device.memory_used for device in gpu.devices]
    array = second.empty(1 << 20, np.uint8)
    assert [device.memory_used for device in gpu.devices] == [used[0], used[1] + (1 << 20)]
    whole = second.empty(MEMORY - second.memory_used, np.uint8)
    with pytest.raises(OutOfMemory):
        second.empty(1, np.uint8)
    first.empty(1 << 20, np.uint8).free()
    whole.free()
    array.free()
    assert [device.memory_used for device in gpu.devices] == used


def test_kernels_run_where_their_code_is_and_reach_both_memories(gpu: rjemu.Machine) -> None:
    kernels = [device.load(build(WHERE, "gfx950"))["kernel"] for device in gpu.devices]
    numbers = np.arange(64, dtype=np.uint32)
    for kernel in kernels:
        for source in gpu.devices:
            for target in gpu.devices:
                a, b = source.to_device(numbers), target.zeros(64, np.uint32)
                result = kernel.launch(1, 64, kernarg=pointer(a.address) + pointer(b.address))
                assert np.array_equal(b.to_host(), numbers + 1)
                of = {worker["worker"].partition(" of GPU ")[2] for worker in result.stats["workers"]}
                assert of <= {"", str(kernel.module.device.index)}


def test_both_at_the_same_time(gpu: rjemu.Machine) -> None:
    outs = [device.zeros(1 + 200 * 64, np.uint32) for device in gpu.devices]
    kernels = [device.load(build(SQUARES, "gfx950"))["kernel"] for device in gpu.devices]

    def launch(k: int) -> None:
        for _ in range(5):
            kernels[k].launch(200, 64, kernarg=pointer(outs[k].address + 4))

    threads = [threading.Thread(target=launch, args=(k,)) for k in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        values = out.to_host()
        assert values[0] == 2 * 5 * 200 * 64
        assert np.array_equal(values[1:], np.arange(200 * 64, dtype=np.uint32) ** 2)


def test_streams_belong_to_one_gpu(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(WHERE, "gfx950"))["kernel"]
    with gpu.devices[1].stream() as stream, pytest.raises(LaunchError, match="loaded on GPU 0, the stream is GPU 1's"):
        stream.launch(kernel, 1, 64, kernarg=bytes(16))


def test_the_space_between_the_memories_faults(gpu: rjemu.Machine) -> None:
    kernel = gpu.devices[1].load(build(WHERE, "gfx950"))["kernel"]
    out = gpu.devices[1].zeros(64, np.uint32)
    stray = gpu.vram.allocations()[-1].end + (1 << 20)
    with pytest.raises(MemoryFault, match="which is not allocated"):
        kernel.launch(1, 64, kernarg=pointer(stray) + pointer(out.address))


def test_engines_are_for_all_gpus_and_dispatch_workers_for_one() -> None:
    found = roles(2, 3, 2)
    assert [(role.name, role.device) for role in found] == [
        ("engine 0", None),
        ("engine 1", None),
        ("dispatch 1 of GPU 0", 0),
        ("dispatch 2 of GPU 0", 0),
        ("dispatch 1 of GPU 1", 1),
        ("dispatch 2 of GPU 1", 1),
    ]
    assert len(roles(3, 5, 4)) == 3 + 4 * 4


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 9))
def test_every_xcd_is_one_engines_own(engines: int, devices: int, xcds: int) -> None:
    """XCD x of the whole machine belongs to engine x mod E (design, section 4)."""
    for device in range(devices):
        for xcd in range(xcds):
            owners = []
            for role in roles(engines, 1, devices):
                count, rest = role.own_xcds(device, xcds)
                if xcd % count == rest:
                    owners.append(role.engine)
            assert owners == [(device * xcds + xcd) % engines]


def test_one_gpu_is_the_machine_itself() -> None:
    with rjemu.Machine("gfx950_mi355x", workers="inline") as machine:
        assert machine.devices == (machine,)


@pytest.mark.parametrize(("workers", "count"), [((1, 1), 1), ((2, 3), 6)])
def test_workers_in_all(workers: Any, count: int) -> None:
    with rjemu.Machine("gfx950_mi355x_kmd_2gpu", workers=workers, local_mem_size=MEMORY) as machine:
        machine.start()
        kernel = machine.load(build(SQUARES, "gfx950"))["kernel"]
        out = machine.zeros(1 + 6400, np.uint32)
        result = kernel.launch(100, 64, kernarg=pointer(out.address + 4))
        engines, dispatch = workers
        assert len(result.stats["workers"]) == engines + dispatch - 1
        assert len(machine._executor._crew) == count  # type: ignore[attr-defined]
