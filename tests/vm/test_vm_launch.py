"""What a launch asks of an executor: registers, limits and memory, from descriptors that the assembler encodes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.executors import executor_of, kernarg_address, recording

import rjemu
from rjemu.errors import CodeObjectError, KernelNotFound, LaunchError, MachineClosed, OutOfMemory, UsageError
from rjemu.exec.dispatch import DispatchSpec
from rjemu.vm.packets import AMD_QUEUE, DISPATCH_PACKET

END = "s_endpgm"


@pytest.fixture
def gpu() -> Iterator[rjemu.Machine]:
    with recording(), rjemu.Machine("gfx950_mi355x", local_mem_size=1 << 28) as machine:
        yield machine


def load(gpu: rjemu.Machine, body: str = END, extra: str = "", **directives: int) -> rjemu.LoadedKernel:
    text = kernel_text(body, directives=directives) + extra
    return gpu.load(build(text, gpu.config.target))["kernel"]


def metadata(args: str = "", kernel: str = "", size: int = 0) -> str:
    return (
        ".amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.kernels:\n- {.name: kernel, .symbol: kernel.kd, "
        f".kernarg_segment_size: {size}, .kernarg_segment_align: 8, .group_segment_fixed_size: 0, "
        f".private_segment_fixed_size: 0, .wavefront_size: 64, .sgpr_count: 8, .vgpr_count: 8, "
        f".max_flat_workgroup_size: 256, {kernel} .args: [{args}]}}\n.end_amdgpu_metadata\n"
    )


def words(value: int) -> list[int]:
    return [value & 0xFFFFFFFF, value >> 32]


ALL_POINTERS = {
    "user_sgpr_dispatch_ptr": 1,
    "user_sgpr_queue_ptr": 1,
    "user_sgpr_kernarg_segment_ptr": 1,
    "user_sgpr_dispatch_id": 1,
    "user_sgpr_private_segment_size": 1,
}


def test_user_sgprs_come_in_the_documented_order_and_point_at_real_structures(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, kernarg_size=16, group_segment_fixed_size=1000, private_segment_fixed_size=30, **ALL_POINTERS)
    kernel.launch(1, 64, kernarg=bytes(16))
    found: dict[str, Any] = {}

    def look(spec: DispatchSpec) -> None:
        sgprs = spec.user_sgprs.tolist()
        dispatch, queue, kernarg, dispatch_id = (lo | hi << 32 for lo, hi in zip(sgprs[0:8:2], sgprs[1:8:2], strict=True))
        found["packet"] = gpu.vram.view(dispatch, 64).view(DISPATCH_PACKET)[0].copy()
        found["queue"] = gpu.vram.view(queue, 256).view(AMD_QUEUE)[0].copy()
        found["kernarg"] = gpu.vram.view(kernarg, 16).tobytes()
        found["address"], found["id"], found["rest"] = kernarg, dispatch_id, sgprs[8:]

    executor_of(gpu).on_run = look
    kernel.launch(None, (32, 2), global_size=(100, 3), kernarg=bytes(range(16)), lds_bytes=24)
    packet, queue = found["packet"], found["queue"]
    assert found["kernarg"] == bytes(range(16))
    assert (found["id"], found["rest"]) == (1, [32])
    assert packet["header"] & 0xFF == 2
    assert (packet["setup"], *packet["workgroup_size"], *packet["grid_size"]) == (2, 32, 2, 1, 100, 3, 1)
    assert (packet["private_segment_size"], packet["group_segment_size"]) == (32, 1024)
    assert packet["kernarg_address"] == found["address"]
    descriptor = gpu.vram.view(int(packet["kernel_object"]), 64)
    assert descriptor[:8].tobytes() == struct.pack("<II", 1000, 30)
    assert (queue["group_segment_aperture_base_hi"], queue["private_segment_aperture_base_hi"]) == (0x10000, 0x20000)
    assert (queue["write_dispatch_id"], queue["read_dispatch_id"]) == (2, 1)


def test_packet_and_queue_have_the_sizes_of_the_hsa_structures() -> None:
    assert (DISPATCH_PACKET.itemsize, AMD_QUEUE.itemsize) == (64, 256)
    assert [DISPATCH_PACKET.fields[name][1] for name in ("grid_size", "kernel_object", "kernarg_address")] == [12, 32, 40]


@pytest.mark.parametrize("enabled", range(1 << 5))
def test_every_subset_of_user_sgprs_is_dense(gpu: rjemu.Machine, enabled: int) -> None:
    """The values follow the enables without gaps, and the system SGPRs would start at the descriptor's count."""
    names = [name for i, name in enumerate(ALL_POINTERS) if enabled >> i & 1]
    directives = {**dict.fromkeys(ALL_POINTERS, 0), **dict.fromkeys(names, 1)}
    kernel = load(gpu, kernarg_size=8, private_segment_fixed_size=64, **directives)
    kernel.launch(1, 64, kernarg=bytes(8))
    spec = executor_of(gpu).specs[-1]
    packet, queue = gpu.queue.ring_address, gpu.queue.address
    kernarg = int(gpu.vram.view(packet, 64).view(DISPATCH_PACKET)[0]["kernarg_address"])
    values = dict(zip(ALL_POINTERS, (words(packet), words(queue), words(kernarg), words(0), [64]), strict=True))
    assert spec.user_sgprs.tolist() == [word for name in names for word in values[name]]
    assert spec.user_sgprs.dtype == np.uint32


def test_kernarg_preload_puts_dwords_after_the_other_registers_and_skips_the_prologue(gpu: rjemu.Machine) -> None:
    body = "s_nop 0\n.fill 63, 4, 0xbf800000\ns_endpgm"
    kernel = load(
        gpu,
        body,
        kernarg_size=32,
        user_sgpr_private_segment_size=1,
        user_sgpr_kernarg_preload_length=3,
        user_sgpr_kernarg_preload_offset=2,
    )
    kernel.launch(1, 64, kernarg=np.arange(100, 108, dtype=np.uint32).tobytes())
    spec = executor_of(gpu).specs[-1]
    assert spec.user_sgprs.tolist()[2:] == [0, 102, 103, 104]
    entry = kernel.module.address + kernel.kernel.entry_offset
    assert spec.entry == entry + 256
    assert gpu.vram.view(spec.entry, 4).view(np.uint32)[0] == 0xBF810000


def test_registers_mode_and_ids_follow_the_descriptor(gpu: rjemu.Machine) -> None:
    kernel = load(
        gpu,
        next_free_vgpr=100,
        accum_offset=52,
        next_free_sgpr=40,
        system_sgpr_workgroup_id_x=0,
        system_sgpr_workgroup_id_y=1,
        system_sgpr_workgroup_id_z=1,
        system_sgpr_workgroup_info=1,
        system_vgpr_workitem_id=2,
        float_round_mode_32=1,
        float_denorm_mode_32=2,
        dx10_clamp=0,
        ieee_mode=1,
        fp16_overflow=1,
    )
    kernel.launch((2, 3, 4), (4, 4, 4))
    spec = executor_of(gpu).specs[-1]
    assert (spec.workgroup_id_enables, spec.workgroup_info_enable) == ((False, True, True), True)
    assert (spec.vgpr_workitem_ids, spec.packed_workitem_ids, spec.wave_size) == (3, True, 64)
    assert (spec.vgprs, spec.agprs) == (52, 104 - 52)
    assert spec.sgprs >= 40
    assert spec.mode == 1 | 2 << 4 | 3 << 6 | 1 << 9 | 1 << 23
    assert (spec.grid, spec.block, spec.global_size) == ((2, 3, 4), (4, 4, 4), (8, 12, 16))
    assert (spec.kernel, spec.target, spec.wave_quantum) == ("kernel", "gfx950", 16)


@pytest.mark.parametrize(
    ("block", "vgprs", "lds", "resident"),
    [
        (64, 64, 0, 32),  # 8 waves on each of 4 SIMDs
        (64, 128, 0, 16),  # 512 / 128 = 4 waves per SIMD
        (64, 129, 0, 12),  # allocated in eights: 136
        (64, 512, 0, 4),
        (256, 64, 0, 8),
        (65, 64, 0, 16),  # two waves each
        (1024, 64, 0, 2),
        (64, 64, 32000, 5),  # of 160 KiB, allocated in units of 1280 bytes
        (64, 64, 32001, 4),
        (64, 64, 163840, 1),
        (128, 8, 0, 16),  # barrier slots
    ],
)
def test_occupancy(gpu: rjemu.Machine, block: int, vgprs: int, lds: int, resident: int) -> None:
    accum_offset = min(-(-vgprs // 4) * 4, 256)
    kernel = load(gpu, next_free_vgpr=vgprs, accum_offset=accum_offset)
    kernel.launch(1 << 20, block, lds_bytes=lds)
    assert executor_of(gpu).specs[-1].max_resident == resident * gpu.config.xcds * gpu.config.cus_per_xcd
    kernel.launch(3, block, lds_bytes=lds)
    assert executor_of(gpu).specs[-1].max_resident == 3


def test_scratch_arena_has_a_slot_for_every_resident_wave_and_is_released(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, private_segment_fixed_size=101, enable_private_segment=1)
    before = gpu.vram.used
    seen: list[int] = []

    def look(spec: DispatchSpec) -> None:
        seen.append(gpu.vram.view(spec.scratch_base, spec.scratch_stride * spec.scratch_slots).size)

    executor_of(gpu).on_run = look
    kernel.launch(5, 128)
    spec = executor_of(gpu).specs[-1]
    assert (spec.scratch_bytes, spec.scratch_stride, spec.scratch_slots) == (104, 104 * 64, 10)
    assert seen == [104 * 64 * 10]
    assert gpu.vram.used == before


def test_dynamic_stack_gets_room_beyond_the_fixed_part(gpu: rjemu.Machine) -> None:
    load(gpu, private_segment_fixed_size=16, enable_private_segment=1, uses_dynamic_stack=1).launch(1, 64)
    assert executor_of(gpu).specs[-1].scratch_bytes == 16 + 16384


def test_launch_memory_is_released_after_a_fault_and_the_machine_stays_usable(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, private_segment_fixed_size=64)
    before = gpu.vram.used

    def fail(spec: DispatchSpec) -> None:
        raise RuntimeError("fault")

    executor_of(gpu).on_run = fail
    with pytest.raises(RuntimeError):
        kernel.launch(1, 64)
    assert gpu.vram.used == before
    executor_of(gpu).on_run = lambda spec: None
    assert kernel.launch(1, 64).seconds == 0.5


def test_limits(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, group_segment_fixed_size=163840)
    kernel.launch(1, 64)
    with pytest.raises(LaunchError, match=r"163840 bytes of static and 1 of dynamic LDS: .* at most 163840"):
        kernel.launch(1, 64, lds_bytes=1)
    with pytest.raises(LaunchError, match="lds_bytes is -1"):
        kernel.launch(1, 64, lds_bytes=-1)
    with pytest.raises(LaunchError, match="16 waves of 512 vector registers do not fit a compute unit, which holds 4"):
        load(gpu, next_free_vgpr=512, accum_offset=256).launch(1, 1024)
    for timeout in (0, -1.5, float("nan")):
        with pytest.raises(UsageError, match=f"timeout is {timeout} seconds: expected more than 0"):
            kernel.launch(1, 64, timeout=timeout)
    assert len(executor_of(gpu).specs) == 1


def test_block_must_be_what_the_kernel_was_compiled_for(gpu: rjemu.Machine) -> None:
    required = load(gpu, extra=metadata(kernel=".reqd_workgroup_size: [64, 2, 1],"))
    required.launch(3)
    assert executor_of(gpu).specs[-1].block == (64, 2, 1)
    with pytest.raises(LaunchError, match=r"compiled for blocks of \(64, 2, 1\), \(128, 1, 1\) given"):
        required.launch(1, 128)
    with pytest.raises(LaunchError, match=r"at most 256 work-items per block, 257 given"):
        load(gpu, extra=metadata()).launch(1, 257)
    with pytest.raises(LaunchError, match="block= is needed"):
        load(gpu).launch(1)


def test_arguments_reach_the_kernarg_segment(gpu: rjemu.Machine) -> None:
    args = (
        "{.offset: 0, .size: 8, .value_kind: global_buffer, .name: p},"
        "{.offset: 8, .size: 4, .value_kind: by_value, .name: n},"
        "{.offset: 16, .size: 2, .value_kind: hidden_group_size_x}"
    )
    kernel = load(gpu, extra=metadata(args, size=24), kernarg_size=24)
    array = gpu.zeros(4, np.int32)
    seen: list[bytes] = []
    executor_of(gpu).on_run = lambda spec: seen.append(gpu.vram.view(kernarg_address(spec), 24).tobytes())
    kernel.launch(1, 96, [array, 7])
    kernel.launch(1, 96, kernarg=struct.pack("<QI", array.address, 7))
    assert seen == [struct.pack("<QIxxxxHxxxxxx", array.address, 7, 96)] * 2
    with pytest.raises(LaunchError, match=r"argument 1 \(n\): takes a value of 4 bytes, given int64 of 8 bytes"):
        kernel.launch(1, 96, [array, np.int64(7)])
    with pytest.raises(LaunchError, match="takes 2 arguments"):
        kernel.launch(1, 96)
    with pytest.raises(LaunchError, match="either args= or kernarg="):
        kernel.launch(1, 96, [array, 7], kernarg=bytes(24))


def test_an_array_of_another_machine_is_refused(gpu: rjemu.Machine) -> None:
    """Two machines use the same addresses: it would silently be other memory."""
    kernel = load(gpu, extra=metadata("{.offset: 0, .size: 8, .value_kind: global_buffer}", size=8), kernarg_size=8)
    with rjemu.Machine("gfx942_cdna3", local_mem_size=1 << 20) as other:
        array = other.zeros(4, np.int8)
        with pytest.raises(LaunchError, match="argument 0: the array is another machine's"):
            kernel.launch(1, 64, [array])


def test_kernel_without_metadata_takes_bytes_only(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, kernarg_size=8)
    for args in (None, [1]):
        with pytest.raises(LaunchError, match="no metadata"):
            kernel.launch(1, 64, args)
    with pytest.raises(LaunchError, match="takes 8 bytes, 4 given"):
        kernel.launch(1, 64, kernarg=bytes(4))
    load(gpu).launch(1, 64)


def test_code_is_copied_and_registered_and_unloaded(gpu: rjemu.Machine, tmp_path: Path) -> None:
    before = gpu.vram.used
    path = tmp_path / "k.hsaco"
    path.write_bytes(build(kernel_text(END), "gfx950"))
    module = gpu.load(path)
    assert (module.kernels, list(module), len(module)) == (["kernel"], ["kernel"], 1)
    entry = module.symbol_address("kernel")
    (start, nbytes) = next(iter(executor_of(gpu).code.items()))
    assert start <= entry < start + nbytes
    assert gpu.vram.view(entry, 4).view(np.uint32)[0] == 0xBF810000
    assert "code of k.hsaco" in gpu.vram.nearest(entry)
    with pytest.raises(KernelNotFound, match="kernel"):
        module["other"]
    kernel = module["kernel"]
    module.unload()
    module.unload()
    assert executor_of(gpu).code == {}
    assert gpu.vram.used == before
    with pytest.raises(MachineClosed, match="unloaded"):
        kernel.launch(1, 64)


def test_wrong_target_is_refused(gpu: rjemu.Machine) -> None:
    with pytest.raises(CodeObjectError, match=r"gfx942.*gfx950"):
        gpu.load(build(kernel_text(END), "gfx942"))


def test_arrays_of_the_machine(gpu: rjemu.Machine) -> None:
    host = np.arange(6, dtype=np.float16).reshape(2, 3)
    array = gpu.to_device(host)
    assert np.array_equal(array.to_host(), host)
    assert array.dtype == host.dtype
    assert not gpu.empty(4, np.int8).to_host().any()
    assert gpu.to_device([1.5, 2.5]).to_host().tolist() == [1.5, 2.5]
    with pytest.raises(OutOfMemory):
        gpu.empty(1 << 30, np.float32)


def test_closed_machine_refuses_and_leaves_nothing(gpu: rjemu.Machine) -> None:
    kernel = load(gpu)
    array = gpu.zeros(4, np.int8)
    gpu.close()
    gpu.close()
    for use in (lambda: gpu.zeros(1, np.int8), lambda: gpu.load(b""), lambda: kernel.launch(1, 64), array.to_host):
        with pytest.raises(MachineClosed):
            use()
    kernel.module.unload()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{os.getpid()}-")]


def test_unknown_executor() -> None:
    with pytest.raises(UsageError, match=r"'fast'.*'native' or 'reference'"):
        rjemu.Machine(executor="fast")
