"""Launching what Triton compiles: its argument list, scratch pointers, preloaded arguments and dynamic LDS."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest
import triton
import triton.language as tl
from support.executors import executor_of, kernarg_address, recording
from support.triton_objects import compile_triton

import rjemu


@triton.jit
def axpy(x, y, n, a, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y + i, a * tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@pytest.fixture(params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with recording(), rjemu.Machine(request.param, local_mem_size=1 << 24) as machine:
        yield machine


def test_arguments_without_and_with_the_scratch_pointers(gpu: rjemu.Machine) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "a": "fp32"}
    compiled = compile_triton(axpy, signature, {"BLOCK": 256}, gpu.config.target, num_warps=4)
    kernel = gpu.load(compiled.asm["hsaco"])["axpy"]
    x, y = gpu.zeros(1000, np.float32), gpu.zeros(1000, np.float32)
    seen: list[bytes] = []
    executor_of(gpu).on_run = lambda spec: seen.append(gpu.vram.view(kernarg_address(spec), 40).tobytes())
    for scratch in ([], [None, None]):
        kernel.launch(4, 256, [x, y, 1000, 0.5, *scratch], lds_bytes=compiled.metadata.shared)
    assert seen == [struct.pack("<QQifQQ", x.address, y.address, 1000, 0.5, 0, 0)] * 2
    spec = executor_of(gpu).specs[-1]
    preload = kernel.kernel.descriptor.kernarg_preload_length
    assert preload > 0
    assert spec.user_sgprs[2 : 2 + preload].tobytes() == seen[0][: 4 * preload]
    assert spec.entry == kernel.module.symbol_address("axpy") + 256
    with pytest.raises(rjemu.errors.LaunchError, match="takes 6 arguments"):
        kernel.launch(4, 256, [x, y, 1000])


@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("config", ["gfx950_mi355x", "gfx942_cdna3"])
def test_axpy_with_a_ragged_edge(config: str, executor: str) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(1000, np.float32) for _ in range(2))
    with rjemu.Machine(config, executor=executor, local_mem_size=1 << 24) as machine:
        signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "a": "fp32"}
        compiled = compile_triton(axpy, signature, {"BLOCK": 256}, machine.config.target, num_warps=4)
        device_x, device_y = machine.to_device(x), machine.to_device(y)
        module = machine.load(compiled.asm["hsaco"])
        result = module["axpy"].launch(4, 256, [device_x, device_y, 900, 0.5], lds_bytes=compiled.metadata.shared)
        found = device_y.to_host()
    fused = (np.float64(0.5) * x + y).astype(np.float32)
    assert np.array_equal(found[:900], fused[:900])
    assert np.array_equal(found[900:], y[900:])
    assert result.wave_instructions > 16
