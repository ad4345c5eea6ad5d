"""Triton kernels about memory and numbers: copies, transposes, gathers, atomics, random numbers, conversions, division."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import triton_kernels as kernels
from support.triton_objects import run_triton

import rjemu


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
@pytest.mark.parametrize("n", [1, 1023, 4096])
def test_copy_leaves_the_rest_alone(gpu: rjemu.Machine, dtype: Any, n: int) -> None:
    x = np.random.default_rng(1).integers(0, 100, 5000).astype(dtype)
    y = gpu.to_device(np.full(5000, 123, dtype))
    run_triton(gpu, kernels.copy, -(-n // 1024), {"x": gpu.to_device(x), "y": y, "n": n}, {"BLOCK": 1024})
    found = y.to_host()
    assert np.array_equal(found[:n], x[:n])
    assert np.all(found[n:] == 123)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(128, 64), (33, 95)])
def test_transpose(gpu: rjemu.Machine, dtype: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).integers(-100, 100, shape).astype(dtype)
    y = gpu.to_device(np.zeros(shape[::-1], dtype))
    grid = (-(-shape[0] // 32), -(-shape[1] // 32))
    arguments = {"x": gpu.to_device(x), "y": y, "rows": shape[0], "columns": shape[1]}
    run_triton(gpu, kernels.transpose, grid, arguments, {"BLOCK": 32})
    assert np.array_equal(y.to_host(), x.T)


def test_gather_rows(gpu: rjemu.Machine) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(1000, 48)).astype(np.float16)
    indices = rng.integers(0, 1000, 300, np.int32)
    y = gpu.to_device(np.zeros((300, 48), np.float16))
    arguments = {"table": gpu.to_device(table), "indices": gpu.to_device(indices), "y": y, "n": 300, "columns": 48}
    run_triton(gpu, kernels.gather_rows, 10, arguments, {"BLOCK": 32, "COLUMNS": 64})
    assert np.array_equal(y.to_host(), table[indices])


@pytest.mark.parametrize(("rows", "width", "warps"), [(64, 1, 1), (256, 4, 4), (32, 32, 2)])
def test_gather_in_registers(gpu: rjemu.Machine, rows: int, width: int, warps: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-(1 << 31), 1 << 31, (rows, width)).astype(np.int32)
    indices = rng.integers(0, rows, (rows, width), np.int32)
    y = gpu.to_device(np.zeros_like(x))
    arguments = {"x": gpu.to_device(x), "indices": gpu.to_device(indices), "y": y}
    run_triton(gpu, kernels.gather_in_registers, 1, arguments, {"N": rows, "WIDTH": width}, num_warps=warps)
    assert np.array_equal(y.to_host(), np.take_along_axis(x, indices, 0))


def test_histogram(gpu: rjemu.Machine) -> None:
    x = np.random.default_rng(5).integers(0, 64, 3000, np.int32)
    counts = gpu.zeros(64, np.int32)
    arguments = {"x": gpu.to_device(x), "counts": counts, "n": 3000}
    run_triton(gpu, kernels.histogram, 6, arguments, {"BLOCK": 512, "BINS": 64})
    assert np.array_equal(counts.to_host(), np.bincount(x, minlength=64))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_atomics(gpu: rjemu.Machine, dtype: Any) -> None:
    """The old values that additions return are the partial sums in some order of the cell's work-items."""
    rng = np.random.default_rng(6)
    n, bins = 1000, 7
    x = rng.integers(1, 1 << 20, n).astype(dtype)
    starts = {"sums": 0, "maxima": -5, "minima": 1 << 30, "ands": -1, "xors": 0}
    cells = {name: gpu.to_device(np.full(bins, start, dtype)) for name, start in starts.items()}
    olds = gpu.zeros(n, dtype)
    constants = {"BINS": bins, "BLOCK": 256}
    run_triton(gpu, kernels.integer_atomics, 4, {"x": gpu.to_device(x), **cells, "olds": olds, "n": n}, constants)
    by_cell = [x[cell::bins] for cell in range(bins)]
    for name, reduce in {
        "sums": np.sum, "maxima": np.max, "minima": np.min, "ands": np.bitwise_and.reduce, "xors": np.bitwise_xor.reduce,
    }.items():  # fmt: skip
        assert np.array_equal(cells[name].to_host(), [reduce(values) for values in by_cell]), name
    for cell, values in enumerate(by_cell):
        before = olds.to_host()[cell::bins]
        order = np.argsort(before)
        assert np.array_equal(before[order], np.concatenate(([0], np.cumsum(values[order])[:-1])))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_atomics(gpu: rjemu.Machine, dtype: Any) -> None:
    x = np.random.default_rng(7).integers(-1000, 1000, 1000).astype(dtype)
    sums, maxima = gpu.zeros(5, dtype), gpu.to_device(np.full(5, -np.inf, dtype))
    arguments = {"x": gpu.to_device(x), "sums": sums, "maxima": maxima, "n": 1000}
    run_triton(gpu, kernels.float_atomics, 4, arguments, {"BINS": 5, "BLOCK": 256})
    assert np.array_equal(sums.to_host(), [x[cell::5].sum() for cell in range(5)])
    assert np.array_equal(maxima.to_host(), [x[cell::5].max() for cell in range(5)])


def test_programs_take_turns_under_a_lock(gpu: rjemu.Machine) -> None:
    """Programs spin on each other: all of them must be resident, and none may starve."""
    x = np.arange(1, 9, dtype=np.int32)
    lock, total = gpu.zeros(1, np.int32), gpu.zeros(1, np.int32)
    arguments = {"lock": lock, "x": gpu.to_device(x), "total": total, "rounds": 5}
    run_triton(gpu, kernels.spin_lock, 8, arguments, {}, num_warps=1)
    assert total.to_host()[0] == 5 * x.sum()
    assert lock.to_host()[0] == 0


def philox(seed: int, counters: np.ndarray) -> np.ndarray:
    """First word of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    c0, c1, c2, c3 = (np.zeros(len(counters), np.uint64) for _ in range(4))
    c0 = counters.astype(np.uint64)
    for _ in range(10):
        product0, product1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        low = np.uint64(0xFFFFFFFF)
        c0, c1, c2, c3 = (
            product1 >> np.uint64(32) ^ c1 ^ np.uint64(key[0]), product1 & low,
            product0 >> np.uint64(32) ^ c3 ^ np.uint64(key[1]), product0 & low,
        )  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c0


def test_random_numbers(gpu: rjemu.Machine) -> None:
    n, seed = 1000, 1234
    x = np.arange(1, n + 1, dtype=np.float32)
    y = gpu.zeros(n, np.float32)
    arguments = {"x": gpu.to_device(x), "y": y, "n": n, "seed": seed, "probability": 0.25}
    run_triton(gpu, kernels.dropout, 4, arguments, {"BLOCK": 256})
    bits = philox(seed, np.arange(n)).astype(np.uint32).view(np.int32).astype(np.int64)
    # tl.rand folds the sign away and scales by the largest float32 below 2^-31.
    uniform = np.where(bits < 0, -bits - 1, bits).astype(np.float32) * np.float32(4.6566127342e-10)
    assert np.array_equal(y.to_host(), np.where(uniform >= np.float32(0.25), x, 0))


NARROW = {
    "gfx950": [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
    "gfx942": [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz],
}


@pytest.mark.parametrize("number", range(4))
def test_conversions_to_narrow_floats_and_back(gpu: rjemu.Machine, number: int) -> None:
    """Round to nearest even, with ties, subnormals and the largest numbers."""
    narrow = np.dtype(NARROW[gpu.config.target][number])
    info = ml_dtypes.finfo(narrow)
    bits = np.arange(1 << min(8 * narrow.itemsize, 12)).astype(f"u{narrow.itemsize}")
    values = bits.view(narrow).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    halfway = (values[1:] + values[:-1]) / 2
    x = np.concatenate(
        [values, halfway, np.nextafter(halfway, np.float32(np.inf)), np.float32([0, info.max, -float(info.max)])]
    )
    y, back = gpu.zeros(len(x), narrow), gpu.zeros(len(x), np.float32)
    n = {"n": len(x)}
    grid = -(-len(x) // 256)
    run_triton(gpu, kernels.convert, grid, {"x": gpu.to_device(x), "y": y, **n}, {"BLOCK": 256})
    run_triton(gpu, kernels.convert, grid, {"x": y, "y": back, **n}, {"BLOCK": 256})
    expected = x.astype(narrow)
    assert np.array_equal(y.to_host().view(bits.dtype), expected.view(bits.dtype))
    assert np.array_equal(back.to_host(), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_division_and_roots(gpu: rjemu.Machine, dtype: Any) -> None:
    """Division and square root are correctly rounded, also at the ends of the range; the remainder is exact."""
    rng = np.random.default_rng(9)
    n = 1500
    limit = 120 if dtype == np.float32 else 1000
    x, y = (
        (rng.choice([-1, 1], n) * (1 + rng.random(n)) * 2.0 ** rng.integers(-limit, limit, n)).astype(dtype)
        for _ in range(2)
    )
    y[:500] = (x[:500] / rng.uniform(1, 1000, 500)).astype(dtype)
    x[-4:], y[-4:] = [0, np.inf, 1, np.nan], [3, 2, 0, 1]
    quotients, remainders, roots, powers = (gpu.zeros(n, dtype) for _ in range(4))
    arguments = {
        "x": gpu.to_device(x), "y": gpu.to_device(y), "quotients": quotients, "remainders": remainders,
        "roots": roots, "powers": powers, "n": n,
    }  # fmt: skip
    run_triton(gpu, kernels.elementwise, 6, arguments, {"BLOCK": 256})
    with np.errstate(all="ignore"):
        assert np.array_equal(quotients.to_host(), x / y, equal_nan=True)
        assert np.array_equal(remainders.to_host()[:500], np.fmod(x, y)[:500])
        assert np.array_equal(roots.to_host(), np.sqrt(np.abs(x)), equal_nan=True)
        expected = np.exp2(x.astype(np.longdouble))
        small = np.abs(x) < 100
        error = np.abs(powers.to_host()[small] - expected[small]) / expected[small]
    assert np.max(error) <= 2 * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integer_division(gpu: rjemu.Machine, dtype: Any) -> None:
    rng = np.random.default_rng(10)
    n, bits = 1000, 8 * np.dtype(dtype).itemsize
    # Numbers of every length, so that quotients are of every length too.
    lengths = rng.integers(64 - bits, 64, (2, n), np.uint64)
    numbers = rng.integers(0, np.iinfo(np.uint64).max, (2, n), np.uint64, endpoint=True) >> lengths
    x, y = numbers.astype(f"u{bits // 8}").view(dtype)
    y[y == 0] = 1
    quotients, remainders, highs = (gpu.zeros(n, dtype) for _ in range(3))
    arguments = {
        "x": gpu.to_device(x), "y": gpu.to_device(y), "quotients": quotients, "remainders": remainders, "highs": highs,
        "n": n,
    }  # fmt: skip
    run_triton(gpu, kernels.integer_division, 4, arguments, {"BLOCK": 256})
    exact_x, exact_y = [int(value) for value in x], [int(value) for value in y]
    magnitudes = [abs(a) // abs(b) for a, b in zip(exact_x, exact_y, strict=True)]
    expected = [q if (a < 0) == (b < 0) else -q for q, a, b in zip(magnitudes, exact_x, exact_y, strict=True)]
    mask = (1 << bits) - 1
    as_bits = [(a & mask) * (b & mask) >> bits for a, b in zip(exact_x, exact_y, strict=True)]
    assert quotients.to_host().tolist() == expected
    assert remainders.to_host().tolist() == [a - q * b for a, q, b in zip(exact_x, expected, exact_y, strict=True)]
    assert highs.to_host().view(f"u{bits // 8}").tolist() == as_bits
