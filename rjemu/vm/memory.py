"""What arrays need of device memory, wherever it is: `rjemu.shm.vram.Vram` here, or a daemon's."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class DeviceMemory(Protocol):
    """The memory of a machine's GPUs. Calls may come from several threads."""

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more, in this process."""

    def check_open(self, what: str = ...) -> None:
        """Raises what a use of `what` must raise if the memory is closed."""

    def allocate(self, nbytes: int, *, label: str = ..., device: int = ...) -> int:
        """The GPU address of new bytes, all zero, in the memory of GPU number `device`; OutOfMemory."""

    def free(self, address: int) -> None:
        """Ends an allocation."""

    def free_later(self, address: int) -> None:
        """Frees before the next allocation: for finalizers, which may run anywhere."""

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """uint8 [nbytes], a copy."""

    def write(self, address: int, data: np.ndarray) -> None:
        """Overwrites memory with a contiguous uint8 array."""
