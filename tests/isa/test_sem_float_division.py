"""The division helpers: LLVM's division sequences give correctly rounded quotients, and each helper its special cases."""

from __future__ import annotations

import numpy as np
import pytest
from support.float_oracle import F32, F64, FORMATS, Format, Rules, from_registers, operand, patterns, to_registers
from support.vector_runs import DEFAULT_MODE, mask_of, run

import rjemu.isa.semantics  # noqa: F401
from rjemu.exec.numpy_lanes import NumpyLanes
from rjemu.isa.division import div_fixup, div_fmas, div_scale
from rjemu.isa.instruction import VCC
from rjemu.isa.lanes import TYPES, Value
from rjemu.isa.transcendental import reciprocal


def divide_f32(b: NumpyLanes, n: Value, d: Value) -> Value:
    """LLVM's SITargetLowering::LowerFDIV32."""
    scaled_d, (scaled_n, rescale) = div_scale(b, d, d, n)[0], div_scale(b, n, d, n)
    seed, minus_d = reciprocal(b, scaled_d), b.fneg(scaled_d)
    error = b.fma(minus_d, seed, b.vector(b.const("f32", 1.0)))
    better = b.fma(error, seed, seed)
    quotient = b.fmul(scaled_n, better)
    quotient = b.fma(b.fma(minus_d, quotient, scaled_n), better, quotient)
    rest = b.fma(minus_d, quotient, scaled_n)
    return div_fixup(b, div_fmas(b, rest, better, quotient, rescale), d, n)


def divide_f64(b: NumpyLanes, n: Value, d: Value) -> Value:
    """LLVM's SITargetLowering::LowerFDIV64."""
    scaled_d, (scaled_n, rescale) = div_scale(b, d, d, n)[0], div_scale(b, n, d, n)
    minus_d, one = b.fneg(scaled_d), b.vector(b.const("f64", 1.0))
    # The hardware's seed has 23 good bits.
    seed = (b.fdiv(1.0, scaled_d).bits("u64") & 0xFFFFFFFF_E0000000).bits("f64")
    for _ in range(2):
        seed = b.fma(seed, b.fma(minus_d, seed, one), seed)
    quotient = b.fmul(scaled_n, seed)
    rest = b.fma(minus_d, quotient, scaled_n)
    return div_fixup(b, div_fmas(b, rest, seed, quotient, rescale), d, n)


def operands(kind: str, count: int, case: str) -> tuple[np.ndarray, np.ndarray]:
    """Numerators and denominators: any patterns, or pairs whose quotient lies near overflow or underflow."""
    rng = np.random.default_rng(len(case))
    bits = 32 if kind == "f32" else 64
    n, d = (np.frombuffer(rng.bytes(count * bits // 8), dtype=f"uint{bits}").view(f"float{bits}").copy() for _ in range(2))
    factors = rng.uniform(0.5, 2, count)
    with np.errstate(all="ignore"):
        if case == "overflow":
            n = (d * factors * 2.0 ** (126 if kind == "f32" else 1022)).astype(n.dtype)
        if case == "underflow":
            n = (d * factors * 2.0 ** rng.integers(*((-152, -120) if kind == "f32" else (-1077, -1010)), count)).astype(
                n.dtype
            )
    return n, d


@pytest.mark.parametrize("case", ["any", "overflow", "underflow"])
@pytest.mark.parametrize(("kind", "count"), [("f32", 100_000), ("f64", 10_000)])
def test_sequences_divide_correctly(kind: str, count: int, case: str) -> None:
    n, d = operands(kind, count, case)
    b = NumpyLanes(count)
    divide = divide_f32 if kind == "f32" else divide_f64
    got = divide(b, b.make(TYPES[kind], n), b.make(TYPES[kind], d)).data
    with np.errstate(all="ignore"):
        want = n / d
    same = (got.view(f"uint{n.itemsize * 8}") == want.view(f"uint{n.itemsize * 8}")) | (np.isnan(got) & np.isnan(want))
    assert same.all(), [(n[k], d[k], got[k], want[k]) for k in np.flatnonzero(~same)[:5]]


def lines(form: Format, names: str, sources: list[list[int]]) -> tuple[str, dict[int, np.ndarray]]:
    registers: dict[int, np.ndarray] = {}
    for first, values in zip((2, 4, 6), sources, strict=True):
        registers |= to_registers(values, form, first)
    return f"{names}, " + ", ".join(operand(form, first) for first in (2, 4, 6)), registers


@pytest.mark.parametrize("kind", list(FORMATS))
def test_fixup(kind: str) -> None:
    form = FORMATS[kind]
    rules = Rules.of(form, DEFAULT_MODE)
    limit = {"f16": None, "f32": -150, "f64": -1075}[kind]

    def expected(q: int, d: int, n: int) -> int:
        f, sign = form, (d ^ n) & form.sign
        nan = rules.first_nan((n, d))
        if nan is not None:
            return nan
        if (f.is_zero(d) and f.is_zero(n)) or (f.is_inf(d) and f.is_inf(n)):
            return f.default_nan
        if f.is_zero(d) or f.is_inf(n):
            return sign | f.infinity
        if f.is_inf(d) or f.is_zero(n):
            return sign
        exponents = [f.magnitude(p) >> f.mantissa for p in (n, d)]
        if limit is not None and exponents[0] - exponents[1] < limit:
            return sign
        if limit is not None and f.is_nan(q):
            return sign | f.infinity
        return f.magnitude(q) | sign

    for seed in range(12):
        sources = [patterns(form, 64, 3 * seed + k) for k in range(3)]
        if seed % 3 == 0:
            sources[1] = sources[1][:1] * 64
        text, registers = lines(form, f"v_div_fixup_{kind} {operand(form, 8)}", sources)
        got = from_registers(run(text, registers).vgpr, form, 8)
        assert got == [expected(*lane) for lane in zip(*sources, strict=True)]


SCALES = {
    "f32": [
        # denominator, numerator -> scaled denominator, scaled numerator, whether the quotient is scaled back
        (0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0),
        (0x40490FDB, 0x3F800000, 0x40490FDB, 0x3F800000, 0),
        (0x7F800000, 0x3F800000, 0x7F800000, 0x3F800000, 1),
        (0x7FC00000, 0x3F800000, 0x7FC00000, 0x3F800000, 1),
        (0x00000001, 0x3F800000, 0x15000000, 0x3F800000, 1),
        (0x00800000, 0x3F800000, 0x20800000, 0x3F800000, 1),
        (0x7F7FFFFF, 0x3F800000, 0x5F7FFFFF, 0x3F800000, 1),
        (0x7F7FFFFF, 0x7F000000, 0x5F7FFFFF, 0x5F000000, 0),
        (0x00000001, 0x0A000000, 0x15000000, 0x2A000000, 0),
        (0x3F800000, 0x0B800000, 0x5F800000, 0x2B800000, 0),
        (0x60000000, 0x1F000000, 0x60000000, 0x3F000000, 1),
    ],
    "f64": [
        (0x3FF0000000000000, 0x3FF0000000000000, 0x3FF0000000000000, 0x3FF0000000000000, 0),
        (0x0000000000000001, 0x3FF0000000000000, 0x04D0000000000000, 0x3FF0000000000000, 1),
        (0x0010000000000000, 0x3FF0000000000000, 0x0810000000000000, 0x3FF0000000000000, 1),
        (0x7FEFFFFFFFFFFFFF, 0x3FF0000000000000, 0x77EFFFFFFFFFFFFF, 0x3FF0000000000000, 1),
        (0x01A56E1FC2F8F359, 0x3FF0000000000000, 0x09A56E1FC2F8F359, 0x3FF0000000000000, 1),
        (0x4202A05F20000000, 0x3FF0000000000000, 0x4202A05F20000000, 0x3FF0000000000000, 0),
    ],
}
"""Most of these are results of RDNA hardware, whose instruction is the same."""


@pytest.mark.parametrize("kind", list(SCALES))
def test_scale(kind: str) -> None:
    form = FORMATS[kind]
    for denominator, numerator, scaled_d, scaled_n, flag in SCALES[kind]:
        for x, want in ((denominator, scaled_d), (numerator, scaled_n)):
            text, registers = lines(form, f"v_div_scale_{kind} {operand(form, 8)}, vcc", [[x], [denominator], [numerator]])
            # The encoding wants one of the other operands again, the registers may differ.
            state = run(text, registers, exec_mask=0b101)
            assert from_registers(state.vgpr, form, 8)[0] == want
            assert mask_of(state, VCC) == 0b101 * flag


@pytest.mark.parametrize("form", [F32, F64])
def test_scale_of_zeros(form: Format) -> None:
    kind = "f32" if form is F32 else "f64"
    text, registers = lines(
        form, f"v_div_scale_{kind} {operand(form, 8)}, vcc", [[0, form.sign], [0, form.sign], [form.bias << 5]]
    )
    state = run(text, registers)
    assert from_registers(state.vgpr, form, 8)[:2] == [form.default_nan] * 2
    assert mask_of(state, VCC) == 0


@pytest.mark.parametrize(("kind", "scale"), [("f32", 64), ("f64", 128)])
def test_fmas(kind: str, scale: int) -> None:
    """Without VCC an fma; with it scaled towards 1 over the quotient, rounded once."""
    form = FORMATS[kind]
    rules = Rules.of(form, DEFAULT_MODE)
    one = form.bias << form.mantissa

    def power(exponent: int) -> int:
        return one + (exponent << form.mantissa)

    low = -form.bias + scale - 20
    values = [power(5) + 12345, power(-3) + 54321, power(low) + 0x155555, power(low - form.mantissa + 3) + 1]
    tiny = power(low - form.mantissa - 5)
    text, registers = lines(form, f"v_div_fmas_{kind} {operand(form, 8)}", [[tiny], [one + 3], values])
    plain = from_registers(run(text, registers).vgpr, form, 8)[:4]
    assert plain == [rules.fma(tiny, one + 3, q) for q in values]
    scaled = from_registers(run(text, registers, vcc=0b1111).vgpr, form, 8)[:4]
    exact = [form.value(tiny) * form.value(one + 3) + form.value(q) for q in values]
    factors = [2**scale if q >= one + (1 << form.mantissa) else 1 / form.value(power(scale)) for q in values]
    assert scaled == [form.round(e * f) for e, f in zip(exact, factors, strict=True)]


def test_fixup_of_f16_in_a_high_half() -> None:
    state = run("v_div_fixup_f16 v1, v2, v3, v4 op_sel:[0,1,0,1]", {1: 0x1234, 2: 0x3C00, 3: 0xBC00 << 16, 4: 0x4000})
    assert int(state.vgpr[1][0]) == 0xBC001234
