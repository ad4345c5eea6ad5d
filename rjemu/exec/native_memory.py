"""Memory instructions in native code (placeholder base until its primitives land)."""

from __future__ import annotations

from rjemu.exec.ir import IrLanes
from rjemu.isa.context import Context


class NativeMemory(IrLanes, Context):
    """Mixed into `NativeContext`."""
