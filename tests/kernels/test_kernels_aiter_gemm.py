"""AITER's hand-written matrix multiplications (hsa/*/{bf16gemm,f4gemm,i8gemm}, f8_block_scale, flatmm) against numpy.

They need the amd-aiter wheel's code objects: docs/testing.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from support.aiter_objects import BF16, FP8, Aiter, check, machines, shuffle_weight, table

pytestmark = pytest.mark.long

BF16_ROUNDING = 0.0025
"""Relative error of results rounded to bfloat16: 2**-9 at most, and a third of that on average."""
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.fixture(scope="module")
def gfx942() -> Iterator[Aiter]:
    yield from machines("gfx942")


@pytest.fixture(scope="module")
def gfx950() -> Iterator[Aiter]:
    yield from machines("gfx950")


@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_bf16_with_float_results(target: str, splits: int, request: pytest.FixtureRequest) -> None:
    """Splits of K add up by atomics."""
    aiter: Aiter = request.getfixturevalue(target)
    rng, (m, n, k) = np.random.default_rng(1), (100, 128, 512)
    a, b = (rng.normal(size=(rows, k)).astype(BF16) for rows in (m, n))
    for row in table(target, "bf16gemm/bf16gemm_outf32.csv"):
        tile_m, tile_n = int(row["tileM"]), int(row["tileN"])
        out = aiter.gpu.zeros((m, n), np.float32)
        strides = [0, 0, 4 * n, 0, 2 * k, 0, 2 * k, 0]
        arguments = [out, None, a, b, 1.0, 0.0, *strides, m, n, k, splits]
        aiter.run(f"bf16gemm/{row['knl_file']}", (n // tile_n, -(-m // tile_m), splits), arguments)
        check(out.to_host(), a.astype(float) @ b.astype(float).T, 1e-6, row["knl_file"])


def _unpacked(pairs: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """MXFP4 [rows, K / 2] with e8m0 scales [rows, K / 32] as numbers."""
    numbers = FP4[np.stack([pairs & 15, pairs >> 4], axis=-1)].reshape(len(pairs), -1)
    return numbers * np.repeat(np.exp2(scales.astype(float) - 127), 32, axis=1)


def _shuffled_scales(scales: np.ndarray) -> np.ndarray:
    """[rows, K / 32] padded to whole blocks of 256 x 8, in the order of the instruction's scale registers."""
    rows, columns = (-(-extent // block) * block for extent, block in zip(scales.shape, (256, 8), strict=True))
    padded = np.zeros((rows, columns), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    blocks = padded.reshape(rows // 32, 2, 16, columns // 8, 2, 4)
    return np.ascontiguousarray(blocks.transpose(0, 3, 5, 2, 4, 1)).reshape(rows, columns)


def test_mxfp4(gfx950: Aiter) -> None:
    rng, m, k = np.random.default_rng(2), 40, 512
    for row in table("gfx950", "f4gemm/f4gemm_bf16_per1x32Fp4.csv"):
        tile_m, tile_n, shuffled = int(row["tile_m"]), int(row["tile_n"]), int(row["bpreshuffle"])
        n, rows = 2 * tile_n, -(-m // tile_m) * tile_m
        a, b = (rng.integers(0, 256, (extent, k // 2)).astype(np.uint8) for extent in (rows, n))
        scale_a, scale_b = (rng.integers(120, 130, (extent, k // 32)).astype(np.uint8) for extent in (m, n))
        out = gfx950.gpu.zeros((rows, n), BF16)
        in_order = [_shuffled_scales(scale_a), _shuffled_scales(scale_b)]
        strides = [0, 0, n, 0, k, 0, k, 0]
        scale_strides = [in_order[0].shape[1], 0, in_order[1].shape[1], 0]
        arguments = [out, None, a, shuffle_weight(b) if shuffled else b, 1.0, 0.0, *strides, m, n, k]
        gfx950.run(f"f4gemm/{row['co_name']}", (2, -(-m // tile_m), 1), [*arguments, *in_order, *scale_strides, 0])
        expected = _unpacked(a[:m], scale_a) @ _unpacked(b, scale_b).T
        check(out.to_host()[:m], expected, BF16_ROUNDING, row["co_name"])


def _int8(aiter: Aiter, splits: int) -> None:
    rng, (m, n, k) = np.random.default_rng(3), (130, 256, 512)
    a, b = (rng.integers(-128, 128, (rows, k)).astype(np.int8) for rows in (m, n))
    scale_a, scale_b = (rng.uniform(0.01, 0.02, shape).astype(np.float32) for shape in ((m, 1), (1, n)))
    bias = rng.normal(size=(1, n)).astype(np.float32)
    expected = (a.astype(float) @ b.astype(float).T) * scale_a * scale_b + bias
    for row in table("gfx942", "i8gemm/i8gemm_bf16_perTokenI8.csv"):
        tile_m, tile_n = int(row["tile_m"]), int(row["tile_n"])
        out = aiter.gpu.zeros((m, n), BF16)
        arguments = [out, a, shuffle_weight(b, 32), scale_a, scale_b, bias, m, n, k, k, k, 2 * n, splits]
        aiter.run(f"i8gemm/{row['co_name']}", (n // tile_n * splits, -(-m // tile_m)), arguments)
        check(out.to_host(), expected, BF16_ROUNDING * splits, row["co_name"])


def test_int8(gfx942: Aiter) -> None:
    _int8(gfx942, 1)


@pytest.mark.parametrize("splits", [2, 4])
def test_int8_whose_splits_clear_the_result(splits: int) -> None:
    """Every workgroup clears a part of the result at its start, and adds to all of it at its end: right only where the
    workgroups run at the same time, so they get short time slices."""
    for aiter in machines("gfx942", time_slice=4096):
        _int8(aiter, splits)


def _block_scaled(target: str, m: int, n: int, k: int) -> tuple[np.ndarray, ...]:
    """FP8 a [m, k] with scales for each row and 128 columns, b [n, k] for each 128 x 128, and a times b."""
    rng = np.random.default_rng(4)
    a, b = ((2 * rng.normal(size=(rows, k))).astype(FP8[target]) for rows in (m, n))
    scale_a, scale_b = (rng.uniform(0.5, 2, (k // 128, columns)).astype(np.float32) for columns in (m, n // 128))
    scaled_b = b.astype(float) * np.repeat(np.repeat(scale_b.T, 128, axis=0), 128, axis=1)
    return a, b, scale_a, scale_b, (a.astype(float) * np.repeat(scale_a.T, 128, axis=1)) @ scaled_b.T


@pytest.mark.parametrize("tile_m", [32, 64, 96, 128])
def test_fp8_with_block_scales(gfx950: Aiter, tile_m: int) -> None:
    m, n, k = tile_m - 7, 512, 512
    a, b, scale_a, scale_b, expected = _block_scaled("gfx950", m, n, k)
    out = gfx950.gpu.zeros((m, n), BF16)
    pointers = [out, a, shuffle_weight(b), None, scale_a, scale_b.T, None, None, None]
    arguments = [*pointers, k, n, m, 1, k, k, 2 * n, 0, 0, 0, 0, 0, 0, None]
    gfx950.run(f"f8_block_scale_mi350_x{tile_m}.co", (n // 256, 1), arguments)
    check(out.to_host(), expected, BF16_ROUNDING, f"tile of {tile_m} rows")


def test_fp8_with_block_scales_by_flat_instructions(gfx942: Aiter) -> None:
    m, n, k = 128, 512, 512
    a, b, scale_a, scale_b, expected = _block_scaled("gfx942", m, n, k)
    out = gfx942.gpu.zeros((m, n), np.float16)
    pointers = [a, shuffle_weight(b), None, scale_a, scale_b, None, out, None, None, None, None]
    arguments = [*pointers, struct.pack("<6i", k, n, m, 0, 0, 0)]
    gfx942.run("flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32.co", (n // 256, 1), arguments, slot=8)
    check(out.to_host(), expected, 0.0005, "flatmm")


def test_tables_name_every_tile(gfx950: Aiter) -> None:
    """The tables above list what the directory holds, so that no kernel goes without its test."""
    files = {path.name for path in (gfx950.directory / "f4gemm").glob("*.co")}
    assert files == {row["co_name"] for row in table("gfx950", "f4gemm/f4gemm_bf16_per1x32Fp4.csv")}
    assert all(re.search(r"\d+x\d+", name) for name in files)
