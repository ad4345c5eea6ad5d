"""From a kernel's descriptor and a launch's shape to the dispatch that an executor runs.

Register set-up: LLVM's AMDGPUUsage, "Initial Kernel Execution State" and "Preloaded Kernel Arguments".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rjemu.code import Kernel, KernelDescriptor
from rjemu.config import MachineConfig
from rjemu.errors import LaunchError
from rjemu.exec.dispatch import DispatchSpec
from rjemu.shm.vram import round_up
from rjemu.vm.geometry import Geometry, Size3
from rjemu.vm.occupancy import max_resident_workgroups
from rjemu.vm.packets import Queue

if TYPE_CHECKING:
    from rjemu.vm.module import LoadedKernel

DYNAMIC_STACK_BYTES = 16 * 1024
"""Stack of a lane beyond the fixed private segment, for kernels whose depth of calls the compiler could not bound."""

SCRATCH_ARENA_BYTES = 1 << 30
"""Scratch of one launch: bounds how many workgroups of a kernel that uses much of it are resident at once."""

PRELOAD_PROLOGUE_BYTES = 256
"""Code at the entry that loads the kernarg preload registers for firmware that cannot: skipped where they are preloaded."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a launch needs of a compute unit and of memory.

    lds_bytes: per workgroup, static and dynamic. scratch_bytes: per lane. scratch_stride: per wave.
    max_resident: workgroups that the device holds at once. scratch_slots: waves that these have.
    """

    lds_bytes: int
    scratch_bytes: int
    scratch_stride: int
    max_resident: int
    scratch_slots: int

    @property
    def scratch_arena_bytes(self) -> int:
        return self.scratch_stride * self.scratch_slots


@dataclass(frozen=True, slots=True)
class PackedLaunch:
    """A launch that has been checked. dynamic_lds_bytes: per workgroup; segment: the kernarg segment's bytes."""

    target: LoadedKernel
    geometry: Geometry
    dynamic_lds_bytes: int
    resources: Resources
    segment: bytes
    queue: Queue


@dataclass(frozen=True, slots=True)
class LaunchMemory:
    """GPU addresses that the dispatch refers to, its id, and the bytes of its kernarg segment."""

    kernarg: bytes
    kernarg_address: int
    packet_address: int
    queue_address: int
    dispatch_id: int
    scratch_address: int

    @property
    def owned(self) -> list[int]:
        """The allocations that end with the launch."""
        return [self.kernarg_address, self.scratch_address] if self.scratch_address else [self.kernarg_address]


def default_block(kernel: Kernel) -> Size3:
    """The workgroup size that the kernel was compiled for; LaunchError if its metadata states none."""
    if kernel.metadata is None or kernel.metadata.reqd_workgroup_size is None:
        raise LaunchError(f"kernel {kernel.name} states no required workgroup size: block= is needed")
    return kernel.metadata.reqd_workgroup_size


def required_resources(kernel: Kernel, geometry: Geometry, dynamic_lds_bytes: int, config: MachineConfig) -> Resources:
    """The resources of a launch; LaunchError where its shape is not the kernel's or the device has not that much."""
    descriptor = kernel.descriptor
    _check_block(kernel, geometry)
    if dynamic_lds_bytes < 0:
        raise LaunchError(f"kernel {kernel.name}: lds_bytes is {dynamic_lds_bytes}")
    lds_bytes = descriptor.group_segment_fixed_size + dynamic_lds_bytes
    if lds_bytes > config.lds_bytes:
        raise LaunchError(
            f"kernel {kernel.name}: {descriptor.group_segment_fixed_size} bytes of static and {dynamic_lds_bytes} of "
            f"dynamic LDS: a workgroup of {config.target} has at most {config.lds_bytes}"
        )
    waves = -(-geometry.workgroup_size // descriptor.wave_size)
    per_cu = max_resident_workgroups(kernel.name, descriptor, waves, lds_bytes, config)
    scratch_bytes = round_up(descriptor.private_segment_fixed_size, 4)
    if descriptor.uses_dynamic_stack:
        scratch_bytes += DYNAMIC_STACK_BYTES
    x, y, z = geometry.grid
    stride = scratch_bytes * descriptor.wave_size
    resident = min(per_cu * config.xcds * config.cus_per_xcd, x * y * z)
    if stride:
        resident = min(resident, max(per_cu, SCRATCH_ARENA_BYTES // (stride * waves)))
    return Resources(lds_bytes, scratch_bytes, stride, resident, resident * waves)


def dispatch_spec(
    kernel: Kernel,
    image_address: int,
    geometry: Geometry,
    resources: Resources,
    memory: LaunchMemory,
    config: MachineConfig,
    device: int = 0,
) -> DispatchSpec:
    """The dispatch of a kernel whose code object is at `image_address`, on GPU number `device`."""
    descriptor = kernel.descriptor
    entry = image_address + kernel.entry_offset
    if descriptor.kernarg_preload_length:
        entry += PRELOAD_PROLOGUE_BYTES
    return DispatchSpec(
        kernel=kernel.name,
        device=device,
        target=config.target,
        entry=entry,
        wave_size=descriptor.wave_size,
        grid=geometry.grid,
        block=geometry.block,
        global_size=geometry.global_size,
        user_sgprs=user_sgprs(kernel.name, descriptor, memory, resources.scratch_bytes),
        workgroup_id_enables=(
            descriptor.enable_sgpr_workgroup_id_x,
            descriptor.enable_sgpr_workgroup_id_y,
            descriptor.enable_sgpr_workgroup_id_z,
        ),
        workgroup_info_enable=descriptor.enable_sgpr_workgroup_info,
        vgpr_workitem_ids=min(descriptor.enable_vgpr_workitem_id, 2) + 1,
        packed_workitem_ids=True,
        lds_bytes=resources.lds_bytes,
        scratch_bytes=resources.scratch_bytes,
        scratch_base=memory.scratch_address,
        scratch_stride=resources.scratch_stride,
        scratch_slots=resources.scratch_slots,
        mode=descriptor.initial_mode,
        vgprs=descriptor.vgpr_count,
        agprs=descriptor.agpr_count,
        sgprs=descriptor.sgpr_count,
        max_resident=resources.max_resident,
        xcds=config.xcds,
        wave_quantum=config.wave_quantum,
        time_slice=config.time_slice,
    )


def user_sgprs(kernel: str, descriptor: KernelDescriptor, memory: LaunchMemory, scratch_bytes: int) -> np.ndarray:
    """The uint32 values of s0 on, before the workgroup ids: as many as the descriptor's count says."""
    if descriptor.enable_sgpr_private_segment_buffer or descriptor.enable_sgpr_flat_scratch_init:
        raise LaunchError(
            f"kernel {kernel} asks for a scratch buffer or offset in SGPRs: {descriptor.target.processor} sets FLAT_SCRATCH "
            "up itself and provides neither"
        )
    pointers = (
        (descriptor.enable_sgpr_dispatch_ptr, memory.packet_address),
        (descriptor.enable_sgpr_queue_ptr, memory.queue_address),
        (descriptor.enable_sgpr_kernarg_segment_ptr, memory.kernarg_address),
        (descriptor.enable_sgpr_dispatch_id, memory.dispatch_id),
    )
    words: list[int] = []
    for enabled, value in pointers:
        if enabled:
            words += (value & 0xFFFFFFFF, value >> 32)
    if descriptor.enable_sgpr_private_segment_size:
        words.append(scratch_bytes)
    first, count = descriptor.kernarg_preload_offset, descriptor.kernarg_preload_length
    preloaded = memory.kernarg.ljust(4 * (first + count), b"\0")[4 * first : 4 * (first + count)]
    words += np.frombuffer(preloaded, "<u4").tolist()
    registers = np.zeros(descriptor.user_sgpr_count, np.uint32)
    registers[: len(words)] = words[: len(registers)]
    return registers


def _check_block(kernel: Kernel, geometry: Geometry) -> None:
    if kernel.metadata is None:
        return
    required, largest = kernel.metadata.reqd_workgroup_size, kernel.metadata.max_flat_workgroup_size
    if required is not None and required != geometry.block:
        raise LaunchError(f"kernel {kernel.name} was compiled for blocks of {required}, {geometry.block} given")
    if largest is not None and geometry.workgroup_size > largest:
        raise LaunchError(
            f"kernel {kernel.name} was compiled for at most {largest} work-items per block, "
            f"{geometry.workgroup_size} given ({geometry.block})"
        )
