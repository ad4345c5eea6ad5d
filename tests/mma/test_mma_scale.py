"""Block scales: their lanes, the byte that op_sel selects, their whole range, NaN, and constants in their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.matrix_cases import SCALE_A, SCALE_B, Case
from support.matrix_oracle import fma_chain
from support.matrix_runs import decode, new_wave, prepare, run_both, run_instruction

from rjemu.isa.instruction import Operand
from rjemu.mma.geometry import F8F6F4_FORMATS

SIZES = ["16x16x128", "32x32x64"]
NAN = 0x7FC00000


def scaled_case(size: str, a: str = "fp8", b: str = "fp4") -> Case:
    return Case("gfx950", f"v_mfma_scale_f32_{size}_f8f6f4", a, b)


def scale_codes(words: np.ndarray, byte: int, dim: int) -> np.ndarray:
    """E8M0 codes [dim, k / 32]: lane = row + dim * block (CDNA4 ISA, 7.2.1, scale data layout)."""
    return (words >> 8 * byte & 0xFF).reshape(64 // dim, dim).T.astype(int)


def expected_bits(case: Case, state, position: tuple[int, int], a_byte: int, b_byte: int) -> int:
    """C plus, for each 32 k, the fused sum of products times 2^(scales)."""
    i, j = position
    a, b = case.matrix(state, "a")[0].astype(np.float64), case.matrix(state, "b")[0].astype(np.float64)
    a_codes = scale_codes(state.vgpr[SCALE_A], a_byte, case.shape.m)
    b_codes = scale_codes(state.vgpr[SCALE_B], b_byte, case.shape.n)
    total = np.float32(case.matrix(state, "c")[0, i, j])
    for block in range(case.shape.k // 32):
        k = slice(32 * block, 32 * block + 32)
        partial = fma_chain(0.0, zip(a[i, k], b[j, k], strict=True))
        codes = a_codes[i, block], b_codes[j, block]
        # A scaled sum below f64's range is far below half of f32's smallest denormal: zero either way.
        factor = np.nan if 255 in codes else 2.0 ** (sum(codes) - 254)
        with np.errstate(all="ignore"):
            total = np.float32(total + np.float32(partial * factor))
    return NAN if np.isnan(total) else int(total.view(np.uint32))


def check(case: Case, line: str, state, seed: int, a_byte: int = 0, b_byte: int = 0, count: int = 40) -> None:
    rng = np.random.default_rng(seed)
    positions = [tuple(int(x) for x in rng.integers(0, (case.shape.m, case.shape.n))) for _ in range(count)]
    wanted = {p: hex(expected_bits(case, state, p, a_byte, b_byte)) for p in positions}
    run_both(line, state, case.target)
    bits = case.matrix(state, "d")[0].view(np.uint32)
    assert {p: hex(bits[p]) for p in positions} == wanted


def wave_with_scales(seed: int, low: int, high: int):
    state = new_wave(seed)
    codes = np.random.default_rng(seed).integers(low, high, (2, 64, 4), np.uint8, endpoint=True)
    state.vgpr[[SCALE_A, SCALE_B]] = codes.view(np.uint32)[:, :, 0]
    return state


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("a", F8F6F4_FORMATS)
@pytest.mark.parametrize("b", F8F6F4_FORMATS)
def test_scales_near_one(size: str, a: str, b: str) -> None:
    case = scaled_case(size, a, b)
    state = wave_with_scales(1, 120, 134)
    for role in "ab":
        if case.input_registers(role) == 8:
            state.vgpr[case.rows(role)] &= 0x3F3F3F3F
    check(case, case.line(), state, 1)


@pytest.mark.parametrize("size", SIZES)
def test_byte_selection(size: str) -> None:
    case = scaled_case(size, "fp4", "fp6")
    choices = [(a, b) for a in range(4) for b in range(4)]
    lines = [case.line(modifiers=f"op_sel:[{a & 1},{b & 1},0] op_sel_hi:[{a >> 1},{b >> 1},0]") for a, b in choices]
    prepare(lines, case.target)
    for (a, b), line in zip(choices, lines, strict=True):
        check(case, line, wave_with_scales(2, 110, 140), 2, a, b, count=10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("a", ["fp8", "bf8", "fp4"])
def test_all_scales_and_all_elements(size: str, a: str) -> None:
    """Scale codes over their whole range, NaN among them, with any bits as elements and C."""
    case = scaled_case(size, a, "bf6")
    for seed in range(3, 7):
        check(case, case.line(), wave_with_scales(seed, 0, 255), seed)


@pytest.mark.parametrize("size", SIZES)
def test_scales_that_cancel(size: str) -> None:
    """Extreme scales of opposite sign leave moderate values: nothing overflows or is flushed on the way."""
    case = scaled_case(size, "fp4", "fp4")
    for a_code, b_code in ((254, 0), (0, 254), (250, 4), (1, 253)):
        state = new_wave(8)
        state.vgpr[SCALE_A], state.vgpr[SCALE_B] = a_code, b_code
        state.vgpr[case.rows("c")] &= 0x3FFFFFFF
        check(case, case.line(), state, 8)


@pytest.mark.parametrize("side", [0, 1], ids=["a", "b"])
@pytest.mark.parametrize("size", SIZES)
def test_one_nan_scale_spoils_its_row_or_column(size: str, side: int) -> None:
    case = scaled_case(size, "fp4", "fp4")
    state = wave_with_scales(9, 127, 127)
    state.vgpr[case.rows("c")] = 0
    dim = case.shape.m if side == 0 else case.shape.n
    state.vgpr[(SCALE_A, SCALE_B)[side], dim + 3] = 0xFF
    run_both(case.line(), state, case.target)
    nan = np.isnan(case.matrix(state, "d")[0])
    spoiled = nan[3] if side == 0 else nan[:, 3]
    assert spoiled.all() and nan.sum() == dim


def test_constant_scales() -> None:
    """Of an inline float constant the exponent counts (CDNA4 ISA, 7.2.1); the assembler at hand takes registers only."""
    case = scaled_case("16x16x128", "fp4", "fp4")
    instr = decode(case.line(modifiers="op_sel:[1,1,0]"), case.target)
    constants = {
        "scale_src0": Operand("scale_src0", "k", 244, 32, "b32", 0x40000000),
        "scale_src1": Operand("scale_src1", "k", 241, 32, "b32", 0xBF000000),
    }
    constant = replace(instr, operands=tuple(constants.get(op.name, op) for op in instr.operands))
    state = wave_with_scales(10, 127, 127)
    reference = wave_with_scales(10, 127, 127)
    run_instruction(constant, state, case.target)
    run_both(case.line(), reference, case.target)
    np.testing.assert_array_equal(state.vgpr[case.rows("d")], reference.vgpr[case.rows("d")])
