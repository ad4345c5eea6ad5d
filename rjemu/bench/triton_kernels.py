"""Benchmark kernels in Triton. Importing the module needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]
    """C = A B; a: [M, K], b: [K, N], c: [M, N] in float32; the tiles divide the matrices."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        tile_a = tl.load(a + m[:, None] * K + start + k[None, :])
        tile_b = tl.load(b + (start + k[:, None]) * N + n[None, :])
        accumulator = tl.dot(tile_a, tile_b, accumulator)
    tl.store(c + m[:, None] * N + n[None, :], accumulator)


@triton.jit
def matmul_mxfp4(  # type: ignore[no-untyped-def]
    a, a_scale, b, b_scale, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """C = A B^T of e2m1 elements, two in a byte, with an e8m0 scale for 32 of them along K."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    byte, group = tl.arange(0, BK // 2), tl.arange(0, BK // 32)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        tile_a = tl.load(a + m[:, None] * (K // 2) + start // 2 + byte[None, :])
        tile_b = tl.load(b + n[None, :] * (K // 2) + start // 2 + byte[:, None])
        scale_a = tl.load(a_scale + m[:, None] * (K // 32) + start // 32 + group[None, :])
        scale_b = tl.load(b_scale + n[:, None] * (K // 32) + start // 32 + group[None, :])
        accumulator = tl.dot_scaled(tile_a, scale_a, "e2m1", tile_b, scale_b, "e2m1", accumulator)
    tl.store(c + m[:, None] * N + n[None, :], accumulator)


@triton.jit
def copy(x, y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def softmax(x, y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row for each program, whole in registers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i)
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(y + i, exponentials / tl.sum(exponentials, 0))
