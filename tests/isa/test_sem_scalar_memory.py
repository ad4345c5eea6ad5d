"""Scalar loads, stores and atomics against arrays in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.scalar_runs import filler, run

from rjemu.exec.memory import AccessError, FlatMemory

BASE = 0x7E00_0000_0000
WORDS = np.random.default_rng(5).integers(0, 1 << 32, 64, dtype=np.uint32)
SIZES = {"": 1, "x2": 2, "x4": 4, "x8": 8, "x16": 16}


def memory() -> tuple[np.ndarray, FlatMemory]:
    """64 dwords at BASE: (as u32, as memory)."""
    data = WORDS.copy()
    return data, FlatMemory({BASE: data.view(np.uint8)}, np.zeros(0, np.uint8))


def register_range(first: int, count: int) -> str:
    return f"s{first}" if count == 1 else f"s[{first}:{first + count - 1}]"


def registers(out, first: int, count: int) -> list[int]:
    return [out.s(first + k) for k in range(count)]


def descriptor(records: int, stride: int = 0) -> dict[int, int]:
    """s[4:7]: a buffer at BASE + 16."""
    return {4: (BASE + 16) & 0xFFFF_FFFF, 5: (BASE + 16) >> 32 | stride << 16, 6: records, 7: 0x0002_7000}


@pytest.mark.parametrize("size", SIZES)
def test_loads(size: int) -> None:
    count = SIZES[size]
    base = {4: BASE + 16}
    destination = register_range(64, count)
    for text, sgprs, index in (
        (f"s_load_dword{size} {destination}, s[4:5], 0x8", {}, 6),
        (f"s_load_dword{size} {destination}, s[4:5], -0x8", {}, 2),
        (f"s_load_dword{size} {destination}, s[4:5], s6", {6: 20}, 9),
        (f"s_load_dword{size} {destination}, s[4:5], s6 offset:0x10", {6: 20}, 13),
        (f"s_load_dword{size} {destination}, s[4:5], s6", {6: 23}, 9),
        (f"s_load_dword{size} {destination}, s[4:5], 0xb", {}, 6),
    ):
        out = run(text, sgprs, wide=base, memory=memory()[1])
        assert registers(out, 64, count) == list(WORDS[index : index + count]), text


def test_a_load_over_its_own_base() -> None:
    out = run("s_load_dwordx4 s[4:7], s[4:5], 0x0", wide={4: BASE}, memory=memory()[1])
    assert registers(out, 4, 4) == list(WORDS[:4])


def test_the_low_bits_of_the_base_are_ignored() -> None:
    assert run("s_load_dword s64, s[4:5], 0x0", wide={4: BASE + 7}, memory=memory()[1]).s(64) == WORDS[1]


@pytest.mark.parametrize("size", ["", "x2", "x4"])
def test_scratch_offsets_count_in_64_bytes(size: str) -> None:
    count = SIZES[size]
    out = run(
        f"s_scratch_load_dword{size} {register_range(64, count)}, s[4:5], s6", {6: 2}, wide={4: BASE}, memory=memory()[1]
    )
    assert registers(out, 64, count) == list(WORDS[32 : 32 + count])
    data, mem = memory()
    run(f"s_scratch_store_dword{size} {register_range(64, count)}, s[4:5], s6", {6: 1}, wide={4: BASE}, memory=mem)
    expected = WORDS.copy()
    expected[16 : 16 + count] = filler()[64 : 64 + count]
    assert (data == expected).all()


@pytest.mark.parametrize("size", ["", "x2", "x4"])
def test_stores(size: str) -> None:
    count = SIZES[size]
    data, mem = memory()
    run(f"s_store_dword{size} {register_range(64, count)}, s[4:5], 0x20", wide={4: BASE}, memory=mem)
    expected = WORDS.copy()
    expected[8 : 8 + count] = filler()[64 : 64 + count]
    assert (data == expected).all()


def test_a_stray_access_faults() -> None:
    for text, access in (("s_load_dwordx2 s[64:65]", "load"), ("s_store_dwordx2 s[64:65]", "store")):
        with pytest.raises(AccessError) as fault:
            run(f"{text}, s[4:5], 0xfc", wide={4: BASE}, memory=memory()[1])
        assert (fault.value.space, fault.value.access, fault.value.address) == ("scalar", access, BASE + 0xFC)


@pytest.mark.parametrize(
    ("records", "stride", "inside"),
    [(240, 0, 60), (32, 0, 8), (30, 0, 7), (4, 8, 8), (3, 0, 0), (0, 0, 0), (1, 20, 5), (0xFFFF_FFFF, 4, 60)],
)
@pytest.mark.parametrize("size", SIZES)
def test_buffer_loads_stop_at_the_end(size: str, records: int, stride: int, inside: int) -> None:
    """inside: dwords of the buffer, or of the memory behind it."""
    count = SIZES[size]
    for first in (0, 5, 7):
        out = run(
            f"s_buffer_load_dword{size} {register_range(64, count)}, s[4:7], {4 * first:#x}",
            descriptor(records, stride),
            memory=memory()[1],
        )
        expected = [int(WORDS[4 + k]) if k < inside else 0 for k in range(first, first + count)]
        assert registers(out, 64, count) == expected


def test_buffer_offsets() -> None:
    sgprs = descriptor(64) | {20: 21}
    assert run("s_buffer_load_dword s64, s[4:7], s20", sgprs, memory=memory()[1]).s(64) == WORDS[9]
    assert run("s_buffer_load_dword s64, s[4:7], s20 offset:0x8", sgprs, memory=memory()[1]).s(64) == WORDS[11]
    beyond = descriptor(64) | {20: 0x8000_0000}
    assert run("s_buffer_load_dword s64, s[4:7], s20", beyond, memory=memory()[1]).s(64) == 0


def test_buffer_stores_stop_at_the_end() -> None:
    data, mem = memory()
    run("s_buffer_store_dwordx4 s[64:67], s[4:7], 0x18", descriptor(32), memory=mem)
    expected = WORDS.copy()
    expected[10:12] = filler()[64:66]
    assert (data == expected).all()


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def atomics(bits: int) -> dict[str, Callable[[int, int], int]]:
    return {
        "swap": lambda m, d: d,
        "add": lambda m, d: m + d,
        "sub": lambda m, d: m - d,
        "smin": lambda m, d: min(m, d, key=lambda x: signed(x, bits)),
        "umin": min,
        "smax": lambda m, d: max(m, d, key=lambda x: signed(x, bits)),
        "umax": max,
        "and": lambda m, d: m & d,
        "or": lambda m, d: m | d,
        "xor": lambda m, d: m ^ d,
        "inc": lambda m, d: 0 if m >= d else m + 1,
        "dec": lambda m, d: d if m == 0 or m > d else m - 1,
    }


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("space", ["", "buffer_"])
@pytest.mark.parametrize("name", atomics(32))
def test_atomics(name: str, space: str, bits: int) -> None:
    suffix, count = ("", 1) if bits == 32 else ("_x2", 2)
    dtype, limit = np.dtype(f"uint{bits}"), (1 << bits) - 1
    base = "s[4:5]" if not space else "s[4:7]"
    address = {4: (BASE + 16) & 0xFFFF_FFFF, 5: (BASE + 16) >> 32} if not space else descriptor(64)
    for old in (0, 5, limit, 1 << (bits - 1)):
        for value in (0, 1, 5, limit, (1 << (bits - 1)) - 1):
            data, mem = memory()
            data.view(dtype)[128 // bits + 1] = old
            text = f"s_{space}atomic_{name}{suffix} {register_range(64, count)}, {base}, {bits // 8:#x}"
            halves = {64: value & 0xFFFF_FFFF} | ({65: value >> 32} if count == 2 else {})
            out = run(text, address | halves, memory=mem)
            assert data.view(dtype)[128 // bits + 1] == atomics(bits)[name](old, value) & limit
            assert registers(out, 64, 2)[:count] == list(halves.values())
            data.view(dtype)[128 // bits + 1] = old
            out = run(text + " glc", address | halves, memory=mem)
            assert (out.s(64) if count == 1 else out.s64(64)) == old


@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(bits: int) -> None:
    dtype = np.dtype(f"uint{bits}")
    suffix, registers_ = ("", "s[64:65]") if bits == 32 else ("_x2", "s[64:67]")
    for compare, swapped in ((7, True), (8, False)):
        data, mem = memory()
        data.view(dtype)[0] = 7
        operands = {64: 99, 65: compare} if bits == 32 else {64: 99, 65: 1, 66: compare, 67: 0}
        address = {4: BASE & 0xFFFF_FFFF, 5: BASE >> 32}
        out = run(f"s_atomic_cmpswap{suffix} {registers_}, s[4:5], 0x0 glc", operands | address, memory=mem)
        new = 99 if bits == 32 else 99 | 1 << 32
        assert data.view(dtype)[0] == (new if swapped else 7)
        assert (out.s(64) if bits == 32 else out.s64(64)) == 7


def test_buffer_atomics_past_the_end_do_nothing() -> None:
    data, mem = memory()
    out = run("s_buffer_atomic_add s64, s[4:7], 0x10 glc", descriptor(16), memory=mem)
    assert out.s(64) == 0
    assert (data == WORDS).all()


def test_clocks_advance() -> None:
    for name in ("s_memtime", "s_memrealtime"):
        early, late = (run(f"{name} s[10:11]", hardware={"clock": ticks}).s64(10) for ticks in (0, 1000))
        assert late == early + 1000


@pytest.mark.parametrize(
    "text",
    [
        *("s_dcache_inv", "s_dcache_inv_vol", "s_dcache_wb", "s_dcache_wb_vol"),
        *("s_dcache_discard s[4:5], 0x0", "s_dcache_discard_x2 s[4:5], 0x0"),
        *("s_atc_probe 1, s[4:5], 0x0", "s_atc_probe_buffer 1, s[4:7], 0x0"),
    ],
)
def test_cache_control_changes_nothing(text: str) -> None:
    assert (run(text).state.memory == run("s_nop 0").state.memory).all()
