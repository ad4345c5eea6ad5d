"""Minimum, maximum, median, compares and classes of floats, against the ISA documents' case distinctions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.float_oracle import FORMATS, Format, Rules, edge_patterns, from_registers, operand, patterns, to_registers
from support.vector_runs import ALL_LANES, DEFAULT_MODE, f32, mask_of, run

from rjemu.isa.instruction import EXEC, VCC

IEEE, DENORMALS = 0x200, 0xF0
MODES = [DEFAULT_MODE, DEFAULT_MODE & ~IEEE, DEFAULT_MODE & ~DENORMALS, DEFAULT_MODE & ~IEEE & ~0xA0]
Choice = Callable[..., int]


def order(form: Format, pattern: int) -> int:
    """An integer that orders numbers, with -0 below +0."""
    return -form.magnitude(pattern) - 1 if form.negative(pattern) else form.magnitude(pattern)


def number_extreme(r: Rules, x: int, y: int, pick: Callable[..., int]) -> int:
    f = r.format
    x, y = r.source(x), r.source(y)
    if r.ieee:
        for s in (x, y):
            if f.is_signalling(s):
                return f.quiet(s)
    if f.is_nan(x):
        return r.result(y)
    if f.is_nan(y):
        return r.result(x)
    return r.result(pick(x, y, key=lambda p: order(f, p)))


def smaller(r: Rules, x: int, y: int) -> int:
    return number_extreme(r, x, y, min)


def larger(r: Rules, x: int, y: int) -> int:
    return number_extreme(r, x, y, max)


def smallest(r: Rules, x: int, y: int, z: int) -> int:
    return smaller(r, smaller(r, x, y), z)


def largest(r: Rules, x: int, y: int, z: int) -> int:
    return larger(r, larger(r, x, y), z)


def equal(f: Format, x: int, y: int) -> bool:
    return x == y or (f.is_zero(x) and f.is_zero(y))


def middle(r: Rules, x: int, y: int, z: int) -> int:
    """Denormal results are flushed once, at the end."""
    f, exact = r.format, replace(r, denormal_results=True)
    x, y, z = r.source(x), r.source(y), r.source(z)
    if any(map(f.is_nan, (x, y, z))):
        return smallest(r, x, y, z)
    top = largest(exact, x, y, z)
    if equal(f, top, x):
        return larger(r, y, z)
    return larger(r, x, z) if equal(f, top, y) else larger(r, x, y)


def propagating(r: Rules, x: int, y: int, pick: Callable[..., int]) -> int:
    f = r.format
    x, y = r.source(x), r.source(y)
    for is_wanted in (f.is_signalling, f.is_nan):
        for s in (x, y):
            if is_wanted(s):
                return f.quiet(s)
    return r.result(pick(x, y, key=lambda p: order(f, p)))


def minimum3(r: Rules, x: int, y: int, z: int) -> int:
    return propagating(r, propagating(r, x, y, min), z, min)


def maximum3(r: Rules, x: int, y: int, z: int) -> int:
    return propagating(r, propagating(r, x, y, max), z, max)


CHOICES: list[tuple[str, Choice, int]] = [
    *[(f"v_min_{t}", smaller, 2) for t in FORMATS],
    *[(f"v_max_{t}", larger, 2) for t in FORMATS],
    *[(f"v_min3_{t}", smallest, 3) for t in ("f16", "f32")],
    *[(f"v_max3_{t}", largest, 3) for t in ("f16", "f32")],
    *[(f"v_med3_{t}", middle, 3) for t in ("f16", "f32")],
    ("v_minimum3_f32", minimum3, 3),
    ("v_maximum3_f32", maximum3, 3),
]


def source_sets(form: Format, count: int) -> list[list[list[int]]]:
    """Waves of operands: all pairs of edges in turn, and mixtures."""
    edges = edge_patterns(form)
    pairs = [(x, y) for x in edges for y in edges]
    pairs += pairs[: -len(pairs) % 64]
    waves = [
        [[p[0] for p in pairs[k : k + 64]], [p[1] for p in pairs[k : k + 64]], patterns(form, 64, k)]
        for k in range(0, len(pairs), 64)
    ]
    waves += [[patterns(form, 64, 10 * seed + k) for k in range(3)] for seed in range(3)]
    return [wave[:count] for wave in waves]


@pytest.mark.parametrize("mode", MODES, ids=hex)
@pytest.mark.parametrize(("name", "choice", "count"), CHOICES, ids=[c[0] for c in CHOICES])
def test_choices(name: str, choice: Choice, count: int, mode: int) -> None:
    form = FORMATS[name.rpartition("_")[2]]
    rules = Rules.of(form, mode)
    names = [operand(form, first) for first in (8, 2, 4, 6)][: 1 + count]
    for sources in source_sets(form, count):
        vgprs = {k: v for first, s in zip((2, 4, 6), sources, strict=False) for k, v in to_registers(s, form, first).items()}
        got = from_registers(run(f"{name} {', '.join(names)}", vgprs, mode=mode).vgpr, form, 8)
        want = [choice(rules, *lane) for lane in zip(*sources, strict=True)]
        assert got == want, [(hex(g), hex(w)) for g, w in zip(got, want, strict=True) if g != w][:5]


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "f": lambda x, y: False,
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "lg": lambda x, y: x < y or x > y,
    "ge": operator.ge,
    "o": lambda x, y: x == x and y == y,
    "u": lambda x, y: x != x or y != y,
    "nge": lambda x, y: not x >= y,
    "nlg": lambda x, y: not (x < y or x > y),
    "ngt": lambda x, y: not x > y,
    "nle": lambda x, y: not x <= y,
    "neq": operator.ne,
    "nlt": lambda x, y: not x < y,
    "tru": lambda x, y: True,
}


def as_floats(values: list[int], form: Format) -> list[float]:
    array = np.array(values, np.uint64).astype(f"uint{form.bits}")
    return [float(v) for v in array.view(f"float{form.bits}")]


@pytest.mark.parametrize("kind", list(FORMATS))
@pytest.mark.parametrize("relation", list(RELATIONS))
def test_compares(relation: str, kind: str) -> None:
    form = FORMATS[kind]
    holds = RELATIONS[relation]
    for mode in (DEFAULT_MODE, DEFAULT_MODE & ~DENORMALS):
        rules = Rules.of(form, mode)
        for x, y in source_sets(form, 2)[::5]:
            vgprs = to_registers(x, form, 2) | to_registers(y, form, 4)
            seen = zip(as_floats([*map(rules.source, x)], form), as_floats([*map(rules.source, y)], form), strict=True)
            want = sum(holds(a, c) << lane for lane, (a, c) in enumerate(seen))
            sources = f"{operand(form, 2)}, {operand(form, 4)}"
            active = 0xF0F0_1234_5678_9ABC
            state = run(f"v_cmp_{relation}_{kind} vcc, {sources}", vgprs, mode=mode, exec_mask=active)
            assert mask_of(state, VCC) == want & active
            assert mask_of(state, EXEC) == active
            state = run(f"v_cmpx_{relation}_{kind}_e64 s[10:11], {sources}", vgprs, mode=mode, exec_mask=active)
            assert mask_of(state, 10) == want & active
            assert mask_of(state, EXEC) == want & active


def test_compare_modifiers() -> None:
    state = run("v_cmp_lt_f32_e64 s[10:11], -|v2|, -v3", {2: f32([1.0, -1.0]), 3: f32([-2.0, 2.0])})
    assert mask_of(state, 10) == ALL_LANES // 3
    state = run("v_cmp_eq_f64 vcc, 1.0, v[2:3]", {2: 0, 3: [0x3FF00000, 0xBFF00000]})
    assert mask_of(state, VCC) == ALL_LANES // 3


def class_of(f: Format, pattern: int) -> int:
    if f.is_nan(pattern):
        return 0 if f.is_signalling(pattern) else 1
    for bit, found in ((2, f.is_inf(pattern)), (5, f.is_zero(pattern)), (4, f.is_denormal(pattern)), (3, True)):
        if found:
            return bit if f.negative(pattern) else 11 - bit
    raise AssertionError


@pytest.mark.parametrize("kind", list(FORMATS))
def test_classes(kind: str) -> None:
    form = FORMATS[kind]
    rng = np.random.default_rng(1)
    for mode in (DEFAULT_MODE, DEFAULT_MODE & ~DENORMALS):
        for (x,) in source_sets(form, 1)[::4]:
            masks = rng.integers(0, 1 << 10, 64) | 0xC00
            want = sum(
                (int(mask) >> class_of(form, p) & 1) << lane for lane, (p, mask) in enumerate(zip(x, masks, strict=True))
            )
            vgprs = to_registers(x, form, 2) | {4: masks}
            state = run(f"v_cmp_class_{kind} vcc, {operand(form, 2)}, v4", vgprs, mode=mode)
            assert mask_of(state, VCC) == want
            state = run(f"v_cmpx_class_{kind} vcc, {operand(form, 2)}, v4", vgprs, mode=mode)
            assert (mask_of(state, VCC), mask_of(state, EXEC)) == (want, want)


def test_class_of_negated_source() -> None:
    state = run("v_cmp_class_f32_e64 s[10:11], -v2, 4", {2: f32([np.inf, -np.inf])})
    assert mask_of(state, 10) == ALL_LANES // 3
