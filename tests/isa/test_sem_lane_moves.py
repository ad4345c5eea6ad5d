"""Moves between lanes and register files, against the ISA document's wording."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vector_runs import AGPR, ALL_LANES, filler, prepare, run

MASKS = [ALL_LANES, 0x00000000FFFFFFFF, 0x5555555555555555, 0x8000000000000001, 0xF0F0F0F00F0F0F0F, 0]
masks = st.one_of(st.sampled_from(MASKS), st.integers(0, ALL_LANES))


def active(mask: int, lane: int) -> bool:
    return bool(mask >> lane & 1)


# --- v_permlane16_swap, v_permlane32_swap -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [16, 32])
def test_swap(rows: int) -> None:
    state = run(f"v_permlane{rows}_swap_b32 v1, v2", {})
    vdst, src = filler()[1].copy(), filler()[2].copy()
    for lane in range(64):
        if not lane & rows:
            src[lane], vdst[lane + rows] = vdst[lane + rows], src[lane]
    assert (state.vgpr[1] == vdst).all()
    assert (state.vgpr[2] == src).all()


@settings(max_examples=40, deadline=None)
@given(rows=st.sampled_from([16, 32]), mask=masks, bound_ctrl=st.booleans(), fi=st.booleans())
def test_swap_of_partly_active_rows(rows: int, mask: int, bound_ctrl: bool, fi: bool) -> None:
    text = (" bound_ctrl:1" if bound_ctrl else "") + (" fi:1" if fi else "")
    state = run(f"v_permlane{rows}_swap_b32_e64 v1, v2{text}", {}, exec_mask=mask)
    old = {1: filler()[1], 2: filler()[2]}
    for lane in range(64):
        register, other = (1, 2) if lane & rows else (2, 1)
        partner = lane ^ rows
        expected = old[register][lane]
        if active(mask, lane) and (active(mask, partner) or fi):
            expected = old[other][partner]
        elif active(mask, lane) and bound_ctrl:
            expected = 0
        assert state.vgpr[register][lane] == expected
        assert state.vgpr[other][lane] == old[other][lane]


# --- ds_permute, ds_bpermute ------------------------------------------------------------------------------------------

addresses = st.lists(st.integers(0, 0xFFFFFFFF), min_size=64, max_size=64)


@settings(max_examples=30, deadline=None)
@given(mask=masks, address=addresses, offset=st.sampled_from([0, 4, 252, 0xFFFC, 7]))
def test_bpermute(mask: int, address: list[int], offset: int) -> None:
    state = run(f"ds_bpermute_b32 v1, v2, v3 offset:{offset}", {2: address}, exec_mask=mask)
    for lane in range(64):
        source = (address[lane] + offset) % (1 << 32) // 4 % 64
        pulled = filler()[3][source] if active(mask, source) else 0
        assert state.vgpr[1][lane] == (pulled if active(mask, lane) else filler()[1][lane])


@settings(max_examples=30, deadline=None)
@given(mask=masks, address=addresses, offset=st.sampled_from([0, 4, 0xFFFC]))
def test_permute(mask: int, address: list[int], offset: int) -> None:
    """The highest of several sources of a lane wins; a lane that nobody names gets 0."""
    state = run(f"ds_permute_b32 v1, v2, v3 offset:{offset}", {2: address}, exec_mask=mask)
    pushed = np.zeros(64, np.uint32)
    for lane in range(64):
        if active(mask, lane):
            pushed[(address[lane] + offset) % (1 << 32) // 4 % 64] = filler()[3][lane]
    assert state.vgpr[1].tolist() == [int((pushed if active(mask, i) else filler()[1])[i]) for i in range(64)]


def test_examples_of_the_document() -> None:
    """Four lanes of the ISA document's examples; the others are off."""
    vgprs = {1: [0xFF], 2: [0, 0, 12, 4], 3: [0xA, 0xB, 0xC, 0xD]}
    assert run("ds_permute_b32 v1, v2, v3", vgprs, exec_mask=0xF).vgpr[1][:4].tolist() == [0xB, 0xD, 0, 0xC]
    assert run("ds_permute_b32 v1, v2, v3", vgprs, exec_mask=0xA).vgpr[1][:4].tolist() == [0xFF, 0xD, 0xFF, 0]
    assert run("ds_bpermute_b32 v1, v2, v3", vgprs, exec_mask=0xF).vgpr[1][:4].tolist() == [0xA, 0xA, 0xD, 0xB]
    assert run("ds_bpermute_b32 v1, v2, v3", vgprs, exec_mask=0xA).vgpr[1][:4].tolist() == [0xFF, 0, 0xFF, 0xB]


# --- ds_swizzle -------------------------------------------------------------------------------------------------------

IN_ORDER = np.arange(1, 65, dtype=np.uint32)
FIRST_HALF = {
    "swizzle(FFT,0)": "1 11 9 19 5 15 d 1d 3 13 b 1b 7 17 f 1f 2 12 a 1a 6 16 e 1e 4 14 c 1c 8 18 10 20",
    "swizzle(FFT,0x10)": "1 9 5 d 3 b 7 f 2 a 6 e 4 c 8 10 11 19 15 1d 13 1b 17 1f 12 1a 16 1e 14 1c 18 20",
    "swizzle(FFT,0x1f)": " ".join(f"{k:x}" for k in range(1, 33)),
    "swizzle(ROTATE,0,1)": " ".join(f"{k:x}" for k in [*range(2, 33), 1]),
    "swizzle(ROTATE,1,1)": " ".join(f"{k:x}" for k in [32, *range(1, 32)]),
    "0xc021": "1 4 3 6 5 8 7 a 9 c b e d 10 f 12 11 14 13 16 15 18 17 1a 19 1c 1b 1e 1d 20 1f 2",
    "0xc421": "1f 2 1 4 3 6 5 8 7 a 9 c b e d 10 f 12 11 14 13 16 15 18 17 1a 19 1c 1b 1e 1d 20",
}
"""The ISA document's examples: what each of 32 lanes reads, counted from 1 (in hexadecimal)."""


@pytest.mark.parametrize("offset", FIRST_HALF)
def test_swizzle_examples(offset: str) -> None:
    got = run(f"ds_swizzle_b32 v1, v2 offset:{offset}", {2: IN_ORDER}).vgpr[1]
    expected = [int(k, 16) for k in FIRST_HALF[offset].split()]
    assert got[:32].tolist() == expected
    assert got[32:].tolist() == [k + 32 for k in expected]


def swizzle_source(offset: int, lane: int) -> int:
    """The lane that a lane reads, from the ISA document's formulas."""
    inner, group = lane & 31, lane & 32
    if offset >= 0xE000:
        mask = offset & 31
        return int(f"{inner:05b}"[::-1], 2) >> mask.bit_count() | inner & mask | group
    if offset >= 0xC000:
        distance, mask = offset >> 5 & 31, offset & 31
        distance = -distance if offset >> 10 & 1 else distance
        return (inner & mask | (inner + distance) & ~mask) & 31 | group
    if offset >= 0x8000:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    return (inner & offset & 31 | offset >> 5 & 31) ^ (offset >> 10 & 31) | group


@settings(max_examples=80, deadline=None)
@given(mask=masks, offset=st.integers(0, 0xFFFF))
def test_swizzle(mask: int, offset: int) -> None:
    state = run(f"ds_swizzle_b32 v1, v2 offset:{offset}", {}, exec_mask=mask)
    for lane in range(64):
        source = swizzle_source(offset, lane)
        moved = filler()[2][source] if active(mask, source) else 0
        assert state.vgpr[1][lane] == (moved if active(mask, lane) else filler()[1][lane])


# --- AGPRs ------------------------------------------------------------------------------------------------------------


def test_accumulation_registers() -> None:
    mask = 0x00FF00FF00FF00FF
    prepare(["v_accvgpr_read_b32 v1, a2", "v_accvgpr_write_b32 a1, v2", "v_accvgpr_mov_b32 a1, a2"], "gfx942")
    for line, to, source in (
        ("v_accvgpr_read_b32 v1, a2", 1, AGPR + 2),
        ("v_accvgpr_write_b32 a1, v2", AGPR + 1, 2),
        ("v_accvgpr_mov_b32 a1, a2", AGPR + 1, AGPR + 2),
    ):
        state = run(line, {}, target="gfx942", exec_mask=mask)
        old, new = filler()[to], filler()[source]
        assert state.vgpr[to].tolist() == [int((new if active(mask, i) else old)[i]) for i in range(64)]
        unchanged = np.arange(512) != to
        assert (state.vgpr[unchanged] == filler()[unchanged]).all()
    assert (run("v_accvgpr_write_b32 a1, -3", {}).vgpr[AGPR + 1] == 0xFFFFFFFD).all()
    assert (run("v_accvgpr_write_b32 a1, s3", {}, sgprs={3: 77}).vgpr[AGPR + 1] == 77).all()
