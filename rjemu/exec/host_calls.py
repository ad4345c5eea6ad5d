"""What native code asks of the host: pauses, futexes, whether a process lives, a clock (Linux on x86-64 and AArch64)."""

from __future__ import annotations

import platform

from rjemu.errors import RjemuError
from rjemu.exec.ir import Ptr
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value

_X86 = ("x86_64", "AMD64")
_ARM = ("aarch64", "arm64")
_FUTEX, _KILL = {"x86": 202, "arm": 98}, {"x86": 62, "arm": 129}
_WAIT, _WAKE = 0, 1
_EVERYONE = (1 << 31) - 1
_ARM_YIELD = 1


class HostCalls:
    """Writes the host's part of a function."""

    def __init__(self, b: Native) -> None:
        machine = platform.machine()
        if machine not in _X86 + _ARM:
            raise RjemuError(f"helpers are not known for hosts of type {machine}")
        self._b = b
        self._host = "x86" if machine in _X86 else "arm"

    def pause(self) -> None:
        """Say that this is a waiting loop."""
        b = self._b
        if self._host == "x86":
            b.emit(f"call void {b.module.declare('llvm.x86.sse2.pause', 'void', '')}()")
        else:
            b.emit(f"call void {b.module.declare('llvm.aarch64.hint', 'void', 'i32')}(i32 {_ARM_YIELD})")

    def ticks(self) -> Value:
        """u64: a steady counter of the host's own rate."""
        b = self._b
        if self._host == "x86":
            return b.invoke(b.module.declare("llvm.readcyclecounter", "i64", ""), "u64", [])
        return b.make(b.const("u64", 0).type, 1, b.define('call i64 asm volatile "mrs $0, cntvct_el0", "=r"()'))

    def wait(self, word: Ptr, expected: Value, nanoseconds: int) -> Value:
        """i64: sleep while the u32 is `expected`, at most so long (less than a second). 0 after a wake-up, else -1."""
        b = self._b
        limit = b.stack("[2 x i64]", align=8)
        b.store_value(limit, b.const("u64", 0))
        b.store_value(b.offset(limit, 8), b.const("u64", nanoseconds))
        return self._system_call(_FUTEX, b.integer(word), b.const("u64", _WAIT), expected.to("u64"), b.integer(limit))

    def wake(self, word: Ptr) -> None:
        """Wake all that sleep on the u32."""
        b = self._b
        self._system_call(_FUTEX, b.integer(word), b.const("u64", _WAKE), b.const("u64", _EVERYONE), b.const("u64", 0))

    def gone(self, pid: Value) -> Value:
        """b1: whether a process of this user has ended and been waited for."""
        b = self._b
        zero = b.const("u64", 0)
        return self._system_call(_KILL, pid.to("u64"), zero, zero, zero) != 0

    def _system_call(self, numbers: dict[str, int], *arguments: Value) -> Value:
        # Declared without its ellipsis: integer arguments of a variadic function travel the same way on both hosts.
        b = self._b
        callee = b.module.declare("syscall", "i64", ", ".join(["i64"] * 7))
        zero = b.const("u64", 0)
        return b.invoke(callee, "i64", [b.const("u64", numbers[self._host]), *arguments, zero, zero])
