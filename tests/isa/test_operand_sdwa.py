"""SDWA selections, sign extension, destination placement and modifiers, against arithmetic on Python integers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.vector_runs import DEFAULT_MODE, NO_IEEE_NO_DENORMALS, f16, f32, filler, mask_of, prepare, run

from rjemu.isa.instruction import VCC

FIELDS = {"BYTE_0": (8, 0), "BYTE_1": (8, 8), "BYTE_2": (8, 16), "BYTE_3": (8, 24), "WORD_0": (16, 0), "WORD_1": (16, 16)}
FIELDS |= {"DWORD": (32, 0)}
"""Selection -> (bits, position)."""

UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
EXEC = 0x0F0F0F0F12345678


def selected(word: int, selection: str, signed: bool = False) -> int:
    """The selected part of a dword, extended to 32 bits."""
    width, position = FIELDS[selection]
    part = word >> position & ((1 << width) - 1)
    if signed and part >> (width - 1):
        part -= 1 << width
    return part & 0xFFFFFFFF


def placed(result: int, selection: str, unused: str, old: int) -> int:
    """The destination's new value."""
    width, position = FIELDS[selection]
    field = ((1 << width) - 1) << position
    part = result << position & field
    if unused == "UNUSED_PRESERVE":
        return old & ~field & 0xFFFFFFFF | part
    if unused == "UNUSED_SEXT" and part >> (position + width - 1) & 1:
        return part | (0xFFFFFFFF << (position + width) & 0xFFFFFFFF)
    return part


def lanes_of(register: int) -> list[int]:
    return filler()[register].tolist()


@pytest.mark.parametrize("signed", [False, True])
def test_source_selections(signed: bool) -> None:
    pairs = list(product(FIELDS, FIELDS))
    left, right = ("sext(v2)", "sext(v3)") if signed else ("v2", "v3")
    lines = [
        f"v_add_u32_sdwa v1, {left}, {right} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{a} src1_sel:{b}" for a, b in pairs
    ]
    prepare(lines, "gfx950")
    for line, (first, second) in zip(lines, pairs, strict=True):
        expected = [
            (selected(x, first, signed) + selected(y, second, signed)) & 0xFFFFFFFF
            for x, y in zip(lanes_of(2), lanes_of(3), strict=True)
        ]
        assert run(line, {}).vgpr[1].tolist() == expected, line


def test_destination_placement() -> None:
    cases = list(product(FIELDS, UNUSED))
    lines = [f"v_xor_b32_sdwa v1, v2, v3 dst_sel:{d} dst_unused:{u} src0_sel:WORD_1 src1_sel:DWORD" for d, u in cases]
    prepare(lines, "gfx950")
    for line, (selection, unused) in zip(lines, cases, strict=True):
        got = run(line, {}, exec_mask=EXEC).vgpr[1].tolist()
        for lane, (old, x, y) in enumerate(zip(lanes_of(1), lanes_of(2), lanes_of(3), strict=True)):
            new = placed(selected(x, "WORD_1") ^ y, selection, unused, old)
            assert got[lane] == (new if EXEC >> lane & 1 else old), (line, lane)


def test_one_source_in_two_registers() -> None:
    """The destination may be a source: the old value serves both."""
    line = "v_mov_b32_sdwa v2, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3"
    got = run(line, {}).vgpr[2].tolist()
    assert got == [placed(selected(x, "BYTE_3"), "BYTE_1", "UNUSED_PRESERVE", x) for x in lanes_of(2)]


def test_scalar_source() -> None:
    line = "v_add_u32_sdwa v1, s4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:BYTE_0"
    got = run(line, {}, sgprs={4: 0x00FE0000}).vgpr[1].tolist()
    assert got == [0xFE + (y & 0xFF) for y in lanes_of(3)]


@pytest.mark.parametrize("unused", UNUSED)
@pytest.mark.parametrize("selection", FIELDS)
def test_half_results(selection: str, unused: str) -> None:
    """A 16-bit result counts as 32 bits with a zero high half."""
    line = f"v_cvt_f16_f32_sdwa v1, v2 dst_sel:{selection} dst_unused:{unused} src0_sel:DWORD"
    values = (np.arange(64, dtype=np.float32) - 20) * np.float32(1.37)
    got = run(line, {2: f32(values)}).vgpr[1].tolist()
    halves = f16(values.astype(np.float16)).tolist()
    assert got == [placed(h, selection, unused, old) for h, old in zip(halves, lanes_of(1), strict=True)]


def test_float_modifiers() -> None:
    """abs and neg act on the selected part as the instruction's float type."""
    line = "v_add_f16_sdwa v1, -|v2|, -v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0"
    x, y = np.arange(64) - 32, np.arange(64) / 4
    got = run(line, {1: 0xABCD1234, 2: f16(x) << 16 | 0x7E00, 3: f16(y) | 0x12340000}).vgpr[1]
    expected = (-np.abs(x.astype(np.float16)) - y.astype(np.float16)).astype(np.float16)
    assert got.tolist() == [int(h) << 16 | 0x1234 for h in f16(expected)]


def test_clamp_and_omod() -> None:
    line = "v_mul_f32_sdwa v1, v2, v3 clamp dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
    got = run(line, {2: f32([4.0, -1.0, 0.25, np.nan]), 3: f32([1.0])}).vgpr[1]
    assert got.view(np.float32).tolist()[:4] == [1.0, 0.0, 0.25, 0.0]
    line = "v_mul_f32_sdwa v1, v2, v3 mul:4 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
    for mode, factor in ((DEFAULT_MODE, 1.0), (NO_IEEE_NO_DENORMALS, 4.0)):
        got = run(line, {2: f32([3.0]), 3: f32([1.5])}, mode=mode).vgpr[1]
        assert got.view(np.float32)[0] == 4.5 * factor


def test_compare() -> None:
    lines = [
        f"v_cmp_lt_i32_sdwa vcc, sext(v2), sext(v3) src0_sel:{a} src1_sel:{b}"
        for a, b in product(FIELDS, ("BYTE_1", "DWORD"))
    ]
    prepare(lines, "gfx950")
    for line, (first, second) in zip(lines, product(FIELDS, ("BYTE_1", "DWORD")), strict=True):
        bits = 0
        for lane, (x, y) in enumerate(zip(lanes_of(2), lanes_of(3), strict=True)):
            left, right = (np.uint32(selected(w, s, True)).view(np.int32) for w, s in ((x, first), (y, second)))
            bits |= int(left < right) << lane
        assert mask_of(run(line, {}, exec_mask=EXEC), VCC) == bits & EXEC, line


def test_compare_floats_into_sgprs() -> None:
    line = "v_cmp_gt_f16_sdwa s[6:7], -v2, |v3| src0_sel:WORD_1 src1_sel:WORD_0"
    x, y = np.arange(64) - 50, np.where(np.arange(64) % 2, 20.0, -20.0)
    state = run(line, {2: f16(x) << 16, 3: f16(y)})
    assert mask_of(state, 6) == sum(1 << lane for lane in range(64) if -x[lane] > 20)
