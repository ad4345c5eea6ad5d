"""Matrix arithmetic bit by bit: order of the steps, roundings, denormals, infinities and NaN, whatever MODE says."""

from __future__ import annotations

import numpy as np
import pytest
from support.matrix_cases import A, B, C, Case, different_cases, product
from support.matrix_oracle import fma_chain
from support.matrix_runs import new_wave, prepare, run_both
from support.vector_runs import DEFAULT_MODE

from rjemu.mma.geometry import INSTRUCTIONS

CASES = list(different_cases())
FLOATS = [case for case in CASES if case.result != "i32" and not case.shape.scaled]
INTEGERS = [case for case in CASES if case.result == "i32"]
FP16_OVFL = 1 << 23
FLUSHING_ROUNDING_UP = 0x305
"""MODE: both roundings towards +infinity, all denormals flushed."""


def name_of(case: Case) -> str:
    return f"{case.target}-{case.name}"


@pytest.fixture(scope="module", autouse=True)
def _assembled() -> None:
    for target in INSTRUCTIONS:
        prepare([case.line() for case in CASES if case.target == target], target)


def xf32(values: np.ndarray) -> np.ndarray:
    """f32 rounded to 10 fraction bits, ties to even, by way of exact f64 scaling."""
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(wide)
        exponent = np.maximum(exponent, -125)
        rounded = np.ldexp(np.rint(np.ldexp(wide, 11 - exponent)), exponent - 11)
    return np.where(np.isfinite(wide) & (fraction != 0), rounded, wide)


def sampled_outputs(case: Case, rng: np.random.Generator, count: int = 24) -> list[tuple[int, int, int]]:
    shape = case.shape
    return [tuple(int(x) for x in rng.integers(0, (shape.blocks, shape.m, shape.n))) for _ in range(count)]


def expected_bits(case: Case, state, position: tuple[int, int, int], operands=None) -> int:
    """The result's pattern for one element, from the fused steps in ascending k."""
    block, i, j = position
    a, b, c = operands or (case.matrix(state, "a"), case.matrix(state, "b"), case.matrix(state, "c"))
    column = case.dense_k(state)[i] if case.shape.sparse else np.arange(case.shape.k)
    with np.errstate(invalid="ignore"):
        left, right = a[block, i].astype(np.float64), b[block, j].astype(np.float64)[column]
    if "xf32" in (case.a, case.b):
        left, right = xf32(left), xf32(right)
    double = case.result == "f64"
    total = fma_chain(float(c[block, i, j]), zip(left, right, strict=True), double=double)
    dtype, store = (np.float64, np.uint64) if double else (np.float32, np.uint32)
    if np.isnan(total):
        return 0x7FF8000000000000 if double else 0x7FC00000
    return int(np.array(total, dtype).view(store))


def check(case: Case, state, rng: np.random.Generator) -> None:
    operands = (case.matrix(state, "a"), case.matrix(state, "b"), case.matrix(state, "c"))
    wanted = {p: expected_bits(case, state, p, operands) for p in sampled_outputs(case, rng)}
    run_both(case.line(), state, case.target)
    d = case.matrix(state, "d")
    bits = d.view(np.uint64 if case.result == "f64" else np.uint32)
    assert {p: hex(bits[p]) for p in wanted} == {p: hex(value) for p, value in wanted.items()}


@pytest.mark.parametrize("case", FLOATS, ids=name_of)
def test_random_bits(case: Case) -> None:
    """All bit patterns, so with infinities, NaN and denormals; overlapping index pairs too."""
    rng = np.random.default_rng(7)
    check(case, new_wave(8), rng)


@pytest.mark.parametrize("case", FLOATS, ids=name_of)
def test_values_of_one_size(case: Case) -> None:
    """Elements near 1 with full significands, and a C of like size: every step rounds."""
    rng = np.random.default_rng(9)
    state = new_wave(10)
    _tame(case, state)
    check(case, state, rng)


@pytest.mark.parametrize("case", [case for case in FLOATS if case.a not in ("f32", "f64")], ids=name_of)
def test_mode_does_not_count(case: Case) -> None:
    """MODE neither turns the rounding nor flushes denormals."""
    rng = np.random.default_rng(11)
    check(case, new_wave(12, mode=FLUSHING_ROUNDING_UP), rng)
    state = new_wave(13, mode=FLUSHING_ROUNDING_UP)
    _tame(case, state)
    check(case, state, rng)


def _tame(case: Case, state) -> None:
    """Clear exponent bits so that no element is large, infinite or NaN."""
    masks = {
        "f32": 0xBFFFFFFF, "xf32": 0xBFFFFFFF, "f64": 0xBFFFFFFF, "f16": 0xBFFFBFFF, "bf16": 0xBFFFBFFF,
        "fp8": 0xBFBFBFBF, "bf8": 0xBFBFBFBF,
    }  # fmt: skip
    for role, element in (("a", case.a), ("b", case.b), ("c", case.result)):
        state.vgpr[case.rows(role)] &= np.uint32(masks.get(element, 0xFFFFFFFF))
    for role, element in (("a", case.a), ("b", case.b), ("c", case.result)):
        if element in ("f32", "xf32", "bf16"):
            state.vgpr[case.rows(role)] |= np.uint32(0x3C003C00 if element == "bf16" else 0x3C000000)


def test_f32_inputs_follow_the_denormal_mode() -> None:
    """MODE flushes denormal A and B of the f32 instructions, but not C and D (CDNA4 ISA, 7.4)."""
    case = next(case for case in CASES if case.name == "v_mfma_f32_16x16x4_f32")
    tiny, two = 5, 0x40000000
    for mode, flushed in ((DEFAULT_MODE, False), (FLUSHING_ROUNDING_UP, True)):
        state = new_wave(1, mode=mode)
        state.vgpr[A], state.vgpr[B], state.vgpr[C : C + 4] = tiny, two, 1
        run_both(case.line(), state, case.target)
        expected = 1 if flushed else 4 * 2 * tiny + 1
        assert set(case.matrix(state, "d").view(np.uint32).ravel().tolist()) == {expected}


def test_f64_ignores_mode() -> None:
    case = next(case for case in CASES if case.name == "v_mfma_f64_16x16x4_f64")
    rng = np.random.default_rng(3)
    state = new_wave(4, mode=FLUSHING_ROUNDING_UP)
    _tame(case, state)
    check(case, state, rng)
    state = new_wave(5, mode=FLUSHING_ROUNDING_UP)
    for role in "abc":
        rows = case.rows(role)
        state.vgpr[rows.start + 1 : rows.stop : 2] &= 0x800FFFFF if role == "c" else 0x9FFFFFFF
    check(case, state, rng)


@pytest.mark.parametrize("case", INTEGERS, ids=name_of)
@pytest.mark.parametrize("saturate", [False, True], ids=["wrap", "saturate"])
def test_integer_range(case: Case, saturate: bool) -> None:
    """Sums wrap, or saturate under MODE.FP16_OVFL."""
    state = new_wave(6, mode=DEFAULT_MODE | (FP16_OVFL if saturate else 0))
    state.vgpr[case.rows("a")] = 0x80808080
    state.vgpr[case.rows("b")] = np.where(np.arange(64) % 2, 0x80808080, 0x7F7F7F7F)
    rows = case.rows("c")
    limits = np.array([0x7FFFFFFF, 0x80000000, 0, 0x7FFFFF00], np.uint32)
    state.vgpr[rows] = limits[np.random.default_rng(0).integers(0, 4, (rows.stop - rows.start, 64))]
    if case.shape.sparse:
        state.vgpr[102] = 0x44444444
    total = (product(case, state) + case.matrix(state, "c")).astype(np.int64)
    run_both(case.line(), state, case.target)
    limited = np.clip(total, -(1 << 31), (1 << 31) - 1) if saturate else total
    np.testing.assert_array_equal(case.matrix(state, "d"), limited.astype(np.int32))


def test_overflow_saturates_under_fp16_ovfl() -> None:
    case = next(case for case in CASES if case.name == "v_mfma_f32_32x32x8_bf16")
    for mode, expected in ((DEFAULT_MODE, 0x7F800000), (DEFAULT_MODE | FP16_OVFL, 0x7F7FFFFF)):
        state = new_wave(1, mode=mode)
        state.vgpr[case.rows("a")] = 0x7F7F7F7F
        state.vgpr[case.rows("b")] = np.where(np.arange(64) % 2, 0x3F803F80, 0xBF80BF80)
        state.vgpr[case.rows("c")] = np.where(np.arange(64) % 2, 0x7F7FFFFF, 0xFF7FFFFF)
        run_both(case.line(), state, case.target)
        bits = case.matrix(state, "d").view(np.uint32)
        assert set(bits[..., 1::2].ravel().tolist()) == {expected}
        assert set(bits[..., ::2].ravel().tolist()) == {expected | 0x80000000}


def test_nan_is_canonical() -> None:
    """A NaN of any payload, and invalid operations, give 0x7fc00000."""
    case = next(case for case in CASES if case.name == "v_mfma_f32_16x16x16_f16")
    for a, b, c in ((0xFE01FE01, 0, 0), (0, 0, 0xFFC12345), (0, 0, 0x7F800001), (0x7C007C00, 0, 0)):
        state = new_wave(1)
        state.vgpr[case.rows("a")], state.vgpr[case.rows("b")], state.vgpr[case.rows("c")] = a, b, c
        run_both(case.line(), state, case.target)
        assert set(case.matrix(state, "d").view(np.uint32).ravel().tolist()) == {0x7FC00000}
