"""Machines that execute: dispatch state as waves see it, on both executors, and what stays after faults."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from support.assemble import build, kernel_text

import rjemu
from rjemu.errors import KernelFault, LaunchTimeout, MemoryFault

EXECUTORS = ["reference", "native"]
TARGETS = ["gfx950_mi355x", "gfx942_cdna3"]


@pytest.fixture(params=[(executor, target) for executor in EXECUTORS for target in TARGETS], ids="-".join)
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    executor, target = request.param
    with rjemu.Machine(target, executor=executor, local_mem_size=1 << 28) as machine:
        yield machine


def load(gpu: rjemu.Machine, body: str, **directives: int) -> rjemu.LoadedKernel:
    return gpu.load(build(kernel_text(body, directives=directives), gpu.config.target))["kernel"]


def test_a_kernel_that_ends_at_once(gpu: rjemu.Machine) -> None:
    result = load(gpu, "s_endpgm").launch((3, 2), (65,))
    assert result.wave_instructions == 3 * 2 * 2
    assert result.seconds > 0


def test_work_item_and_workgroup_ids(gpu: rjemu.Machine) -> None:
    """Each lane stores its packed id and its workgroup's ids at its own place."""
    body = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_bfe_u32 v1, v0, 0, 10
    v_bfe_u32 v2, v0, 10, 10
    v_bfe_u32 v3, v0, 20, 10
    v_lshlrev_b32 v3, 1, v3
    v_add_u32 v2, v2, v3
    v_lshlrev_b32 v2, 3, v2
    v_add_u32 v1, v1, v2
    s_mul_i32 s8, s4, 3
    s_add_i32 s8, s8, s3
    s_lshl_b32 s8, s8, 1
    s_add_i32 s8, s8, s2
    s_lshl_b32 s9, s8, 5
    v_add_u32 v1, s9, v1
    v_lshlrev_b32 v1, 3, v1
    s_lshl_b32 s10, s4, 16
    s_lshl_b32 s11, s3, 8
    s_or_b32 s10, s10, s11
    s_or_b32 s10, s10, s2
    v_mov_b32 v4, v0
    v_mov_b32 v5, s10
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v1, v[4:5], s[6:7]
    s_endpgm
    """
    kernel = load(
        gpu,
        body,
        kernarg_size=8,
        system_sgpr_workgroup_id_x=1,
        system_sgpr_workgroup_id_y=1,
        system_sgpr_workgroup_id_z=1,
        system_vgpr_workitem_id=2,
    )
    out = gpu.zeros((2, 3, 2, 2, 2, 8, 2), np.uint32)
    kernel.launch((2, 3, 2), (8, 2, 2), kernarg=struct.pack("<Q", out.address))
    gz, gy, gx, z, y, x = np.indices((2, 3, 2, 2, 2, 8))
    assert np.array_equal(out.to_host()[..., 0], x | y << 10 | z << 20)
    assert np.array_equal(out.to_host()[..., 1], gx | gy << 8 | gz << 16)


ADD_ONE_PER_ITEM = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_mul_i32 s3, s2, {block}
    v_add_u32 v1, s3, v0
    v_lshlrev_b32 v1, 2, v1
    v_mov_b32 v2, 1
    s_waitcnt lgkmcnt(0)
    global_atomic_add v1, v2, s[4:5]
    s_endpgm
"""


@pytest.mark.parametrize(("items", "block"), [(1, 64), (64, 64), (100, 64), (1000, 96), (999, 256), (5, 1)])
def test_partial_workgroups_run_exactly_the_work_items_asked_for(gpu: rjemu.Machine, items: int, block: int) -> None:
    kernel = load(gpu, ADD_ONE_PER_ITEM.format(block=block), kernarg_size=8)
    out = gpu.zeros(2048, np.uint32)
    kernel.launch(block=block, global_size=items, kernarg=struct.pack("<Q", out.address))
    assert np.array_equal(out.to_host(), np.arange(2048) < items)


def test_preloaded_arguments_and_the_prologue_agree(gpu: rjemu.Machine) -> None:
    """The prologue that hardware skips would store another value."""
    body = """
    v_mov_b32 v2, 7
    s_branch store
    .p2align 8
    v_mov_b32 v2, s4
    store:
    v_lshlrev_b32 v1, 2, v0
    global_store_dword v1, v2, s[2:3]
    s_endpgm
    """
    kernel = load(gpu, body, kernarg_size=16, user_sgpr_kernarg_preload_length=3)
    out = gpu.zeros(64, np.uint32)
    kernel.launch(1, 64, kernarg=struct.pack("<QII", out.address, 42, 0))
    assert np.array_equal(out.to_host(), np.full(64, 42))


def test_dispatch_and_queue_pointers_lead_to_packet_and_apertures(gpu: rjemu.Machine) -> None:
    body = """
    s_load_dwordx2 s[10:11], s[4:5], 0x0
    s_load_dwordx4 s[12:15], s[0:1], 0x4
    s_load_dwordx2 s[16:17], s[2:3], 0x40
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v2, s12
    v_mov_b32 v3, s14
    v_mov_b32 v4, s16
    v_mov_b32 v5, s17
    v_mov_b32 v6, s6
    global_store_dword v1, v2, s[10:11]
    global_store_dword v1, v3, s[10:11] offset:256
    global_store_dword v1, v4, s[10:11] offset:512
    global_store_dword v1, v5, s[10:11] offset:768
    global_store_dword v1, v6, s[10:11] offset:1024
    s_endpgm
    """
    kernel = load(gpu, body, kernarg_size=8, user_sgpr_dispatch_ptr=1, user_sgpr_queue_ptr=1, user_sgpr_dispatch_id=1)
    out = gpu.zeros((5, 64), np.uint32)
    for dispatch_id in range(2):
        kernel.launch(None, (64, 1), global_size=(64, 1), kernarg=struct.pack("<Q", out.address))
        assert out.to_host()[:, 0].tolist() == [64 | 1 << 16, 64, 0x10000, 0x20000, dispatch_id]


def test_scratch_is_each_lanes_own(gpu: rjemu.Machine) -> None:
    """Two waves of a workgroup and two workgroups write their ids and read them back after a barrier."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_lshl_b32 s3, s2, 7
    v_add_u32 v1, s3, v0
    scratch_store_dword off, v1, off offset:4
    scratch_store_dword off, v0, off offset:8
    s_barrier
    s_waitcnt vmcnt(0) lgkmcnt(0)
    scratch_load_dword v2, off, off offset:4
    v_lshlrev_b32 v1, 2, v1
    s_waitcnt vmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    kernel = load(gpu, body, kernarg_size=8, private_segment_fixed_size=16, enable_private_segment=1)
    out = gpu.zeros(512, np.uint32)
    kernel.launch(4, 128, kernarg=struct.pack("<Q", out.address))
    assert np.array_equal(out.to_host(), np.arange(512))


def test_stray_store_is_a_fault_that_keeps_what_was_written(gpu: rjemu.Machine) -> None:
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 9
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_waitcnt vmcnt(0)
    global_store_dword v1, v2, s[4:5] offset:256
    s_endpgm
    """
    kernel = load(gpu, body, kernarg_size=8)
    out = gpu.zeros(64, np.uint32)
    with pytest.raises(MemoryFault, match="past the end of array uint32") as caught:
        kernel.launch(1, 64, kernarg=struct.pack("<Q", out.address))
    fault = caught.value
    assert (fault.address, fault.space, fault.access) == (out.address + 256, "global", "store")
    assert fault.place is not None
    assert (fault.place.kernel, fault.place.workgroup, fault.place.wave, fault.place.lane) == ("kernel", (0, 0, 0), 0, 0)
    assert fault.place.instruction.startswith("global_store_dword")
    assert np.array_equal(out.to_host(), np.full(64, 9))
    wide = gpu.zeros(128, np.uint32)
    kernel.launch(1, 64, kernarg=struct.pack("<Q", wide.address))
    assert np.array_equal(wide.to_host(), np.full(128, 9))


def test_endless_loop_meets_its_timeout_and_the_machine_stays_usable(gpu: rjemu.Machine) -> None:
    endless = load(gpu, "again:\ns_branch again\ns_endpgm")
    with pytest.raises(LaunchTimeout):
        endless.launch(1, 64, timeout=0.2)
    assert load(gpu, "s_endpgm").launch(1, 64).wave_instructions == 1


def test_code_may_not_run_off_its_end_or_after_it_is_unloaded(gpu: rjemu.Machine) -> None:
    with pytest.raises(KernelFault):
        load(gpu, "s_mov_b64 s[4:5], 0\ns_setpc_b64 s[4:5]\ns_endpgm").launch(1, 64)


def test_nothing_is_left_in_shared_memory(gpu: rjemu.Machine) -> None:
    load(gpu, "s_endpgm").launch(1, 64)
    gpu.close()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{os.getpid()}-")]
