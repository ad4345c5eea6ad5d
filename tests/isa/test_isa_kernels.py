"""Whole kernels: every byte of the code that Triton makes for both targets disassembles and assembles again."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl
from support.assemble import text_section
from support.assembler_lines import Assembled, assemble_lines
from support.triton_objects import compile_triton

from rjemu.isa.disasm import disassemble


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, k_size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k_size, K):
        mask = depth + start < k_size
        a = tl.load(a_ptr + rows[:, None] * k_size + (depth + start)[None, :], mask=mask[None, :], other=0)
        b = tl.load(b_ptr + (depth + start)[:, None] * N + columns[None, :], mask=mask[:, None], other=0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


@triton.jit
def softmax(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * size + columns, mask=columns < size, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(y_ptr + tl.program_id(0) * size + columns, y.to(tl.bfloat16), mask=columns < size)


@triton.jit
def histogram(x_ptr, counts_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < size, other=0)
    tl.atomic_add(counts_ptr + (x & 255), 1, mask=index < size)
    tl.store(sums_ptr + index, tl.cumsum(x * 3 // 7, 0), mask=index < size)


@triton.jit
def scaled_matmul(a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, packed = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2)
    groups = tl.arange(0, K // 32)
    a = tl.load(a_ptr + rows[:, None] * (K // 2) + packed[None, :])
    b = tl.load(b_ptr + packed[:, None] * N + columns[None, :])
    a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // 32) + groups[None, :])
    b_scale = tl.load(b_scale_ptr + columns[:, None] * (K // 32) + groups[None, :])
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1"))


KERNELS = {
    "matmul_fp16": (
        matmul,
        {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "k_size": "i32"},
        {"M": 64, "N": 64, "K": 32},
    ),
    "matmul_fp32": (
        matmul,
        {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "k_size": "i32"},
        {"M": 32, "N": 32, "K": 32},
    ),
    "softmax": (softmax, {"x_ptr": "*bf16", "y_ptr": "*bf16", "size": "i32"}, {"BLOCK": 2048}),
    "scaled_matmul": (
        scaled_matmul,
        {"a_ptr": "*u8", "b_ptr": "*u8", "c_ptr": "*fp32", "a_scale_ptr": "*u8", "b_scale_ptr": "*u8"},
        {"M": 64, "N": 64, "K": 128},
    ),
    "histogram": (histogram, {"x_ptr": "*i32", "counts_ptr": "*i32", "sums_ptr": "*i32", "size": "i32"}, {"BLOCK": 1024}),
}


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_code_of_a_kernel_round_trips(name: str, target: str) -> None:
    kernel, signature, constants = KERNELS[name]
    code = text_section(compile_triton(kernel, signature, constants, target).asm["hsaco"])
    pieces = list(disassemble(code, target))
    assert b"".join(piece for _, piece, _ in pieces) == code
    instructions = {piece: text for _, piece, text in pieces}
    assert not [text for text in instructions.values() if text.startswith(".")]
    assert len(instructions) > 50
    scaled = any(text.startswith("v_mfma_scale") for text in instructions.values())
    assert scaled == (name == "scaled_matmul" and target == "gfx950")
    for (piece, text), result in zip(instructions.items(), assemble_lines(list(instructions.values()), target), strict=True):
        assert isinstance(result, Assembled), result
        assert (result.code, result.text) == (piece, text)
