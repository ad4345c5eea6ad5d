"""Which instructions helpers may run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.vector_runs import decode

from rjemu.mma.candidates import CANDIDATES, Fitness, fitness, supports_async
from rjemu.mma.geometry import INSTRUCTIONS, shape_of


def test_candidates_are_instructions_of_their_target() -> None:
    assert set(INSTRUCTIONS["gfx950"]) >= CANDIDATES["gfx950"]


def test_candidates_of_cdna4_are_dense_float_products_of_one_block() -> None:
    for name in CANDIDATES["gfx950"]:
        shape = shape_of(name)
        assert shape.blocks == 1 and not shape.sparse and shape.result == "f32"
        assert shape.a in ("f16", "bf16", "fp8", "bf8", "")
        assert shape.m * shape.n * shape.k >= 16 * 16 * 32


@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx1100", "gfx1201", "gfx1151"])
def test_other_targets_have_none(target: str) -> None:
    assert not supports_async(target)


def test_capability_and_policy_agree() -> None:
    assert supports_async("gfx950") and supports_async("gfx1250")
    instr = decode("v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]", "gfx942")
    assert fitness(instr, "gfx942") is Fitness.NOT_ELIGIBLE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("v_mfma_f32_16x16x32_f16 a[0:3], v[2:5], v[6:9], a[0:3]", Fitness.CANDIDATE),
        ("v_mfma_f32_32x32x16_bf16 v[16:31], a[2:5], v[6:9], 1.0", Fitness.CANDIDATE),
        ("v_mfma_f32_32x32x16_fp8_bf8 a[0:15], v[2:3], v[6:7], a[0:15]", Fitness.CANDIDATE),
        ("v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3]", Fitness.CANDIDATE),
        ("v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:7], v[8:15], a[0:15], v16, v17", Fitness.CANDIDATE),
        ("v_mfma_f32_32x32x4_2b_f16 a[0:31], v[2:3], v[4:5], a[0:31]", Fitness.NOT_ELIGIBLE),
        ("v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]", Fitness.NOT_ELIGIBLE),
        ("v_mfma_i32_16x16x64_i8 a[0:3], v[2:5], v[6:9], a[0:3]", Fitness.NOT_ELIGIBLE),
        ("v_mfma_f64_16x16x4_f64 a[0:7], v[2:3], v[4:5], a[0:7]", Fitness.NOT_ELIGIBLE),
        ("v_smfmac_f32_16x16x64_f16 a[0:3], v[2:5], v[6:13], v14", Fitness.NOT_ELIGIBLE),
        ("v_fma_f32 v0, v1, v2, v3", Fitness.ORDINARY),
    ],
)
def test_fitness(line: str, expected: Fitness) -> None:
    assert fitness(decode(line, "gfx950"), "gfx950") is expected


def test_a_scalar_operand_runs_inline() -> None:
    instr = decode("v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:7], v[8:15], a[0:15], v16, v17", "gfx950")
    operands = tuple(replace(op, kind="s", index=4) if op.name == "scale_src0" else op for op in instr.operands)
    assert fitness(replace(instr, operands=operands), "gfx950") is Fitness.SCALAR_OPERAND
