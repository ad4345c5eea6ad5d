"""Rules of the CDNA4 ISA document that emulators are known to miss, each with the document's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from support.harness import Lab, State

from rjemu.isa.instruction import EXEC

ALL = (1 << 64) - 1


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab("gfx950")


def run(lab: Lab, text: str, scalars: dict[int, int], vectors: dict[int, np.ndarray | int], active: int = ALL) -> State:
    """The state after the instruction, the same from both executors."""
    (instr,) = lab.instructions(text)
    state = lab.random_state(np.random.default_rng(0), instr)
    for register, value in scalars.items():
        state.wave.scalars[register] = value
    for register, lanes in vectors.items():
        state.wave.vgpr[register] = lanes
    state.wave.scalars[EXEC : EXEC + 2] = active & 0xFFFFFFFF, active >> 32
    lab.compare(instr, state)
    lab.run_reference(instr, state)
    return state


def floats(value: float) -> np.ndarray:
    return np.full(64, value, np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("text", "first", "second", "result", "scc"),
    [
        ("s_max_i32 s2, s3, s4", 5, 5, 5, 1),  # inclusive: S0 >= S1
        ("s_max_u32 s2, s3, s4", 5, 5, 5, 1),
        ("s_max_i32 s2, s3, s4", 0xFFFFFFFF, 0, 0, 0),
        ("s_absdiff_i32 s2, s3, s4", 0x80000000, 0, 0x80000000, 1),  # a 32-bit difference, negated
        ("s_absdiff_i32 s2, s3, s4", 0x80000000, 1, 0x7FFFFFFF, 1),
        ("s_absdiff_i32 s2, s3, s4", 2, 5, 3, 1),
    ],
)
def test_scalar(lab: Lab, text: str, first: int, second: int, result: int, scc: int) -> None:
    state = run(lab, text, {3: first, 4: second}, {})
    assert (int(state.wave.scalars[2]), state.wave.word("scc")) == (result, scc)


@pytest.mark.parametrize(
    "text", ["ds_write2_b32 v1, v2, v3 offset0:4 offset1:4", "ds_write2st64_b32 v1, v2, v3 offset0:4 offset1:4"]
)
def test_equal_offsets_write_once(lab: Lab, text: str) -> None:
    address = 4 * 4 * (64 if "st64" in text else 1)
    state = run(lab, text, {}, {1: np.arange(64, dtype=np.uint32) * 4, 2: 111, 3: 222})
    assert (state.lds[address : address + 256].view(np.uint32) == 111).all()


@pytest.mark.parametrize(
    ("modifier", "expected"), [("", 12), ("neg_lo:[0,0,1]", 12), ("neg_lo:[1,0,0]", 10), ("neg_hi:[1,0,0]", 10)]
)
def test_dot2_bf16_leaves_its_addend_alone(lab: Lab, modifier: str, expected: float) -> None:
    ones = np.full(64, 0x3F803F80, np.uint32)
    state = run(lab, f"v_dot2_f32_bf16 v1, v2, v3, v4 {modifier}", {}, {2: ones, 3: ones, 4: floats(10)})
    assert (state.wave.vgpr[1].view(np.float32) == expected).all()


def test_lane_selectors_and_empty_exec(lab: Lab) -> None:
    lanes = np.arange(64, dtype=np.uint32) + 7
    assert run(lab, "v_readlane_b32 s2, v3, s4", {4: 70}, {3: lanes}).wave.scalars[2] == 13  # six bits of the selector
    assert run(lab, "v_readfirstlane_b32 s2, v3", {}, {3: lanes}, active=0).wave.scalars[2] == 7  # lane 0
    assert run(lab, "v_writelane_b32 v3, s4, 0", {4: 99}, {3: lanes}, active=0).wave.vgpr[3, 0] == 99


def test_swizzle_reads_zero_from_inactive_lanes(lab: Lab) -> None:
    text = "ds_swizzle_b32 v1, v2 offset:swizzle(BROADCAST,32,1)"
    state = run(lab, text, {}, {2: np.arange(64, dtype=np.uint32) + 5}, active=ALL & ~2)
    assert state.wave.vgpr[1, 0] == 0
    assert state.wave.vgpr[1, 32] == 38


@pytest.mark.parametrize(
    ("text", "source", "result"),
    [
        ("v_fract_f32 v1, v2", floats(-1e-9)[0], 0x3F7FFFFF),  # never 1
        ("v_bcnt_u32_b32 v1, v2, 10", 0xFF, 18),
        ("v_prng_b32 v1, v2", 0x80000001, 2 ^ 197),
        ("v_prng_b32 v1, v2", 0x40000001, 0x80000002),
    ],
)
def test_vector(lab: Lab, text: str, source: int, result: int) -> None:
    assert (run(lab, text, {}, {2: source}).wave.vgpr[1] == result).all()


def test_inline_constant_of_the_circle(lab: Lab) -> None:
    state = run(lab, "v_add_f64 v[2:3], 0, 0.15915494309189532", {}, {})
    assert (int(state.wave.vgpr[3, 0]), int(state.wave.vgpr[2, 0])) == (0x3FC45F30, 0x6DC9C882)
