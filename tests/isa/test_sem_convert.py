"""Conversions between integers, f16, bf16, f32 and f64 against exact arithmetic on Python numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from support.vector_runs import DEFAULT_MODE, FP16_OVFL, NO_IEEE_NO_DENORMALS, f16, f32, filler, prepare, run

UP, DOWN, ZERO = 1, 2, 3
ROUND32, ROUND64 = 1, 4
"""Factors that put a rounding into MODE's fields."""

F32_EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0xBF000000,
    0x3EFFFFFF, 0x3F000001, 0x3FC00000, 0xBFC00000, 0x40200000, 0x437F0000, 0x437F8000, 0x43800000, 0x477FE000, 0x477FEFFF,
    0x477FF000, 0x477FF001, 0x47800000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001, 0xFF812345, 0x33000000, 0x33000001, 0x33800000,
    0x387FC000, 0x387FE000, 0x38800000, 0x38800001, 0x3F802000, 0x3F801000, 0x3F801001, 0x3F803000, 0x4B000001, 0xCB000001,
]  # fmt: skip
F16_ALL = np.arange(1 << 16, dtype=np.uint32).reshape(-1, 64)
RANDOM = np.random.default_rng(3).integers(0, 1 << 32, (6, 64), dtype=np.uint32)


def f32_inputs() -> list[np.ndarray]:
    """Rows of 64 f32 patterns: edges, random patterns, and random numbers of moderate size."""
    rng = np.random.default_rng(5)
    moderate = (rng.standard_normal((4, 64)) * 10.0 ** rng.integers(-6, 6, (4, 64))).astype(np.float32)
    return [np.resize(np.array(F32_EDGES, np.uint32), 64), *RANDOM, *moderate.view(np.uint32)]


def f64_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(6)
    edges = [0.0, -0.0, 5e-324, -1e-310, 1.0, 1.5, -2.5, 2.0**31 - 0.5, 2.0**31, -(2.0**31) - 0.9, 2.0**32 - 0.1, 2.0**32]
    edges += [1e300, -1e300, math.inf, -math.inf, math.nan, 1.0 + 2.0**-24, 1.0 + 2.0**-24 + 2.0**-50, 2.0**-149, 2.0**-150]
    edges += [3.5e38, float(np.finfo(np.float32).max), 2.0**-126 - 2.0**-150, 0.1]
    random = rng.standard_normal((2, 64)) * 10.0 ** rng.integers(-45, 40, (2, 64))
    return [np.resize(np.array(edges), 64), *random]


def to_integer(value: float, low: int, high: int, how: Callable[[Fraction], int] = math.trunc) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(how(Fraction(value)), low), high)


def nearest_even(value: Fraction) -> int:
    return round(value)


def halves_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


INT32, UINT32 = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)


@pytest.mark.parametrize(
    ("name", "limits", "how"),
    [
        ("v_cvt_i32_f32", INT32, math.trunc),
        ("v_cvt_u32_f32", UINT32, math.trunc),
        ("v_cvt_flr_i32_f32", INT32, math.floor),
        ("v_cvt_rpi_i32_f32", INT32, halves_up),
    ],
)
@pytest.mark.parametrize("rounding", [0, UP, ZERO])
def test_f32_to_int(name: str, limits: tuple[int, int], how: Callable[[Fraction], int], rounding: int) -> None:
    for row in f32_inputs():
        state = run(f"{name} v1, v2", {2: row}, mode=DEFAULT_MODE + rounding * ROUND32)
        expected = [to_integer(float(x), *limits, how) & 0xFFFFFFFF for x in row.view(np.float32)]
        assert state.vgpr[1].tolist() == expected


def test_conversion_modifiers() -> None:
    values = f32([1.5, -2.5, 300.0, -0.25])
    assert run("v_cvt_i32_f32_e64 v1, -v2", {2: values}).vgpr[1].view(np.int32).tolist()[:4] == [-1, 2, -300, 0]
    assert run("v_cvt_u32_f32_e64 v1, |v2| clamp", {2: values}).vgpr[1].tolist()[:4] == [1, 2, 300, 0]
    doubled = run("v_cvt_f32_u32_e64 v1, v2 mul:2", {2: [3, 5]}, mode=NO_IEEE_NO_DENORMALS)
    assert doubled.vgpr[1].view(np.float32)[:2].tolist() == [6.0, 10.0]
    clamped = run("v_cvt_f32_i32_e64 v1, v2 clamp", {2: [3, 0xFFFFFFFE, 0]})
    assert clamped.vgpr[1].view(np.float32)[:3].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["v_cvt_i32_f64", "v_cvt_u32_f64"])
def test_f64_to_int(name: str) -> None:
    limits = INT32 if "i32" in name else UINT32
    for row in f64_inputs():
        words = row.view(np.uint32).reshape(-1, 2)
        state = run(f"{name} v1, v[2:3]", {2: words[:, 0], 3: words[:, 1]})
        assert state.vgpr[1].tolist() == [to_integer(x, *limits) & 0xFFFFFFFF for x in row]


@pytest.mark.parametrize("name", ["v_cvt_i16_f16", "v_cvt_u16_f16"])
def test_f16_to_int(name: str) -> None:
    limits = (-(1 << 15), (1 << 15) - 1) if "i16" in name else (0, (1 << 16) - 1)
    for row in F16_ALL[::37]:
        state = run(f"{name} v1, v2", {2: row | 0xABCD0000})
        expected = [to_integer(float(x), *limits) & 0xFFFF for x in row.astype(np.uint16).view(np.float16)]
        assert state.vgpr[1].tolist() == expected  # the high half is zeroed


@pytest.mark.parametrize(("name", "scale", "low"), [("v_cvt_norm_i16_f16", 32767, -32767), ("v_cvt_norm_u16_f16", 65535, 0)])
def test_normalized_f16(name: str, scale: int, low: int) -> None:
    for row in F16_ALL[::29]:
        values = row.astype(np.uint16).view(np.float16)
        expected = [normalized(float(x), scale, low) for x in values]
        assert run(f"{name} v1, v2", {2: row}).vgpr[1].tolist() == expected


def normalized(value: float, scale: int, low: int) -> int:
    if math.isinf(value):
        value = math.copysign(2.0, value)
    return to_integer(float(value * scale), low, scale, nearest_even) & 0xFFFF


@pytest.mark.parametrize(("kind", "scale", "low"), [("i16", 32767, -32767), ("u16", 65535, 0)])
def test_packed_normalized(kind: str, scale: int, low: int) -> None:
    rows = f32_inputs()
    for x, y in itertools.pairwise(rows):
        state = run(f"v_cvt_pknorm_{kind}_f32 v1, v2, -v3", {2: x, 3: y})
        first = [normalized(float(v), scale, low) for v in x.view(np.float32)]
        second = [normalized(-float(v), scale, low) for v in y.view(np.float32)]
        assert state.vgpr[1].tolist() == [a | b << 16 for a, b in zip(first, second, strict=True)]
    halves = F16_ALL[500]
    state = run(f"v_cvt_pknorm_{kind}_f16 v1, v2, v3 op_sel:[1,0,0]", {2: halves << 16 | 0x3C00, 3: halves})
    each = [normalized(float(v), scale, low) for v in halves.astype(np.uint16).view(np.float16)]
    assert state.vgpr[1].tolist() == [a | a << 16 for a in each]


# --- floats to floats -------------------------------------------------------------------------------------------------


def rounded(value: Fraction, mantissa: int, lowest: int, rounding: int) -> Fraction:
    """A number rounded to a format of `mantissa` fraction bits whose normal numbers start at 2^lowest."""
    if value == 0:
        return value
    exponent = max(math.floor(math.log2(abs(value))), lowest)
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > lowest and abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (exponent - mantissa)
    how = {0: nearest_even, UP: math.ceil, DOWN: math.floor, ZERO: math.trunc}[rounding]
    return how(value / quantum) * quantum


def f16_pattern(value: float, rounding: int) -> int:
    """The f16 pattern of an f32 or f64 number in MODE's direction. NaN: None cannot be; the caller tests it apart."""
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return sign | 0x7C00
    result = rounded(Fraction(value), 10, -14, rounding)
    if abs(result) > 65504:
        inward = rounding == ZERO or (rounding == UP and sign) or (rounding == DOWN and not sign)
        return sign | (0x7BFF if inward else 0x7C00)
    return sign | int(np.float16(abs(float(result))).view(np.uint16))


@pytest.mark.parametrize("rounding", [0, UP, DOWN, ZERO])
def test_f32_to_f16(rounding: int) -> None:
    for row in f32_inputs():
        values = row.view(np.float32)
        state = run("v_cvt_f16_f32 v1, v2", {2: row}, mode=DEFAULT_MODE + rounding * ROUND64)
        for bits, x, got in zip(row.tolist(), values.tolist(), state.vgpr[1].tolist(), strict=True):
            expected = quiet_half(bits) if math.isnan(x) else f16_pattern(x, rounding)
            assert got == expected, hex(bits)


def quiet_half(bits: int) -> int:
    return bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x1FF


def test_f16_overflow_mode() -> None:
    values = f32([70000.0, -70000.0, math.inf, 65504.0, 65519.0, 65520.0])
    clamped = run("v_cvt_f16_f32 v1, v2", {2: values}, mode=DEFAULT_MODE | FP16_OVFL)
    assert clamped.vgpr[1].tolist()[:6] == [0x7BFF, 0xFBFF, 0x7C00, 0x7BFF, 0x7BFF, 0x7BFF]
    assert run("v_cvt_f16_u16 v1, v2", {2: [0xFFFF, 65519]}).vgpr[1].tolist()[:2] == [0x7C00, 0x7BFF]
    assert run("v_cvt_f16_u16 v1, v2", {2: [0xFFFF]}, mode=DEFAULT_MODE | FP16_OVFL).vgpr[1][0] == 0x7BFF


def test_denormals_flushed() -> None:
    """MODE's field for f32 flushes f32 sources, its field for f16 and f64 flushes f16 sources and results."""
    keep_inputs_only, flush_all = 0x50 | 0x300, 0x300
    state = run("v_cvt_f16_f32 v1, v2", {2: f32([1e-6, -1e-6, 1.0])}, mode=keep_inputs_only)
    assert state.vgpr[1].tolist()[:3] == [0, 0x8000, 0x3C00]
    state = run("v_cvt_f32_f16 v1, v2", {2: [0x0001, 0x83FF, 0x0400]}, mode=flush_all)
    assert state.vgpr[1].tolist()[:3] == [0, 0x80000000, 0x38800000]
    state = run("v_cvt_f64_f32 v[2:3], v4", {4: [1, 0x80000001, 0x00800000]}, mode=flush_all)
    assert state.vgpr[3].tolist()[:3] == [0, 0x80000000, 0x38100000]
    state = run("v_cvt_flr_i32_f32 v1, v2", {2: [0x80000001]}, mode=flush_all)
    assert state.vgpr[1][0] == 0


def test_f16_to_f32() -> None:
    for row in F16_ALL[::41]:
        got = run("v_cvt_f32_f16 v1, v2", {2: row}).vgpr[1]
        values = row.astype(np.uint16).view(np.float16)
        nan = np.isnan(values)
        assert (got[~nan] == f32(values[~nan].astype(np.float32))).all()
        assert (got[nan] == ((row[nan] & 0x8000) << 16 | 0x7FC00000 | (row[nan] & 0x1FF) << 13)).all()


@pytest.mark.parametrize("rounding", [0, UP, DOWN, ZERO])
def test_f64_to_f32(rounding: int) -> None:
    largest = Fraction(float(np.finfo(np.float32).max))
    for row in f64_inputs():
        words = row.view(np.uint32).reshape(-1, 2)
        got = run("v_cvt_f32_f64 v1, v[2:3]", {2: words[:, 0], 3: words[:, 1]}, mode=DEFAULT_MODE + rounding * ROUND32).vgpr[
            1
        ]
        for x, pattern in zip(row.tolist(), got.tolist(), strict=True):
            if math.isnan(x):
                assert pattern & 0x7FC00000 == 0x7FC00000
                continue
            result = math.copysign(math.inf, x)
            if not math.isinf(x):
                exact = rounded(Fraction(x), 23, -126, rounding)
                if abs(exact) <= largest:
                    result = math.copysign(float(abs(exact)), x)
                elif rounding == ZERO or (rounding == UP and x < 0) or (rounding == DOWN and x > 0):
                    result = math.copysign(float(largest), x)
            assert pattern == f32([result])[0], x


def test_f32_to_f64_exact() -> None:
    for row in f32_inputs():
        state = run("v_cvt_f64_f32 v[2:3], v4", {4: row})
        values = row.view(np.float32)
        got = (state.vgpr[2].astype(np.uint64) | state.vgpr[3].astype(np.uint64) << np.uint64(32)).view(np.float64)
        nan = np.isnan(values)
        assert (got[~nan].view(np.uint64) == values[~nan].astype(np.float64).view(np.uint64)).all()
        assert np.isnan(got[nan]).all()
        assert (np.signbit(got) == np.signbit(values)).all()


def test_bf16() -> None:
    for row in f32_inputs():
        values = row.view(np.float32)
        pair = run("v_cvt_pk_bf16_f32 v1, v2, -v2", {2: row}, mode=DEFAULT_MODE + ZERO * ROUND32).vgpr[1]
        with np.errstate(invalid="ignore"):
            expected = values.astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)
        nan = np.isnan(values)
        expected[nan] = (row[nan] >> 16) | 0x40
        assert (pair & 0xFFFF == expected).all()
        assert (pair >> 16 == expected ^ 0x8000).all()
    patterns = RANDOM[0]
    assert (run("v_cvt_f32_bf16 v1, v2", {2: patterns}).vgpr[1] == patterns << 16).all()
    assert (run("v_cvt_f32_bf16_e64 v1, -|v2|", {2: patterns}).vgpr[1] == (patterns << 16 | 0x80000000)).all()
    word1 = run("v_cvt_f32_bf16_sdwa v1, v2 src0_sel:WORD_1", {2: patterns})
    assert (word1.vgpr[1] == patterns & 0xFFFF0000).all()
    clamped = run("v_cvt_pk_bf16_f32 v1, v2, v3 clamp", {2: f32([2.0, -1.0, 0.5]), 3: f32([math.nan, 0.25, 1.0])})
    assert clamped.vgpr[1].tolist()[:3] == [0x00003F80, 0x3E800000, 0x3F803F00]


@pytest.mark.parametrize("mode_rounding", [0, UP, DOWN, ZERO])
@pytest.mark.parametrize(("name", "rounding"), [("v_cvt_pkrtz_f16_f32", ZERO), ("v_cvt_pk_f16_f32", 0)])
def test_packed_f16(name: str, rounding: int, mode_rounding: int) -> None:
    """Toward zero and to nearest, whatever MODE says."""
    for row in f32_inputs():
        got = run(f"{name} v1, v2, |v2|", {2: row}, mode=DEFAULT_MODE + mode_rounding * ROUND64).vgpr[1]
        for bits, x, pair in zip(row.tolist(), row.view(np.float32).tolist(), got.tolist(), strict=True):
            expected = quiet_half(bits) if math.isnan(x) else f16_pattern(x, rounding)
            assert pair == (expected | (expected & 0x7FFF) << 16), hex(bits)


def test_packed_f16_in_attention_range() -> None:
    """Small positive numbers, whose results are often denormal."""
    values = np.exp2(np.linspace(-30, 0, 64)).astype(np.float32) * np.float32(1.23)
    got = run("v_cvt_pkrtz_f16_f32 v1, v2, 1.0", {2: f32(values)}).vgpr[1]
    assert got.tolist() == [f16_pattern(float(x), ZERO) | 0x3C000000 for x in values]


# --- integers to floats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", [0, UP, DOWN, ZERO])
def test_int_to_float(rounding: int) -> None:
    edges = [
        0,
        1,
        0xFFFFFFFF,
        0x80000000,
        0x7FFFFFFF,
        0x7FFFFF80,
        0x7FFFFFC0,
        0x01000001,
        0x01000003,
        0x80000001,
        0xFEFFFFFF,
    ]
    for row in (np.resize(np.array(edges, np.uint32), 64), RANDOM[1]):
        mode = DEFAULT_MODE + rounding * ROUND32
        signed = row.view(np.int32).tolist()
        got = run("v_cvt_f32_i32 v1, v2", {2: row}, mode=mode).vgpr[1]
        assert got.tolist() == [int(f32([float(rounded(Fraction(x), 23, -126, rounding))])[0]) for x in signed]
        got = run("v_cvt_f32_u32 v1, v2", {2: row}, mode=mode).vgpr[1]
        assert got.tolist() == [int(f32([float(rounded(Fraction(x), 23, -126, rounding))])[0]) for x in row.tolist()]
        for name, values in (("v_cvt_f64_i32", row.view(np.int32)), ("v_cvt_f64_u32", row)):
            state = run(f"{name} v[2:3], v4", {4: row}, mode=mode)
            words = values.astype(np.float64).view(np.uint32).reshape(-1, 2)
            assert (state.vgpr[2] == words[:, 0]).all()
            assert (state.vgpr[3] == words[:, 1]).all()


@pytest.mark.parametrize("rounding", [0, UP, DOWN, ZERO])
def test_int16_to_f16(rounding: int) -> None:
    edges = [0, 1, 0xFFFF, 0x8000, 0x7FFF, 2049, 2051, 4099, 65519, 65520, 0xF7FF]
    for row in (np.resize(np.array(edges, np.uint32), 64), RANDOM[2] & 0xFFFF):
        mode = DEFAULT_MODE + rounding * ROUND64
        got = run("v_cvt_f16_u16 v1, v2", {2: row | 0x50000}, mode=mode).vgpr[1]
        assert got.tolist() == [f16_pattern(float(x), rounding) for x in row.tolist()]
        got = run("v_cvt_f16_i16 v1, v2", {2: row}, mode=mode).vgpr[1]
        signed = row.astype(np.uint16).view(np.int16).tolist()
        assert got.tolist() == [f16_pattern(float(x), rounding) for x in signed]


def test_bytes_to_f32() -> None:
    row = RANDOM[3]
    prepare([f"v_cvt_f32_ubyte{k} v1, v2" for k in range(4)], "gfx942")
    for k in range(4):
        got = run(f"v_cvt_f32_ubyte{k} v1, v2", {2: row}, target="gfx942").vgpr[1]
        assert got.view(np.float32).tolist() == [float(x >> 8 * k & 0xFF) for x in row.tolist()]
    got = run("v_cvt_off_f32_i4 v1, v2", {2: np.arange(64) | 0x70}).vgpr[1].view(np.float32)
    assert got[:16].tolist() == [k / 16 if k < 8 else k / 16 - 1 for k in range(16)]


@pytest.mark.parametrize(("rounding", "how"), [(0, nearest_even), (UP, math.ceil), (DOWN, math.floor), (ZERO, math.trunc)])
def test_f32_to_byte(rounding: int, how: Callable[[Fraction], int]) -> None:
    for row in f32_inputs():
        old, position = filler()[9], filler()[8]
        vgprs = {1: old, 2: row, 3: position, 4: old}
        mode = DEFAULT_MODE + rounding * ROUND32
        expected = []
        for x, p, o in zip(row.view(np.float32).tolist(), position.tolist(), old.tolist(), strict=True):
            shift = 8 * (p & 3)
            expected.append(o & ~(0xFF << shift) | to_integer(x, 0, 255, how) << shift)
        assert run("v_cvt_pk_u8_f32 v5, v2, v3, v4", vgprs, mode=mode).vgpr[5].tolist() == expected
        assert run("v_cvt_pkaccum_u8_f32 v1, v2, v3", vgprs, mode=mode).vgpr[1].tolist() == expected


def test_pack_integers() -> None:
    x, y = RANDOM[4], np.resize(np.array([0, 5, 0xFFFF, 0x10000, 0x7FFF, 0x8000, 0xFFFF8000, 0xFFFF7FFF], np.uint32), 64)
    got = run("v_cvt_pk_u16_u32 v1, v2, v3", {2: x, 3: y}).vgpr[1]
    assert got.tolist() == [min(a, 0xFFFF) | min(b, 0xFFFF) << 16 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    got = run("v_cvt_pk_i16_i32 v1, v2, v3", {2: x, 3: y}).vgpr[1]
    halves = np.clip(np.stack([x, y]).view(np.int32), -0x8000, 0x7FFF).astype(np.int16).view(np.uint16).astype(np.uint32)
    assert (got == halves[0] | halves[1] << 16).all()


@pytest.mark.parametrize(("kind", "low", "high"), [("i8", -128, 127), ("u8", 0, 255)])
def test_shift_and_pack(kind: str, low: int, high: int) -> None:
    x, y, shift = RANDOM[0], RANDOM[5], RANDOM[2]
    vgprs = {1: 0xDEADBEEF, 2: x, 3: y, 4: shift}
    signed = np.stack([x, y]).view(np.int32) >> (shift & 31).astype(np.int32)
    codes = np.clip(signed, low, high).astype(np.int64) & 0xFF
    expected = codes[0] | codes[1] << 8
    assert (run(f"v_ashr_pk_{kind}_i32 v1, v2, v3, v4", vgprs).vgpr[1] == (expected | 0xDEAD0000)).all()
    got = run(f"v_ashr_pk_{kind}_i32 v1, v2, v3, v4 op_sel:[0,0,0,1]", vgprs).vgpr[1]
    assert (got == (expected << 16 | 0xBEEF)).all()


def test_inactive_lanes_keep_their_values() -> None:
    state = run("v_cvt_f32_i32 v1, v2", {1: 0x12345678, 2: 7}, exec_mask=0x5)
    assert state.vgpr[1].tolist() == [0x40E00000 if lane in (0, 2) else 0x12345678 for lane in range(64)]
    state = run("v_cvt_f16_f32 v1, 2.0", {1: 0x12345678}, exec_mask=1 << 63)
    assert state.vgpr[1].tolist() == [0x12345678] * 63 + [int(f16([2.0])[0])]
