"""readlane, readfirstlane, writelane and mbcnt."""

from __future__ import annotations

import numpy as np
import pytest
from support.vector_runs import ALL_LANES, LANES, run

LANE_NUMBERS = np.arange(100, 100 + LANES)


@pytest.mark.parametrize("exec_mask", [0, 1, ALL_LANES])
@pytest.mark.parametrize("lane", [0, 5, 63, 64, 127, 0xFFFF_FFFF])
def test_read_lane(lane: int, exec_mask: int) -> None:
    state = run("v_readlane_b32 s10, v1, s4", {1: LANE_NUMBERS}, sgprs={4: lane}, exec_mask=exec_mask)
    assert state.scalars[10] == 100 + lane % 64


def test_read_lane_by_a_constant_and_m0() -> None:
    assert run("v_readlane_b32 s10, v1, 63", {1: LANE_NUMBERS}).scalars[10] == 163
    assert run("v_readlane_b32 vcc_lo, v1, m0", {1: LANE_NUMBERS}, m0=7).scalars[106] == 107


@pytest.mark.parametrize(("exec_mask", "lane"), [(0, 0), (1, 0), (0b1000, 3), (1 << 63, 63), (ALL_LANES, 0)])
def test_read_first_lane(exec_mask: int, lane: int) -> None:
    assert run("v_readfirstlane_b32 s10, v1", {1: LANE_NUMBERS}, exec_mask=exec_mask).scalars[10] == 100 + lane


@pytest.mark.parametrize("exec_mask", [0, 0b100, ALL_LANES])
def test_write_lane_ignores_exec(exec_mask: int) -> None:
    expected = LANE_NUMBERS.copy()
    expected[33] = 0xDEADBEEF
    state = run("v_writelane_b32 v1, s10, m0", {1: LANE_NUMBERS}, sgprs={10: 0xDEADBEEF}, m0=64 + 33, exec_mask=exec_mask)
    assert (state.vgpr[1] == expected).all()
    assert run("v_writelane_b32 v1, -5, 2", {1: LANE_NUMBERS}).vgpr[1, 2] == 0xFFFF_FFFB


def test_counts_below_the_lane() -> None:
    mask = 0xF0F0_1234_8000_0001
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    below = run("v_mbcnt_lo_u32_b32 v0, s4, v1", {1: 1000}, sgprs={4: low}).vgpr[0]
    total = run("v_mbcnt_hi_u32_b32 v0, s4, v1", {1: below}, sgprs={4: high}).vgpr[0]
    assert list(total) == [1000 + (mask & ((1 << lane) - 1)).bit_count() for lane in range(LANES)]


def test_lane_ids() -> None:
    low = run("v_mbcnt_lo_u32_b32 v0, -1, 0", {}).vgpr[0]
    assert list(run("v_mbcnt_hi_u32_b32 v0, -1, v1", {1: low}).vgpr[0]) == list(range(LANES))
