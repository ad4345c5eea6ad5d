"""Triton's matrix multiplications in every element format, on both CDNA targets, against numpy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton.language as tl
from support import triton_kernels as kernels
from support.triton_objects import run_triton

import rjemu

FP8 = {
    "gfx950": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    "gfx942": (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
}

RESULTS = {tl.float32: np.float32, tl.float64: np.float64, tl.int32: np.int32}


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


@pytest.fixture(scope="module")
def mi300x() -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx942_cdna3", local_mem_size=1 << 28) as machine:
        yield machine


@pytest.fixture(scope="module")
def mi355x() -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", local_mem_size=1 << 28) as machine:
        yield machine


def multiply(
    gpu: rjemu.Machine,
    a: np.ndarray,
    b: np.ndarray,
    tiles: tuple[int, int, int],
    *,
    accumulator: Any = tl.float32,
    precision: str = "ieee",
    **options: Any,
) -> np.ndarray:
    """A B of Triton's kernel; a and b may be transposed views."""
    (m, k), n = a.shape, b.shape[1]
    c = gpu.to_device(np.full((m, n), 77, RESULTS[accumulator]))
    strides = dict(zip(("stride_am", "stride_ak", "stride_bk", "stride_bn"), _strides(a) + _strides(b), strict=True))
    arrays = {"a": gpu.to_device(_memory(a)), "b": gpu.to_device(_memory(b)), "c": c}
    constants = {**dict(zip(("BM", "BN", "BK"), tiles, strict=True)), "ACCUMULATOR": accumulator, "PRECISION": precision}
    grid = (-(-m // tiles[0]), -(-n // tiles[1]))
    run_triton(gpu, kernels.matmul, grid, {**arrays, "M": m, "N": n, "K": k, **strides}, constants, **options)
    return c.to_host()


def _memory(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous else array.T


def _strides(array: np.ndarray) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def whole_numbers(rng: np.random.Generator, shape: tuple[int, int], dtype: Any, largest: int = 4) -> np.ndarray:
    return rng.integers(-largest, largest + 1, shape).astype(np.float32).astype(dtype)


def assert_within_rounding(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """The bound that every order of float32 additions of exact products keeps."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(found - a @ b) <= a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b)))


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(gpu: rjemu.Machine, dtype: Any, nonkdim: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(128, 192)).astype(dtype), rng.normal(size=(192, 256)).astype(dtype)
    found = multiply(gpu, a, b, (64, 128, 64), matrix_instr_nonkdim=nonkdim)
    assert_within_rounding(found, a, b)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("exact", [True, False])
def test_fp8(gpu: rjemu.Machine, number: int, exact: bool) -> None:
    """e4m3 and e5m2 in the target's own format, and one with the other."""
    rng = np.random.default_rng(2)
    formats = FP8[gpu.config.target]
    a = whole_numbers(rng, (64, 128), formats[number]) if exact else rng.normal(size=(64, 128)).astype(formats[number])
    b = whole_numbers(rng, (128, 64), formats[0]) if exact else rng.normal(size=(128, 64)).astype(formats[0])
    found = multiply(gpu, a, b, (32, 64, 64))
    if exact:
        assert np.array_equal(found, a.astype(np.float32) @ b.astype(np.float32))
    else:
        assert_within_rounding(found, a, b)


def test_int8(gpu: rjemu.Machine) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((64, 256), (256, 64)))
    a[0], b[:, 0] = -128, -128
    found = multiply(gpu, a, b, (32, 32, 64), accumulator=tl.int32)
    assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_double_precision(gpu: rjemu.Machine) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(64, 64)), rng.normal(size=(64, 32))
    found = multiply(gpu, a, b, (32, 32, 16), accumulator=tl.float64)
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    assert np.all(np.abs(found - a @ b) <= 65 * 2.0**-53 * (np.abs(a) @ np.abs(b)))


def single_precision_error(gpu: rjemu.Machine, precision: str) -> np.ndarray:
    """Errors in units of |A| |B|, for float32 inputs."""
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(64, 64)).astype(np.float32), rng.normal(size=(64, 32)).astype(np.float32)
    found = multiply(gpu, a, b, (32, 32, 16), precision=precision)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.abs(found - a @ b) / (np.abs(a) @ np.abs(b))


def test_single_precision(gpu: rjemu.Machine) -> None:
    assert np.max(single_precision_error(gpu, "ieee")) <= 65 * 2.0**-24


def test_xf32(mi300x: rjemu.Machine) -> None:
    """gfx942's xf32 instructions round float32 inputs to 10 bits of mantissa."""
    error = single_precision_error(mi300x, "tf32")
    assert np.max(error) <= 2.1 * 2.0**-11
    assert np.max(error) > 2.0**-15, "the inputs were not rounded"


@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (100, 70, 50), (65, 129, 257)])
def test_ragged_edges_and_layouts(gpu: rjemu.Machine, shape: tuple[int, int, int], transposed: tuple[bool, bool]) -> None:
    """Whole numbers, so exact: masked loads give 0, masked stores leave the neighbours alone."""
    rng = np.random.default_rng(5)
    m, n, k = shape
    a = whole_numbers(rng, (k, m), np.float16).T if transposed[0] else whole_numbers(rng, (m, k), np.float16)
    b = whole_numbers(rng, (n, k), np.float16).T if transposed[1] else whole_numbers(rng, (k, n), np.float16)
    found = multiply(gpu, a, b, (64, 64, 32))
    assert np.array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("warps", "stages"), [(1, 1), (4, 3), (8, 2)])
def test_schedules(gpu: rjemu.Machine, warps: int, stages: int) -> None:
    """Waves of a workgroup and software pipelining change neither values nor rounding within a tile's depth."""
    rng = np.random.default_rng(6)
    a, b = whole_numbers(rng, (128, 256), np.float16, 32), whole_numbers(rng, (256, 128), np.float16, 32)
    found = multiply(gpu, a, b, (128, 128, 64), num_warps=warps, num_stages=stages)
    assert np.array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


def test_infinities_and_nans_pass_through(gpu: rjemu.Machine) -> None:
    rng = np.random.default_rng(7)
    a, b = whole_numbers(rng, (32, 32), np.float16), np.ones((32, 32), np.float16)
    a[1, 2], a[2, 3], a[3, :2] = np.inf, np.nan, (np.inf, -np.inf)
    found = multiply(gpu, a, b, (32, 32, 32))
    assert np.all(found[1] == np.inf)
    assert np.all(np.isnan(found[2:4]))
    assert np.all(np.isfinite(found[4:]))


FORMATS = {"e2m1": 2, "e4m3": 1, "e5m2": 1}
"""dot_scaled's name of a format -> elements of a byte."""


def microscaled(rng: np.random.Generator, rows: int, k: int, element: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bytes [rows, k / elements of a byte], e8m0 scales [rows, k / 32], values float64 [rows, k])."""
    if element == "e2m1":
        codes = rng.integers(0, 16, (rows, k), np.uint8)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        data = codes[:, ::2] | codes[:, 1::2] << 4
    else:
        dtype = ml_dtypes.float8_e4m3fn if element == "e4m3" else ml_dtypes.float8_e5m2
        typed = rng.normal(size=(rows, k)).astype(dtype)
        values, data = typed.astype(np.float64), typed.view(np.uint8)
    scales = rng.integers(125, 130, (rows, k // 32), np.uint8)
    return data, scales, values * np.repeat(2.0 ** (scales - 127.0), 32, axis=1)


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize(("a_format", "b_format"), [("e2m1", "e2m1"), ("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e4m3")])
def test_microscaling_formats(mi355x: rjemu.Machine, a_format: str, b_format: str, nonkdim: int) -> None:
    """MXFP4 and MXFP8, alone and mixed, on the scaled matrix instructions. MXFP4 is exact at this depth."""
    rng = np.random.default_rng(8)
    m, n, k = 128, 64, 256
    a, a_scale, a_values = microscaled(rng, m, k, a_format)
    b, b_scale, b_values = microscaled(rng, n, k, b_format)
    c = mi355x.to_device(np.full((m, n), np.nan, np.float32))
    to_device = mi355x.to_device
    arguments = {
        "a": to_device(a), "a_scale": to_device(a_scale), "b": to_device(b), "b_scale": to_device(b_scale),
        "c": c, "M": m, "N": n, "K": k,
    }  # fmt: skip
    constants = {
        "A_FORMAT": a_format, "B_FORMAT": b_format, "A_PACK": FORMATS[a_format], "B_PACK": FORMATS[b_format],
        "BM": 64, "BN": 64, "BK": 128,
    }  # fmt: skip
    run_triton(mi355x, kernels.matmul_scaled, (2, 1), arguments, constants, matrix_instr_nonkdim=nonkdim)
    found = c.to_host()
    if a_format == b_format == "e2m1":
        assert np.array_equal(found, a_values @ b_values.T)
    else:
        assert_within_rounding(found, a_values, b_values.T)
