"""VGPR indexing on both executors, against register numbers worked out here from the ISA document's table."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness import Lab

from rjemu.isa.instruction import EXEC, M0, Instruction

SRC0, SRC1, SRC2, DST = 1, 2, 4, 8
MODE = 0x3F0 | 1 << 27
AGPR = 256


@functools.cache
def lab() -> Lab:
    return Lab("gfx942", MODE)


@functools.cache
def instruction(text: str) -> Instruction:
    return lab().instructions(text)[0]


def run_both(text: str, index: int, enables: int, seed: int = 1) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """(event, vector registers before, after, scalar registers after) where both executors agree on everything."""
    instr, rng = instruction(text), np.random.default_rng(seed)
    before = lab().random_state(rng)
    before.wave.scalars[M0] = index | enables << 12 | 0x5A5A0F00
    before.wave.scalars[EXEC : EXEC + 2] = 0xFFFF00FF, 0x0F0FFFFF
    lab().compare(instr, before)
    after = before.copy()
    return lab().run_reference(instr, after).event, before.wave.vgpr, after.wave.vgpr, after.wave.scalars


def active() -> np.ndarray:
    return np.array([0x0F0FFFFFFFFF00FF >> lane & 1 for lane in range(64)], bool)


def check_written(before: np.ndarray, after: np.ndarray, register: int, value: np.ndarray) -> None:
    """Only `register` changed, to `value` in the active lanes."""
    expected = before.copy()
    expected[register] = np.where(active(), value, before[register])
    assert np.flatnonzero((after != expected).any(axis=1)).tolist() == []


def moved(register: int, index: int, enables: int, bit: int) -> int:
    return register + (index if enables & bit else 0)


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 200), enables=st.integers(0, 15))
def test_every_enable(index: int, enables: int) -> None:
    _, before, after, _ = run_both("v_bfi_b32 v1, v20, v30, v40", index, enables)
    src0, src1, src2, dst = (
        moved(register, index, enables, bit) for register, bit in ((20, SRC0), (30, SRC1), (40, SRC2), (1, DST))
    )
    check_written(before, after, dst, before[src0] & before[src1] | ~before[src0] & before[src2])


@pytest.mark.parametrize("enables", range(16))
def test_scalars_and_constants_do_not_move(enables: int) -> None:
    _, before, after, scalars = run_both("v_xad_u32 v1, s5, v30, 7", 11, enables)
    value = (int(scalars[5]) ^ before[moved(30, 11, enables, SRC1)]) + np.uint32(7)
    check_written(before, after, moved(1, 11, enables, DST), value.astype(np.uint32))


@pytest.mark.parametrize("enables", range(16))
def test_tied_destination_moves_as_destination(enables: int) -> None:
    """v_mac reads and writes the same, moved destination."""
    _, before, after, _ = run_both("v_dot4c_i32_i8 v1, v20, v30", 9, enables)
    x, y, d = (moved(r, 9, enables, bit) for r, bit in ((20, SRC0), (30, SRC1), (1, DST)))
    products = sum(
        (before[x] >> 8 * k).astype(np.uint8).view(np.int8).astype(np.int64)
        * (before[y] >> 8 * k).astype(np.uint8).view(np.int8)
        for k in range(4)
    )
    check_written(before, after, d, (before[d].astype(np.int64) + products).astype(np.uint64).astype(np.uint32))


@pytest.mark.parametrize("enables", range(16))
def test_preserving_sdwa_destination(enables: int) -> None:
    line = "v_mov_b32_sdwa v1, v20 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3"
    _, before, after, _ = run_both(line, 5, enables)
    source, dst = moved(20, 5, enables, SRC0), moved(1, 5, enables, DST)
    check_written(before, after, dst, before[dst] & 0xFFFF | (before[source] >> 24) << 16)


@pytest.mark.parametrize("enables", range(16))
def test_addend_of_fmamk_is_the_third_source(enables: int) -> None:
    _, before, after, _ = run_both("v_fmamk_f32 v1, v20, 0x0, v30", 6, enables)
    plain = run_both("v_fmamk_f32 v1, v20, 0x0, v30", 0, 0)
    assert plain[0] == "none"
    addend = before[moved(30, 6, enables, SRC2)]
    source = before[moved(20, 6, enables, SRC0)]
    dst = moved(1, 6, enables, DST)
    ordinary = active()
    for pattern in (source, addend):  # products with infinities and NaNs, and sums with NaNs and zeros, are not the addend
        exponent = pattern >> 23 & 0xFF
        ordinary = ordinary & (exponent != 255) & (exponent != 0)
    assert (after[dst][ordinary] == addend[ordinary]).all()
    unchanged = np.arange(512) != dst
    assert (after[unchanged] == before[unchanged]).all()


@pytest.mark.parametrize("enables", range(16))
def test_lane_access(enables: int) -> None:
    _, before, after, scalars = run_both("v_readlane_b32 s6, v20, 17", 3, enables)
    assert scalars[6] == before[moved(20, 3, enables, SRC0)][17]
    assert (after == before).all()
    _, before, after, scalars = run_both("v_writelane_b32 v1, s6, 9", 3, enables)
    expected = before.copy()
    expected[moved(1, 3, enables, DST)][9] = scalars[6]
    assert (after == expected).all()


@pytest.mark.parametrize("enables", range(16))
def test_accumulation_registers(enables: int) -> None:
    """An AGPR moves within the AGPRs."""
    _, before, after, _ = run_both("v_accvgpr_read_b32 v1, a20", 7, enables)
    check_written(before, after, moved(1, 7, enables, DST), before[AGPR + moved(20, 7, enables, SRC0)])
    _, before, after, _ = run_both("v_accvgpr_write_b32 a1, v20", 7, enables)
    check_written(before, after, AGPR + moved(1, 7, enables, DST), before[moved(20, 7, enables, SRC0)])
    _, before, after, _ = run_both("v_accvgpr_mov_b32 a1, a20", 7, enables)
    check_written(before, after, AGPR + moved(1, 7, enables, DST), before[AGPR + moved(20, 7, enables, SRC0)])


@pytest.mark.parametrize("enables", range(16))
def test_packed_and_64_bit_operands(enables: int) -> None:
    _, before, after, _ = run_both("v_pk_mov_b32 v[2:3], v[20:21], v[30:31] op_sel:[1,0]", 4, enables)
    first = before[moved(21, 4, enables, SRC0)]
    second = before[moved(30, 4, enables, SRC1)]
    dst = moved(2, 4, enables, DST)
    expected = before.copy()
    expected[dst] = np.where(active(), first, before[dst])
    expected[dst + 1] = np.where(active(), second, before[dst + 1])
    assert (after == expected).all()


@pytest.mark.parametrize("enables", range(16))
def test_swap(enables: int) -> None:
    """Each register where its own role moves it."""
    _, before, after, _ = run_both("v_swap_b32 v1, v20", 8, enables)
    dst, source = moved(1, 8, enables, DST), moved(20, 8, enables, SRC0)
    expected = before.copy()
    expected[dst] = np.where(active(), before[source], before[dst])
    expected[source] = np.where(active(), before[dst], before[source])
    assert (after == expected).all()


def test_memory_and_lds_instructions_do_not_take_part() -> None:
    for line in ("ds_bpermute_b32 v1, v20, v30", "ds_swizzle_b32 v1, v20 offset:0x801b"):
        _, before, after, _ = run_both(line, 5, 15)
        assert np.flatnonzero((after != before).any(axis=1)).tolist() == [1]


@pytest.mark.parametrize(
    ("line", "enables"),
    [
        ("v_mov_b32 v1, v200", SRC0),
        ("v_mov_b32 v200, v1", DST),
        ("v_accvgpr_read_b32 v1, a200", SRC0),
        ("v_accvgpr_write_b32 a200, v1", DST),
        ("v_mov_b64 v[2:3], v[198:199]", SRC0),
    ],
)
def test_out_of_the_file(line: str, enables: int) -> None:
    inside = 55 if "b64" not in line else 56
    assert run_both(line, inside, enables)[0] == "none"
    event, before, after, _ = run_both(line, inside + 1, enables)
    assert event == "illegal"
    assert (after == before).all()


def test_without_enable_bit_in_mode() -> None:
    plain = Lab("gfx942", 0x3F0)
    instr = plain.instructions("v_mov_b32 v1, v20")[0]
    before = plain.random_state(np.random.default_rng(1))
    before.wave.scalars[M0] = 0xF005
    plain.compare(instr, before)
    after = before.copy()
    plain.run_reference(instr, after)
    assert (after.wave.vgpr[6] == before.wave.vgpr[6]).all()
