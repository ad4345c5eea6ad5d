"""EXEC saving, quads and bit replication, bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.scalar_runs import run
from support.vector_runs import prepare

M64 = (1 << 64) - 1
MASKS = [0, 1, M64, 0xF0F0_0000_8000_0001, 0x0000_0000_FFFF_FFFF, *np.random.default_rng(3).integers(0, 1 << 63, 4)]

FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_saveexec(name: str) -> None:
    prepare([f"s_{n}_saveexec_b64 s[10:11], s[20:21]" for n in FUNCTIONS], "gfx950")
    for mask in map(int, MASKS):
        for active in map(int, MASKS):
            out = run(f"s_{name}_saveexec_b64 s[10:11], s[20:21]", wide={20: mask}, exec_mask=active)
            new = FUNCTIONS[name](mask, active) & M64
            assert (out.s64(10), out.exec, out.scc) == (active, new, int(new != 0))


@pytest.mark.parametrize("name", ["andn1", "andn2"])
def test_wrexec(name: str) -> None:
    for mask in map(int, MASKS):
        for active in map(int, MASKS):
            out = run(f"s_{name}_wrexec_b64 s[10:11], s[20:21]", wide={20: mask}, exec_mask=active)
            new = FUNCTIONS[name](mask, active) & M64
            assert (out.s64(10), out.exec, out.scc) == (new, new, int(new != 0))


def test_saveexec_with_the_source_as_destination() -> None:
    out = run("s_and_saveexec_b64 s[10:11], s[10:11]", wide={10: 0b1100}, exec_mask=0b0110)
    assert (out.s64(10), out.exec, out.scc) == (0b0110, 0b0100, 1)


@pytest.mark.parametrize("bits", [32, 64])
def test_quads(bits: int) -> None:
    tuple_ = ("s10", "s20") if bits == 32 else ("s[10:11]", "s[20:21]")
    for mask in map(int, MASKS):
        mask &= (1 << bits) - 1
        quads = [mask >> 4 * k & 15 != 0 for k in range(bits // 4)]
        whole = sum(15 << 4 * k for k, quad in enumerate(quads) if quad)
        packed = sum(1 << k for k, quad in enumerate(quads) if quad)
        for name, expected in (("wqm", whole), ("quadmask", packed)):
            out = run(f"s_{name}_b{bits} {', '.join(tuple_)}", wide={20: mask, 10: 0})
            assert (out.s64(10), out.scc) == (expected, int(expected != 0)), (name, hex(mask))


def test_bit_replication() -> None:
    for value in (0, 1, 0x8000_0000, 0xFFFF_FFFF, 0xDEAD_BEEF, 0x1234_5678):
        doubled = int("".join(digit * 2 for digit in format(value, "032b")), 2)
        assert run("s_bitreplicate_b64_b32 s[10:11], s20", {20: value}).s64(10) == doubled
