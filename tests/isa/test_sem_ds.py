"""LDS loads and stores against a byte-by-byte model of the ISA document's address rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.memory_runs import EXECUTORS, LDS_BYTES, MemoryRig, lanes_of, memory_rig
from support.vector_runs import ALL_LANES, LANES, filler, prepare

MASKS = (ALL_LANES, 0x8000_0F00_FF00_1235, 1 << 17, 0)

LOADS = {"u8": "<u1", "i8": "<i1", "u16": "<u2", "i16": "<i2", "b32": "<u4", "b64": "<u8"}
D16_LOADS = {"u8_d16": "<u1", "u8_d16_hi": "<u1", "i8_d16": "<i1", "i8_d16_hi": "<i1", "u16_d16": "<u2", "u16_d16_hi": "<u2"}
WIDE = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}
STORES = {"b8": (1, 0), "b8_d16_hi": (1, 16), "b16": (2, 0), "b16_d16_hi": (2, 16)}
PAIRS = [(name, bits, stride) for name, stride in (("", 1), ("st64", 64)) for bits in (32, 64)]


def _tuple(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _pair_text(operation: str, suffix: str, bits: int) -> str:
    words, offsets = bits // 32, "offset0:3 offset1:1" if suffix else "offset0:3 offset1:250"
    data = f"{_tuple(20, words)}, {_tuple(24, words)}"
    return {
        "read2": f"ds_read2{suffix}_b{bits} {_tuple(8, 2 * words)}, v0 {offsets}",
        "write2": f"ds_write2{suffix}_b{bits} v0, {data} {offsets}",
        "wrxchg2": f"ds_wrxchg2{suffix}_rtn_b{bits} {_tuple(8, 2 * words)}, v0, {data} {offsets}",
    }[operation]


TRANSPOSED = {"b64_tr_b16": (16, 8), "b64_tr_b8": (8, 8), "b64_tr_b4": (4, 8), "b96_tr_b6": (6, 12)}


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    prepare(
        [
            *(f"ds_read_{name} v8, v0 offset:516" for name in (*LOADS, *D16_LOADS) if name != "b64"),
            *(f"ds_read_{name} {_tuple(8, words)}, v0 offset:516" for name, words in WIDE.items()),
            *(f"ds_write_{name} v0, {_tuple(20, words)} offset:516" for name, words in WIDE.items()),
            *(f"ds_write_{name} v0, v20 offset:516" for name in STORES),
            *(_pair_text(op, suffix, bits) for op in ("read2", "write2", "wrxchg2") for suffix, bits, _ in PAIRS),
            *(f"ds_read_{name} {_tuple(8, nbytes // 4)}, v0 offset:64" for name, (_, nbytes) in TRANSPOSED.items()),
        ],
        "gfx950",
    )
    with memory_rig() as one:
        yield one


@pytest.fixture
def lds(rig: MemoryRig) -> np.ndarray:
    """The LDS before the instruction: random bytes, also in the rig."""
    rig.lds[:] = np.random.default_rng(3).integers(0, 256, LDS_BYTES, dtype=np.uint8)
    return rig.lds.copy()


def _addresses(seed: int, limit: int, align: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, limit // align, LANES, dtype=np.uint32) * align


def _wild(addresses: np.ndarray, mask: int) -> np.ndarray:
    """Addresses with what must not be touched in the inactive lanes."""
    active = np.isin(np.arange(LANES), lanes_of(mask))
    return np.where(active, addresses, 0xFFFF_FFF0).astype(np.uint32)


def _words(memory: np.ndarray, address: int, count: int) -> np.ndarray:
    return memory[address : address + 4 * count].copy().view(np.uint32)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", LOADS)
def test_loads_extend_to_registers(rig: MemoryRig, lds: np.ndarray, executor: str, mask: int, name: str) -> None:
    dtype, words = np.dtype(LOADS[name]), max(np.dtype(LOADS[name]).itemsize // 4, 1)
    addresses = _addresses(1, 4000)
    run = rig.run(executor, f"ds_read_{name} {_tuple(8, words)}, v0 offset:516", {0: _wild(addresses, mask)}, exec_mask=mask)
    expected = filler()
    for lane in lanes_of(mask):
        start = int(addresses[lane]) + 516
        value = int(lds[start : start + dtype.itemsize].copy().view(dtype)[0])
        for k in range(words):
            expected[8 + k, lane] = (value >> (32 * k)) & 0xFFFFFFFF
    expected[0] = _wild(addresses, mask)
    np.testing.assert_array_equal(run.vgpr, expected)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", D16_LOADS)
def test_d16_loads_keep_the_other_half(rig: MemoryRig, lds: np.ndarray, executor: str, name: str) -> None:
    dtype, addresses, mask = np.dtype(D16_LOADS[name]), _addresses(2, 4000), 0xF0F0_1234_5678_9ABC
    run = rig.run(executor, f"ds_read_{name} v8, v0 offset:516", {0: addresses}, exec_mask=mask)
    before = filler()[8]
    for lane in range(LANES):
        start = int(addresses[lane]) + 516
        half = int(lds[start : start + dtype.itemsize].copy().view(dtype)[0]) & 0xFFFF
        high = name.endswith("_hi")
        merged = half << 16 | int(before[lane]) & 0xFFFF if high else int(before[lane]) & 0xFFFF0000 | half
        assert run.vgpr[8, lane] == (merged if mask >> lane & 1 else before[lane])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", WIDE)
def test_wide_loads_take_unaligned_addresses(rig: MemoryRig, lds: np.ndarray, executor: str, mask: int, name: str) -> None:
    words, addresses = WIDE[name], _addresses(3, 4000)
    text = f"ds_read_{name} {_tuple(8, words)}, v0 offset:516"
    run = rig.run(executor, text, {0: _wild(addresses, mask)}, exec_mask=mask)
    expected = filler()
    for lane in lanes_of(mask):
        expected[8 : 8 + words, lane] = _words(lds, int(addresses[lane]) + 516, words)
    np.testing.assert_array_equal(run.vgpr[1:], expected[1:])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", WIDE)
def test_the_highest_lane_wins_where_stores_overlap(
    rig: MemoryRig, lds: np.ndarray, executor: str, mask: int, name: str
) -> None:
    words, addresses = WIDE[name], _addresses(4, 300)
    text = f"ds_write_{name} v0, {_tuple(20, words)} offset:516"
    rig.run(executor, text, {0: _wild(addresses, mask)}, exec_mask=mask)
    for lane in lanes_of(mask):
        start = int(addresses[lane]) + 516
        lds[start : start + 4 * words] = np.ascontiguousarray(filler()[20 : 20 + words, lane]).view(np.uint8)
    np.testing.assert_array_equal(rig.lds, lds)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", STORES)
def test_small_stores_take_the_half_that_they_name(rig: MemoryRig, lds: np.ndarray, executor: str, name: str) -> None:
    nbytes, shift = STORES[name]
    addresses, mask = _addresses(5, 1000), 0x0123_4567_89AB_CDEF
    rig.run(executor, f"ds_write_{name} v0, v20 offset:516", {0: addresses}, exec_mask=mask)
    for lane in lanes_of(mask):
        start, value = int(addresses[lane]) + 516, int(filler()[20, lane]) >> shift
        lds[start : start + nbytes] = np.array([value], np.uint32).view(np.uint8)[:nbytes]
    np.testing.assert_array_equal(rig.lds, lds)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("suffix", "bits", "stride"), PAIRS)
def test_pairs_count_their_offsets_in_elements(
    rig: MemoryRig, lds: np.ndarray, executor: str, suffix: str, bits: int, stride: int
) -> None:
    words, unit = bits // 32, bits // 8 * stride
    first, second = (3 * unit, unit) if suffix else (3 * unit, 250 * unit)
    # Elements that no other lane shares, so that the order of the two accesses does not matter.
    addresses = np.random.default_rng(6).permutation(LANES).astype(np.uint32) * 8
    mask = 0xFFFF_0000_FFFF_1111

    read = rig.run(executor, _pair_text("read2", suffix, bits), {0: addresses}, exec_mask=mask)
    for lane in lanes_of(mask):
        start = int(addresses[lane])
        want = [*_words(lds, start + first, words), *_words(lds, start + second, words)]
        assert list(read.vgpr[8 : 8 + 2 * words, lane]) == want
    idle = [lane for lane in range(LANES) if not mask >> lane & 1]
    np.testing.assert_array_equal(read.vgpr[8:12, idle], filler()[8:12, idle])

    exchanged = rig.run(executor, _pair_text("wrxchg2", suffix, bits), {0: addresses}, exec_mask=mask)
    np.testing.assert_array_equal(exchanged.vgpr[8 : 8 + 2 * words], read.vgpr[8 : 8 + 2 * words])
    after = lds.copy()
    for lane in lanes_of(mask):
        for offset, register in ((first, 20), (second, 24)):
            start = int(addresses[lane]) + offset
            data = np.ascontiguousarray(filler()[register : register + words, lane])
            after[start : start + 4 * words] = data.view(np.uint8)
    np.testing.assert_array_equal(rig.lds, after)

    rig.lds[:] = lds
    rig.run(executor, _pair_text("write2", suffix, bits), {0: addresses}, exec_mask=mask)
    np.testing.assert_array_equal(rig.lds, after)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_read2_may_overwrite_its_own_address(rig: MemoryRig, lds: np.ndarray, executor: str) -> None:
    addresses = _addresses(7, 4000, align=4)
    run = rig.run(executor, "ds_read2_b32 v[0:1], v0 offset0:1 offset1:9", {0: addresses})
    for lane in range(LANES):
        start = int(addresses[lane])
        assert [int(x) for x in run.vgpr[0:2, lane]] == [int(_words(lds, start + o, 1)[0]) for o in (4, 36)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_addtid_forms_address_by_m0_and_lane(rig: MemoryRig, lds: np.ndarray, executor: str) -> None:
    mask, m0 = 0xFFFF_FFFF_0000_FFF1, 0xABCD_0000 | 256
    run = rig.run(executor, "ds_read_addtid_b32 v8 offset:40", m0=m0, exec_mask=mask)
    for lane in lanes_of(mask):
        assert run.vgpr[8, lane] == _words(lds, 256 + 40 + 4 * lane, 1)[0]
    rig.run(executor, "ds_write_addtid_b32 v20 offset:40", m0=m0, exec_mask=mask)
    for lane in lanes_of(mask):
        assert _words(rig.lds, 256 + 40 + 4 * lane, 1)[0] == filler()[20, lane]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mask", [ALL_LANES, 0x8000_0000_0010_0100, 0])
@pytest.mark.parametrize(("name", "sign"), [("append", 1), ("consume", -1)])
def test_append_and_consume_count_the_active_lanes(
    rig: MemoryRig, lds: np.ndarray, executor: str, mask: int, name: str, sign: int
) -> None:
    before = int(_words(lds, 1024 + 8, 1)[0])
    run = rig.run(executor, f"ds_{name} v8 offset:8", m0=1024, exec_mask=mask)
    for lane in range(LANES):
        assert run.vgpr[8, lane] == (before if mask >> lane & 1 else filler()[8, lane])
    assert _words(rig.lds, 1024 + 8, 1)[0] == (before + sign * mask.bit_count()) & 0xFFFFFFFF


@pytest.mark.parametrize("executor", EXECUTORS)
def test_ds_nop_does_nothing(rig: MemoryRig, lds: np.ndarray, executor: str) -> None:
    run = rig.run(executor, "ds_nop")
    np.testing.assert_array_equal(run.vgpr, filler())
    np.testing.assert_array_equal(rig.lds, lds)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposing_reads_give_each_lane_a_column(rig: MemoryRig, lds: np.ndarray, executor: str, name: str) -> None:
    """What rocRoller's hardware tests check: 16 lanes' data are the rows of a matrix 16 elements wide."""
    bits, nbytes = TRANSPOSED[name]
    per_lane = 8 * nbytes // bits
    addresses = np.random.default_rng(8).permutation(LANES).astype(np.uint32) * 16
    run = rig.run(executor, f"ds_read_{name} {_tuple(8, nbytes // 4)}, v0 offset:64", {0: addresses})
    for group in range(0, LANES, 16):
        data = [lds[a + 64 : a + 64 + nbytes].tobytes() for a in addresses[group : group + 16].astype(int)]
        numbers = [int.from_bytes(piece, "little") for piece in data]
        matrix = np.array([n >> (bits * e) & (1 << bits) - 1 for n in numbers for e in range(per_lane)]).reshape(-1, 16)
        for column in range(16):
            want = sum(int(element) << (bits * e) for e, element in enumerate(matrix[:, column]))
            words = run.vgpr[8 : 8 + nbytes // 4, group + column]
            assert int.from_bytes(np.ascontiguousarray(words).tobytes(), "little") == want


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("text", ["ds_read_b64 v[8:9], v0 offset:8", "ds_write_b64 v0, v[20:21] offset:8"])
def test_an_access_beyond_the_lds_names_its_first_lane_and_changes_nothing(
    rig: MemoryRig, lds: np.ndarray, executor: str, text: str
) -> None:
    addresses = np.arange(LANES, dtype=np.uint32) * 8
    addresses[[2, 21, 40]] = 0xFFFF_FFF0, LDS_BYTES - 15, 0x7FFF_FFFF
    run = rig.run(executor, text, {0: addresses}, exec_mask=ALL_LANES ^ (1 << 2))
    access = "load" if "read" in text else "store"
    assert run.fault is not None
    assert (run.fault.space, run.fault.access, run.fault.lane) == ("lds", access, 21)
    assert (run.fault.address, run.fault.nbytes, run.fault.misaligned) == (LDS_BYTES - 7, 8, False)
    np.testing.assert_array_equal(rig.lds, lds)
    np.testing.assert_array_equal(run.state.vgpr[8:], filler()[8:])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_last_bytes_of_the_lds_can_be_used(rig: MemoryRig, lds: np.ndarray, executor: str) -> None:
    run = rig.run(executor, "ds_read_b128 v[8:11], v0", {0: LDS_BYTES - 16})
    for lane in range(LANES):
        np.testing.assert_array_equal(run.vgpr[8:12, lane], _words(lds, LDS_BYTES - 16, 4))
