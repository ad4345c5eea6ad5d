"""Runs under plugins: the plugin itself, and whole Triton kernels with what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from support.triton_kernels import attention, layer_norm, matmul, softmax, transpose
from support.triton_objects import run_triton

from rjemu import Machine
from rjemu.plugins import Plugin


def plugin_of(gpu: Machine, index: int = 0) -> Plugin:
    """The machine's plugin number `index`."""
    plugins: list[Plugin] = gpu._executor._host._plugins  # type: ignore[attr-defined]
    return plugins[index]


def triton_results(gpu: Machine) -> list[bytes]:
    """What a matrix product, softmax, a layer norm, a transposition and attention compute of fixed random inputs."""
    rng = np.random.default_rng(1)
    a, b = (gpu.to_device(rng.standard_normal((32, 32)).astype(np.float16)) for _ in range(2))
    c = gpu.zeros((32, 32), np.float32)
    shape = {"M": 32, "N": 32, "K": 32, "stride_am": 32, "stride_ak": 1, "stride_bk": 32, "stride_bn": 1}
    tiles: dict[str, Any] = {"BM": 16, "BN": 32, "BK": 16, "ACCUMULATOR": tl.float32, "PRECISION": "ieee"}
    run_triton(gpu, matmul, (2, 1), {"a": a, "b": b, "c": c, **shape}, tiles)
    x = gpu.to_device(rng.standard_normal((2, 200)).astype(np.float32))
    y, z = (gpu.zeros((2, 200), np.float32) for _ in range(2))
    run_triton(gpu, softmax, 2, {"x": x, "y": y, "columns": 200}, {"BLOCK": 256})
    weight, bias = gpu.to_device(np.ones(200, np.float32)), gpu.zeros(200, np.float32)
    norm = {"x": x, "weight": weight, "bias": bias, "y": z, "columns": 200, "epsilon": 1e-5}
    run_triton(gpu, layer_norm, 2, norm, {"BLOCK": 256})
    t, o = (gpu.zeros((32, 32), np.float16) for _ in range(2))
    run_triton(gpu, transpose, (1, 1), {"x": a, "y": t, "rows": 32, "columns": 32}, {"BLOCK": 32})
    heads = {"q": a, "k": b, "v": a, "out": o, "length": 32, "scale": 0.1}
    run_triton(gpu, attention, (1, 1), heads, {"CAUSAL": True, "D": 32, "BM": 32, "BN": 32})
    return [array.to_host().tobytes() for array in (c, y, z, t, o)]
