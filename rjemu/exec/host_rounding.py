"""The host's rounding direction in native code: MXCSR on x86-64, FPCR on AArch64."""

from __future__ import annotations

import platform

from rjemu.errors import RjemuError
from rjemu.exec.ir import IrLanes
from rjemu.isa.lanes import TYPES, Value

_X86_SHIFT, _ARM_SHIFT = 13, 22
_X86_CODES = (0, 2, 1, 3)
_ARM_CODES = (0, 1, 2, 3)
"""Rounding-control codes of MODE's FP_ROUND values: nearest, up, down, to zero."""


class HostRounding:
    """Reads and writes the control register in a function being written."""

    def __init__(self, b: IrLanes) -> None:
        machine = platform.machine()
        if machine not in ("x86_64", "AMD64", "aarch64", "arm64"):
            raise RjemuError(f"directed rounding is not known for hosts of type {machine}")
        self._b = b
        self._x86 = machine in ("x86_64", "AMD64")
        self._slot = b.stack("i32", align=4) if self._x86 else None

    def read(self) -> Value:
        b = self._b
        if self._slot is not None:
            b.emit(f"call void {b.module.declare('llvm.x86.sse.stmxcsr', 'void', 'ptr')}(ptr {self._slot.name})")
            return b.load_value(self._slot, "u32")
        return b.make(TYPES["u64"], 1, b.define(f"call i64 {b.module.declare('llvm.aarch64.get.fpcr', 'i64', '')}()"))

    def write(self, control: Value) -> None:
        b = self._b
        if self._slot is not None:
            b.store_value(self._slot, control)
            b.emit(f"call void {b.module.declare('llvm.x86.sse.ldmxcsr', 'void', 'ptr')}(ptr {self._slot.name})")
            return
        b.emit(f"call void {b.module.declare('llvm.aarch64.set.fpcr', 'void', 'i64')}({b.typed(control)})")

    def with_direction(self, control: Value, direction: int) -> Value:
        """The control word with MODE's FP_ROUND value in place."""
        shift, codes = (_X86_SHIFT, _X86_CODES) if self._x86 else (_ARM_SHIFT, _ARM_CODES)
        cleared = control & (((1 << control.type.bits) - 1) ^ (3 << shift))
        return cleared | (codes[direction] << shift)
