"""Assembly kernels in tests: loading, and running over arrays with addresses as the only arguments."""

from __future__ import annotations

import struct
from typing import Any

from support.assemble import build, kernel_text

from rjemu import DeviceArray, DispatchResult, LoadedKernel, Machine


def load_assembly(gpu: Machine, body: str, **directives: int) -> LoadedKernel:
    """The kernel of that code. s[0:1] is the kernarg pointer, s2 the workgroup's x; directives as of `kernel_text`."""
    return gpu.load(build(kernel_text(body, directives={"kernarg_size": 64, **directives}), gpu.config.target))["kernel"]


def kernarg(*values: DeviceArray | int) -> bytes:
    """The kernarg segment of 8-byte arguments: addresses and numbers."""
    words = [value.address if isinstance(value, DeviceArray) else value & (1 << 64) - 1 for value in values]
    return struct.pack("<8Q", *words, *[0] * (8 - len(words)))


def run_assembly(
    gpu: Machine, body: str, grid: int, block: int, *values: DeviceArray | int, lds_bytes: int = 0, **directives: Any
) -> DispatchResult:
    """Loads and launches; a kernel that does not end within a minute fails its test."""
    kernel = load_assembly(gpu, body, **directives)
    return kernel.launch(grid, block, kernarg=kernarg(*values), lds_bytes=lds_bytes, timeout=60)
