"""Futexes on words of shared memory: sleep until a word changes, wake who sleeps (Linux futex(2)).

The words lie in memory that several processes map, so the private variants do not do.
"""

from __future__ import annotations

import ctypes
import os
import platform

_SYSCALL = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 0, 1
EVERYONE = (1 << 31) - 1
"""Wakes all sleepers."""

_libc = ctypes.CDLL(None, use_errno=True)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _futex(address: int, operation: int, value: int, timeout: _TimeSpec | None) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"futexes are not known for hosts of type {platform.machine()}")
    return int(
        _libc.syscall(
            ctypes.c_long(number),
            ctypes.c_void_p(address),
            ctypes.c_int(operation),
            ctypes.c_uint32(value),
            ctypes.byref(timeout) if timeout is not None else None,
            None,
            0,
        )
    )


def wait(address: int, expected: int, seconds: float) -> None:
    """Sleep while the u32 at a host address is `expected`, at most so long. May return early: look again.

    A signal handler (Ctrl-C) runs when this returns.
    """
    whole = int(seconds)
    _futex(address, _WAIT, expected, _TimeSpec(whole, int((seconds - whole) * 1e9)))


def wake(address: int, count: int = EVERYONE) -> int:
    """Wake at most `count` sleepers on the word; how many there were. OSError if the address is no mapped word."""
    woken = _futex(address, _WAKE, count, None)
    if woken < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return woken
