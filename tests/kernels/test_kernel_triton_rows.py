"""Triton's row-wise kernels: softmax, normalisation, attention, reductions, scans, sorting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import triton_kernels as kernels
from support.triton_objects import run_triton

import rjemu

EPSILON32 = 2.0**-24


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


@pytest.mark.parametrize(("columns", "block"), [(1024, 1024), (781, 1024), (1, 64)])
def test_softmax(gpu: rjemu.Machine, columns: int, block: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(scale=4, size=(5, columns)).astype(np.float32)
    x[1, : columns // 2] = -np.inf
    y = gpu.to_device(np.full(x.shape, np.nan, np.float32))
    run_triton(gpu, kernels.softmax, 5, {"x": gpu.to_device(x), "y": y, "columns": columns}, {"BLOCK": block})
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = wide / wide.sum(axis=1, keepdims=True)
    # exp's argument is rounded after its multiplication with log2(e): an error that grows with its size, 40 at most here.
    assert np.all(np.abs(y.to_host() - expected) <= 80 * EPSILON32 * expected + 2.0**-126)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_layer_norm(gpu: rjemu.Machine, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    rows, columns = 7, 500
    x = rng.normal(3, 2, (rows, columns)).astype(dtype)
    weight, bias = (rng.normal(size=columns).astype(np.float32) for _ in range(2))
    y = gpu.to_device(np.full(x.shape, 7, dtype))
    arguments = {
        "x": gpu.to_device(x), "weight": gpu.to_device(weight), "bias": gpu.to_device(bias), "y": y,
        "columns": columns, "epsilon": 1e-5,
    }  # fmt: skip
    run_triton(gpu, kernels.layer_norm, rows, arguments, {"BLOCK": 512}, num_warps=2)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * weight + bias
    rounding = EPSILON32 if dtype == np.float32 else float(ml_dtypes.finfo(dtype).eps) / 2
    assert np.all(np.abs(y.to_host().astype(np.float64) - expected) <= rounding * np.abs(expected) + 64 * EPSILON32)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [128, 77])
def test_attention(gpu: rjemu.Machine, causal: bool, length: int) -> None:
    rng = np.random.default_rng(3)
    heads, width = 2, 64
    q, k, v = (rng.normal(size=(heads, length, width)).astype(np.float16) for _ in range(3))
    out = gpu.to_device(np.full(q.shape, np.nan, np.float16))
    scale = 1 / np.sqrt(width)
    arguments = {
        "q": gpu.to_device(q), "k": gpu.to_device(k), "v": gpu.to_device(v), "out": out,
        "length": length, "scale": float(scale / np.log(2)),
    }  # fmt: skip
    constants = {"CAUSAL": causal, "D": width, "BM": 64, "BN": 32}
    run_triton(gpu, kernels.attention, (-(-length // 64), heads), arguments, constants)
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    expected = weights @ v.astype(np.float64)
    # The weights and the result are rounded to float16.
    bound = 2.0**-10 * (weights @ np.abs(v.astype(np.float64))) + 2.0**-20
    assert np.all(np.abs(out.to_host().astype(np.float64) - expected) <= bound)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "columns", "warps"), [(64, 128, 4), (4, 16, 1), (256, 8, 8)])
def test_reductions(gpu: rjemu.Machine, axis: int, rows: int, columns: int, warps: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-1000, 1000, (rows, columns), np.int32)
    count = columns if axis == 0 else rows
    sums, maxima, places, xors = (gpu.to_device(np.full(count, -7, np.int32)) for _ in range(4))
    arguments = {"x": gpu.to_device(x), "sums": sums, "maxima": maxima, "places": places, "xors": xors}
    run_triton(gpu, kernels.reductions, 1, arguments, {"ROWS": rows, "COLUMNS": columns, "AXIS": axis}, num_warps=warps)
    assert np.array_equal(sums.to_host(), x.sum(axis))
    assert np.array_equal(maxima.to_host(), x.max(axis))
    assert np.array_equal(places.to_host(), x.argmax(axis))
    assert np.array_equal(xors.to_host(), np.bitwise_xor.reduce(x, axis))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "columns", "warps"), [(2, 1024, 4), (16, 64, 1)])
def test_scans(gpu: rjemu.Machine, rows: int, columns: int, warps: int, reverse: bool) -> None:
    """Cumulative sum and product, and a linear recurrence, all modulo 2^32."""
    rng = np.random.default_rng(5)
    x = rng.integers(-1 << 31, 1 << 31, (rows, columns)).astype(np.int32)
    coefficients = rng.integers(-5, 6, (rows, columns), np.int32)
    sums, products, states = (gpu.to_device(np.zeros(x.shape, np.int32)) for _ in range(3))
    arguments = {
        "x": gpu.to_device(x), "coefficients": gpu.to_device(coefficients),
        "sums": sums, "products": products, "states": states,
    }  # fmt: skip
    constants = {"ROWS": rows, "COLUMNS": columns, "REVERSE": reverse}
    run_triton(gpu, kernels.scans, 1, arguments, constants, num_warps=warps)
    order = slice(None, None, -1 if reverse else 1)
    values, factors = x[:, order], coefficients[:, order]
    expected, state = np.empty_like(x), np.zeros(rows, np.int32)
    for j in range(columns):
        state = factors[:, j] * state + values[:, j]
        expected[:, j] = state
    assert np.array_equal(sums.to_host()[:, order], np.cumsum(values, 1, dtype=np.int32))
    assert np.array_equal(products.to_host()[:, order], np.cumprod(values, 1, dtype=np.int32))
    assert np.array_equal(states.to_host()[:, order], expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int8])
def test_sort(gpu: rjemu.Machine, dtype: Any, descending: bool) -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(-128, 128, (4, 128)).astype(dtype)
    y = gpu.to_device(np.zeros_like(x))
    constants = {"ROWS": 4, "COLUMNS": 128, "DESCENDING": descending}
    run_triton(gpu, kernels.sort_rows, 1, {"x": gpu.to_device(x), "y": y}, constants)
    expected = np.sort(x, 1)
    assert np.array_equal(y.to_host(), expected[:, ::-1] if descending else expected)
