"""Untyped buffer instructions: descriptors, addresses and range checks lane by lane against the ISA document's formulas, and
against gfx950 hardware where that differs (ROCm/rocm-systems pull request 10928)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.memory_runs import EXECUTORS, MemoryRig, Run, lanes_of, memory_rig
from support.vector_runs import ALL_LANES, LANES, filler, prepare

NBYTES = 64 * 1024
MASK = 0x7F31_FFFF_0001_8421

WIDE = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
SMALL_LOADS = {
    "ubyte": ("<u1", None), "sbyte": ("<i1", None), "ushort": ("<u2", None), "sshort": ("<i2", None),
    "ubyte_d16": ("<u1", 0), "ubyte_d16_hi": ("<u1", 1), "sbyte_d16": ("<i1", 0), "sbyte_d16_hi": ("<i1", 1),
    "short_d16": ("<u2", 0), "short_d16_hi": ("<u2", 1),
}  # fmt: skip
SMALL_STORES = {"byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16)}
ADDRESSES = {"off": "off", "offen": "v0", "idxen": "v0", "both": "v[0:1]"}
MODIFIERS = {"off": "", "offen": "offen", "idxen": "idxen", "both": "idxen offen"}
INST_OFFSET = 8


def _tuple(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _text(operation: str, name: str, form: str) -> str:
    register = 8 if operation == "load" else 20
    data = _tuple(register, WIDE.get(name, 1))
    return f"buffer_{operation}_{name} {data}, {ADDRESSES[form]}, s[4:7], s8 {MODIFIERS[form]} offset:{INST_OFFSET}"


def _lds_text(name: str) -> str:
    return f"buffer_load_{name} v0, s[4:7], s8 offen offset:{INST_OFFSET} lds"


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    prepare(
        [
            *(_text("load", name, form) for name in WIDE for form in ADDRESSES),
            *(_text("load", name, "both") for name in SMALL_LOADS),
            *(_text("store", name, form) for name in ("dword", "dwordx4") for form in ADDRESSES),
            *(_text("store", name, "offen") for name in (*SMALL_STORES, *WIDE)),
            *(_lds_text(name) for name in ("ubyte", "sshort", "dword", "dwordx3", "dwordx4")),
        ],
        "gfx950",
    )
    with memory_rig() as one:
        yield one


@pytest.fixture(scope="module")
def memory(rig: MemoryRig) -> tuple[int, np.ndarray]:
    """(GPU address, contents) of the memory that the buffers lie in."""
    data = np.random.default_rng(5).integers(0, 256, NBYTES, dtype=np.uint8)
    return rig.buffer(data), data


@dataclass(frozen=True)
class Buffer:
    """A V#, with its base `start` bytes into the test's memory."""

    start: int = 256
    stride: int = 0
    num_records: int = 4096
    swizzle: bool = False
    index_stride: int = 8
    add_tid: bool = False
    dfmt: int = 4

    def words(self, address: int) -> dict[int, int]:
        """s[4:7]."""
        base = address + self.start
        extended = self.stride >> 14 if self.add_tid else self.dfmt
        word3 = extended << 15 | (self.index_stride.bit_length() - 4) << 21 | self.add_tid << 23
        return {
            4: base & 0xFFFFFFFF,
            5: base >> 32 | (self.stride & 0x3FFF) << 16 | self.swizzle << 31,
            6: self.num_records,
            7: word3,
        }

    def position(self, index: int | None, offset: int, lane: int) -> int:
        """Byte distance from the base, without the SGPR's offset (ISA, "Swizzled Buffer Addressing")."""
        add_lane = self.add_tid and (self.swizzle or index is None)
        stride = self.stride if add_lane else self.stride & 0x3FFF
        index = (index or 0) + (lane if add_lane else 0)
        if not self.swizzle:
            return index * stride + offset
        index_msb, index_lsb = divmod(index, self.index_stride)
        offset_msb, offset_lsb = divmod(offset, 4)
        return (index_msb * stride + offset_msb * 4) * self.index_stride + index_lsb * 4 + offset_lsb

    def in_range(self, index: int | None, end: int) -> bool:
        """ISA, "Range Checking", with `end` the end of the element, the SGPR's offset included; index is None for an
        instruction without one."""
        if index is None and self.add_tid:
            return True
        if index is not None and self.stride & 0x3FFF:
            return index < self.num_records
        return end <= self.num_records


@dataclass(frozen=True)
class Lanes:
    """What an instruction's registers say. soffset in s8."""

    form: str
    index: np.ndarray
    offset: np.ndarray
    soffset: int = 0

    def vgprs(self) -> dict[int, np.ndarray]:
        given = {"off": [], "offen": [self.offset], "idxen": [self.index], "both": [self.index, self.offset]}
        return dict(enumerate(given[self.form]))

    def place(self, lane: int) -> tuple[int | None, int]:
        """(index, offset in the record) of a lane."""
        index = int(self.index[lane]) if self.form in ("idxen", "both") else None
        offset = int(self.offset[lane]) if self.form in ("offen", "both") else 0
        return index, (offset + INST_OFFSET) % (1 << 32)


def _run(
    rig: MemoryRig, executor: str, address: int, text: str, buffer: Buffer, lanes: Lanes, mask: int = MASK, m0: int = 0
) -> Run:
    rig.forget_hits()
    sgprs = {**buffer.words(address), 8: lanes.soffset}
    return rig.run(executor, text, lanes.vgprs(), sgprs=sgprs, exec_mask=mask, m0=m0)


def _piece(data: np.ndarray, buffer: Buffer, lanes: Lanes, lane: int, byte: int, nbytes: int) -> np.ndarray | None:
    """The bytes that a lane addresses at `byte` of its access; None out of range."""
    index, offset = lanes.place(lane)
    if not buffer.in_range(index, lanes.soffset + offset + byte + nbytes):
        return None
    start = buffer.start + lanes.soffset + buffer.position(index, offset + byte, lane)
    return data[start : start + nbytes]


def _expected_words(data: np.ndarray, buffer: Buffer, lanes: Lanes, lane: int, words: int) -> list[int]:
    pieces = [_piece(data, buffer, lanes, lane, 4 * k, 4) for k in range(words)]
    return [0 if piece is None else int(piece.copy().view(np.uint32)[0]) for piece in pieces]


_RNG = np.random.default_rng(9)
_OFFSETS = (_RNG.integers(0, 1100, LANES) * 4).astype(np.uint32)
_OFFSETS[[3, 20, 41]] = 0x80000000, 0xFFFFFFFC, 0xFFFFFFF4
_SMALL_OFFSETS = (_RNG.integers(0, 4, LANES) * 4).astype(np.uint32)
_INDICES = _RNG.integers(0, 130, LANES).astype(np.uint32)
_INDICES[[5, 21]] = 100, 0xFFFFFFFF

BUFFERS = {
    "raw": (Buffer(), "offen", _OFFSETS),
    "raw_with_stride": (Buffer(stride=4), "offen", _OFFSETS),
    "raw_ends_inside_an_access": (Buffer(num_records=1004), "offen", _OFFSETS),
    "no_records": (Buffer(num_records=0), "off", _OFFSETS),
    "structured": (Buffer(stride=48, num_records=100), "both", _SMALL_OFFSETS),
    "structured_index_only": (Buffer(stride=20, num_records=100), "idxen", _SMALL_OFFSETS),
    "index_without_stride": (Buffer(num_records=16), "both", _SMALL_OFFSETS),
    "swizzled": (Buffer(stride=32, num_records=100, swizzle=True, index_stride=16), "both", _SMALL_OFFSETS),
    "swizzled_by_64": (Buffer(stride=64, num_records=100, swizzle=True, index_stride=64), "both", _SMALL_OFFSETS),
    "private": (Buffer(stride=64, num_records=1, swizzle=True, index_stride=64, add_tid=True), "offen", _SMALL_OFFSETS),
    "private_linear": (Buffer(stride=512, num_records=1, add_tid=True), "off", _SMALL_OFFSETS),
    "unbound": (Buffer(dfmt=0), "offen", _OFFSETS),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("kind", BUFFERS)
def test_wide_loads(rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str, kind: str) -> None:
    (address, data), (buffer, form, offsets), words = memory, BUFFERS[kind], WIDE[name]
    lanes = Lanes(form, _INDICES, offsets, soffset=36)
    for mask in (ALL_LANES, MASK):
        run = _run(rig, executor, address, _text("load", name, form), buffer, lanes, mask)
        expected = filler()[8 : 8 + words]
        for lane in lanes_of(mask):
            bound = kind != "unbound"
            expected[:, lane] = _expected_words(data, buffer, lanes, lane, words) if bound else 0
        np.testing.assert_array_equal(run.vgpr[8 : 8 + words], expected)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SMALL_LOADS)
@pytest.mark.parametrize("kind", ["structured", "swizzled", "index_without_stride"])
def test_small_loads(rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str, kind: str) -> None:
    (address, data), (buffer, form, offsets) = memory, BUFFERS[kind]
    dtype, half = SMALL_LOADS[name]
    lanes = Lanes(form, _INDICES, offsets + np.uint32(2))
    run = _run(rig, executor, address, _text("load", name, form), buffer, lanes)
    before = filler()[8]
    for lane in lanes_of(MASK):
        piece = _piece(data, buffer, lanes, lane, 0, np.dtype(dtype).itemsize)
        value = 0 if piece is None else int(piece.copy().view(dtype)[0])
        keep = int(before[lane])
        expected = {
            None: value & 0xFFFFFFFF,
            0: keep & 0xFFFF0000 | value & 0xFFFF,
            1: (value & 0xFFFF) << 16 | keep & 0xFFFF,
        }[half]
        assert run.vgpr[8, lane] == expected
    idle = [lane for lane in range(LANES) if not MASK >> lane & 1]
    np.testing.assert_array_equal(run.vgpr[8, idle], before[idle])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["dword", "dwordx4"])
@pytest.mark.parametrize("kind", BUFFERS)
def test_wide_stores(rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str, kind: str) -> None:
    """Lanes and dwords that share bytes: the model keeps what hardware leaves open out of the comparison."""
    (address, data), (buffer, form, offsets), words = memory, BUFFERS[kind], WIDE[name]
    lanes = Lanes(form, np.arange(LANES, dtype=np.uint32) * 2, np.where(offsets < 1 << 31, offsets % 16, offsets))
    writers: dict[int, set[int]] = {}
    for lane in lanes_of(MASK):
        for k in range(words):
            piece = None if kind == "unbound" else _piece(np.arange(NBYTES), buffer, lanes, lane, 4 * k, 4)
            if piece is not None:
                value = np.array([filler()[20 + k, lane]], np.uint32).view(np.uint8)
                for position, byte in zip(piece, value, strict=True):
                    writers.setdefault(int(position), set()).add(int(byte))
    rig.bytes_at(address, NBYTES)[:] = data
    _run(rig, executor, address, _text("store", name, form), buffer, lanes)
    after = rig.bytes_at(address, NBYTES).copy()
    rig.bytes_at(address, NBYTES)[:] = data
    for position, allowed in writers.items():
        assert int(after[position]) in allowed
        after[position] = data[position]
    np.testing.assert_array_equal(after, data)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SMALL_STORES)
def test_small_stores(rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str) -> None:
    (address, data), (nbytes, shift) = memory, SMALL_STORES[name]
    buffer = Buffer(num_records=600)
    lanes = Lanes("offen", _INDICES, np.random.default_rng(10).permutation(LANES).astype(np.uint32) * 14)
    _run(rig, executor, address, _text("store", name, "offen"), buffer, lanes)
    expected = data.copy()
    for lane in lanes_of(MASK):
        piece = _piece(expected, buffer, lanes, lane, 0, nbytes)
        if piece is not None:
            piece[:] = np.array([int(filler()[20, lane]) >> shift], np.uint32).view(np.uint8)[:nbytes]
    np.testing.assert_array_equal(rig.bytes_at(address, NBYTES), expected)
    rig.bytes_at(address, NBYTES)[:] = data


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("soffset", [0, 4, 8, 36, 1 << 31, 0xFFFFFFF0])
@pytest.mark.parametrize("name", WIDE)
def test_the_scalar_offset_counts_in_the_raw_range_check(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str, soffset: int
) -> None:
    """Hand-written attention kernels step through keys with it and rely on zeros beyond the last one. The sum with it
    does not wrap."""
    (address, data), words = memory, WIDE[name]
    lanes = Lanes("offen", _INDICES, np.arange(LANES, dtype=np.uint32) * 4, soffset)
    run = _run(rig, executor, address, _text("load", name, "offen"), Buffer(num_records=200), lanes)
    for lane in lanes_of(MASK):
        expected = _expected_words(data, Buffer(num_records=200), lanes, lane, words)
        np.testing.assert_array_equal(run.vgpr[8 : 8 + words, lane], expected)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_scalar_offset_takes_no_part_in_the_structured_range_check(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str
) -> None:
    address, data = memory
    lanes = Lanes("idxen", np.arange(LANES, dtype=np.uint32), np.zeros(LANES, np.uint32), soffset=30000)
    run = _run(rig, executor, address, _text("load", "dword", "idxen"), Buffer(stride=4, num_records=32), lanes)
    for lane in lanes_of(MASK):
        start = 256 + 30000 + INST_OFFSET + 4 * lane
        assert run.vgpr[8, lane] == (data[start : start + 4].copy().view(np.uint32)[0] if lane < 32 else 0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_only_the_vgpr_and_instruction_offsets_wrap(rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str) -> None:
    (address, data), buffer = memory, Buffer(num_records=64)
    offsets = np.full(LANES, 0xFFFFFFFC, np.uint32)
    run = _run(rig, executor, address, _text("load", "dword", "offen"), buffer, Lanes("offen", _INDICES, offsets), ALL_LANES)
    np.testing.assert_array_equal(run.vgpr[8], data[256 + 4 : 256 + 8].copy().view(np.uint32)[0])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", ["idxen", "both"])
def test_a_linear_buffer_with_an_index_ignores_add_tid(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, form: str
) -> None:
    (address, data), buffer = memory, Buffer(stride=0x4000 + 48, num_records=90, add_tid=True)
    lanes = Lanes(form, _INDICES, _SMALL_OFFSETS)
    run = _run(rig, executor, address, _text("load", "dword", form), buffer, lanes)
    for lane in lanes_of(MASK):
        assert run.vgpr[8, lane] == _expected_words(data, buffer, lanes, lane, 1)[0]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["ushort", "short_d16"])
def test_a_short_that_ends_beyond_the_records_is_out_of_range(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str
) -> None:
    (address, data), buffer = memory, Buffer(num_records=INST_OFFSET + 5)
    lanes = Lanes("both", np.zeros(LANES, np.uint32), np.arange(LANES, dtype=np.uint32))
    run = _run(rig, executor, address, _text("load", name, "both"), buffer, lanes, ALL_LANES)
    for lane in range(LANES):
        start = 256 + INST_OFFSET + lane
        value = int(data[start : start + 2].copy().view(np.uint16)[0]) if lane <= 3 else 0
        assert run.vgpr[8, lane] & 0xFFFF == value


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_data_format_extends_the_stride_of_private_buffers(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str
) -> None:
    (address, data), buffer = memory, Buffer(stride=0x4000 + 64, add_tid=True)
    lanes = Lanes("off", _INDICES, _OFFSETS)
    run = _run(rig, executor, address, _text("load", "dword", "off"), buffer, lanes, mask=0b111)
    for lane in range(3):
        assert run.vgpr[8, lane] == _expected_words(data, buffer, lanes, lane, 1)[0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_range_that_reaches_beyond_the_allocation_faults(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str
) -> None:
    address, _ = memory
    offsets = np.zeros(LANES, np.uint32)
    offsets[[9, 50]] = NBYTES
    run = _run(
        rig,
        executor,
        address,
        _text("load", "dwordx4", "offen"),
        Buffer(num_records=0x7FFFFFFE),
        Lanes("offen", _INDICES, offsets),
        ALL_LANES,
    )
    assert run.fault is not None
    assert (run.fault.space, run.fault.access, run.fault.lane) == ("global", "load", 9)
    assert run.fault.address == address + 256 + NBYTES + INST_OFFSET


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mask", [ALL_LANES, MASK])
@pytest.mark.parametrize("name", ["ubyte", "sshort", "dword", "dwordx3", "dwordx4"])
def test_loads_to_lds_put_zeros_for_lanes_out_of_range(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, name: str, mask: int
) -> None:
    (address, data), m0 = memory, 1024
    buffer, lanes = Buffer(num_records=1004), Lanes("offen", _INDICES, _OFFSETS // np.uint32(4))
    rig.lds[:] = 0xAA
    expected = rig.lds.copy()
    _run(rig, executor, address, _lds_text(name), buffer, lanes, mask, m0)
    for lane in lanes_of(mask):
        if name in WIDE:
            raw = np.array(_expected_words(data, buffer, lanes, lane, WIDE[name]), np.uint32).view(np.uint8)
        else:
            dtype = np.dtype(SMALL_LOADS[name][0])
            piece = _piece(data, buffer, lanes, lane, 0, dtype.itemsize)
            value = 0 if piece is None else int(piece.copy().view(dtype)[0])
            raw = np.array([value & 0xFFFFFFFF], np.uint32).view(np.uint8)
        target = m0 + INST_OFFSET + lane * (16 if WIDE.get(name, 1) > 2 else 4)
        expected[target : target + len(raw)] = raw
    np.testing.assert_array_equal(rig.lds, expected)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("num_records", "done"), [(INST_OFFSET + 7, False), (INST_OFFSET + 8, True)])
def test_atomics_are_in_range_as_a_whole_or_not_at_all(
    rig: MemoryRig, memory: tuple[int, np.ndarray], executor: str, num_records: int, done: bool
) -> None:
    address, data = memory
    text = f"buffer_atomic_swap_x2 v[20:21], v0, s[4:7], s8 offen offset:{INST_OFFSET} sc0"
    run = _run(
        rig, executor, address, text, Buffer(num_records=num_records), Lanes("offen", _INDICES, np.zeros(LANES)), 1 << 7
    )
    start = 256 + INST_OFFSET
    before, after = data[start : start + 8], rig.bytes_at(address + start, 8)
    swapped = np.ascontiguousarray(filler()[20:22, 7])
    assert after.tobytes() == (swapped.tobytes() if done else before.tobytes())
    assert np.ascontiguousarray(run.vgpr[20:22, 7]).tobytes() == (before.tobytes() if done else bytes(8))
    after[:] = before


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("text", ["buffer_wbl2 sc1", "buffer_inv sc0 sc1"])
def test_cache_operations_do_nothing(rig: MemoryRig, executor: str, text: str) -> None:
    np.testing.assert_array_equal(rig.run(executor, text).vgpr, filler())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(sorted(BUFFERS)),
    name=st.sampled_from(sorted(WIDE)),
    records=st.integers(0, 200),
    stride=st.integers(0, 16).map(lambda n: 4 * n),
    soffset=st.integers(0, 400),
    mask=st.integers(0, ALL_LANES),
    seed=st.integers(0, 1 << 32),
)
def test_executors_agree_with_the_model_on_any_descriptor(
    rig: MemoryRig,
    memory: tuple[int, np.ndarray],
    kind: str,
    name: str,
    records: int,
    stride: int,
    soffset: int,
    mask: int,
    seed: int,
) -> None:
    address, data = memory
    shape, form, _ = BUFFERS[kind]
    buffer = replace(shape, num_records=records, stride=stride)
    generator = np.random.default_rng(seed)
    indices = generator.integers(0, 220, LANES).astype(np.uint32)
    lanes = Lanes(form, indices, generator.integers(0, 120, LANES).astype(np.uint32), soffset)
    words = WIDE[name]
    expected = filler()[8 : 8 + words]
    for lane in lanes_of(mask):
        expected[:, lane] = _expected_words(data, buffer, lanes, lane, words) if kind != "unbound" else 0
    for executor in EXECUTORS:
        run = _run(rig, executor, address, _text("load", name, form), buffer, lanes, mask)
        np.testing.assert_array_equal(run.vgpr[8 : 8 + words], expected)
