"""FLAT, GLOBAL and SCRATCH loads and stores against a byte-by-byte model of the ISA document's addressing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.memory_runs import EXECUTORS, LDS_BYTES, MemoryRig, lanes_of, memory_rig, pair
from support.vector_runs import ALL_LANES, LANES, filler, prepare

MASK = 0x7F31_FFFF_0001_8421
NBYTES = 8192

SMALL_LOADS = {
    "ubyte": ("<u1", None), "sbyte": ("<i1", None), "ushort": ("<u2", None), "sshort": ("<i2", None),
    "ubyte_d16": ("<u1", 0), "ubyte_d16_hi": ("<u1", 1), "sbyte_d16": ("<i1", 0), "sbyte_d16_hi": ("<i1", 1),
    "short_d16": ("<u2", 0), "short_d16_hi": ("<u2", 1),
}  # fmt: skip
WIDE = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
SMALL_STORES = {"byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16)}
LDS_LOADS = {"ubyte": "<u1", "sbyte": "<i1", "ushort": "<u2", "sshort": "<i2", "dword": "<u4"}
LDS_WIDE = {"dwordx3": 3, "dwordx4": 4}
FORMS = ("global", "global_saddr", "flat")


def _tuple(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _address(form: str) -> str:
    return {"global": "v[0:1], off offset:-24", "global_saddr": "v0, s[4:5] offset:-24", "flat": "v[0:1] offset:24"}[form]


def _load_text(form: str, name: str) -> str:
    return f"{form.split('_')[0]}_load_{name} {_tuple(8, WIDE.get(name, 1))}, {_address(form)}"


def _store_text(form: str, name: str) -> str:
    address, *rest = _address(form).split(", ")
    data = _tuple(20, WIDE.get(name, 1))
    if form == "flat":
        address, offset = address.split(" ")
        return f"flat_store_{name} {address}, {data} {offset}"
    return f"global_store_{name} {address}, {data}, {rest[0]}"


SCRATCH_FORMS = {"ST": "off, off", "SS": "off, s6", "SV": "v0, off", "SVS": "v0, s6"}


def _scratch_load(form: str, name: str, offset: int = 12) -> str:
    return f"scratch_load_{name} {_tuple(8, WIDE.get(name, 1))}, {SCRATCH_FORMS[form]} offset:{offset}"


def _scratch_store(form: str, name: str) -> str:
    vaddr, saddr = SCRATCH_FORMS[form].split(", ")
    return f"scratch_store_{name} {vaddr}, {_tuple(20, WIDE.get(name, 1))}, {saddr} offset:12"


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    names = (*SMALL_LOADS, *WIDE)
    prepare(
        [
            *(_load_text(form, name) for form in FORMS for name in names),
            *(_store_text(form, name) for form in FORMS for name in (*SMALL_STORES, *WIDE)),
            *(_scratch_load(form, name) for form in SCRATCH_FORMS for name in ("dword", "dwordx4", "sshort")),
            *(_scratch_store(form, name) for form in SCRATCH_FORMS for name in ("dword", "dwordx4", "byte_d16_hi")),
            *(f"global_load_lds_{name} v[0:1], off offset:8" for name in (*LDS_LOADS, *LDS_WIDE)),
        ],
        "gfx950",
    )
    with memory_rig() as one:
        yield one


@pytest.fixture
def data(rig: MemoryRig) -> np.ndarray:
    """What device memory and the LDS hold before the instruction (the LDS: the same bytes reversed)."""
    memory = np.random.default_rng(5).integers(0, 256, NBYTES, dtype=np.uint8)
    rig.lds[:] = memory[::-1][:LDS_BYTES]
    return memory


@pytest.fixture
def address(rig: MemoryRig, data: np.ndarray) -> Iterator[int]:
    """GPU address of an allocation with `data`."""
    rig.forget_hits()
    start = rig.buffer(data)
    yield start
    rig.vram.free(start)


def _offsets(seed: int, limit: int = 4000) -> np.ndarray:
    return np.random.default_rng(seed).integers(64, limit, LANES).astype(np.uint64)


def _inputs(form: str, address: int, offsets: np.ndarray, mask: int) -> tuple[dict[int, np.ndarray], dict[int, int]]:
    """(vgprs, sgprs) so that lane l addresses byte offsets[l]; inactive lanes hold addresses that nothing is mapped at."""
    active = np.isin(np.arange(LANES), lanes_of(mask))
    immediate = np.uint64(24) if form == "flat" else np.uint64(-24 & (1 << 64) - 1)
    if form == "global_saddr":
        base = address + 24 - (1 << 20)
        low = np.where(active, offsets + np.uint64(1 << 20), 0xFFFFFFFF).astype(np.uint32)
        return {0: low}, {4: base & 0xFFFFFFFF, 5: base >> 32}
    low, high = pair(np.where(active, offsets + np.uint64(address) - immediate, 0xDEAD_0000_0000_0000))
    return {0: low, 1: high}, {}


def _expected_load(name: str, data: np.ndarray, start: int, before: np.ndarray) -> list[int]:
    """The registers that a lane's load leaves."""
    if name in WIDE:
        return [int(w) for w in data[start : start + 4 * WIDE[name]].copy().view(np.uint32)]
    dtype, half = SMALL_LOADS[name]
    value = int(data[start : start + np.dtype(dtype).itemsize].copy().view(dtype)[0])
    if half is None:
        return [value & 0xFFFFFFFF]
    keep = int(before[0])
    return [(value & 0xFFFF) << 16 | keep & 0xFFFF if half else keep & 0xFFFF0000 | value & 0xFFFF]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*SMALL_LOADS, *WIDE])
def test_loads(rig: MemoryRig, data: np.ndarray, address: int, executor: str, form: str, name: str) -> None:
    words = WIDE.get(name, 1)
    for mask in (ALL_LANES, MASK, 0):
        offsets = _offsets(1)
        vgprs, sgprs = _inputs(form, address, offsets, mask)
        run = rig.run(executor, _load_text(form, name), vgprs, sgprs=sgprs, exec_mask=mask)
        expected = filler()[8 : 8 + words]
        for lane in lanes_of(mask):
            expected[:, lane] = _expected_load(name, data, int(offsets[lane]), expected[:, lane])
        np.testing.assert_array_equal(run.vgpr[8 : 8 + words], expected)


def _store(data: np.ndarray, name: str, start: int, lane: int) -> None:
    if name in WIDE:
        raw = np.ascontiguousarray(filler()[20 : 20 + WIDE[name], lane]).view(np.uint8)
    else:
        nbytes, shift = SMALL_STORES[name]
        raw = np.array([int(filler()[20, lane]) >> shift], np.uint32).view(np.uint8)[:nbytes]
    data[start : start + len(raw)] = raw


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*SMALL_STORES, *WIDE])
def test_stores(rig: MemoryRig, data: np.ndarray, address: int, executor: str, form: str, name: str) -> None:
    for mask in (ALL_LANES, MASK, 0):
        offsets = _offsets(2, 400)
        vgprs, sgprs = _inputs(form, address, offsets, mask)
        rig.run(executor, _store_text(form, name), vgprs, sgprs=sgprs, exec_mask=mask)
        for lane in lanes_of(mask):
            _store(data, name, int(offsets[lane]), lane)
        np.testing.assert_array_equal(rig.bytes_at(address, NBYTES), data)


# --- scratch --------------------------------------------------------------------------------------------------------------

PRIVATE = 120
"""Bytes per lane of the tests' private segments."""


def _scratch_offsets(form: str) -> tuple[np.ndarray, dict[int, np.ndarray], dict[int, int]]:
    """(byte offset in each lane's segment, vgprs, sgprs)."""
    offsets = np.full(LANES, 12, np.uint32)
    vgprs: dict[int, np.ndarray] = {}
    sgprs: dict[int, int] = {}
    if "S" in form[1:]:
        sgprs[6] = 20
        offsets = offsets + np.uint32(20)
    if "V" in form:
        vgprs[0] = np.arange(LANES, dtype=np.uint32) % 60
        offsets = offsets + vgprs[0]
    return offsets, vgprs, sgprs


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", SCRATCH_FORMS)
@pytest.mark.parametrize("name", ["dword", "dwordx4", "sshort"])
def test_scratch_loads(rig: MemoryRig, data: np.ndarray, address: int, executor: str, form: str, name: str) -> None:
    offsets, vgprs, sgprs = _scratch_offsets(form)
    run = rig.run(executor, _scratch_load(form, name), vgprs, sgprs=sgprs, exec_mask=MASK, scratch=(address, PRIVATE))
    words = WIDE.get(name, 1)
    expected = filler()[8 : 8 + words]
    for lane in lanes_of(MASK):
        expected[:, lane] = _expected_load(name, data, PRIVATE * lane + int(offsets[lane]), expected[:, lane])
    np.testing.assert_array_equal(run.vgpr[8 : 8 + words], expected)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", SCRATCH_FORMS)
@pytest.mark.parametrize("name", ["dword", "dwordx4", "byte_d16_hi"])
def test_scratch_stores(rig: MemoryRig, data: np.ndarray, address: int, executor: str, form: str, name: str) -> None:
    offsets, vgprs, sgprs = _scratch_offsets(form)
    rig.run(executor, _scratch_store(form, name), vgprs, sgprs=sgprs, exec_mask=MASK, scratch=(address, PRIVATE))
    for lane in lanes_of(MASK):
        _store(data, name, PRIVATE * lane + int(offsets[lane]), lane)
    np.testing.assert_array_equal(rig.bytes_at(address, NBYTES), data)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("offset", "size", "good"), [(120, 120, False), (116, 120, True), (117, 120, False), (0, 3, False)])
def test_scratch_accesses_stay_in_the_lanes_own_segment(
    rig: MemoryRig, address: int, executor: str, offset: int, size: int, good: bool
) -> None:
    run = rig.run(
        executor, _scratch_load("SV", "dword"), {0: offset - 12 & 0xFFFFFFFF}, scratch=(address, size), exec_mask=2
    )
    assert (run.fault is None) == good
    if run.fault is not None:
        assert (run.fault.address, run.fault.lane) == ((2 << 48) + offset, 1)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_negative_scratch_offsets_count_from_the_register(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str
) -> None:
    text = "scratch_load_dword v8, v0, off offset:-4"
    run = rig.run(executor, text, {0: 8}, scratch=(address, PRIVATE))
    for lane in range(LANES):
        assert run.vgpr[8, lane] == data[PRIVATE * lane + 4 :][:4].copy().view(np.uint32)[0]


# --- flat apertures -----------------------------------------------------------------------------------------------------


def _mixed(address: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(addresses, space by lane: 0 memory, 1 LDS, 2 scratch; byte offset by lane)."""
    lanes = np.arange(LANES)
    space, offsets = lanes % 3, (lanes * 4).astype(np.uint64) % np.uint64(100)
    base = np.array([address, 1 << 48, 2 << 48], np.uint64)[space]
    return base + offsets, space, offsets.astype(int)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["dwordx2", "sbyte_d16_hi"])
def test_flat_loads_of_one_wave_reach_memory_lds_and_scratch(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, name: str
) -> None:
    addresses, space, offsets = _mixed(address)
    scratch = rig.buffer(data[::-1])
    low, high = pair(addresses - np.uint64(24))
    run = rig.run(executor, _load_text("flat", name), {0: low, 1: high}, exec_mask=MASK, scratch=(scratch, PRIVATE))
    words = WIDE.get(name, 1)
    expected = filler()[8 : 8 + words]
    for lane in lanes_of(MASK):
        memory = (data, rig.lds, data[::-1][PRIVATE * lane :])[space[lane]]
        expected[:, lane] = _expected_load(name, memory, int(offsets[lane]), expected[:, lane])
    np.testing.assert_array_equal(run.vgpr[8 : 8 + words], expected)
    rig.vram.free(scratch)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_flat_stores_and_atomics_reach_memory_lds_and_scratch(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str
) -> None:
    addresses, space, offsets = _mixed(address)
    scratch = rig.buffer(np.zeros(PRIVATE * LANES, np.uint8))
    rig.lds[:] = 0
    rig.bytes_at(address, 128)[:] = 0
    low, high = pair(addresses - np.uint64(24))
    inputs = {0: low, 1: high, 20: np.arange(1, 65)}
    run = rig.run(
        executor, "flat_atomic_add v8, v[0:1], v20 offset:24 sc0", inputs, exec_mask=MASK, scratch=(scratch, PRIVATE)
    )
    expected = [np.zeros(25, np.uint32), np.zeros(25, np.uint32), np.zeros((LANES, 25), np.uint32)]
    for lane in lanes_of(MASK):
        memory = expected[space[lane]] if space[lane] < 2 else expected[2][lane]
        assert run.vgpr[8, lane] == memory[offsets[lane] // 4]
        memory[offsets[lane] // 4] += lane + 1
    np.testing.assert_array_equal(rig.bytes_at(address, 100).copy().view(np.uint32), expected[0])
    np.testing.assert_array_equal(rig.lds[:100].copy().view(np.uint32), expected[1])
    private = rig.bytes_at(scratch, PRIVATE * LANES).reshape(LANES, PRIVATE)[:, :100].copy().view(np.uint32)
    np.testing.assert_array_equal(private, expected[2])
    rig.vram.free(scratch)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_flat_address_beyond_the_lds_faults_in_lds(rig: MemoryRig, address: int, executor: str) -> None:
    low, high = pair((1 << 48) + LDS_BYTES - 24)
    run = rig.run(executor, _load_text("flat", "dword"), {0: low, 1: high}, exec_mask=1 << 5)
    assert run.fault is not None
    assert (run.fault.space, run.fault.address, run.fault.lane) == ("lds", LDS_BYTES, 5)


# --- faults ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("text", "nbytes"), [(_load_text("global", "dwordx4"), 16), (_store_text("global", "dwordx4"), 16)])
def test_a_stray_lane_faults_before_any_lane_acts(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, text: str, nbytes: int
) -> None:
    offsets = _offsets(3)
    offsets[[4, 33]] = NBYTES - nbytes + 1
    vgprs, _ = _inputs("global", address, offsets, ALL_LANES)
    for _ in range(2):  # the second time with a warm cache of allocations
        run = rig.run(executor, text, vgprs)
        assert run.fault is not None
        assert (run.fault.space, run.fault.lane, run.fault.nbytes) == ("global", 4, nbytes)
        assert run.fault.access == ("load" if "load" in text else "store")
        assert run.fault.address == address + NBYTES - nbytes + 1
        np.testing.assert_array_equal(rig.bytes_at(address, NBYTES), data)
        np.testing.assert_array_equal(run.state.vgpr[8:], filler()[8:])
        inside, _ = _inputs("global", address, _offsets(4), ALL_LANES)
        assert rig.run(executor, text, inside).fault is None
        rig.bytes_at(address, NBYTES)[:] = data


@pytest.mark.parametrize("executor", EXECUTORS)
def test_lanes_may_lie_in_different_allocations(rig: MemoryRig, data: np.ndarray, address: int, executor: str) -> None:
    others = [rig.buffer(np.roll(data, k)) for k in range(1, 6)]
    starts, offsets = np.array([address, *others], np.uint64), _offsets(6)
    chosen = np.random.default_rng(7).integers(0, len(starts), LANES)
    low, high = pair(starts[chosen] + offsets + np.uint64(24))
    run = rig.run(executor, _load_text("global", "dwordx2"), {0: low, 1: high})
    for lane in range(LANES):
        memory = np.roll(data, int(chosen[lane]))
        start = int(offsets[lane])
        assert list(run.vgpr[8:10, lane]) == list(memory[start : start + 8].copy().view(np.uint32))
    for other in others:
        rig.vram.free(other)


# --- loads to LDS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", [*LDS_LOADS, *LDS_WIDE])
@pytest.mark.parametrize("mask", [ALL_LANES, MASK])
def test_loads_to_lds_lie_lane_by_lane_from_m0_on(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, name: str, mask: int
) -> None:
    """One dword per lane side by side, three or four at 16 bytes per lane; the offset counts for both addresses."""
    offsets, m0 = _offsets(8), 512
    low, high = pair(np.where(np.isin(np.arange(LANES), lanes_of(mask)), offsets + np.uint64(address), 1))
    expected = rig.lds.copy()
    rig.run(executor, f"global_load_lds_{name} v[0:1], off offset:8", {0: low, 1: high}, m0=m0, exec_mask=mask)
    for lane in lanes_of(mask):
        start = int(offsets[lane]) + 8
        if name in LDS_WIDE:
            raw, pitch = data[start : start + 4 * LDS_WIDE[name]], 16
        else:
            dtype = np.dtype(LDS_LOADS[name])
            value = int(data[start : start + dtype.itemsize].copy().view(dtype)[0])
            raw, pitch = np.array([value & 0xFFFFFFFF], np.uint32).view(np.uint8), 4
        target = m0 + 8 + pitch * lane
        expected[target : target + len(raw)] = raw
    np.testing.assert_array_equal(rig.lds, expected)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_scratch_loads_to_lds(rig: MemoryRig, data: np.ndarray, address: int, executor: str) -> None:
    rig.run(executor, "scratch_load_lds_dword v0, off", {0: np.arange(LANES)}, m0=64, scratch=(address, PRIVATE))
    for lane in range(LANES):
        start = PRIVATE * lane + lane
        np.testing.assert_array_equal(rig.lds[64 + 4 * lane : 68 + 4 * lane], data[start : start + 4])
