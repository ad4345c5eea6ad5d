"""fp8, bf8, fp6, bf6 and fp4 conversions: nearest codes from ml_dtypes' values, stochastic rounding on exact numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from support.vector_runs import DEFAULT_MODE, FP16_OVFL, filler, prepare, run

LANES = 64
RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Format:
    """dtype: ml_dtypes' type of the same codes. nan, overflow: the codes of a NaN and of what is too large."""

    dtype: type
    bits: int
    mantissa: int
    lowest: int
    nan: int
    overflow: int
    fnuz: bool = False

    def values(self) -> np.ndarray:
        """float64 of every code."""
        return np.arange(1 << self.bits, dtype=np.uint8).view(self.dtype).astype(np.float64)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FP8 = Format(ml_dtypes.float8_e4m3fn, 8, 3, -6, 0x7F, 0x7F)
BF8 = Format(ml_dtypes.float8_e5m2, 8, 2, -14, 0x7E, 0x7C)
FP8_FNUZ = Format(ml_dtypes.float8_e4m3fnuz, 8, 3, -7, 0x80, 0x80, fnuz=True)
BF8_FNUZ = Format(ml_dtypes.float8_e5m2fnuz, 8, 2, -15, 0x80, 0x80, fnuz=True)
FP6 = Format(ml_dtypes.float6_e2m3fn, 6, 3, 0, 0x1F, 0x1F)
BF6 = Format(ml_dtypes.float6_e3m2fn, 6, 2, -2, 0x1F, 0x1F)
FP4 = Format(ml_dtypes.float4_e2m1fn, 4, 1, 0, 0x7, 0x7)
GFX950 = {"fp8": FP8, "bf8": BF8, "fp6": FP6, "bf6": BF6, "fp4": FP4}
GFX942 = {"fp8": FP8_FNUZ, "bf8": BF8_FNUZ}
MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}
DTYPE = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def formats(target: str) -> dict[str, Format]:
    return GFX942 if target == "gfx942" else GFX950


@cache
def largest(fmt: Format) -> tuple[int, Fraction]:
    """Code and value of the largest finite magnitude."""
    values = fmt.values()[: fmt.sign]
    code = int(np.nanargmax(np.where(np.isinf(values), np.nan, values)))
    return code, Fraction(float(values[code]))


def encode(
    x: float, fmt: Format, scale: int = 0, saturate: bool = False, random: int | None = None, source_mantissa: int = 23
) -> int:
    """The code of x / 2^scale. random: the 32-bit number of stochastic rounding, else to nearest even."""
    negative = math.copysign(1.0, x) < 0
    sign = fmt.sign if negative and not fmt.fnuz else 0
    if math.isnan(x) or scale == 128:
        return fmt.nan if fmt.fnuz else fmt.nan | (fmt.sign if np.signbit(x) else 0)
    top_code, top = largest(fmt)
    too_large = (fmt.sign if negative else 0) | top_code if saturate else sign | fmt.overflow
    if math.isinf(x):
        return too_large
    value = abs(Fraction(x)) / Fraction(2) ** scale
    if value == 0:
        return sign
    exponent = math.frexp(x)[1] - 1 - scale
    quantum = Fraction(2) ** (max(exponent, fmt.lowest) - fmt.mantissa)
    if random is None:
        steps = round(value / quantum)
    else:
        below = source_mantissa - fmt.mantissa
        if exponent < fmt.lowest:
            grain = Fraction(2) ** (fmt.lowest - source_mantissa)
            value = math.floor(value / grain) * grain
        steps = math.floor(value / quantum + Fraction(random >> (32 - below), 1 << below))
    result = steps * quantum
    if result > top:
        return too_large
    code = int(np.flatnonzero(fmt.values()[: fmt.sign] == float(result))[0])
    return code | (fmt.sign if negative and (code or not fmt.fnuz) else 0)


def sources(kind: str, scale_exponent: int = 0) -> np.ndarray:
    """64 patterns of a kind: special values, random patterns, and numbers around the small formats' ranges."""
    dtype = DTYPE[kind]
    unsigned = np.uint32 if kind == "f32" else np.uint16
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -6.0, 7.5, 28.0, 448.0, 464.0, 465.0, 480.0, 240.0, 57344.0]
    special += [-61440.0, 65504.0, 2.0**-9, 2.0**-10, 2.0**-14, -(2.0**-17), 0.25, 0.75, 1.25, 1.75, 2.5, 5.0, 0.0625]
    random = RNG.standard_normal(24) * 2.0 ** RNG.integers(-18, 17, 24)
    with np.errstate(all="ignore"):
        numbers = (np.array([*special, *random]) * 2.0**scale_exponent).astype(dtype).view(unsigned)
    patterns = RNG.integers(0, np.iinfo(unsigned).max, LANES - len(numbers), dtype=unsigned)
    return np.concatenate([numbers, patterns]).astype(np.uint32)


def numbers(patterns: np.ndarray, kind: str) -> list[float]:
    unsigned = np.uint32 if kind == "f32" else np.uint16
    return [float(x) for x in patterns.astype(unsigned).view(DTYPE[kind])]


def scales() -> np.ndarray:
    """f32 scale operands: powers of two, ones with sign and fraction bits that do not count, zero, infinity."""
    ones = [0x3F800000, 0x40000000, 0x3F000000, 0xBFFFFFFF, 0x00000000, 0x7F800000, 0x7F000000, 0x3E812345]
    return np.resize(np.array(ones, np.uint32), LANES)


def exponents(scale: np.ndarray) -> list[int]:
    return [int(x >> 23 & 0xFF) - 127 for x in scale.tolist()]


def next_random(x: int) -> int:
    return (x << 1 & 0xFFFFFFFF) ^ (197 if x >> 31 else 0)


def test_prng() -> None:
    state = run("v_prng_b32 v1, v2", {2: filler()[3]})
    assert state.vgpr[1].tolist() == [next_random(x) for x in filler()[3].tolist()]


# --- widening ---------------------------------------------------------------------------------------------------------

CODES = np.arange(256, dtype=np.uint32).reshape(4, 64)


def f32_pattern(value: float, negative: bool) -> int:
    if math.isnan(value):
        return 0x7FC00000 | negative << 31
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_widening(target: str, name: str) -> None:
    values = formats(target)[name].values()
    expected = [f32_pattern(float(values[code]), code >> 7 == 1) for code in range(256)]
    lines = [f"v_cvt_f32_{name} v1, v2", *(f"v_cvt_f32_{name}_sdwa v1, v2 src0_sel:BYTE_{k}" for k in range(4))]
    lines += [f"v_cvt_pk_f32_{name} v[4:5], v2", *(f"v_cvt_pk_f32_{name}_sdwa v[4:5], v2 src0_sel:WORD_{k}" for k in (0, 1))]
    prepare(lines, target)
    for row in CODES:
        word = row | (row ^ 0x55) << 8 | (255 - row) << 16 | (row ^ 0x80) << 24
        parts = [word >> 8 * k & 0xFF for k in range(4)]
        for line, part in zip(lines[:5], (0, 0, 1, 2, 3), strict=True):
            assert run(line, {2: word}, target=target).vgpr[1].tolist() == [expected[c] for c in parts[part].tolist()]
        for line, part in zip(lines[5:], (0, 0, 2), strict=True):
            state = run(line, {2: word}, target=target)
            for k in (0, 1):
                assert state.vgpr[4 + k].tolist() == [expected[c] for c in parts[part + k].tolist()]


def widened_pattern(code: int, fmt: Format, scale: int, kind: str) -> int:
    """The pattern of a code's value times 2^scale; 128 stands for a NaN scale."""
    value, negative = float(fmt.values()[code]), bool(code & fmt.sign)
    if scale == 128:
        value = math.nan
    if kind == "f32":
        return f32_pattern(value * 2.0**scale, negative)
    if math.isnan(value):
        return 0x7FFF | negative << 15
    with np.errstate(over="ignore"):
        return int(np.asarray(value * 2.0**scale).astype(DTYPE[kind]).view(np.uint16))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
def test_scaled_pairs_widened(kind: str, name: str) -> None:
    fmt = GFX950[name]
    width = 2 * fmt.bits
    selections = {16: ["", " op_sel:[1,0,0]"], 8: ["", " op_sel:[1,0,0]", " op_sel:[0,1,0]", " op_sel:[1,1,0]"]}[width]
    dst = "v[4:5]" if kind == "f32" else "v4"
    for part, suffix in enumerate(selections):
        state = run(f"v_cvt_scalef32_pk_{kind}_{name} {dst}, v2, v3{suffix}", {2: filler()[100], 3: scales()})
        for lane, (word, scale) in enumerate(zip(filler()[100].tolist(), exponents(scales()), strict=True)):
            pair = word >> part * width
            low, high = (widened_pattern(code & (2 * fmt.sign - 1), fmt, scale, kind) for code in (pair, pair >> fmt.bits))
            got = int(state.vgpr[4][lane])
            if kind == "f32":
                assert (got, int(state.vgpr[5][lane])) == (low, high)
            else:
                assert got == low | high << 16


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_scaled_single_widened(name: str) -> None:
    fmt = GFX950[name]
    word, scale, old = filler()[101], scales(), filler()[102]
    for part, select in enumerate(("0,0", "1,0", "0,1", "1,1")):
        codes = (word >> 8 * part & 0xFF).tolist()
        state = run(f"v_cvt_scalef32_f32_{name} v4, v2, v3 op_sel:[{select},0]", {2: word, 3: scale})
        assert state.vgpr[4].tolist() == [
            widened_pattern(c, fmt, s, "f32") for c, s in zip(codes, exponents(scale), strict=True)
        ]
        halves = np.array([widened_pattern(c, fmt, s, "f16") for c, s in zip(codes, exponents(scale), strict=True)])
        state = run(f"v_cvt_scalef32_f16_{name} v4, v2, v3 op_sel:[{select},0]", {2: word, 3: scale, 4: old})
        assert (state.vgpr[4] == (old & 0xFFFF0000 | halves)).all()
        state = run(f"v_cvt_scalef32_f16_{name} v4, v2, v3 op_sel:[{select},1]", {2: word, 3: scale, 4: old})
        assert (state.vgpr[4] == (old & 0xFFFF | halves << 16)).all()


def six_bit_codes(words: np.ndarray) -> list[list[int]]:
    """codes[lane][element] of 32 6-bit codes in 6 registers [6, lanes]."""
    numbers_ = [sum(int(word) << 32 * k for k, word in enumerate(column)) for column in words.T]
    return [[n >> 6 * i & 0x3F for i in range(32)] for n in numbers_]


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["fp6", "bf6"])
def test_scaled_32_widened(kind: str, name: str) -> None:
    words = filler()[50:56]
    count = 32 if kind == "f32" else 16
    vgprs = {40: scales(), **{50 + k: words[k] for k in range(6)}}
    state = run(f"v_cvt_scalef32_pk32_{kind}_{name} v[0:{count - 1}], v[50:55], v40", vgprs)
    for lane, codes in enumerate(six_bit_codes(words)):
        patterns = [widened_pattern(c, GFX950[name], exponents(scales())[lane], kind) for c in codes]
        if kind != "f32":
            patterns = [patterns[k] | patterns[k + 1] << 16 for k in range(0, 32, 2)]
        assert state.vgpr[:count, lane].tolist() == patterns


def test_f16_overflow_of_widening() -> None:
    """A scaled value beyond f16 is infinite, or the largest number in FP16_OVFL mode."""
    vgprs = {2: 0x7E7E, 3: 0x43800000}
    assert run("v_cvt_scalef32_pk_f16_fp8 v4, v2, v3", vgprs).vgpr[4][0] == 0x7C007C00
    assert run("v_cvt_scalef32_pk_f16_fp8 v4, v2, v3", vgprs, mode=DEFAULT_MODE | FP16_OVFL).vgpr[4][0] == 0x7BFF7BFF


# --- narrowing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("saturate", [False, True])
def test_packed_narrowing(target: str, name: str, saturate: bool) -> None:
    fmt, old = formats(target)[name], filler()[20]
    mode = DEFAULT_MODE | (FP16_OVFL if saturate else 0)
    for _ in range(4):
        x, y = sources("f32"), sources("f32")
        low = np.array([encode(v, fmt, saturate=saturate) for v in numbers(x, "f32")])
        high = np.array([encode(-abs(v), fmt, saturate=saturate) for v in numbers(y, "f32")])
        high[np.isnan(y.view(np.float32))] = encode(math.copysign(math.nan, -1.0), fmt)
        for half in (0, 1):
            line = f"v_cvt_pk_{name}_f32 v1, v2, -|v3| op_sel:[0,0,{half}]"
            state = run(line, {1: old, 2: x, 3: y}, target=target, mode=mode)
            keep = 0xFFFF0000 if half == 0 else 0xFFFF
            assert (state.vgpr[1] == (old & keep | (low | high << 8) << 16 * half)).all()


def test_narrowing_flushes_by_mode_only_f32_sources() -> None:
    """A denormal f32 over a tiny scale is a number unless MODE flushes it; f16 sources are never flushed."""
    vgprs = {2: 0x00400000, 3: 0x00000000, 4: 0x03FF03FF}
    line = "v_cvt_scalef32_pk_fp8_f32 v1, v2, v2, v3"
    assert run(line, vgprs).vgpr[1][0] & 0xFFFF == 0x3838
    assert run(line, vgprs, mode=0x300).vgpr[1][0] & 0xFFFF == 0
    line = "v_cvt_scalef32_pk_fp8_f16 v1, v4, 1.0"
    assert run(line, vgprs, mode=0x300).vgpr[1][0] == run(line, vgprs).vgpr[1][0]


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_stochastic_narrowing(target: str, name: str) -> None:
    fmt, old = formats(target)[name], filler()[21]
    prepare([f"v_cvt_sr_{name}_f32 v1, v2, v3 op_sel:[0,0,{k & 1},{k >> 1}]" for k in range(4)], target)
    for k in range(4):
        x, random = sources("f32"), RNG.integers(0, 1 << 32, LANES, dtype=np.uint32)
        random[:4] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]
        state = run(
            f"v_cvt_sr_{name}_f32 v1, v2, v3 op_sel:[0,0,{k & 1},{k >> 1}]", {1: old, 2: x, 3: random}, target=target
        )
        codes = np.array([encode(v, fmt, random=int(r)) for v, r in zip(numbers(x, "f32"), random, strict=True)])
        assert (state.vgpr[1] == (old & ~np.uint32(0xFF << 8 * k) | codes << 8 * k)).all()


@pytest.mark.parametrize(("kind", "mantissa", "lowest", "infinity"), [("f16", 10, -14, 0x7C00), ("bf16", 7, -126, 0x7F80)])
def test_stochastic_halves(kind: str, mantissa: int, lowest: int, infinity: int) -> None:
    """Between the two neighbours, up where the discarded fraction and the random one add up to 1."""
    x, random = sources("f32"), RNG.integers(0, 1 << 32, LANES, dtype=np.uint32)
    state = run(f"v_cvt_sr_{kind}_f32 v1, v2, v3 op_sel:[0,0,1]", {1: 0x1234, 2: x, 3: random})
    for pattern, v, r, word in zip(x.tolist(), numbers(x, "f32"), random.tolist(), state.vgpr[1].tolist(), strict=True):
        assert word & 0xFFFF == 0x1234
        got, sign = word >> 16 & 0x7FFF, pattern >> 31
        assert word >> 31 == sign
        if math.isnan(v):
            assert got == 0x7FFF
            continue
        if math.isinf(v):
            assert got == infinity
            continue
        magnitude, exponent = abs(Fraction(v)), math.frexp(v)[1] - 1
        quantum = Fraction(2) ** (max(exponent, lowest) - mantissa)
        if exponent < lowest:
            grain = Fraction(2) ** (lowest - 23)
            magnitude = math.floor(magnitude / grain) * grain
        below = 23 - mantissa
        result = math.floor(magnitude / quantum + Fraction(r >> (32 - below), 1 << below)) * quantum
        limit = 65504.0 if kind == "f16" else float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
        expected = infinity if result > limit else int(np.asarray(float(result)).astype(DTYPE[kind]).view(np.uint16))
        assert got == expected, (v, hex(r))


KINDS = ["f32", "f16", "bf16"]


def pairs_of_sources(kind: str, exponent: int) -> tuple[str, dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """(operand text, registers, low patterns, high patterns) of two elements in v2 or v2 and v3."""
    low, high = sources(kind, exponent), sources(kind, exponent)
    if kind == "f32":
        return "v2, v3", {2: low, 3: high}, low, high
    return "v2", {2: low | high << 16}, low, high


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("saturate", [False, True])
def test_scaled_pairs(kind: str, name: str, saturate: bool) -> None:
    fmt, old, scale = GFX950[name], filler()[22], scales()
    width = 2 * fmt.bits
    mode = DEFAULT_MODE | (FP16_OVFL if saturate else 0)
    count = 32 // width
    for part in range(count):
        text, vgprs, low, high = pairs_of_sources(kind, 0)
        select = [part & 1, part >> 1] if count == 4 else [0, part]
        if kind == "f32":
            op_sel = f"op_sel:[0,0,{select[0]},{select[1]}]"
        else:
            op_sel = f"op_sel:[0,0,{select[0]},{select[1]}]" if count == 4 else f"op_sel:[0,0,{select[1]}]"
        line = f"v_cvt_scalef32_pk_{name}_{kind} v1, {text}, v4 {op_sel}"
        state = run(line, {1: old, 4: scale, **vgprs}, mode=mode)
        for lane, s in enumerate(exponents(scale)):
            codes = [encode(numbers(p[lane : lane + 1], kind)[0], fmt, s, saturate) for p in (low, high)]
            expected = (codes[0] | codes[1] << fmt.bits) << width * part
            keep = 0xFFFFFFFF ^ (((1 << width) - 1) << width * part)
            assert int(state.vgpr[1][lane]) == int(old[lane]) & keep | expected, (line, lane)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_scaled_stochastic_single(kind: str, name: str) -> None:
    fmt, old, scale = GFX950[name], filler()[23], scales()
    for part in range(4):
        random = RNG.integers(0, 1 << 32, LANES, dtype=np.uint32)
        x = sources(kind, -3)
        word, first = (x, "0") if kind == "f32" else (x << 16 | 0x1357, "1")
        op_sel = f"op_sel:[{first},0,{part & 1},{part >> 1}]"
        state = run(f"v_cvt_scalef32_sr_{name}_{kind} v1, v2, v3, v4 {op_sel}", {1: old, 2: word, 3: random, 4: scale})
        codes = [
            encode(v, fmt, s, random=int(r), source_mantissa=MANTISSA[kind])
            for v, s, r in zip(numbers(x, kind), exponents(scale), random, strict=True)
        ]
        assert (state.vgpr[1] == (old & ~np.uint32(0xFF << 8 * part) | np.array(codes) << 8 * part)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_stochastic_fp4(kind: str) -> None:
    old, scale = filler()[24], scales()
    for part in range(4):
        random = RNG.integers(0, 1 << 32, LANES, dtype=np.uint32)
        low, high = sources(kind), sources(kind)
        text, vgprs = ("v[2:3]", {2: low, 3: high}) if kind == "f32" else ("v2", {2: low | high << 16})
        line = f"v_cvt_scalef32_sr_pk_fp4_{kind} v1, {text}, v4, v5 op_sel:[0,0,{part & 1},{part >> 1}]"
        state = run(line, {1: old, 4: random, 5: scale, **vgprs})
        for lane, s in enumerate(exponents(scale)):
            first = int(random[lane])
            codes = [
                encode(numbers(p[lane : lane + 1], kind)[0], FP4, s, random=r, source_mantissa=MANTISSA[kind])
                for p, r in ((low, first), (high, next_random(first)))
            ]
            keep = 0xFFFFFFFF ^ 0xFF << 8 * part
            expected = int(old[lane]) & keep | (codes[0] | codes[1] << 4) << 8 * part
            assert int(state.vgpr[1][lane]) == expected, (line, lane)


def element_registers(kind: str, first: int, elements: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Registers from `first` on that hold elements [n, lanes]: one a register, or two 16-bit ones."""
    if kind == "f32":
        yield from ((first + k, row) for k, row in enumerate(elements))
    else:
        yield from ((first + k // 2, elements[k] | elements[k + 1] << 16) for k in range(0, len(elements), 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fp6", "bf6"])
@pytest.mark.parametrize("stochastic", [False, True])
def test_scaled_32(kind: str, name: str, stochastic: bool) -> None:
    fmt, scale = GFX950[name], scales()
    random = RNG.integers(0, 1 << 32, LANES, dtype=np.uint32)
    elements = np.stack([sources(kind) for _ in range(32)])
    vgprs = {90: random, 91: scale, **dict(element_registers(kind, 6, elements))}
    order = list(range(32))
    if stochastic:
        last = 37 if kind == "f32" else 21
        line = f"v_cvt_scalef32_sr_pk32_{name}_{kind} v[0:5], v[6:{last}], v90, v91"
    elif kind == "f32":
        line = f"v_cvt_scalef32_2xpk16_{name}_f32 v[0:5], v[6:21], v[22:37], v91"
        order = [k // 2 + 16 * (k % 2) for k in range(32)]
    else:
        line = f"v_cvt_scalef32_pk32_{name}_{kind} v[0:5], v[6:21], v91"
    state = run(line, vgprs)
    for lane, codes in enumerate(six_bit_codes(state.vgpr[:6])):
        if lane % 3:
            continue
        r = int(random[lane])
        for k, code in zip(order, codes, strict=True):
            value = numbers(elements[k][lane : lane + 1], kind)[0]
            used = r if stochastic else None
            assert code == encode(value, fmt, exponents(scale)[lane], random=used, source_mantissa=MANTISSA[kind])
            r = next_random(r)


def test_wide_results_may_overlap_their_sources() -> None:
    elements = np.stack([sources("f16") for _ in range(32)])
    registers = dict(element_registers("f16", 0, elements))
    apart = run("v_cvt_scalef32_pk32_fp6_f16 v[40:45], v[0:15], 1.0", registers)
    inside = run("v_cvt_scalef32_pk32_fp6_f16 v[2:7], v[0:15], 1.0", registers)
    assert (inside.vgpr[2:8] == apart.vgpr[40:46]).all()


def test_inactive_lanes_keep_their_values() -> None:
    state = run("v_cvt_pk_fp8_f32 v1, 1.0, 2.0", {1: 0xAAAAAAAA}, exec_mask=2)
    assert state.vgpr[1].tolist() == [0xAAAA4038 if lane == 1 else 0xAAAAAAAA for lane in range(LANES)]
