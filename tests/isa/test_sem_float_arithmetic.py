"""Floating-point sums and products of the vector ALU against exact fractions, in several MODEs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.float_oracle import (
    DOWN,
    F16,
    F32,
    FORMATS,
    UP,
    ZERO,
    Format,
    Rules,
    from_registers,
    operand,
    patterns,
    to_registers,
)
from support.vector_runs import DEFAULT_MODE, f16, f32, filler, run

Expected = Callable[[Rules, int, int, int], int]

DENORMALS = 0xF0
MODES = [
    DEFAULT_MODE,
    DEFAULT_MODE & ~DENORMALS,
    DEFAULT_MODE & ~0xA0,
    DEFAULT_MODE & ~0x50,
    DEFAULT_MODE | UP * 5,
    DEFAULT_MODE | DOWN * 5,
    DEFAULT_MODE | ZERO * 5,
    DEFAULT_MODE | UP | DOWN << 2,
]


def check(line: str, form: Format, expected: Expected, mode: int, seed: int, *, target: str = "gfx950") -> None:
    """Run `line`, whose operands are {d} {x} {y} {z}, on one wave of mixed patterns."""
    x, y, z = (patterns(form, 64, 3 * seed + k) for k in range(3))
    vgprs = to_registers(x, form, 2) | to_registers(y, form, 4) | to_registers(z, form, 6)
    if "{z}" not in line:
        vgprs |= to_registers(z, form, 8)  # a destination that is read
    text = line.format(d=operand(form, 8), x=operand(form, 2), y=operand(form, 4), z=operand(form, 6))
    got = from_registers(run(text, vgprs, mode=mode, target=target).vgpr, form, 8)
    rules = Rules.of(form, mode)
    want = [expected(rules, *lane) for lane in zip(x, y, z, strict=True)]
    wrong = [(hex(a), hex(c), hex(d), hex(g), hex(w)) for a, c, d, g, w in zip(x, y, z, got, want, strict=True) if g != w]
    assert not wrong, wrong[:5]


def negate(form: Format, pattern: int) -> int:
    return pattern ^ form.sign


def subtract(r: Rules, x: int, y: int, _z: int = 0) -> int:
    if r.format.is_nan(y) and not r.format.is_nan(x):
        return r.format.quiet(y)
    return r.add(x, negate(r.format, y))


def mad(r: Rules, x: int, y: int, z: int) -> int:
    return r.add(r.multiply(x, y), z)


def legacy_product(r: Rules, x: int, y: int, _z: int) -> int:
    f = r.format
    return 0 if f.is_zero(r.source(x)) or f.is_zero(r.source(y)) else r.multiply(x, y)


CASES: list[tuple[str, str, Expected]] = [
    *[(f"v_add_{t}", "{d}, {x}, {y}", lambda r, x, y, z: r.add(x, y)) for t in FORMATS],
    *[(f"v_mul_{t}", "{d}, {x}, {y}", lambda r, x, y, z: r.multiply(x, y)) for t in FORMATS],
    *[(f"v_sub_{t}", "{d}, {x}, {y}", subtract) for t in ("f16", "f32")],
    *[(f"v_subrev_{t}", "{d}, {x}, {y}", lambda r, x, y, z: subtract(r, y, x)) for t in ("f16", "f32")],
    *[(f"v_fma_{t}", "{d}, {x}, {y}, {z}", lambda r, x, y, z: r.fma(x, y, z)) for t in FORMATS],
    *[(f"v_fmac_{t}", "{d}, {x}, {y}", lambda r, x, y, z: r.fma(x, y, z)) for t in ("f32", "f64")],
    ("v_fma_legacy_f16", "{d}, {x}, {y}, {z}", lambda r, x, y, z: r.fma(x, y, z)),
    ("v_mad_f16", "{d}, {x}, {y}, {z}", mad),
    ("v_mad_legacy_f16", "{d}, {x}, {y}, {z}", mad),
    ("v_mac_f16", "{d}, {x}, {y}", mad),
    ("v_mul_legacy_f32", "{d}, {x}, {y}", legacy_product),
]


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize(("name", "operands", "expected"), CASES, ids=[case[0] for case in CASES])
def test_against_fractions(name: str, operands: str, expected: Expected, mode: int) -> None:
    for seed in range(3):
        check(f"{name} {operands}", FORMATS[name.rpartition("_")[2]], expected, mode, seed)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize(("name", "operands", "expected"), CASES, ids=[case[0] for case in CASES])
def test_many_against_fractions(name: str, operands: str, expected: Expected, mode: int) -> None:
    for seed in range(100, 160):
        check(f"{name} {operands}", FORMATS[name.rpartition("_")[2]], expected, mode, seed)


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [
        ("v_fmaak_f32 {d}, {x}, {y}, 0x40490fdb", F32, lambda r, x, y, z: r.fma(x, y, 0x40490FDB)),
        ("v_fmamk_f32 {d}, {x}, 0x40490fdb, {y}", F32, lambda r, x, y, z: r.fma(x, 0x40490FDB, y)),
        ("v_madak_f16 {d}, {x}, {y}, 0x4248", F16, lambda r, x, y, z: mad(r, x, y, 0x4248)),
        ("v_madmk_f16 {d}, {x}, 0x4248, {y}", F16, lambda r, x, y, z: mad(r, x, 0x4248, y)),
    ],
)
def test_literal_factor_and_addend(line: str, form: Format, expected: Expected) -> None:
    for seed in range(3):
        check(line, form, expected, DEFAULT_MODE, seed)
        check(line, form, expected, DEFAULT_MODE, seed, target="gfx942")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("v_add_f16", False),
        ("v_mac_f16", False),
        ("v_mad_legacy_f16", False),
        ("v_fma_legacy_f16", False),
        ("v_rcp_f16", False),
        ("v_mad_f16", True),
        ("v_fma_f16", True),
        ("v_div_fixup_f16", True),
        ("v_med3_f16", True),
        ("v_max3_f16", True),
        ("v_min3_f16", True),
    ],
)
def test_high_half_of_16_bit_results(name: str, kept: bool) -> None:
    sources = {"v_add_f16": 2, "v_mac_f16": 2, "v_rcp_f16": 1}.get(name, 3)
    text = f"{name} v1, " + ", ".join(["v2", "v3", "v4"][:sources])
    state = run(text, {1: 0xABCD0000, 2: f16([2.0]), 3: f16([2.0]), 4: f16([2.0])})
    assert int(state.vgpr[1][0]) >> 16 == (0xABCD if kept else 0)


def test_op_sel_picks_halves_of_sources_and_destination() -> None:
    halves = {2: [int(f16([3.0])[0]) << 16 | 0x7E00], 3: f16([2.0]), 4: [int(f16([0.5])[0]) << 16 | 0x7E00], 1: 0x12345678}
    state = run("v_fma_f16 v1, v2, v3, v4 op_sel:[1,0,1,1]", halves)
    assert int(state.vgpr[1][0]) == int(f16([6.5])[0]) << 16 | 0x5678


def test_inactive_lanes_keep_their_registers() -> None:
    state = run("v_fma_f64 v[8:9], v[2:3], v[4:5], v[6:7]", {}, exec_mask=0x0F)
    assert np.array_equal(state.vgpr[8:10, 4:], filler()[8:10, 4:])
    assert not np.array_equal(state.vgpr[8:10, :4], filler()[8:10, :4])


def test_modifiers_apply_before_the_operation() -> None:
    state = run("v_fma_f32 v1, -v2, |v3|, -|v4|", {2: f32([3.0]), 3: f32([-2.0]), 4: f32([-1.5])})
    assert state.vgpr[1].view(np.float32)[0] == -7.5
    state = run("v_mul_f32_e64 v1, s4, -0.5", {}, sgprs={4: int(f32([3.0])[0])})
    assert state.vgpr[1].view(np.float32)[0] == -1.5


def test_overflow_of_f16_is_limited_on_demand() -> None:
    mode = DEFAULT_MODE | 1 << 23
    vgprs = {2: f16([60000.0, np.inf, -60000.0]), 3: f16([2.0]), 4: f16([0.0])}
    limited = f16([65504.0, np.inf, -65504.0]).tolist()
    assert run("v_mul_f16 v1, v2, v3", vgprs, mode=mode).vgpr[1][:3].tolist() == limited
    assert (run("v_fma_f16 v1, v2, v3, v4", vgprs, mode=mode).vgpr[1][:3] & 0xFFFF).tolist() == limited
