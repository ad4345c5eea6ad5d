"""Integral values, fractions, exponents, cube coordinates and v_trig_preop, from their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from support.float_oracle import DOWN, F32, F64, FORMATS, UP, Format, Rules, from_registers, operand, patterns, to_registers
from support.vector_runs import DEFAULT_MODE, f16, f32, run

DENORMALS = 0xF0
MODES = [DEFAULT_MODE, DEFAULT_MODE & ~DENORMALS, DEFAULT_MODE | UP * 5, DEFAULT_MODE | DOWN * 5]


def unary(name: str, form: Format, mode: int, expected: Callable[[Rules, int], int], result: Format | None = None) -> None:
    rules = Rules.of(form, mode)
    for seed in range(6):
        x = patterns(form, 64, seed)
        line = f"{name} {operand(result or form, 8)}, {operand(form, 2)}"
        got = from_registers(run(line, to_registers(x, form, 2), mode=mode).vgpr, result or form, 8)
        want = [expected(rules, p) for p in x]
        wrong = [(hex(p), hex(g), hex(w)) for p, g, w in zip(x, got, want, strict=True) if g != w]
        assert not wrong, wrong[:5]


def integral(how: Callable[[Fraction], int]) -> Callable[[Rules, int], int]:
    def expected(r: Rules, x: int) -> int:
        f, x = r.format, r.source(x)
        if f.is_nan(x):
            return f.quiet(x)
        return x if f.is_inf(x) else f.round(Fraction(how(f.value(x))), zero_sign=f.negative(x))

    return expected


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize("kind", list(FORMATS))
@pytest.mark.parametrize(
    ("name", "how"), [("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rndne", round)]
)
def test_integral_values(name: str, how: Callable[[Fraction], int], kind: str, mode: int) -> None:
    unary(f"v_{name}_{kind}", FORMATS[kind], mode, integral(how))


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize("kind", list(FORMATS))
def test_fract(kind: str, mode: int) -> None:
    def expected(r: Rules, x: int) -> int:
        f, x = r.format, r.source(x)
        if f.is_nan(x) or f.is_inf(x):
            return f.quiet(x) if f.is_nan(x) else f.default_nan
        number = f.value(x)
        one = f.bias << f.mantissa
        rounded = f.round(number - math.floor(number), r.rounding, r.rounding == DOWN)
        return r.result(min(rounded, one - 1) if not f.negative(rounded) else rounded)

    unary(f"v_fract_{kind}", FORMATS[kind], mode, expected)


@pytest.mark.parametrize("mode", MODES[:2], ids=hex)
@pytest.mark.parametrize("kind", list(FORMATS))
def test_frexp(kind: str, mode: int) -> None:
    form = FORMATS[kind]

    def split(r: Rules, x: int) -> tuple[int, int]:
        f, x = r.format, r.source(x)
        if f.is_nan(x):
            return f.quiet(x), 0
        if f.is_inf(x) or f.is_zero(x):
            return x, 0
        number = f.value(x)
        exponent = 0
        while abs(number) >= 1:
            number, exponent = number / 2, exponent + 1
        while abs(number) < Fraction(1, 2):
            number, exponent = number * 2, exponent - 1
        return f.round(number), exponent

    unary(f"v_frexp_mant_{kind}", form, mode, lambda r, x: split(r, x)[0])
    result = "i16_f16" if kind == "f16" else f"i32_{kind}"
    bits = 0xFFFF if kind == "f16" else 0xFFFFFFFF
    unary(f"v_frexp_exp_{result}", form, mode, lambda r, x: split(r, x)[1] & bits, F32)


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize("kind", list(FORMATS))
def test_ldexp(kind: str, mode: int) -> None:
    form = FORMATS[kind]
    rules = Rules.of(form, mode)
    rng = np.random.default_rng(2)
    span = {"f16": 60, "f32": 400, "f64": 2300}[kind]
    extremes = [0, 1, -1, 32767, -32768, span, -span, form.bias, -form.bias, 1 - form.bias, form.bias + 1]
    if kind != "f16":
        extremes += [2**31 - 1, -(2**31)]
    for seed in range(8):
        x = patterns(form, 64, seed)
        exponents = [*extremes, *rng.integers(-span, span + 1, 64).tolist()][:64]

        def expected(p: int, n: int) -> int:
            p = rules.source(p)
            if form.is_nan(p):
                return form.quiet(p)
            if form.is_inf(p) or form.is_zero(p):
                return p
            scaled = form.value(p) * Fraction(2) ** max(min(n, 5000), -5000)
            return rules.result(form.round(scaled, rules.rounding))

        words = np.array(exponents, np.int64).astype(np.uint64) & np.uint64(0xFFFF if kind == "f16" else 0xFFFFFFFF)
        state = run(
            f"v_ldexp_{kind} {operand(form, 8)}, {operand(form, 2)}, v6", to_registers(x, form, 2) | {6: words}, mode=mode
        )
        got = from_registers(state.vgpr, form, 8)
        want = [expected(p, n) for p, n in zip(x, exponents, strict=True)]
        wrong = [(hex(p), n, hex(g), hex(w)) for p, n, g, w in zip(x, exponents, got, want, strict=True) if g != w]
        assert not wrong, wrong[:5]


def test_ldexp_of_inline_constants() -> None:
    assert run("v_ldexp_f32 v1, 1.0, v2", {2: [3, 0xFFFFFFFE]}).vgpr[1].view(np.float32)[:2].tolist() == [8.0, 0.25]
    assert run("v_ldexp_f32 v1, v2, -2", {2: f32([6.0])}).vgpr[1].view(np.float32)[0] == 1.5
    assert int(run("v_ldexp_f16_e64 v1, v2, 4", {2: f16([1.5])}).vgpr[1][0]) == int(f16([24.0])[0])


def cube(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """(face, s, t, 2 * major axis) of a direction."""
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        return (5.0, -x, -y, 2 * z) if z < 0 else (4.0, x, -y, 2 * z)
    if abs(y) >= abs(x):
        return (3.0, x, -z, 2 * y) if y < 0 else (2.0, x, z, 2 * y)
    return (1.0, z, -y, 2 * x) if x < 0 else (0.0, -z, -y, 2 * x)


def test_cube_coordinates() -> None:
    points = list(itertools.product([-2.0, -0.5, 0.0, 0.5, 2.0, -3.0], [1.5, -2.0, 0.25], [-2.0, 0.75, 3.0, -0.0]))[:64]
    vgprs = {2 + k: f32([p[k] for p in points]) for k in range(3)}
    for k, name in enumerate(("id", "sc", "tc", "ma")):
        got = run(f"v_cube{name}_f32 v1, v2, v3, v4", vgprs).vgpr[1]
        want = np.resize(f32([cube(*p)[k] for p in points]), 64)
        assert got.tolist() == want.tolist()


def two_over_pi(bits: int) -> int:
    """floor(2**bits * 2 / pi), by Machin's formula in integers."""
    scale = bits + 64

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, (1 << scale) // n, 0
        while term:
            total += term // (2 * k + 1) * (-1) ** k
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (1 << (2 * scale + 1)) // pi >> (scale - bits)


def test_trig_preop() -> None:
    digits = two_over_pi(1201)
    x = [*patterns(F64, 32, 1), *[(0x435 + 37 * k) << 52 | 12345 for k in range(32)]]
    for segment in (0, 1, 2, 5, 17, 22, 31, 33):

        def expected(p: int, segment: int = segment) -> int:
            exponent = F64.magnitude(p) >> 52
            shift = (segment & 31) * 53 + max(exponent - 1077, 0)
            bits = (digits << shift) % (1 << 1201) >> (1201 - 53)
            return F64.round(Fraction(bits) * Fraction(2) ** (-53 - shift + (128 if exponent >= 1968 else 0)))

        got = from_registers(run(f"v_trig_preop_f64 v[8:9], v[2:3], {segment}", to_registers(x, F64, 2)).vgpr, F64, 8)
        assert got == [expected(p) for p in x]


def test_trig_preop_as_hardware_gives_it() -> None:
    """Results of RDNA hardware, whose instruction is the same."""
    x = [0, 0x7FF0 << 48, 0x7FEFFFFFFFFFFFFF, 0x400921FB54442D18]
    vgprs = to_registers(x, F64, 2) | {4: [0, 0, 0, 1]}
    got = from_registers(run("v_trig_preop_f64 v[8:9], v[2:3], v4", vgprs).vgpr, F64, 8)[:4]
    assert got == [0x3FE45F306DC9C882, 0x0B43DD63F5F2F8BD, 0x0B43DD63F5F2F8BC, 0x3C94A7F09D5F47D4]


def test_pack() -> None:
    state = run("v_pack_b32_f16 v1, -v2, |v3| op_sel:[0,1,0]", {2: f16([1.5]), 3: int(f16([-2.0])[0]) << 16})
    assert int(state.vgpr[1][0]) == int(f16([-1.5])[0]) | int(f16([2.0])[0]) << 16
