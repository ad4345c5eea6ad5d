"""Packed float arithmetic, dot products and mixed-precision fma against exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from support.float_oracle import F16, F32, Format, Rules, patterns
from support.vector_runs import DEFAULT_MODE, f16, f32, run

BF16 = Format(8, 7)
DENORMALS = 0xF0
MODES = [DEFAULT_MODE, DEFAULT_MODE & ~DENORMALS, DEFAULT_MODE | 5]
Expected = Callable[..., int]


def pairs(form: Format, seed: int) -> list[tuple[int, int]]:
    """(low, high) patterns for 64 lanes."""
    return list(zip(patterns(form, 64, seed), patterns(form, 64, seed + 1000), strict=True))


def words(lanes: list[tuple[int, int]]) -> list[int]:
    return [low | high << 16 for low, high in lanes]


def bit(number: int, index: int) -> int:
    return number >> index & 1


def selectors(**fields: int) -> str:
    """op_sel:[...] and the like, from bit masks over `count` sources."""
    count = fields.pop("count")
    texts = [f" {name}:[{','.join(str(bit(value, k)) for k in range(count))}]" for name, value in fields.items()]
    return "".join(texts)


def number(r: Rules, x: int, y: int, largest: bool) -> int:
    """v_min_f16 or v_max_f16 for numbers and NaNs in IEEE mode."""
    f = r.format
    x, y = r.source(x), r.source(y)
    for s in (x, y):
        if f.is_signalling(s):
            return f.quiet(s)
    if f.is_nan(x) or f.is_nan(y):
        return r.result(y if f.is_nan(x) else x)
    rank = {p: (-f.magnitude(p) - 1 if f.negative(p) else f.magnitude(p)) for p in (x, y)}
    return r.result((max if largest else min)(x, y, key=lambda p: rank[p]))


def propagating(r: Rules, x: int, y: int, largest: bool) -> int:
    f = r.format
    x, y = r.source(x), r.source(y)
    for s in [p for p in (x, y) if f.is_signalling(p)] + [p for p in (x, y) if f.is_nan(p)]:
        return f.quiet(s)
    return number(r, x, y, largest)


PACKED: dict[str, tuple[int, Expected]] = {
    "add": (2, lambda r, x, y: r.add(x, y)),
    "mul": (2, lambda r, x, y: r.multiply(x, y)),
    "fma": (3, lambda r, x, y, z: r.fma(x, y, z)),
    "min": (2, lambda r, x, y: number(r, x, y, False)),
    "max": (2, lambda r, x, y: number(r, x, y, True)),
    "minimum3": (3, lambda r, x, y, z: propagating(r, propagating(r, x, y, False), z, False)),
    "maximum3": (3, lambda r, x, y, z: propagating(r, propagating(r, x, y, True), z, True)),
}

SELECTIONS = [
    {"op_sel": 0, "op_sel_hi": 7, "neg_lo": 0, "neg_hi": 0},
    {"op_sel": 5, "op_sel_hi": 2, "neg_lo": 3, "neg_hi": 4},
    {"op_sel": 2, "op_sel_hi": 5, "neg_lo": 4, "neg_hi": 1},
]


def picked(lanes: list[tuple[int, int]], index: int, fields: dict[str, int], high: bool, sign: int) -> list[int]:
    half = bit(fields["op_sel_hi" if high else "op_sel"], index)
    flip = sign * bit(fields["neg_hi" if high else "neg_lo"], index)
    return [lane[half] ^ flip for lane in lanes]


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize("name", list(PACKED))
def test_packed_f16(name: str, mode: int) -> None:
    count, expected = PACKED[name]
    rules = Rules.of(F16, mode)
    for seed, fields in enumerate(SELECTIONS):
        sources = [pairs(F16, 10 * seed + k) for k in range(count)]
        line = f"v_pk_{name}_f16 v1, {', '.join(f'v{2 + k}' for k in range(count))}"
        mask = (1 << count) - 1
        line += selectors(count=count, **{k: v & mask for k, v in fields.items()})
        got = run(line, {2 + k: words(s) for k, s in enumerate(sources)}, mode=mode).vgpr[1]
        halves = [
            [
                expected(rules, *lane)
                for lane in zip(*(picked(s, k, fields, high, F16.sign) for k, s in enumerate(sources)), strict=True)
            ]
            for high in (False, True)
        ]
        assert got.tolist() == words(list(zip(*halves, strict=True)))


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_packed_f32(name: str, mode: int) -> None:
    count, expected = PACKED[name]
    rules = Rules.of(F32, mode)
    for seed, fields in enumerate(SELECTIONS):
        sources = [pairs(F32, 10 * seed + k) for k in range(count)]
        registers = {2 + 2 * k + side: [p[side] for p in s] for k, s in enumerate(sources) for side in (0, 1)}
        line = f"v_pk_{name}_f32 v[10:11], {', '.join(f'v[{2 + 2 * k}:{3 + 2 * k}]' for k in range(count))}"
        mask = (1 << count) - 1
        line += selectors(count=count, **{k: v & mask for k, v in fields.items()})
        state = run(line, registers, mode=mode)
        for high in (False, True):
            lanes = zip(*(picked(s, k, fields, high, F32.sign) for k, s in enumerate(sources)), strict=True)
            assert state.vgpr[10 + high].tolist() == [expected(rules, *lane) for lane in lanes]


def test_packed_constants_and_scalars() -> None:
    """A constant is the low element, with a zero above it; a scalar pair is like a register."""
    state = run("v_pk_mul_f16 v1, v2, 2.0 op_sel_hi:[1,0]", {2: words([(int(f16([3.0])[0]), int(f16([5.0])[0]))])})
    assert state.vgpr[1].astype(np.uint32).view(np.float16)[:2].tolist() == [6.0, 10.0]
    state = run("v_pk_add_f32 v[4:5], v[2:3], 1.0", {2: f32([3.0]), 3: f32([5.0])})
    assert state.vgpr[4:6, 0].view(np.float32).tolist() == [4.0, 5.0]
    scalars = {6: int(f32([10.0])[0]), 7: int(f32([20.0])[0])}
    state = run("v_pk_fma_f32 v[4:5], v[2:3], s[6:7], v[2:3] op_sel:[0,1,0]", {2: f32([3.0]), 3: f32([5.0])}, sgprs=scalars)
    assert state.vgpr[4:6, 0].view(np.float32).tolist() == [63.0, 105.0]


def test_packed_destination_may_be_a_source() -> None:
    state = run("v_pk_add_f32 v[2:3], v[2:3], v[2:3] op_sel:[1,1] op_sel_hi:[0,0]", {2: f32([1.0]), 3: f32([5.0])})
    assert state.vgpr[2:4, 0].view(np.float32).tolist() == [10.0, 2.0]


def test_packed_clamp() -> None:
    state = run("v_pk_add_f16 v1, v2, v2 clamp", {2: words([(int(f16([0.25])[0]), int(f16([-3.0])[0]))])})
    assert int(state.vgpr[1][0]) == int(f16([0.5])[0])
    state = run("v_pk_fma_f32 v[4:5], v[2:3], v[2:3], v[2:3] clamp", {2: f32([0.25]), 3: f32([3.0])}, exec_mask=1)
    assert state.vgpr[4:6, 0].view(np.float32).tolist() == [0.3125, 1.0]


@pytest.mark.parametrize("line", ["v_pk_fmac_f16 v1, v2, v3", "v_pk_fmac_f16_e64 v1, v2, v3"])
def test_packed_accumulation(line: str) -> None:
    rules = Rules.of(F16, DEFAULT_MODE)
    for seed in range(3):
        x, y, z = (pairs(F16, 5 * seed + k) for k in range(3))
        got = run(line, {2: words(x), 3: words(y), 1: words(z)}).vgpr[1]
        lanes = zip(x, y, z, strict=True)
        assert got.tolist() == words([tuple(rules.fma(a[k], c[k], d[k]) for k in (0, 1)) for a, c, d in lanes])


# --- dot products -------------------------------------------------------------------------------------------------------


def widen(form: Format, pattern: int) -> int:
    """A f16 or bf16 pattern as f32, NaN payloads aligned on the left."""
    if form is BF16:
        return pattern << 16
    sign = (pattern >> 15) << 31
    if form.is_nan(pattern):
        return sign | F32.infinity | F32.quiet_bit | (pattern & 0x3FF) << 13
    if form.is_inf(pattern):
        return sign | F32.infinity
    return F32.round(form.value(pattern), zero_sign=bool(sign))


def dot_inputs(form: Format, seed: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
    return pairs(form, seed), pairs(form, seed + 50), patterns(F32, 64, seed + 100)


@pytest.mark.parametrize("mode", MODES[:2], ids=hex)
@pytest.mark.parametrize(("kind", "form"), [("f16", F16), ("bf16", BF16)])
def test_accumulating_dot(kind: str, form: Format, mode: int) -> None:
    rules, narrow = Rules.of(F32, mode), Rules.of(F16, mode)

    def element(pattern: int) -> int:
        return widen(form, narrow.source(pattern) if form is F16 else pattern)

    for seed in range(3):
        x, y, z = dot_inputs(form, seed)
        got = run(f"v_dot2c_f32_{kind} v1, v2, v3", {2: words(x), 3: words(y), 1: z}, mode=mode).vgpr[1]
        want = []
        for a, c, total in zip(x, y, z, strict=True):
            for k in (0, 1):
                total = rules.fma(element(a[k]), element(c[k]), total)
            want.append(total)
        assert got.tolist() == want


@pytest.mark.parametrize("mode", MODES[:2], ids=hex)
def test_dot_of_f16(mode: int) -> None:
    """The addend first, a denormal one as zero."""
    rules, narrow = Rules.of(F32, mode), Rules.of(F16, mode)
    for seed in range(3):
        x, y, z = dot_inputs(F16, seed)
        got = run("v_dot2_f32_f16 v1, v2, v3, v4 neg_lo:[1,0,1] neg_hi:[0,1,0]", {2: words(x), 3: words(y), 4: z}, mode=mode)
        want = []
        for a, c, total in zip(x, y, z, strict=True):
            factors = [widen(F16, narrow.source(p)) for p in (a[0], c[0], a[1], c[1])]
            total = rules.fma(factors[0] ^ F32.sign, factors[1], F32.flush(total ^ F32.sign))
            want.append(rules.fma(factors[2], factors[3] ^ F32.sign, total))
        assert mask_nan_order(got.vgpr[1].tolist()) == mask_nan_order(want)


@pytest.mark.parametrize("mode", MODES[:2], ids=hex)
def test_dot_of_bf16(mode: int) -> None:
    """The addend last."""
    rules = Rules.of(F32, mode)
    for seed in range(3):
        x, y, z = dot_inputs(BF16, seed)
        got = run("v_dot2_f32_bf16 v1, v2, v3, v4", {2: words(x), 3: words(y), 4: z}, mode=mode).vgpr[1]
        want = []
        for a, c, addend in zip(x, y, z, strict=True):
            low = rules.multiply(widen(BF16, a[0]), widen(BF16, c[0]))
            want.append(rules.add(rules.fma(widen(BF16, a[1]), widen(BF16, c[1]), low), addend))
        assert mask_nan_order(got.tolist()) == mask_nan_order(want)


def mask_nan_order(values: list[int]) -> list[int]:
    """Which of several NaNs wins a dot product is not told."""
    return [F32.default_nan if F32.is_nan(v) else v for v in values]


def test_dot_rounds_each_sum() -> None:
    big, one = int(f16([2048.0])[0]), int(f16([1.0])[0])
    tiny = int(f32([2.0**-2])[0])
    state = run("v_dot2_f32_f16 v1, v2, v3, v4", {2: words([(big, one)]), 3: words([(big, one)]), 4: tiny})
    exact = Fraction(2) ** 22 + Fraction(1, 4) + 1
    assert int(state.vgpr[1][0]) == F32.round(Fraction(float(np.float32(2.0**22 + 0.25))) + 1) == F32.round(exact)


# --- mixed precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES[:2], ids=hex)
@pytest.mark.parametrize(("halves", "upper"), [(0, 0), (7, 0), (7, 7), (5, 4), (2, 2)])
def test_mixed_fma(halves: int, upper: int, mode: int) -> None:
    """op_sel_hi: which sources are f16; op_sel: which half of them."""
    rules, narrow = Rules.of(F32, mode), Rules.of(F16, mode)
    sources = [pairs(F16, k) if bit(halves, k) else [(p & 0xFFFF, p >> 16) for p in patterns(F32, 64, k)] for k in range(3)]

    def element(k: int, lane: tuple[int, int]) -> int:
        return widen(F16, narrow.source(lane[bit(upper, k)])) if bit(halves, k) else lane[0] | lane[1] << 16

    totals = [rules.fma(*(element(k, s) for k, s in enumerate(lane))) for lane in zip(*sources, strict=True)]
    registers = {2 + k: words(s) for k, s in enumerate(sources)} | {1: 0x12345678}
    fields = selectors(count=3, op_sel=upper, op_sel_hi=halves)
    assert run(f"v_fma_mix_f32 v1, v2, v3, v4{fields}", registers, mode=mode).vgpr[1].tolist() == totals
    rounded = [narrow.result(narrowed(t)) for t in totals]
    low = run(f"v_fma_mixlo_f16 v1, v2, v3, v4{fields}", registers, mode=mode).vgpr[1]
    assert low.tolist() == [0x12340000 | h for h in rounded]
    high = run(f"v_fma_mixhi_f16 v1, v2, v3, v4{fields}", registers, mode=mode).vgpr[1]
    assert high.tolist() == [0x5678 | h << 16 for h in rounded]


def narrowed(pattern: int) -> int:
    """f32 to f16, to nearest."""
    sign = pattern >> 31 << 15
    if F32.is_nan(pattern):
        return sign | F16.infinity | F16.quiet_bit | (pattern >> 13 & 0x3FF)
    return sign | F16.infinity if F32.is_inf(pattern) else F16.round(F32.value(pattern), zero_sign=bool(sign))


def test_mixed_fma_modifiers() -> None:
    vgprs = {2: f16([3.0]), 3: f32([-2.0]), 4: f32([-10.0])}
    state = run("v_fma_mix_f32 v1, -v2, |v3|, -|v4| op_sel_hi:[1,0,0]", vgprs)
    assert state.vgpr[1].view(np.float32)[0] == -16.0
    state = run("v_fma_mixlo_f16 v1, v2, -v3, v4 op_sel_hi:[1,0,0] clamp", vgprs)
    assert int(state.vgpr[1][0]) & 0xFFFF == 0
