"""Hardware registers, vector register indexing and relative moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scalar_runs import filler, run
from support.vector_runs import prepare

from rjemu.isa.instruction import M0

GPR_IDX_EN, VSKIP = 1 << 27, 1 << 28
FIELDS = [(0, 32), (0, 4), (4, 4), (31, 1), (28, 4), (3, 17)]


def hwreg(name: str, offset: int, size: int) -> str:
    return f"hwreg({name}, {offset}, {size})"


@pytest.mark.parametrize(
    ("register", "word"),
    [
        ("HW_REG_MODE", "mode"),
        ("HW_REG_TRAPSTS", "trapsts"),
        ("HW_REG_HW_ID", "hw_id"),
        ("HW_REG_GPR_ALLOC", "gpr_alloc"),
        ("HW_REG_LDS_ALLOC", "lds_alloc"),
        ("HW_REG_IB_STS", "ib_sts"),
        ("HW_REG_XCC_ID", "xcc_id"),
    ],
)
def test_reading_hardware_registers(register: str, word: str) -> None:
    value = 0xC3A5_1E78
    for offset, size in FIELDS:
        out = run(f"s_getreg_b32 s10, {hwreg(register, offset, size)}", hardware={word: value}, mode=value)
        assert out.s(10) == value >> offset & ((1 << size) - 1)


def test_status_follows_scc_exec_and_vcc() -> None:
    read = "s_getreg_b32 s10, hwreg(HW_REG_STATUS)"
    assert run(read, scc=1, exec_mask=0, vcc=0).s(10) == 1 | 1 << 9 | 1 << 10
    assert run(read, scc=0, exec_mask=1, vcc=1, hardware={"status": 1 << 16 | 1 | 1 << 9}).s(10) == 1 << 16


def test_apertures() -> None:
    """SH_MEM_BASES holds address bits 63:48 of the private aperture (low half) and of the shared one."""
    out = run("s_getreg_b32 s10, hwreg(HW_REG_SH_MEM_BASES)")
    shared = run("s_mov_b64 s[10:11], src_shared_base").s64(10)
    private = run("s_mov_b64 s[10:11], src_private_base").s64(10)
    assert out.s(10) == shared >> 48 << 16 | private >> 48


def test_registers_that_a_wave_has_no_use_for_read_as_zero() -> None:
    assert run("s_getreg_b32 s10, hwreg(HW_REG_TBA_LO)").s(10) == 0


@pytest.mark.parametrize(("offset", "size"), FIELDS)
def test_writing_mode(offset: int, size: int) -> None:
    old, new = 0x0123_45F0, 0xFEDC_BA98
    mask = ((1 << size) - 1) << offset & 0xFFFF_FFFF
    expected = old & ~mask | new << offset & mask
    place = hwreg("HW_REG_MODE", offset, size)
    assert run(f"s_setreg_b32 {place}, s20", {20: new}, mode=old).state.word("mode") == expected
    assert run(f"s_setreg_imm32_b32 {place}, {new:#x}", mode=old).state.word("mode") == expected


def test_writing_other_registers() -> None:
    out = run("s_setreg_b32 hwreg(HW_REG_TRAPSTS, 0, 9), s20", {20: 0}, hardware={"trapsts": 0xFFFF})
    assert (out.state.word("trapsts"), out.state.word("mode")) == (0xFE00, 0x3F0)
    for name in ("STATUS", "HW_ID", "GPR_ALLOC", "LDS_ALLOC", "IB_STS", "XCC_ID", "SH_MEM_BASES"):
        before, after = run("s_nop 0", {20: 123}), run(f"s_setreg_b32 hwreg(HW_REG_{name}), s20", {20: 123})
        assert (before.state.memory == after.state.memory).all(), name


def test_register_indexing_mode() -> None:
    out = run("s_set_gpr_idx_on s20, gpr_idx(SRC0,DST)", {20: 0x1234}, m0=0xABCD_EF01)
    assert (out.state.scalars[M0], out.state.word("mode")) == (0xABCD_9F34, 0x3F0 | GPR_IDX_EN)
    out = run("s_set_gpr_idx_off", mode=0x3F0 | GPR_IDX_EN, m0=5)
    assert (out.state.scalars[M0], out.state.word("mode")) == (5, 0x3F0)
    out = run("s_set_gpr_idx_idx s20", {20: 0x1234}, m0=0xABCD_EF01)
    assert (out.state.scalars[M0], out.state.word("mode")) == (0xABCD_EF34, 0x3F0)
    out = run("s_set_gpr_idx_mode gpr_idx(SRC1,SRC2)", m0=0xABCD_EF01)
    assert (out.state.scalars[M0], out.state.word("mode")) == (0xABCD_6F01, 0x3F0)


@pytest.mark.parametrize("was", [0, VSKIP])
def test_skipping_vector_instructions_is_a_bit_of_mode(was: int) -> None:
    for text, sgprs, expected in (
        ("s_setvskip s20, 3", {20: 0b1000}, VSKIP),
        ("s_setvskip s20, 35", {20: 0b1000}, VSKIP),
        ("s_setvskip s20, s21", {20: 0b0111, 21: 3}, 0),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 28, 1), 1", {}, VSKIP),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 28, 1), 0", {}, 0),
    ):
        assert run(text, sgprs, mode=0x3F0 | was).state.word("mode") == 0x3F0 | expected


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 60), value=st.integers(0, (1 << 64) - 1))
def test_relative_moves(index: int, value: int) -> None:
    prepare(
        [
            "s_movrels_b32 s10, s20",
            "s_movrels_b64 s[10:11], s[20:21]",
            "s_movreld_b32 s20, s10",
            "s_movreld_b64 s[20:21], s[10:11]",
        ],
        "gfx950",
    )
    even = index & ~1
    at = {20 + even: value}
    assert run("s_movrels_b32 s10, s20", wide=at, m0=even).s(10) == value & 0xFFFF_FFFF
    assert run("s_movrels_b64 s[10:11], s[20:21]", wide=at, m0=even).s64(10) == value
    untouched = filler()
    out = run("s_movreld_b32 s20, s10", wide={10: value}, m0=index)
    assert out.s(20 + index) == value & 0xFFFF_FFFF
    assert out.s(21 + index) == untouched[21 + index]
    out = run("s_movreld_b64 s[20:21], s[10:11]", wide={10: value}, m0=even)
    assert out.s64(20 + even) == value
    assert out.s(22 + even) == untouched[22 + even]
