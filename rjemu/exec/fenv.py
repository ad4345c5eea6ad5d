"""The host's floating-point rounding direction, for the reference executor (C99 fesetround by way of the C library)."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_DIRECTIONS = {
    "x86_64": (0x000, 0x800, 0x400, 0xC00),
    "aarch64": (0x000000, 0x400000, 0x800000, 0xC00000),
}
"""FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, in the order of MODE's FP_ROUND values."""

libm = ctypes.CDLL(ctypes.util.find_library("m") or None)
libm.fma.restype = ctypes.c_double
libm.fma.argtypes = [ctypes.c_double] * 3


@contextmanager
def rounding(direction: int) -> Iterator[None]:
    """Round as MODE's FP_ROUND value says (0 nearest, 1 up, 2 down, 3 to zero) in this thread for the block.

    Raises OSError where the host's machine type is not known.
    """
    if direction == 0:
        yield
        return
    machine = platform.machine()
    if machine not in _DIRECTIONS:
        raise OSError(f"directed rounding is not known for hosts of type {machine}")
    libm.fesetround(_DIRECTIONS[machine][direction])
    try:
        yield
    finally:
        libm.fesetround(_DIRECTIONS[machine][0])


def round_to_nearest() -> None:
    """Back to the default direction."""
    libm.fesetround(0)
