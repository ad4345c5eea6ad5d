"""Checked access to device memory and LDS for the reference executor."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class AccessError(Exception):
    """A stray or misaligned access, before the wave and the instruction are known.

    space: global, lds or scalar; access: load, store or atomic; lane: None for a scalar access.
    """

    def __init__(
        self, space: str, access: str, address: int, lane: int | None, nbytes: int, *, misaligned: bool = False
    ) -> None:
        super().__init__(f"{access} of {nbytes} bytes at {space} address {address:#x}")
        self.space = space
        self.access = access
        self.address = address
        self.lane = lane
        self.nbytes = nbytes
        self.misaligned = misaligned


class ReferenceMemory(Protocol):
    """What `NumpyContext` needs of memory."""

    def view(self, space: str, address: int, nbytes: int) -> np.ndarray:
        """uint8 [nbytes] over the live bytes; AccessError if they are not all inside one allocation, or the LDS."""
        ...


class FlatMemory:
    """Memory for tests and tools: some arrays at fixed GPU addresses, and an LDS.

    arrays: GPU address -> uint8 array.
    """

    def __init__(self, arrays: dict[int, np.ndarray], lds: np.ndarray) -> None:
        self.arrays = arrays
        self.lds = lds

    def view(self, space: str, address: int, nbytes: int) -> np.ndarray:
        regions = {0: self.lds} if space == "lds" else self.arrays
        for start, array in regions.items():
            if start <= address and address + nbytes <= start + len(array):
                return array[address - start : address - start + nbytes]
        raise AccessError(space, "access", address, None, nbytes)
