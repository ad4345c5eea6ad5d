"""What one kernel dispatch asks of an executor: plain numbers, no objects of higher layers.

Made by `rjemu.vm` from the kernel descriptor, the metadata and the launch arguments; read by both executors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(slots=True)
class DispatchSpec:
    """One dispatch.

    entry: GPU address of the first instruction executed. target: "gfx950", ... wave_size: 32 or 64.
    global_size: work-items per dimension; block: work-items per workgroup; grid: workgroups, ceil(global_size / block).
    user_sgprs: uint32 array, the values of s0 on. workgroup_id_enables: which of x, y, z follow the user SGPRs;
    workgroup_info_enable and private_segment_wave_offset_enable: whether those words follow them, in that order.
    scratch_bytes: private segment bytes per lane; scratch_base: GPU address of the dispatch's scratch arena, of
    scratch_slots times scratch_stride bytes: a slot for each wave of the max_resident workgroups.
    vgpr_workitem_ids: 1 to 3 dimensions, packed into v0 (10 bits each) where packed_workitem_ids.
    mode: initial MODE register (FP_ROUND bits 3:0, FP_DENORM 7:4, DX10_CLAMP 8, IEEE 9, ... as CDNA3 ISA "MODE register").
    vgprs: vector registers the kernel may use; agprs likewise; sgprs.
    max_resident: workgroups that the hardware's occupancy lets the device hold at once. xcds: dies that the
    workgroups are dealt out to, one after another. device: number of the GPU in the machine. wave_quantum: instructions
    of a wave's turn. time_slice: wave instructions after which a workgroup makes way for other resident ones.
    """

    kernel: str
    target: str
    entry: int
    wave_size: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    global_size: tuple[int, int, int]
    user_sgprs: np.ndarray
    workgroup_id_enables: tuple[bool, bool, bool] = (True, False, False)
    workgroup_info_enable: bool = False
    private_segment_wave_offset_enable: bool = False
    vgpr_workitem_ids: int = 1
    packed_workitem_ids: bool = True
    lds_bytes: int = 0
    scratch_bytes: int = 0
    scratch_base: int = 0
    scratch_stride: int = 0
    scratch_slots: int = 0
    mode: int = 0x2F0
    vgprs: int = 512
    agprs: int = 256
    sgprs: int = 106
    max_resident: int = 8
    wave_quantum: int = 16
    time_slice: int = 65536
    xcds: int = 1
    device: int = 0

    @property
    def workgroups(self) -> int:
        x, y, z = self.grid
        return x * y * z

    @property
    def waves_per_workgroup(self) -> int:
        x, y, z = self.block
        return -(-(x * y * z) // self.wave_size)


@dataclass(slots=True)
class DispatchResult:
    """What an executor reports of a finished dispatch: wave instructions executed, seconds of wall time, `launch_stats`;
    executed: GPU address of each code range -> int64 [dwords]: how often waves have executed the instruction at each dword,
    where that was asked for."""

    wave_instructions: int
    seconds: float
    stats: dict[str, Any] = field(default_factory=dict)
    executed: dict[int, np.ndarray] = field(default_factory=dict)


def launch_stats(
    workers: list[dict[str, Any]],
    handlers_compiled: int = 0,
    compile_seconds: float = 0.0,
    *,
    allocation: tuple[int, int, int] = (0, 0, 0),
    asynchronous: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The statistics of a launch, as JSON has them: the same keys whatever runs it.

    workers: `worker_stats` of each that took part, or could have. handlers_compiled: native functions made for
    instructions met for the first time; compile_seconds: that, and decoding. allocation: the machine's engines, dispatch
    width of each GPU, and helpers; no engine and no width where the caller's thread runs everything. asynchronous: what
    helpers did, None where there are none.
    """
    return {
        "allocation": dict(zip(("engines", "dispatch", "helpers"), allocation, strict=True)),
        "workers": workers,
        "handlers_compiled": handlers_compiled,
        "compile_seconds": compile_seconds,
        "async": asynchronous,
    }


def worker_stats(
    name: str, cpu: int | None, workgroups: int, wave_instructions: int, busy_seconds: float, seconds: float
) -> dict[str, Any]:
    """What a worker did in a launch of so many seconds.

    cpu: the one that it is pinned to, None if to none. busy_seconds: spent on this launch's workgroups; idle_seconds: the
    rest of the launch, with work of other launches.
    """
    return {
        "worker": name,
        "cpu": cpu,
        "workgroups": workgroups,
        "wave_instructions": wave_instructions,
        "busy_seconds": busy_seconds,
        "idle_seconds": max(seconds - busy_seconds, 0.0),
    }
