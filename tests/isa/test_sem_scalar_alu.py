"""Scalar arithmetic, logic, bit fields, moves and compares, against Python's integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from support.scalar_runs import run
from support.vector_runs import prepare

from rjemu.isa.tables import tables

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES32 = [0, 1, 2, 0x1F, 0x20, 0x7F, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, M32]
EDGES64 = [0, 1, 0xFFFF_FFFF, 1 << 32, (1 << 63) - 1, 1 << 63, M64 - 1, M64]
OLD = 0x0123_4567_89AB_CDEF


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def bit_field(x: int, field: int, bits: int, *, sign: bool) -> int:
    """Bits [offset, offset + width) of the number extended by its sign (or zeros), as the ISA document defines s_bfe."""
    offset, width = field & (bits - 1), min(field >> 16 & 0x7F, bits)
    if width == 0:
        return 0
    part = (signed(x, bits) if sign else x) >> offset & ((1 << width) - 1)
    return signed(part, width) & ((1 << bits) - 1) if sign else part


def first_set(x: int, bits: int, *, top: bool) -> int:
    positions = [i for i in range(bits) if x >> i & 1]
    if not positions:
        return M32
    return bits - 1 - positions[-1] if top else positions[0]


def sign_run(x: int, bits: int) -> int:
    """Number of leading bits equal to the sign; -1 where all are."""
    text = format(x, f"0{bits}b")
    length = len(text) - len(text.lstrip(text[0]))
    return M32 if length == bits else length


def overflows(exact: int) -> bool:
    return not -(1 << 31) <= exact < 1 << 31


Result = tuple[int | None, bool | int | None]
"""(destination or None, SCC or None for unchanged)."""

Expected = Callable[..., Result]
"""(sources, SCC, old destination) -> result."""


def logic(fn: Callable[[int, int], int], bits: int) -> Expected:
    def expected(x: int, y: int, scc: int, old: int) -> Result:
        d = fn(x, y) & ((1 << bits) - 1)
        return d, d != 0

    return expected


def nonzero(fn: Callable[..., int], bits: int) -> Expected:
    def expected(*args: int) -> Result:
        d = fn(*args[:-2]) & ((1 << bits) - 1)
        return d, d != 0

    return expected


def plain(fn: Callable[..., int], bits: int = 32) -> Expected:
    return lambda *args: (fn(*args[:-2]) & ((1 << bits) - 1), None)


def flag(fn: Callable[..., bool]) -> Expected:
    return lambda *args: (None, fn(*args[:-2]))


LOGIC = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "andn2": lambda x, y: x & ~y,
    "orn2": lambda x, y: x | ~y,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}

# name -> (destination bits or 0, bits of each source, expected)
TWO: dict[str, tuple[int, tuple[int, ...], Expected]] = {
    **{f"s_{n}_b{bits}": (bits, (bits, bits), logic(fn, bits)) for n, fn in LOGIC.items() for bits in (32, 64)},
    **{f"s_cmp_{n}_u32": (0, (32, 32), flag(fn)) for n, fn in COMPARE.items()},
    **{f"s_cmp_{n}_i32": (0, (32, 32), flag(lambda x, y, fn=fn: fn(signed(x), signed(y)))) for n, fn in COMPARE.items()},
    **{f"s_cmp_{n}_u64": (0, (64, 64), flag(COMPARE[n])) for n in ("eq", "lg")},
    **{
        f"s_lshl{n}_add_u32": (32, (32, 32), lambda x, y, scc, old, n=n: ((x << n) + y & M32, (x << n) + y > M32))
        for n in (1, 2, 3, 4)
    },
    "s_add_u32": (32, (32, 32), lambda x, y, scc, old: (x + y & M32, x + y > M32)),
    "s_sub_u32": (32, (32, 32), lambda x, y, scc, old: (x - y & M32, y > x)),
    "s_addc_u32": (32, (32, 32), lambda x, y, scc, old: (x + y + scc & M32, x + y + scc > M32)),
    "s_subb_u32": (32, (32, 32), lambda x, y, scc, old: (x - y - scc & M32, y + scc > x)),
    "s_add_i32": (32, (32, 32), lambda x, y, scc, old: (x + y & M32, overflows(signed(x) + signed(y)))),
    "s_sub_i32": (32, (32, 32), lambda x, y, scc, old: (x - y & M32, overflows(signed(x) - signed(y)))),
    "s_mul_i32": (32, (32, 32), plain(lambda x, y: x * y)),
    "s_mul_hi_u32": (32, (32, 32), plain(lambda x, y: x * y >> 32)),
    "s_mul_hi_i32": (32, (32, 32), plain(lambda x, y: signed(x) * signed(y) >> 32)),
    "s_min_u32": (32, (32, 32), lambda x, y, scc, old: (min(x, y), x < y)),
    "s_max_u32": (32, (32, 32), lambda x, y, scc, old: (max(x, y), x >= y)),
    "s_min_i32": (32, (32, 32), lambda x, y, scc, old: (min(x, y, key=signed), signed(x) < signed(y))),
    "s_max_i32": (32, (32, 32), lambda x, y, scc, old: (max(x, y, key=signed), signed(x) >= signed(y))),
    "s_absdiff_i32": (32, (32, 32), nonzero(lambda x, y: abs(signed(x - y & M32)), 32)),
    "s_lshl_b32": (32, (32, 32), nonzero(lambda x, y: x << y % 32, 32)),
    "s_lshl_b64": (64, (64, 32), nonzero(lambda x, y: x << y % 64, 64)),
    "s_lshr_b32": (32, (32, 32), nonzero(lambda x, y: x >> y % 32, 32)),
    "s_lshr_b64": (64, (64, 32), nonzero(lambda x, y: x >> y % 64, 64)),
    "s_ashr_i32": (32, (32, 32), nonzero(lambda x, y: signed(x) >> y % 32, 32)),
    "s_ashr_i64": (64, (64, 32), nonzero(lambda x, y: signed(x, 64) >> y % 64, 64)),
    "s_bfm_b32": (32, (32, 32), plain(lambda x, y: ((1 << x % 32) - 1) << y % 32)),
    "s_bfm_b64": (64, (32, 32), plain(lambda x, y: ((1 << x % 64) - 1) << y % 64, 64)),
    "s_bfe_u32": (32, (32, 32), nonzero(lambda x, y: bit_field(x, y, 32, sign=False), 32)),
    "s_bfe_i32": (32, (32, 32), nonzero(lambda x, y: bit_field(x, y, 32, sign=True), 32)),
    "s_bfe_u64": (64, (64, 32), nonzero(lambda x, y: bit_field(x, y, 64, sign=False), 64)),
    "s_bfe_i64": (64, (64, 32), nonzero(lambda x, y: bit_field(x, y, 64, sign=True), 64)),
    "s_cselect_b32": (32, (32, 32), lambda x, y, scc, old: (x if scc else y, None)),
    "s_cselect_b64": (64, (64, 64), lambda x, y, scc, old: (x if scc else y, None)),
    "s_pack_ll_b32_b16": (32, (32, 32), plain(lambda x, y: (y & 0xFFFF) << 16 | x & 0xFFFF)),
    "s_pack_lh_b32_b16": (32, (32, 32), plain(lambda x, y: y >> 16 << 16 | x & 0xFFFF)),
    "s_pack_hh_b32_b16": (32, (32, 32), plain(lambda x, y: y >> 16 << 16 | x >> 16)),
    "s_bitcmp0_b32": (0, (32, 32), flag(lambda x, y: not x >> y % 32 & 1)),
    "s_bitcmp1_b32": (0, (32, 32), flag(lambda x, y: bool(x >> y % 32 & 1))),
    "s_bitcmp0_b64": (0, (64, 32), flag(lambda x, y: not x >> y % 64 & 1)),
    "s_bitcmp1_b64": (0, (64, 32), flag(lambda x, y: bool(x >> y % 64 & 1))),
}
ONE: dict[str, tuple[int, tuple[int, ...], Expected]] = {
    **{f"s_mov_b{n}": (n, (n,), plain(lambda x: x, n)) for n in (32, 64)},
    **{f"s_cmov_b{n}": (n, (n,), lambda x, scc, old: (x if scc else old, None)) for n in (32, 64)},
    **{f"s_not_b{n}": (n, (n,), nonzero(lambda x: ~x, n)) for n in (32, 64)},
    **{f"s_brev_b{n}": (n, (n,), plain(lambda x, n=n: int(format(x, f"0{n}b")[::-1], 2), n)) for n in (32, 64)},
    **{f"s_bcnt0_i32_b{n}": (32, (n,), nonzero(lambda x, n=n: n - x.bit_count(), 32)) for n in (32, 64)},
    **{f"s_bcnt1_i32_b{n}": (32, (n,), nonzero(lambda x: x.bit_count(), 32)) for n in (32, 64)},
    **{f"s_ff0_i32_b{n}": (32, (n,), plain(lambda x, n=n: first_set(~x, n, top=False))) for n in (32, 64)},
    **{f"s_ff1_i32_b{n}": (32, (n,), plain(lambda x, n=n: first_set(x, n, top=False))) for n in (32, 64)},
    **{f"s_flbit_i32_b{n}": (32, (n,), plain(lambda x, n=n: first_set(x, n, top=True))) for n in (32, 64)},
    **{
        f"s_bitset0_b{n}": (n, (32,), lambda x, scc, old, n=n: (old & ~(1 << x % n), None)) for n in (32, 64)
    },
    **{f"s_bitset1_b{n}": (n, (32,), lambda x, scc, old, n=n: (old | 1 << x % n, None)) for n in (32, 64)},
    "s_flbit_i32": (32, (32,), plain(lambda x: sign_run(x, 32))),
    "s_flbit_i32_i64": (32, (64,), plain(lambda x: sign_run(x, 64))),
    "s_sext_i32_i8": (32, (32,), plain(lambda x: signed(x & 0xFF, 8))),
    "s_sext_i32_i16": (32, (32,), plain(lambda x: signed(x & 0xFFFF, 16))),
    "s_abs_i32": (32, (32,), nonzero(lambda x: abs(signed(x)), 32)),
}  # fmt: skip

ELSEWHERE = {
    *("s_setpc_b64", "s_swappc_b64", "s_getpc_b64", "s_call_b64", "s_rfe_b64", "s_rfe_restore_b64"),
    *("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32"),
    *("s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_setvskip", "s_bitreplicate_b64_b32"),
    *(f"s_{n}_b{bits}" for n in ("wqm", "quadmask", "movrels", "movreld") for bits in (32, 64)),
    *(f"s_{n}_saveexec_b64" for n in (*LOGIC, "andn1", "orn1")),
    *("s_andn1_wrexec_b64", "s_andn2_wrexec_b64"),
}
"""Rows of the same encodings that other files test."""

IMMEDIATE = {
    "s_movk_i32",
    "s_cmovk_i32",
    "s_addk_i32",
    "s_mulk_i32",
    *(f"s_cmpk_{n}_{t}" for n in COMPARE for t in ("i32", "u32")),
}


def registers(base: int, bits: int) -> str:
    return f"s{base}" if bits == 32 else f"s[{base}:{base + 1}]"


def line(name: str, dst: int, sources: tuple[int, ...]) -> str:
    operands = [registers(10, dst)] if dst else []
    operands += [registers(base, bits) for base, bits in zip((20, 30), sources, strict=False)]
    return f"{name} {', '.join(operands)}"


CASES = TWO | ONE


def values(bits: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    edges = EDGES32 if bits == 32 else EDGES64
    random = [int(v) & ((1 << bits) - 1) for v in rng.integers(0, 1 << 64, 3, dtype=np.uint64)]
    fields = [offset | width << 16 for offset, width in ((3, 7), (31, 1), (0, 32), (5, 31), (40, 40), (1, 127))]
    return [*edges, *random, *(fields if bits == 32 else [])]


def check(text: str, name: str, dst: int, sources: dict[int, tuple[int, int]], scc: int, expected: Result) -> None:
    """sources: register -> (bits, value). Compares destination and SCC."""
    narrow = {reg: value for reg, (bits, value) in sources.items() if bits == 32}
    wide = {reg: value for reg, (bits, value) in sources.items() if bits == 64} | {10: OLD}
    out = run(text, narrow, wide=wide, scc=scc)
    d, flag_ = expected
    assert out.scc == (scc if flag_ is None else int(flag_)), (name, sources, scc)
    got = out.s64(10)
    want = OLD if d is None else (d if dst == 64 else OLD & ~M32 | d)
    assert got == want, (name, [hex(v) for _, v in sources.values()], scc, hex(got), hex(want))


def test_every_row_is_tested() -> None:
    rows = tables("gfx950")
    names = {row.name for encoding in ("SOP1", "SOP2", "SOPC", "SOPK") for row in rows[encoding].values()}
    assert names == set(CASES) | IMMEDIATE | ELSEWHERE


@pytest.mark.parametrize("name", sorted(CASES))
def test_against_python(name: str) -> None:
    prepare([line(n, dst, sources) for n, (dst, sources, _) in CASES.items()], "gfx950")
    dst, sources, expected = CASES[name]
    old = OLD if dst == 64 else OLD & M32
    pools = [values(bits, seed) for seed, bits in enumerate(sources)]
    for k, operands in enumerate(itertools.product(*pools)):
        for scc in (0, 1) if k % 3 == 0 else (k & 1,):
            placed = {base: (bits, value) for base, bits, value in zip((20, 30), sources, operands, strict=False)}
            check(line(name, dst, sources), name, dst, placed, scc, expected(*operands, scc, old))


@pytest.mark.parametrize("immediate", [0, 1, -1, 0x7FFF, -0x8000, 1234])
def test_immediate_forms(immediate: int) -> None:
    unsigned = immediate & 0xFFFF
    lines = [f"s_{n}_i32 s10, {unsigned}" for n in ("movk", "cmovk", "addk", "mulk")]
    lines += [f"s_cmpk_{n}_{t} s10, {unsigned}" for n in COMPARE for t in ("i32", "u32")]
    prepare(lines, "gfx950")
    for old in (0, 1, 1234, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_8000, M32, 0x8000):
        for scc in (0, 1):
            number = signed(old)

            def outcome(text: str, old: int = old, scc: int = scc) -> tuple[int, int]:
                out = run(text, {10: old}, scc=scc)
                return out.s(10), out.scc

            assert outcome(lines[0]) == (immediate & M32, scc)
            assert outcome(lines[1]) == (immediate & M32 if scc else old, scc)
            assert outcome(lines[2]) == (old + immediate & M32, int(overflows(number + immediate)))
            assert outcome(lines[3]) == (old * immediate & M32, scc)
            for n, fn in COMPARE.items():
                assert outcome(f"s_cmpk_{n}_i32 s10, {unsigned}") == (old, int(fn(number, immediate)))
                assert outcome(f"s_cmpk_{n}_u32 s10, {unsigned}") == (old, int(fn(old, unsigned)))


def test_constants_and_special_sources() -> None:
    assert run("s_add_u32 s10, s20, -16", {20: 20}).s(10) == 4
    assert run("s_and_b64 s[10:11], exec, 0xf0f0f0f0", exec_mask=M64).s64(10) == 0xF0F0F0F0
    assert run("s_mov_b64 s[10:11], -1").s64(10) == M64
    assert run("s_mov_b32 s10, 1.0").s(10) == 0x3F80_0000
    assert run("s_mov_b64 s[10:11], 1.0").s64(10) == 0x3FF0_0000_0000_0000
    assert run("s_mov_b32 s10, src_scc", scc=1).s(10) == 1
    assert run("s_mov_b32 s10, src_vccz", vcc=0).s(10) == 1
    assert run("s_mov_b32 s10, src_execz", exec_mask=4).s(10) == 0
    assert run("s_mov_b32 exec_hi, 7", exec_mask=5).exec == 7 << 32 | 5
    assert run("s_add_u32 s20, s20, s20", {20: 3}).s(20) == 6
