"""How many workgroups of a launch one compute unit of the gfx90a family (gfx90a, gfx942, gfx950) holds at once."""

from __future__ import annotations

from rjemu.code import KernelDescriptor
from rjemu.config import MachineConfig
from rjemu.errors import LaunchError

VGPRS_PER_SIMD = 512
"""Registers of a lane in a SIMD's unified VGPR and AGPR file (CDNA3 ISA, "VGPR allocation")."""

BARRIER_SLOTS = 16
"""Workgroups of more than one wave that a compute unit can hold (LLVM, AMDGPUBaseInfo.cpp, getMaxWorkGroupsPerCU)."""

_LARGE_LDS_BYTES = 160 * 1024


def lds_granule(config: MachineConfig) -> int:
    """Bytes of LDS that are allocated at once (LLVM, AMDGPUBaseInfo.cpp, getLdsDwGranularity)."""
    return 320 * 4 if config.lds_bytes == _LARGE_LDS_BYTES else 128 * 4


def max_resident_workgroups(
    kernel: str, descriptor: KernelDescriptor, waves: int, lds_bytes: int, config: MachineConfig
) -> int:
    """Workgroups of `waves` waves and `lds_bytes` of LDS that fit; LaunchError if not even one does."""
    waves_per_simd = min(config.waves_per_simd, VGPRS_PER_SIMD // descriptor.allocated_vgpr_count)
    limits = [config.simds_per_cu * waves_per_simd // waves]
    if limits[0] == 0:
        raise LaunchError(
            f"kernel {kernel}: {waves} waves of {descriptor.allocated_vgpr_count} vector registers do not fit a compute "
            f"unit, which holds {config.simds_per_cu * waves_per_simd} of them"
        )
    if lds_bytes:
        granule = lds_granule(config)
        limits.append(config.lds_bytes // (-(-lds_bytes // granule) * granule))
    if waves > 1:
        limits.append(BARRIER_SLOTS)
    return min(limits)
