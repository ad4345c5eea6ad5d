"""Arrays in device memory."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from rjemu.errors import MachineClosed, UsageError
from rjemu.vm.handle import Handle
from rjemu.vm.memory import DeviceMemory


class DeviceArray(Handle):
    """A C-contiguous array in the memory of GPU number `device`; `address` is its GPU address.

    Elements are numpy's, ml_dtypes' included (its 4- and 6-bit types take one byte each, as on the host). The memory
    is released by `free`, when the object is collected, or with the machine.
    """

    def __init__(
        self, memory: DeviceMemory, shape: int | Sequence[int], dtype: Any, device: int = 0, *, existing: int | None = None
    ) -> None:
        """existing: the address of an allocation that becomes the array; a new one else."""
        self._address: int | None = existing
        self._memory = memory
        self.shape = _shape(shape)
        self.dtype = resolve_dtype(dtype)
        if existing is None:
            self._address = memory.allocate(self.nbytes, label=f"array {self.dtype}{list(self.shape)}", device=device)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def address(self) -> int:
        """The GPU address; MachineClosed once the array is freed or the machine closed."""
        if self._address is None:
            raise MachineClosed("the device array has been freed")
        self._memory.check_open("the machine of the device array")
        return self._address

    @property
    def freed(self) -> bool:
        return self._address is None

    def is_in(self, memory: DeviceMemory) -> bool:
        """Whether the array is in that device memory."""
        return self._memory is memory

    def to_host(self) -> np.ndarray:
        """A copy in host memory."""
        return self._memory.read(self.address, self.nbytes).view(self.dtype).reshape(self.shape)

    def copy_from(self, source: Any) -> None:
        """Overwrites the array with a host array of its shape and dtype; UsageError for another."""
        host = np.asarray(source)
        if host.shape != self.shape or resolve_dtype(host.dtype) != self.dtype:
            raise UsageError(f"cannot copy {host.dtype} {host.shape} into a device array of {self.dtype} {self.shape}")
        elements = np.ascontiguousarray(host, self.dtype).reshape(-1)
        self._memory.write(self.address, elements.view(np.uint8))

    def free(self) -> None:
        """Releases the memory now; a second call does nothing."""
        address, self._address = self._address, None
        if address is not None and not self._memory.closed:
            self._memory.free(address)

    def __del__(self) -> None:
        # The collector may run inside the allocator, so the memory is only handed over here.
        if self._address is not None and not self._memory.closed:
            self._memory.free_later(self._address)

    def __repr__(self) -> str:
        state = "freed" if self._address is None else f"at {self._address:#x}"
        return f"DeviceArray({self.dtype}, {self.shape}, {state})"


def resolve_dtype(dtype: Any) -> np.dtype:
    """numpy's dtype of anything that names one, ml_dtypes' names included; UsageError where elements are no plain bytes."""
    try:
        resolved = np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    except TypeError as error:
        raise UsageError(f"{dtype!r} is no dtype of numpy or ml_dtypes") from error
    if resolved.hasobject or resolved.itemsize == 0:
        raise UsageError(f"elements of dtype {resolved} cannot be in device memory")
    # The device is little-endian, so that elements from another kind of host are turned round.
    return resolved.newbyteorder("<") if resolved.byteorder == ">" else resolved


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError as error:
        raise UsageError(f"{shape!r} is no array shape") from error
    if any(size < 0 for size in sizes):
        raise UsageError(f"array shape {sizes} has a negative size")
    return sizes
