"""Source and result modifiers of VOP3: abs, neg, op_sel, omod and clamp in their interplay with MODE."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.vector_runs import DEFAULT_MODE, FP16_OVFL, NO_IEEE_NO_DENORMALS, f16, f32, filler, run

IEEE, DX10_CLAMP = 0x200, 0x100
DENORMALS32, DENORMALS64 = 0x30, 0xC0


def f64_registers(first: int, values: list[float]) -> dict[int, np.ndarray]:
    words = np.array(values, np.float64).view(np.uint32).reshape(-1, 2)
    return {first: words[:, 0], first + 1: words[:, 1]}


@pytest.mark.parametrize(("text", "factor"), [("mul:2", 2.0), ("mul:4", 4.0), ("div:2", 0.5)])
def test_omod(text: str, factor: float) -> None:
    values = [1.0, -3.5, 0.0, -0.0, math.inf, -math.inf, 2.0**-126, 3e38, 2.0**-126 * 1.5]
    got = run(f"v_mul_f32_e64 v1, v2, 1.0 {text}", {2: f32(values)}, mode=NO_IEEE_NO_DENORMALS).vgpr[1]
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.array(values, np.float32) * np.float32(factor)
    scaled = np.where(np.abs(scaled) < 2.0**-126, np.copysign(np.float32(0), np.float32(1)), scaled)
    assert got[: len(values)].tolist() == f32(scaled).tolist()


@pytest.mark.parametrize("mode", [IEEE | DX10_CLAMP, DENORMALS32 | DX10_CLAMP, 0x20 | DX10_CLAMP])
def test_omod_without_effect(mode: int) -> None:
    """In IEEE mode, and where denormal results are kept."""
    got = run("v_add_f32_e64 v1, v2, v3 mul:2", {2: f32([1.0, -0.0]), 3: f32([2.0, -0.0])}, mode=mode).vgpr[1]
    assert got[:2].tolist() == f32([3.0, -0.0]).tolist()


def test_omod_looks_at_the_results_own_denormal_mode() -> None:
    vgprs = {2: f16([1.0]), 3: f16([2.0])}
    assert run("v_add_f16_e64 v1, v2, v3 mul:2", vgprs, mode=DENORMALS32).vgpr[1][0] == f16([6.0])[0]
    assert run("v_add_f16_e64 v1, v2, v3 mul:2", vgprs, mode=DENORMALS64).vgpr[1][0] == f16([3.0])[0]
    state = run("v_add_f64 v[4:5], v[2:3], v[2:3] mul:4", f64_registers(2, [1.5]), mode=0)
    assert state.vgpr[5][0] == 0x40280000


@pytest.mark.parametrize("dx10", [False, True])
def test_clamp(dx10: bool) -> None:
    mode = DEFAULT_MODE if dx10 else DEFAULT_MODE ^ DX10_CLAMP
    values = [2.0, 1.0, 0.5, 0.0, -0.0, -3.0, math.inf, -math.inf, 1e-45]
    got = run("v_max_f32_e64 v1, v2, v2 clamp", {2: f32(values)}, mode=mode).vgpr[1]
    assert got[: len(values)].tolist() == f32([1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.0, 1e-45]).tolist()
    got = run("v_add_f32_e64 v1, v2, v2 clamp", {2: [0x7FC12345, 0xFFC00001]}, mode=mode).vgpr[1]
    assert got[:2].tolist() == ([0, 0] if dx10 else [0x7FC12345, 0xFFC00001])
    got = run("v_add_f16_e64 v1, v2, v2 clamp", {2: f16([0.25, 4.0, -1.0])}, mode=mode).vgpr[1]
    assert got[:3].tolist() == f16([0.5, 1.0, 0.0]).tolist()
    state = run("v_add_f64 v[4:5], v[2:3], v[2:3] clamp", f64_registers(2, [0.25, 4.0, -1.0]), mode=mode)
    assert state.vgpr[5][:3].tolist() == [0x3FE00000, 0x3FF00000, 0]


def test_omod_before_clamp() -> None:
    got = run("v_add_f32_e64 v1, v2, 0 clamp mul:4", {2: f32([0.125, 0.5])}, mode=NO_IEEE_NO_DENORMALS).vgpr[1]
    assert got[:2].tolist() == f32([0.5, 1.0]).tolist()


def test_abs_before_neg() -> None:
    vgprs = {2: [0x80000000, 0x7FC00001, 0xFF800000], 3: 0}
    got = run("v_cndmask_b32_e64 v1, -|v2|, v3, vcc", vgprs).vgpr[1]
    assert got[:3].tolist() == [0x80000000, 0xFFC00001, 0xFF800000]


def test_op_sel_of_sources_and_destination() -> None:
    """op_sel[3] writes the high half and keeps the low one; without it v_fma_f16 keeps the high half."""
    low, high = np.arange(64, dtype=np.float16), (np.arange(64) * 4).astype(np.float16)
    word = f16(low) | f16(high) << 16
    for bits in range(16):
        chosen = [high if bits >> i & 1 else low for i in range(3)]
        expected = f16(fma16(*chosen))
        text = ",".join(str(bits >> i & 1) for i in range(4))
        got = run(f"v_fma_f16 v1, v2, v3, v4 op_sel:[{text}]", {1: 0xAAAA5555, 2: word, 3: word, 4: word}).vgpr[1]
        keep = (expected << 16 | 0x5555) if bits >> 3 else (expected | 0xAAAA0000)
        assert (got == keep).all(), text


def fma16(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Exact in float64 for these small integers."""
    return (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float16)


def test_f16_overflow_mode() -> None:
    vgprs = {2: f16([60000.0, np.inf, -60000.0]), 3: f16([60000.0, 1.0, -60000.0])}
    assert run("v_add_f16 v1, v2, v3", vgprs).vgpr[1][:3].tolist() == [0x7C00, 0x7C00, 0xFC00]
    limited = run("v_add_f16 v1, v2, v3", vgprs, mode=DEFAULT_MODE | FP16_OVFL)
    assert limited.vgpr[1][:3].tolist() == [0x7BFF, 0x7C00, 0xFBFF]


def test_plain_half_result_zeroes_the_other_half() -> None:
    got = run("v_add_f16 v1, v2, v3", {1: filler()[1], 2: f16([1.0]), 3: f16([1.0])}).vgpr[1]
    assert got[0] == 0x4000
