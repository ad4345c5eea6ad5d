"""The matrix multiplication that several rows run: Triton, float16 with float32 sums, 1024 x 1024 x 1024."""

from __future__ import annotations

from typing import Any

from rjemu.integrations.triton import compile_kernel

TARGET, PRESET = "gfx950", "gfx950_mi355x"
SIZE = 1024
"""Rows, columns and depth of the matrix multiplications."""
TILES = {"BM": 128, "BN": 128, "BK": 64}


def compile_matmul() -> Any:
    """The compiled Triton kernel."""
    from rjemu.bench import triton_kernels

    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "N": "i32", "K": "i32"}
    return compile_kernel(triton_kernels.matmul, signature, TILES, TARGET, divisible_by_16=signature)


def matmul_grid() -> tuple[int, int]:
    """Workgroups: 64 in all."""
    return SIZE // TILES["BM"], SIZE // TILES["BN"]
