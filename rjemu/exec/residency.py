"""How many workgroups of a launch may be resident, for what shared memory can hold."""

from __future__ import annotations

import warnings

from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.prepare import slot_layout
from rjemu.shm.room import room_left
from rjemu.shm.segment import SHM_DIRECTORY


def affordable_residents(spec: DispatchSpec, wanted: int, workers: int) -> int:
    """`wanted`, or as many as shared memory has room for, but one for each worker at least.

    Most kernels need no more than that, as a worker begins another workgroup only when one takes long. A kernel whose
    workgroups wait for each other may need all of them, hence a warning where there are fewer.
    """
    stride = slot_layout(spec)[1]
    fits = max(room_left(wanted * stride) // stride, workers)
    if fits >= wanted:
        return wanted
    warnings.warn(
        f"kernel {spec.kernel}: {SHM_DIRECTORY} has room for {fits} of {wanted} resident workgroups, which take {stride} "
        "bytes each; if they wait for each other, the launch may not end",
        RuntimeWarning,
        stacklevel=2,
    )
    return fits
