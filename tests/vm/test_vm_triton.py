"""Launching what Triton compiles: its argument list, scratch pointers, preloaded arguments and dynamic LDS."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from support.triton_objects import compile_triton

import rjemu
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.vm import machine as machine_module


@triton.jit
def axpy(x, y, n, a, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y + i, a * tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


class Recorder:
    """Keeps the last dispatch and its kernarg segment."""

    spec: DispatchSpec
    kernarg: bytes

    def __init__(self, vram: Any, target: str, *, lds_bytes: int, cache_dir: Path | None) -> None:
        self.vram = vram

    def add_code(self, address: int, nbytes: int) -> None: ...

    def remove_code(self, address: int) -> None: ...

    def close(self) -> None: ...

    def run(self, spec: DispatchSpec, **options: Any) -> DispatchResult:
        address = int(spec.user_sgprs[0]) | int(spec.user_sgprs[1]) << 32
        Recorder.spec, Recorder.kernarg = spec, self.vram.view(address, 40).tobytes()
        return DispatchResult(0, 0.0)


@pytest.fixture(params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[rjemu.Machine]:
    monkeypatch.setattr(machine_module, "_executor_class", lambda name: Recorder)
    with rjemu.Machine(request.param, local_mem_size=1 << 24) as machine:
        yield machine


def test_arguments_without_and_with_the_scratch_pointers(gpu: rjemu.Machine) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "a": "fp32"}
    compiled = compile_triton(axpy, signature, {"BLOCK": 256}, gpu.config.target, num_warps=4)
    kernel = gpu.load(compiled.asm["hsaco"])["axpy"]
    x, y = gpu.zeros(1000, np.float32), gpu.zeros(1000, np.float32)
    for scratch in ([], [None, None]):
        kernel.launch(4, 256, [x, y, 1000, 0.5, *scratch], lds_bytes=compiled.metadata.shared)
        assert Recorder.kernarg == struct.pack("<QQifQQ", x.address, y.address, 1000, 0.5, 0, 0)
        preload = kernel.kernel.descriptor.kernarg_preload_length
        assert preload > 0
        assert Recorder.spec.user_sgprs[2 : 2 + preload].tobytes() == Recorder.kernarg[: 4 * preload]
        assert Recorder.spec.entry == kernel.module.symbol_address("axpy") + 256
    with pytest.raises(rjemu.errors.LaunchError, match="takes 6 arguments"):
        kernel.launch(4, 256, [x, y, 1000])
