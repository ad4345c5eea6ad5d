"""Handlers written for hosts with fewer vector instructions than this one give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from support.matrix_cases import SCALE_A, SCALE_B, Case
from support.matrix_runs import decode, new_wave, run_native, run_reference

from rjemu.exec.compiler import host_features

CASES = [
    Case("gfx950", "v_mfma_f32_32x32x16_f16", "f16", "f16"),
    Case("gfx950", "v_mfma_f32_16x16x32_bf16", "bf16", "bf16"),
    Case("gfx950", "v_mfma_f64_16x16x4_f64", "f64", "f64"),
    Case("gfx950", "v_mfma_i32_32x32x32_i8", "i8", "i8"),
    Case("gfx950", "v_mfma_i32_16x16x4_4b_i8", "i8", "i8"),
    Case("gfx950", "v_smfmac_f32_16x16x64_f16", "f16", "f16"),
    Case("gfx950", "v_mfma_scale_f32_32x32x64_f8f6f4", "fp4", "fp4"),
    Case("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4", "fp4", "fp4"),
    Case("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4", "fp8", "bf6"),
]
LACKING = {"no avx512": ("avx512",), "no vnni": ("avx512vnni",)}


@pytest.mark.parametrize("lacking", LACKING)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.a}")
def test_same_bits_without(case: Case, lacking: str) -> None:
    features = frozenset(name for name in host_features() if not name.startswith(LACKING[lacking]))
    instr = decode(case.line(), case.target)
    for seed, low, high in ((1, 0, 255), (2, 120, 134)):
        reference, native = new_wave(seed), new_wave(seed)
        codes = np.random.default_rng(seed).integers(low, high, (2, 64), np.uint32, endpoint=True)
        for state in (reference, native):
            state.vgpr[[SCALE_A, SCALE_B]] = codes
        run_reference(instr, reference, case.target)
        run_native(instr, native, case.target, features)
        np.testing.assert_array_equal(native.vgpr, reference.vgpr)
