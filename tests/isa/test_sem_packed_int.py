"""Packed 16-bit integer arithmetic and integer dot products, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from support.integer_ops import edge_numbers, fit, number
from support.vector_runs import ALL_LANES, LANES, prepare, run

ACTIVE = 0x0F0F_7654_3210_FEDD

CLAMPED: dict[str, tuple[str, int, Callable[..., int]]] = {
    **{f"v_pk_add_{t}": (t, 2, lambda x, y: x + y) for t in ("i16", "u16")},
    **{f"v_pk_sub_{t}": (t, 2, lambda x, y: x - y) for t in ("i16", "u16")},
    **{f"v_pk_mad_{t}": (t, 3, lambda x, y, z: x * y + z) for t in ("i16", "u16")},
    "v_pk_mul_lo_u16": ("u16", 2, lambda x, y: x * y),
}
"""name -> (element type, sources, function)."""

PLAIN: dict[str, tuple[str, int, Callable[..., int]]] = {
    **{f"v_pk_min_{t}": (t, 2, min) for t in ("i16", "u16")},
    **{f"v_pk_max_{t}": (t, 2, max) for t in ("i16", "u16")},
    "v_pk_lshlrev_b16": ("u16", 2, lambda n, x: x << n % 16),
    "v_pk_lshrrev_b16": ("u16", 2, lambda n, x: x >> n % 16),
    "v_pk_ashrrev_i16": ("i16", 2, lambda n, x: x >> n % 16),
}
PACKED = CLAMPED | PLAIN
SELECTIONS = [(0b000, 0b111), (0b111, 0b000), (0b001, 0b110), (0b010, 0b010)]
"""(op_sel, op_sel_hi), bit i for source i."""


def halves_of_edges(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    edges = np.array(edge_numbers(16))
    low, high = (np.where(rng.random(LANES) < 0.6, rng.choice(edges, LANES), rng.integers(0, 1 << 16, LANES)) for _ in "lh")
    return low | high << 16


def bits_text(name: str, value: int, count: int) -> str:
    return f"{name}:[{','.join(str(value >> k & 1) for k in range(count))}]"


def packed_line(name: str, selection: tuple[int, int], clamp: bool) -> str:
    count = PACKED[name][1]
    sources = ", ".join(f"v{k}" for k in range(1, count + 1))
    select = f"{bits_text('op_sel', selection[0], count)} {bits_text('op_sel_hi', selection[1], count)}"
    return f"{name} v0, {sources} {select}{' clamp' if clamp else ''}"


@pytest.fixture(scope="module", autouse=True)
def _assembled() -> None:
    prepare(
        [
            packed_line(name, selection, clamp)
            for name, selection in product(PACKED, SELECTIONS)
            for clamp in ((False, True) if name in CLAMPED else (False,))
        ],
        "gfx950",
    )


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("name", "clamp"), [*((n, False) for n in PACKED), *((n, True) for n in CLAMPED)])
def test_packed(name: str, clamp: bool, selection: tuple[int, int]) -> None:
    type_name, count, function = PACKED[name]
    sources = [halves_of_edges(seed) for seed in range(count)]
    state = run(packed_line(name, selection, clamp), {0: 77, **{k + 1: v for k, v in enumerate(sources)}}, exec_mask=ACTIVE)
    for lane in range(LANES):
        if not ACTIVE >> lane & 1:
            assert state.vgpr[0, lane] == 77
            continue
        for shift, select in zip((0, 16), selection, strict=True):
            values = [int(s[lane]) >> 16 * (select >> k & 1) & 0xFFFF for k, s in enumerate(sources)]
            exact = function(*(number(v, type_name) for v in values))
            assert int(state.vgpr[0, lane]) >> shift & 0xFFFF == fit(exact, type_name, clamp=clamp), (name, values)


def test_constants_fill_the_low_half() -> None:
    """An inline integer is one 32-bit number, of which op_sel_hi picks a half (1 has 0 in its upper half)."""
    assert run("v_pk_add_u16 v0, v1, 1", {1: 0x0005_0006}).vgpr[0, 0] == 0x0005_0007
    assert run("v_pk_add_u16 v0, v1, 1 op_sel_hi:[1,0]", {1: 0x0005_0006}).vgpr[0, 0] == 0x0006_0007
    assert run("v_pk_add_u16 v0, v1, -1", {1: 0x0005_0006}).vgpr[0, 0] == 0x0004_0005
    assert run("v_pk_sub_i16 v0, s4, v1", {1: 0x0005_0006}, sgprs={4: 0x0010_0010}).vgpr[0, 0] == 0x000B_000A


DOTS = [(count, bits, kind) for count, bits in ((2, 16), (4, 8), (8, 4)) for kind in "iu"]


def fields(x: int, bits: int, kind: str) -> list[int]:
    return [number(x >> start & ((1 << bits) - 1), f"{kind}{bits}") for start in range(0, 32, bits)]


def dot_operands(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factors with many extreme elements, and addends at the ends of the range."""
    rng = np.random.default_rng(8)
    pool = np.array([0x80808080, 0x88888888, 0x80008000, 0x7FFF7FFF, 0x7F7F7F7F, 0x77777777, 0xFFFFFFFF, 0])
    x, y = (np.where(rng.random(LANES) < 0.5, rng.choice(pool, LANES), rng.integers(0, 1 << 32, LANES)) for _ in "xy")
    ends = [0, 1, 0xFFFFFFFF, 0xFFFFFF00] + ([0x7FFFFFFF, 0x80000000, 0x7FFFFFF0, 0x80000010] if kind == "i" else [])
    return x, y, rng.choice(np.array(ends), LANES)


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize(("count", "bits", "kind"), DOTS)
def test_dot_products(count: int, bits: int, kind: str, clamp: bool) -> None:
    x, y, addend = dot_operands(kind)
    text = f"v_dot{count}_{kind}32_{kind}{bits} v0, v1, v2, v3{' clamp' if clamp else ''}"
    state = run(text, {0: 77, 1: x, 2: y, 3: addend}, exec_mask=ACTIVE)
    for lane in range(LANES):
        pairs = zip(fields(int(x[lane]), bits, kind), fields(int(y[lane]), bits, kind), strict=True)
        exact = number(int(addend[lane]), f"{kind}32") + sum(a * b for a, b in pairs)
        assert state.vgpr[0, lane] == (fit(exact, f"{kind}32", clamp=clamp) if ACTIVE >> lane & 1 else 77)


@pytest.mark.parametrize(("count", "bits"), [(2, 16), (4, 8), (8, 4)])
@pytest.mark.parametrize("form", ["_e32", "_e64", "_e64 clamp", "_dpp"])
def test_accumulating_dot_products(count: int, bits: int, form: str) -> None:
    x, y, addend = dot_operands("i")
    encoding, _, modifiers = form.partition(" ")
    if encoding == "_dpp":
        modifiers = "row_ror:4 row_mask:0xf bank_mask:0xf"
    text = f"v_dot{count}c_i32_i{bits}{encoding} v0, v1, v2 {modifiers}"
    state = run(text, {0: addend, 1: x, 2: y})
    moved = x if encoding != "_dpp" else x.reshape(-1, 16)[:, [(k - 4) % 16 for k in range(16)]].ravel()
    for lane in range(LANES):
        pairs = zip(fields(int(moved[lane]), bits, "i"), fields(int(y[lane]), bits, "i"), strict=True)
        exact = number(int(addend[lane]), "i32") + sum(a * b for a, b in pairs)
        assert state.vgpr[0, lane] == fit(exact, "i32", clamp=modifiers == "clamp")


@pytest.mark.parametrize("select", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_pair_move(select: tuple[int, int]) -> None:
    registers = {0: 9, 1: 9, 2: 20, 3: 30, 4: 40, 5: 50}
    text = f"v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[{select[0]},{select[1]}]"
    state = run(text, registers, exec_mask=ALL_LANES ^ 1)
    assert list(state.vgpr[0:2, 1]) == [(20, 30)[select[0]], (40, 50)[select[1]]]
    assert list(state.vgpr[0:2, 0]) == [9, 9]
