"""Every matrix instruction on small whole numbers, where every sum is exact: layouts, operand kinds, overlaps, EXEC."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.matrix_cases import C, Case, D, all_cases, different_cases, product
from support.matrix_runs import decode, moved, new_wave, prepare, run_both, run_instruction

from rjemu.mma.geometry import F8F6F4_FORMATS, INSTRUCTIONS

CASES = list(all_cases())
DIFFERENT = list(different_cases())
DENSE = [case for case in DIFFERENT if not case.shape.sparse]
CONSTANTS = {"f32": ("0", 0.0), "f64": ("-4.0", -4.0), "i32": ("-16", -16)}
SCALE_OF_ONE = 0x7F7F7F7F


def name_of(case: Case) -> str:
    return f"{case.target}-{case.name}-{case.a}-{case.b}"


@pytest.fixture(scope="module", autouse=True)
def _assembled() -> None:
    for target in INSTRUCTIONS:
        mine = [case for case in CASES if case.target == target]
        lines = [case.line() for case in mine]
        lines += [replace(case, accumulators=True, agpr_inputs=True).line() for case in mine]
        lines += [case.line(c=CONSTANTS[case.result][0]) for case in mine if not case.shape.sparse]
        lines += [case.line(c_first=D) for case in mine if not case.shape.sparse]
        prepare(lines, target)


def wave_for(case: Case, seed: int, **settings: int):
    state = new_wave(seed, **settings)
    case.fill_integers(state, np.random.default_rng(seed))
    if case.shape.scaled:
        state.vgpr[100:102] = SCALE_OF_ONE
    return state


def check(case: Case, line: str, seed: int, c: float | None = None, **settings: int) -> None:
    state = wave_for(case, seed, **settings)
    before = state.vgpr.copy()
    expected = product(case, state) + (case.matrix(state, "c") if c is None else c)
    run_both(line, state, case.target)
    actual = case.matrix(state, "d")
    np.testing.assert_array_equal(actual, expected.astype(actual.dtype))
    untouched = np.ones(512, bool)
    untouched[case.rows("d")] = False
    np.testing.assert_array_equal(state.vgpr[untouched], before[untouched])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_vgprs(case: Case) -> None:
    check(case, case.line(), 1)


@pytest.mark.parametrize("case", DIFFERENT, ids=name_of)
def test_agprs_and_partial_exec(case: Case) -> None:
    """All four operands in AGPRs; lanes that EXEC disables take part and are written all the same."""
    agprs = replace(case, accumulators=True, agpr_inputs=True)
    check(agprs, agprs.line(), 2, exec_mask=0x8000_0000_00F0_0001)


@pytest.mark.parametrize("case", DENSE, ids=name_of)
def test_constant_c(case: Case) -> None:
    text, value = CONSTANTS[case.result]
    check(case, case.line(c=text), 3, c=value)


@pytest.mark.parametrize("case", DENSE, ids=name_of)
def test_accumulate_in_place(case: Case) -> None:
    state = wave_for(case, 4)
    state.vgpr[D : D + case.d_registers] = state.vgpr[C : C + case.d_registers]
    expected = product(case, state) + case.matrix(state, "c")
    run_both(case.line(c_first=D), state, case.target)
    np.testing.assert_array_equal(case.matrix(state, "d"), expected)


@pytest.mark.parametrize("first", [30, 34, 60, 64, 66, 80])
@pytest.mark.parametrize("name", ["v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x4_4b_f16", "v_mfma_f64_16x16x4_f64"])
def test_overlapping_registers(name: str, first: int) -> None:
    """All operands are read before D is written, whichever of them D overlaps (the assembler refuses some of these)."""
    case = next(case for case in CASES if case.name == name)
    state = wave_for(case, first)
    expected = product(case, state) + case.matrix(state, "c")
    run_instruction(moved(decode(case.line(), case.target), {"vdst": first}), state, case.target)
    state.vgpr[D : D + case.d_registers] = state.vgpr[first : first + case.d_registers].copy()
    np.testing.assert_array_equal(case.matrix(state, "d"), expected)


@pytest.mark.parametrize("size", ["16x16x128", "32x32x64"])
def test_f8f6f4_format_pairs(size: str) -> None:
    for form in ("v_mfma_f32", "v_mfma_scale_f32"):
        cases = [Case("gfx950", f"{form}_{size}_f8f6f4", a, b) for a in F8F6F4_FORMATS for b in F8F6F4_FORMATS]
        prepare([case.line() for case in cases], "gfx950")
        for case in cases:
            check(case, case.line(), 5)
