"""Futexes on words of shared memory: sleep until a word changes, wake who sleeps (Linux futex(2)).

The words lie in memory that several processes map, so the private variants do not do.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time

_SYSCALL = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE, _WAIT_BITSET, _WAKE_BITSET = 0, 1, 9, 10
EVERYONE = (1 << 31) - 1
"""Wakes all sleepers."""

_libc = ctypes.CDLL(None, use_errno=True)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _futex(address: int, operation: int, value: int, timeout: _TimeSpec | None, groups: int = 0) -> int:
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
            ctypes.c_uint32(groups),
        )
    )


def wait(address: int, expected: int, seconds: float) -> None:
    """Sleep while the u32 at a host address is `expected`, at most so long. May return early: look again.

    A signal handler (Ctrl-C) runs when this returns.
    """
    _futex(address, _WAIT, expected, _time(seconds))


def wait_in_group(address: int, expected: int, seconds: float, group: int) -> None:
    """As `wait`, and only a `wake_groups` for that group (0 to 31) wakes."""
    _futex(address, _WAIT_BITSET, expected, _time(time.monotonic() + seconds), 1 << group)


def _time(seconds: float) -> _TimeSpec:
    whole = int(seconds)
    return _TimeSpec(whole, int((seconds - whole) * 1e9))


def wake(address: int, count: int = EVERYONE) -> int:
    """Wake at most `count` sleepers on the word; how many there were. OSError if the address is no mapped word."""
    return _woken(_futex(address, _WAKE, count, None))


def wake_groups(address: int, groups: int) -> int:
    """Wake the sleepers on the word that `wait_in_group` for a group whose bit is set, in one system call."""
    return _woken(_futex(address, _WAKE_BITSET, EVERYONE, None, groups))


def _woken(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
