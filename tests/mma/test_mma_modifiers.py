"""cbsz, abid and blgp as lane permutations, neg of f64, and the index sets of sparse instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.matrix_cases import INDEX, Case, different_cases, legal_indices, product
from support.matrix_runs import new_wave, prepare, run_both

CASES = list(different_cases())
PERMUTED = [c for c in CASES if c.shape.a and not c.shape.sparse and c.result != "f64"]
SPARSE = [c for c in CASES if c.shape.sparse]
F64 = [c for c in CASES if c.result == "f64"]

BLGP_LANES = {
    1: lambda lane: lane % 32,
    2: lambda lane: lane % 32 + 32,
    3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16,
    5: lambda lane: lane % 16 + 16,
    6: lambda lane: lane % 16 + 32,
    7: lambda lane: lane % 16 + 48,
}
"""CDNA4 ISA, table 29."""


def name_of(case: Case) -> str:
    return f"{case.target}-{case.name}"


def wave_for(case: Case, seed: int):
    state = new_wave(seed)
    case.fill_integers(state, np.random.default_rng(seed))
    return state


@pytest.mark.parametrize("case", PERMUTED, ids=name_of)
def test_broadcast_of_a_and_permutation_of_b(case: Case) -> None:
    """Every legal cbsz with the first and the last abid, and every blgp."""
    settings = [(0, 0, blgp) for blgp in BLGP_LANES]
    for cbsz in range(1, case.shape.blocks.bit_length()):
        settings += [(cbsz, 0, 0), (cbsz, (1 << cbsz) - 1, 7)]
    lines = [case.line(modifiers=f"cbsz:{cbsz} abid:{abid} blgp:{blgp}") for cbsz, abid, blgp in settings]
    prepare(lines, case.target)
    lanes = np.arange(64)
    for (cbsz, abid, blgp), line in zip(settings, lines, strict=True):
        state = wave_for(case, 1)
        permuted = wave_for(case, 1)
        size = 64 >> cbsz
        if cbsz:
            permuted.vgpr[case.rows("a")] = state.vgpr[case.rows("a")][:, lanes % size + size * abid]
        if blgp:
            permuted.vgpr[case.rows("b")] = state.vgpr[case.rows("b")][:, BLGP_LANES[blgp](lanes)]
        expected = product(case, permuted) + case.matrix(state, "c")
        run_both(line, state, case.target)
        np.testing.assert_array_equal(case.matrix(state, "d"), expected, err_msg=line)


@pytest.mark.parametrize("case", F64, ids=name_of)
def test_negation_of_f64(case: Case) -> None:
    settings = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    lines = [case.line(modifiers=f"cbsz:1 abid:1 neg:[{a},{b},{c}]") for a, b, c in settings]
    prepare(lines, case.target)
    for (a, b, c), line in zip(settings, lines, strict=True):
        state = wave_for(case, 2)
        expected = product(case, state) * (-1) ** (a + b) + case.matrix(state, "c") * (-1) ** c
        run_both(line, state, case.target)
        np.testing.assert_array_equal(case.matrix(state, "d"), expected, err_msg=line)


@pytest.mark.parametrize("case", F64, ids=name_of)
def test_negation_of_a_constant(case: Case) -> None:
    line = case.line(c="1.0", modifiers="neg:[0,0,1]")
    state = wave_for(case, 3)
    expected = product(case, state) - 1.0
    run_both(line, state, case.target)
    np.testing.assert_array_equal(case.matrix(state, "d"), expected)


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_index_sets(case: Case) -> None:
    """abid selects among the register's index sets while cbsz is 0; what the register does not hold is not there."""
    sets = 32 // (2 * case.shape.k // 2 // (64 // case.shape.m))
    settings = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (2, 3)]
    lines = [case.line(modifiers=f"cbsz:{cbsz} abid:{abid}") for cbsz, abid in settings]
    prepare(lines, case.target)
    for (cbsz, abid), line in zip(settings, lines, strict=True):
        state = wave_for(case, 4)
        chosen = abid % sets if cbsz == 0 else 0
        expected = product(case, state, chosen_set=chosen) + case.matrix(state, "c")
        run_both(line, state, case.target)
        np.testing.assert_array_equal(case.matrix(state, "d"), expected, err_msg=line)


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_index_register_stays_with_the_vgprs(case: Case) -> None:
    """With accumulators in AGPRs the indices still come from a VGPR."""
    agprs = replace(case, accumulators=True)
    state = new_wave(5)
    agprs.fill_integers(state, np.random.default_rng(5))
    state.vgpr[INDEX + 256] = legal_indices(np.random.default_rng(6))
    expected = product(agprs, state) + agprs.matrix(state, "c")
    run_both(agprs.line(), state, case.target)
    np.testing.assert_array_equal(agprs.matrix(state, "d"), expected)


def hardware_b_slot(element: int, group: int, per_lane: int, *, odd: bool) -> tuple[int, int]:
    """(slot, lane group) of the B element that an A element of a gfx950 lane meets, as one-hot experiments on a gfx950
    device found it for 16x16x64_f16 (8 A elements a lane) and 16x16x128_fp8_fp8 (16)."""
    run = per_lane
    slot = run * (group // 2) + 4 * (element % (per_lane // 2) // 2) + element % 2 + (2 if odd else 0)
    return slot, 2 * (group % 2) + element // (per_lane // 2)


@pytest.mark.parametrize("odd", [False, True], ids=["positions 0,1", "positions 2,3"])
@pytest.mark.parametrize("name", ["v_smfmac_f32_16x16x64_f16", "v_smfmac_f32_16x16x128_fp8_fp8"])
def test_sparse_pairing_seen_on_hardware(name: str, odd: bool) -> None:
    case = next(case for case in SPARSE if case.name == name)
    one, width = (0x3C00, 16) if case.a == "f16" else (0x38, 8)
    per_lane = 128 // width
    for group in range(4):
        for element in range(per_lane):
            slot, b_group = hardware_b_slot(element, group, per_lane, odd=odd)
            state = new_wave(7)
            for role in "abc":
                state.vgpr[case.rows(role)] = 0
            state.vgpr[INDEX] = 0xEEEEEEEE if odd else 0x44444444
            register, shift = divmod(element * width, 32)
            state.vgpr[case.rows("a").start + register, 16 * group] = one << shift
            register, shift = divmod(slot * width, 32)
            state.vgpr[case.rows("b").start + register, 16 * b_group] = one << shift
            run_both(case.line(), state, case.target)
            d = case.matrix(state, "d")[0]
            assert d[0, 0] == 1.0 and np.count_nonzero(d) == 1


def test_undefined_broadcasts_do_not_stop_the_emulator() -> None:
    case = next(case for case in PERMUTED if case.name == "v_mfma_f32_32x32x8_f16")
    for cbsz in (4, 7):
        run_both(case.line(modifiers=f"cbsz:{cbsz} abid:15"), wave_for(case, 8), case.target)
