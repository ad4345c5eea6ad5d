"""Exponential, logarithm, reciprocals, roots, sine and cosine: largest errors over dense sweeps, and special values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.float_oracle import F64, from_registers, to_registers
from support.vector_runs import DEFAULT_MODE, f32, run

from rjemu.exec.numpy_lanes import NumpyLanes
from rjemu.isa import transcendental
from rjemu.isa.lanes import TYPES, Lanes, Value

Function = Callable[[Lanes, Value], Value]
Reference = Callable[[np.ndarray], np.ndarray]

PI = np.longdouble("3.14159265358979323846264338327950288")


def sine(x: np.ndarray) -> np.ndarray:
    """sin(2 pi x), from the nearest zero, where long double is exact enough for relative errors."""
    half_turns = np.rint(2 * x)
    sign = np.where(half_turns % 2 == 0, 1, -1)
    return sign * np.sin(2 * PI * (x - half_turns / 2))


def cosine(x: np.ndarray) -> np.ndarray:
    turn = np.abs(x - np.rint(x))
    return sine(np.longdouble(0.25) - turn)


def span(first: int, last: int, step: int) -> np.ndarray:
    return np.arange(first, last, step, dtype=np.uint32)


ONE, TWO, FOUR, LARGEST = 0x3F800000, 0x40000000, 0x40800000, 0x7F7FFFFF
MIN_NORMAL, NEGATIVE = 0x00800000, 0x80000000
EXPONENTS = [(0x2F000000, 0x42FFFFFF), (NEGATIVE | 0x2F000000, NEGATIVE | 0x42FC0000)]

FUNCTIONS: dict[str, tuple[Function, Reference, float, list[tuple[int, int]]]] = {
    "exp": (transcendental.exp2, np.exp2, 0.80, EXPONENTS),
    "log": (transcendental.log2, np.log2, 0.99, [(0x3F000000, TWO), (MIN_NORMAL, LARGEST)]),
    "rcp": (transcendental.reciprocal, lambda x: 1 / x, 0.5, [(ONE, TWO), (MIN_NORMAL, 0x7E800000)]),
    "rsq": (transcendental.reciprocal_root, lambda x: 1 / np.sqrt(x), 0.501, [(ONE, FOUR), (MIN_NORMAL, LARGEST)]),
    "sqrt": (transcendental.square_root, np.sqrt, 0.5, [(ONE, FOUR), (MIN_NORMAL, LARGEST)]),
    "sin": (
        transcendental.sine,
        sine,
        0.90,
        [(0x20000000, ONE), (ONE, 0x4A000000), (NEGATIVE | 0x30000000, NEGATIVE | ONE)],
    ),
    "cos": (
        transcendental.cosine,
        cosine,
        0.90,
        [(0x20000000, ONE), (ONE, 0x4A000000), (NEGATIVE | 0x30000000, NEGATIVE | ONE)],
    ),
}
"""Function, reference in long double, the largest error in ulp, the swept patterns."""


def largest_error(function: Function, reference: Reference, patterns: np.ndarray) -> float:
    """In units of the last place of the exact result."""
    b = NumpyLanes(len(patterns))
    x = patterns.view(np.float32)
    got = function(b, b.make(TYPES["f32"], x)).data
    exact = reference(x.astype(np.longdouble))
    with np.errstate(divide="ignore"):
        exponent = np.maximum(np.floor(np.log2(np.abs(exact))), -126)
    errors = np.where(exact == 0, np.abs(got), np.abs(got - exact) / np.exp2(exponent - 23))
    assert np.isfinite(errors).all()
    return float(errors.max())


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_errors_on_a_sweep(name: str) -> None:
    function, reference, bound, spans = FUNCTIONS[name]
    for first, last in spans:
        assert largest_error(function, reference, span(first, last, (last - first) // 200_000)) <= bound


@pytest.mark.long
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_errors_everywhere(name: str) -> None:
    """Every pattern of the swept ranges, or one in 17 where they are long."""
    function, reference, bound, spans = FUNCTIONS[name]
    for first, last in spans:
        step = 1 if last - first <= 1 << 24 else 17
        for start in range(first, last, step << 20):
            assert largest_error(function, reference, span(start, min(last, start + (step << 20)), step)) <= bound


SPECIAL = {
    "v_exp_f32": [
        (0xFF800000, 0), (0x80000000, ONE), (0x7F800000, 0x7F800000), (0, ONE), (1, ONE),
        (0x807FFFFF, ONE), (LARGEST, 0x7F800000), (0xFF7FFFFF, 0), (0x43000000, 0x7F800000), (0x42FFFFFF, 0x7F7FFFA7),
        (0xC2FC0000, MIN_NORMAL), (0xC2FC0001, 0), (0x7FA00000, 0x7FE00000), (0xFFC00001, 0xFFC00001), (ONE, TWO),
        (0xBF800000, 0x3F000000), (0x40400000, 0x41000000),
    ],
    "v_log_f32": [
        (0xFF800000, 0xFFC00000), (0xBF800000, 0xFFC00000), (0x80000000, 0xFF800000), (0, 0xFF800000), (ONE, 0),
        (0x7F800000, 0x7F800000), (1, 0xFF800000), (0x807FFFFF, 0xFF800000), (MIN_NORMAL, 0xC2FC0000),
        (0x3F000000, 0xBF800000),
        (TWO, ONE), (0x7FA00000, 0x7FE00000), (0x80800000, 0xFFC00000), (LARGEST, 0x43000000),
    ],
    "v_rcp_f32": [
        (0xFF800000, 0x80000000), (0xC0000000, 0xBF000000), (0x80000000, 0xFF800000), (0, 0x7F800000), (0x7F800000, 0),
        (1, 0x7F800000), (0x807FFFFF, 0xFF800000), (MIN_NORMAL, 0x7E800000), (LARGEST, 0), (0xFF000000, 0x80000000),
        (0x7E800000, MIN_NORMAL), (0x7E800001, 0), (0x7FA00000, 0x7FE00000),
    ],
    "v_rsq_f32": [
        (0xFF800000, 0xFFC00000), (0x80000000, 0xFF800000), (0, 0x7F800000), (FOUR, 0x3F000000), (0x7F800000, 0),
        (1, 0x7F800000), (0x807FFFFF, 0xFF800000), (0xBF800000, 0xFFC00000), (MIN_NORMAL, 0x5F000000),
        (0x7FA00000, 0x7FE00000),
    ],
    "v_sqrt_f32": [
        (0xFF800000, 0xFFC00000), (0x80000000, 0x80000000), (0, 0), (FOUR, TWO), (0x7F800000, 0x7F800000),
        (1, 0), (0x807FFFFF, 0x80000000), (0xBF800000, 0xFFC00000), (MIN_NORMAL, 0x20000000), (0x7FA00000, 0x7FE00000),
    ],
    "v_sin_f32": [
        (0xFF800000, 0xFFC00000), (0xFF7FFFFF, 0), (0x80000000, 0x80000000), (0x3E800000, ONE), (0x7F800000, 0xFFC00000),
        (0, 0), (ONE, 0), (0xBF800000, 0), (0x3F000000, 0), (0x3FC00000, 0),
        (0xC0200000, 0), (1, 6), (0x7FA00000, 0x7FE00000), (0xBE800000, 0xBF800000), (0x3F400000, 0xBF800000),
    ],
    "v_cos_f32": [
        (0xFF800000, 0xFFC00000), (0xFF7FFFFF, ONE), (0x80000000, ONE), (0x3E800000, 0), (0x7F800000, 0xFFC00000),
        (ONE, ONE), (0x3F000000, 0xBF800000), (0x3FC00000, 0xBF800000), (0xC0200000, 0xBF800000), (1, ONE),
        (0x807FFFFF, ONE), (0x3F400000, 0),
    ],
}  # fmt: skip
"""The functional examples of the ISA documents, denormals, NaNs, and (sine, cosine) what hardware gives."""


ALIASES = {"v_exp_f32": ("v_exp_legacy_f32",), "v_log_f32": ("v_log_legacy_f32",), "v_rcp_f32": ("v_rcp_iflag_f32",)}


@pytest.mark.parametrize("mode", [DEFAULT_MODE, DEFAULT_MODE & ~0xF0, DEFAULT_MODE | 0xF])
@pytest.mark.parametrize("name", list(SPECIAL))
def test_special_values(name: str, mode: int) -> None:
    """The same in every MODE: denormals are flushed (or, for sine, kept) by the instruction itself, rounding is its own."""
    cases = SPECIAL[name]
    for alias in (name, *ALIASES.get(name, ())):
        got = run(f"{alias} v1, v2", {2: [x for x, _ in cases]}, mode=mode).vgpr[1][: len(cases)]
        assert [hex(v) for v in got] == [hex(want) for _, want in cases]


def test_exponentials_of_integers_are_exact() -> None:
    exponents = np.arange(-126, 128)
    for part in np.array_split(exponents, 4):
        got = run("v_exp_f32 v1, v2", {2: f32(part)}).vgpr[1].view(np.float32)[: len(part)]
        assert got.tolist() == np.exp2(part.astype(np.float64)).tolist()
        got = run("v_log_f32 v1, v2", {2: f32(np.exp2(part.astype(np.float64)))}).vgpr[1].view(np.float32)[: len(part)]
        assert got.tolist() == part.tolist()


HALF_REFERENCES: dict[str, Reference] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": sine,
    "cos": cosine,
}


@pytest.mark.parametrize("name", list(HALF_REFERENCES))
def test_every_half(name: str) -> None:
    """All 65536 sources: within 0.51 ulp, so nearly always correctly rounded."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    got = np.concatenate([run(f"v_{name}_f16 v1, v2", {2: row}).vgpr[1] for row in x.view(np.uint16).reshape(-1, 64)])
    assert (got >> 16 == 0).all()
    half = got.astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        exact = HALF_REFERENCES[name](x.astype(np.longdouble))
        want = exact.astype(np.float64).astype(np.float16)
    assert (np.isnan(half) == np.isnan(want)).all()
    finite = np.isfinite(exact) & np.isfinite(half)
    assert (half[~finite & ~np.isnan(half)] == want[~finite & ~np.isnan(half)]).all()
    with np.errstate(divide="ignore"):
        exponent = np.maximum(np.floor(np.log2(np.abs(exact[finite]))), -14)
    assert float((np.abs(half[finite] - exact[finite]) / np.exp2(exponent - 10)).max()) <= 0.51


def test_half_special_values() -> None:
    cases = {
        "exp": [(0xFC00, 0), (0x8000, 0x3C00), (0x7C00, 0x7C00), (0x7D01, 0x7F01)],
        "log": [
            (0xFC00, 0xFE00),
            (0xBC00, 0xFE00),
            (0x8000, 0xFC00),
            (0, 0xFC00),
            (0x3C00, 0),
            (0x7C00, 0x7C00),
            (1, 0xCE00),
        ],
        "rcp": [(0xFC00, 0x8000), (0xC000, 0xB800), (0x8000, 0xFC00), (0, 0x7C00), (0x7C00, 0), (1, 0x7C00)],
        "rsq": [(0xFC00, 0xFE00), (0x8000, 0xFC00), (0, 0x7C00), (0x4400, 0x3800), (0x7C00, 0), (1, 0x6C00)],
        "sqrt": [(0xFC00, 0xFE00), (0x8000, 0x8000), (0, 0), (0x4400, 0x4000), (0x7C00, 0x7C00), (1, 0x0C00)],
    }
    for name, pairs in cases.items():
        got = run(f"v_{name}_f16 v1, v2", {2: [x for x, _ in pairs]}).vgpr[1][: len(pairs)]
        assert [hex(v) for v in got] == [hex(want) for _, want in pairs]
    assert int(run("v_exp_f16 v1, v2", {2: 0xCC00}, mode=DEFAULT_MODE & ~0x80).vgpr[1][0]) == 0


DOUBLES = {
    "rcp": (lambda x: 1 / x, [(0, 0x7FF0 << 48), (1 << 63, 0xFFF0 << 48), (0x7FF0 << 48, 0), (1, 0x7FF0 << 48)]),
    "rsq": (
        lambda x: 1 / np.sqrt(x),
        [(0, 0x7FF0 << 48), (0xBFF0 << 48, 0xFFF8 << 48), (0x800FFFFFFFFFFFFF, 0xFFF8 << 48), (1, 0x6180 << 48)],
    ),
    "sqrt": (np.sqrt, [(1 << 63, 1 << 63), (0xBFF0 << 48, 0xFFF8 << 48), (1, 0x1E60 << 48), (0x7FF4 << 48, 0x7FFC << 48)]),
}


@pytest.mark.parametrize("name", list(DOUBLES))
def test_double_functions(name: str) -> None:
    """The ISA asks for 2**29 ulp; these are good to 1."""
    reference, special = DOUBLES[name]
    line = f"v_{name}_f64 v[8:9], v[2:3]"
    got = from_registers(run(line, to_registers([x for x, _ in special], F64, 2)).vgpr, F64, 8)[: len(special)]
    assert [hex(v) for v in got] == [hex(want) for _, want in special]
    x = np.random.default_rng(3).uniform(0.1, 1e6, 64)
    state = run(line, to_registers(x.view(np.uint64).tolist(), F64, 2))
    value = np.array(from_registers(state.vgpr, F64, 8), np.uint64).view(np.float64)
    assert np.abs(value / reference(x.astype(np.longdouble)) - 1).max() < 2.0**-52


def test_modifiers_of_functions() -> None:
    assert run("v_sqrt_f32_e64 v1, |v2| clamp", {2: f32([-4.0])}).vgpr[1].view(np.float32)[0] == 1.0
    assert run("v_exp_f32_e64 v1, -v2", {2: f32([3.0])}).vgpr[1].view(np.float32)[0] == 0.125
    assert run("v_rcp_f32_e32 v1, 4.0", {}).vgpr[1].view(np.float32)[0] == 0.25
