"""Bit fields, three-input logic, byte permutation and sums of absolute differences, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.integer_ops import Operation, check
from support.vector_runs import LANES, prepare, run

M32 = (1 << 32) - 1


def in_bytes(x: int, count: int = 4) -> list[int]:
    return [x >> 8 * k & 0xFF for k in range(count)]


def bfe_signed(x: int, offset: int, width: int) -> int:
    """The field of the number extended by its sign."""
    width %= 32
    part = x >> offset % 32 & ((1 << width) - 1)
    return part - (1 << width) if width and part >> (width - 1) else part


def permuted(x: int, y: int, selector: int) -> int:
    """V_PERM_B32 of the ISA document: bytes of {x, y}, signs of its odd bytes, 0x00, 0xff."""
    data = in_bytes(x << 32 | y, 8)

    def pick(choice: int) -> int:
        if choice >= 13:
            return 0xFF
        if choice == 12:
            return 0
        if choice >= 8:
            return 0xFF if data[2 * (choice - 8) + 1] & 0x80 else 0
        return data[choice]

    return sum(pick(choice) << 8 * k for k, choice in enumerate(in_bytes(selector)))


def sad(x: int, y: int) -> int:
    return sum(abs(a - b) for a, b in zip(in_bytes(x), in_bytes(y), strict=True))


def masked_sad(x: int, y: int) -> int:
    return sum(abs(a - b) for a, b in zip(in_bytes(x), in_bytes(y), strict=True) if b)


def lerp(x: int, y: int, rounding: int) -> int:
    return sum(
        (a + b + (c & 1) >> 1) << 8 * k for k, (a, b, c) in enumerate(zip(*map(in_bytes, (x, y, rounding)), strict=True))
    )


SUMS = [
    Operation("v_sad_u8", "u32 = u32 u32 u32", lambda x, y, z: sad(x, y) + z),
    Operation("v_sad_hi_u8", "u32 = u32 u32 u32", lambda x, y, z: (sad(x, y) << 16) + z),
    Operation(
        "v_sad_u16",
        "u32 = u32 u32 u32",
        lambda x, y, z: abs((x & 0xFFFF) - (y & 0xFFFF)) + abs((x >> 16) - (y >> 16)) + z,
    ),
    Operation("v_sad_u32", "u32 = u32 u32 u32", lambda x, y, z: abs(x - y) + z),
    Operation("v_msad_u8", "u32 = u32 u32 u32", lambda x, y, z: masked_sad(x, y) + z),
]
PLAIN = [
    Operation("v_bfe_u32", "u32 = u32 u32 u32", lambda x, o, w: x >> o % 32 & ((1 << w % 32) - 1)),
    Operation("v_bfe_i32", "i32 = i32 u32 u32", bfe_signed),
    Operation("v_bfi_b32", "u32 = u32 u32 u32", lambda m, x, y: m & x | ~m & y),
    Operation("v_bfm_b32", "u32 = u32 u32", lambda w, o: ((1 << w % 32) - 1) << o % 32),
    Operation("v_alignbit_b32", "u32 = u32 u32 u32", lambda x, y, n: (x << 32 | y) >> n % 32),
    Operation("v_alignbyte_b32", "u32 = u32 u32 u32", lambda x, y, n: (x << 32 | y) >> 8 * (n % 4)),
    Operation("v_perm_b32", "u32 = u32 u32 u32", permuted),
    Operation("v_lerp_u8", "u32 = u32 u32 u32", lerp),
    Operation("v_sat_pk_u8_i16", "u16 = u32", lambda x: sum(
        max(0, min(255, h - 0x10000 if h >> 15 else h)) << 8 * k for k, h in enumerate((x & 0xFFFF, x >> 16))
    )),
]  # fmt: skip


@pytest.mark.parametrize("operation", SUMS + PLAIN, ids=lambda op: op.name)
def test_against_python(operation: Operation) -> None:
    prepare([op.line() for op in SUMS + PLAIN] + [op.line("clamp") for op in SUMS], "gfx950")
    check(operation)


@pytest.mark.parametrize("operation", SUMS, ids=lambda op: op.name)
def test_clamp_saturates(operation: Operation) -> None:
    check(operation, clamp=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, M32)] * 2, st.lists(st.integers(0, 15), min_size=4, max_size=4)), min_size=1))
def test_permutation_by_small_selectors(rows: list[tuple[int, int, list[int]]]) -> None:
    """Selectors in which every byte means something, unlike random dwords."""
    selectors = [sum(choice << 8 * k for k, choice in enumerate(choices)) for _, _, choices in rows]
    state = run("v_perm_b32 v0, v1, v2, v3", {1: [r[0] for r in rows], 2: [r[1] for r in rows], 3: selectors})
    count = min(len(rows), LANES)
    assert list(state.vgpr[0, :count]) == [permuted(x, y, s) for (x, y, _), s in zip(rows, selectors, strict=True)][:count]


def test_permutation_by_a_scalar_selector() -> None:
    state = run("v_perm_b32 v0, v1, v2, s4", {1: 0x33221100, 2: 0x77665544}, sgprs={4: 0x0C000704})
    assert state.vgpr[0, 0] == 0x00_44_33_00


TABLES = (0x00, 0xFF, 0x40, 0x54, 0x14, 0x96, 0xEA, 0xFE, 0xCA, 0x1B, 0x69, 0xD8, 0x2E, 0x35, 0x73, 0x8F)


@pytest.mark.parametrize("table", TABLES)
def test_three_input_logic(table: int) -> None:
    """Bit i of the result is bit 4 x[i] + 2 y[i] + z[i] of the table (CDNA4 ISA, V_BITOP3_B32)."""

    def logic(bits: int):
        return lambda x, y, z: sum(
            (table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1) << i for i in range(bits)
        )

    lines = [f"v_bitop3_b{bits} v0, v1, v2, v3 bitop3:{t:#x}" for t in TABLES for bits in (16, 32)]
    prepare(lines, "gfx950")
    x, y, z = (np.random.default_rng(k).integers(0, 1 << 32, LANES) for k in range(3))
    for bits in (16, 32):
        state = run(f"v_bitop3_b{bits} v0, v1, v2, v3 bitop3:{table:#x}", {1: x, 2: y, 3: z})
        assert list(state.vgpr[0]) == [logic(bits)(*map(int, lane)) for lane in zip(x, y, z, strict=True)]


def test_three_input_logic_on_halves() -> None:
    lanes = {0: 0xAAAA_BBBB, 1: 0x1234_5678, 2: 0x0F0F_F0F0, 3: 0}
    state = run("v_bitop3_b16 v0, v1, v2, v3 bitop3:0x40 op_sel:[1,0,0,1]", lanes)
    assert state.vgpr[0, 0] == (0x1234 & 0xF0F0 & ~0) << 16 | 0xBBBB


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize(("name", "difference"), [("v_qsad_pk_u16_u8", sad), ("v_mqsad_pk_u16_u8", masked_sad)])
def test_four_packed_sums(name: str, difference, clamp: bool) -> None:
    rng = np.random.default_rng(9)
    window, addend = (rng.integers(0, 1 << 64, LANES, dtype=np.uint64) for _ in range(2))
    reference = rng.integers(0, 1 << 32, LANES) & np.resize([M32, 0x00FF00FF, 0], LANES)
    addend[::3] |= np.uint64(0xFFFF_FF00_FFFF_FFF0)
    vgprs = {2: window & M32, 3: window >> 32, 4: reference, 6: addend & M32, 7: addend >> 32}
    state = run(f"{name} v[0:1], v[2:3], v4, v[6:7]{' clamp' if clamp else ''}", vgprs)
    for lane in range(LANES):
        result = int(state.vgpr[0, lane]) | int(state.vgpr[1, lane]) << 32
        for k in range(4):
            total = difference(int(window[lane]) >> 8 * k & M32, int(reference[lane])) + (
                int(addend[lane]) >> 16 * k & 0xFFFF
            )
            assert result >> 16 * k & 0xFFFF == (min(total, 0xFFFF) if clamp else total & 0xFFFF)


@pytest.mark.parametrize("clamp", [False, True])
def test_four_masked_sums_in_dwords(clamp: bool) -> None:
    """The destination may be the addend."""
    rng = np.random.default_rng(10)
    window = rng.integers(0, 1 << 64, LANES, dtype=np.uint64)
    reference = rng.integers(0, 1 << 32, LANES) & np.resize([M32, 0xFF00FF00], LANES)
    addends = rng.integers(0, 1 << 32, (4, LANES)) | np.resize([0, M32 - 15], LANES)
    vgprs = {2: window & M32, 3: window >> 32, 4: reference} | {8 + k: addends[k] for k in range(4)}
    state = run(
        f"v_mqsad_u32_u8 v[8:11], v[2:3], v4, v[8:11]{' clamp' if clamp else ''}", vgprs, exec_mask=~2 & (1 << 64) - 1
    )
    assert list(state.vgpr[8:12, 1]) == list(addends[:, 1])
    for lane in (0, *range(2, LANES)):
        for k in range(4):
            total = masked_sad(int(window[lane]) >> 8 * k & M32, int(reference[lane])) + int(addends[k, lane])
            assert state.vgpr[8 + k, lane] == (min(total, M32) if clamp else total & M32)
