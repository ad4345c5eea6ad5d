"""The structures that a kernel can reach through its dispatch and queue pointers.

Layouts: HSA Platform System Architecture, "AQL kernel dispatch packet", and ROCr's `amd_queue_t`.
"""

from __future__ import annotations

import threading
from typing import Protocol

import numpy as np

from rjemu.isa.apertures import LDS_APERTURE, SCRATCH_APERTURE
from rjemu.shm.vram import Vram
from rjemu.vm.geometry import Geometry

DISPATCH_PACKET = np.dtype(
    [
        ("header", "<u2"),
        ("setup", "<u2"),
        ("workgroup_size", "<u2", 3),
        ("reserved0", "<u2"),
        ("grid_size", "<u4", 3),
        ("private_segment_size", "<u4"),
        ("group_segment_size", "<u4"),
        ("kernel_object", "<u8"),
        ("kernarg_address", "<u8"),
        ("reserved2", "<u8"),
        ("completion_signal", "<u8"),
    ]
)

AMD_QUEUE = np.dtype(
    {
        "names": [
            "type",
            "features",
            "base_address",
            "size",
            "id",
            "write_dispatch_id",
            "group_segment_aperture_base_hi",
            "private_segment_aperture_base_hi",
            "read_dispatch_id",
            "read_dispatch_id_field_base_byte_offset",
        ],
        "formats": ["<u4", "<u4", "<u8", "<u4", "<u8", "<u8", "<u4", "<u4", "<u8", "<u4"],
        "offsets": [0, 4, 8, 24, 32, 56, 64, 68, 128, 136],
        "itemsize": 256,
    }
)

_QUEUE_TYPE_MULTI = 0
_FEATURE_KERNEL_DISPATCH = 1
_PACKET_TYPE_KERNEL_DISPATCH = 2
_SCOPE_SYSTEM = 2
_HEADER = _PACKET_TYPE_KERNEL_DISPATCH | _SCOPE_SYSTEM << 9 | _SCOPE_SYSTEM << 11


class Queue(Protocol):
    """A queue in device memory, wherever that is; `address` is its GPU address."""

    address: int

    @property
    def freed(self) -> bool: ...

    def check_open(self, what: str) -> None: ...

    def free(self) -> None: ...


class AqlQueue:
    """A queue in device memory: its `amd_queue_t`, and a ring of the packets dispatched last. Threads may share it."""

    SLOTS = 64

    def __init__(self, vram: Vram, device: int = 0, *, existing: tuple[int, int] | None = None) -> None:
        """existing: the addresses of a queue and of its ring that are in memory already."""
        self._vram = vram
        self._freed = False
        self._lock = threading.Lock()
        self.address, self.ring_address = existing or (
            vram.allocate(AMD_QUEUE.itemsize, label="queue", device=device),
            vram.allocate(self.SLOTS * DISPATCH_PACKET.itemsize, label="queue packets", device=device),
        )
        self._queue = vram.view(self.address, AMD_QUEUE.itemsize).view(AMD_QUEUE)[0]
        self._ring = vram.view(self.ring_address, self.SLOTS * DISPATCH_PACKET.itemsize).view(DISPATCH_PACKET)
        if existing is None:
            self._describe()

    def _describe(self) -> None:
        """Writes what a kernel may read of a new queue."""
        self._queue["type"] = _QUEUE_TYPE_MULTI
        self._queue["features"] = _FEATURE_KERNEL_DISPATCH
        self._queue["base_address"] = self.ring_address
        self._queue["size"] = self.SLOTS
        self._queue["group_segment_aperture_base_hi"] = LDS_APERTURE >> 32
        self._queue["private_segment_aperture_base_hi"] = SCRATCH_APERTURE >> 32
        self._queue["read_dispatch_id_field_base_byte_offset"] = AMD_QUEUE.fields["read_dispatch_id"][1]  # type: ignore[index]

    def push(
        self, geometry: Geometry, kernel_object: int, kernarg_address: int, private_bytes: int, group_bytes: int
    ) -> tuple[int, int]:
        """Writes the packet of a dispatch; its id and its GPU address."""
        packet = np.zeros((), DISPATCH_PACKET)
        packet["header"] = _HEADER
        packet["setup"] = geometry.dimensions
        packet["workgroup_size"] = geometry.block
        packet["grid_size"] = geometry.global_size
        packet["private_segment_size"] = private_bytes
        packet["group_segment_size"] = group_bytes
        packet["kernel_object"] = kernel_object
        packet["kernarg_address"] = kernarg_address
        with self._lock:
            dispatch_id = int(self._queue["write_dispatch_id"])
            slot = dispatch_id % self.SLOTS
            self._ring[slot] = packet
            self._queue["write_dispatch_id"] = dispatch_id + 1
            self._queue["read_dispatch_id"] = dispatch_id
        return dispatch_id, self.ring_address + slot * DISPATCH_PACKET.itemsize

    @property
    def freed(self) -> bool:
        return self._freed or self._vram.closed

    def check_open(self, what: str) -> None:
        """MachineClosed, saying what has been closed, once the machine is; ForkedMachine in a forked child."""
        self._vram.check_open(what)

    def free(self) -> None:
        """Releases its memory; no kernel that knows it may run any more. Nothing to do once the machine is closed."""
        if not self.freed:
            self._freed = True
            self._vram.free(self.address)
            self._vram.free(self.ring_address)
