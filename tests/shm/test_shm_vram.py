"""Device memory against a model: what is live, what is free, what it holds, and what the shared table says."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rjemu.errors import MachineClosed, OutOfMemory, UsageError
from rjemu.shm.vram import GPU_BASE, GUARD, PAGE, TABLE_CAPACITY, FreeSpace, Vram

SIZE = 1 << 20


@pytest.fixture
def vram() -> Iterator[Vram]:
    memory = Vram(SIZE)
    yield memory
    memory.close()


def table_rows(vram: Vram) -> list[tuple[int, int]]:
    """The table as native code reads it: from its address alone."""
    words = (ctypes.c_uint64 * 2).from_address(vram.table_address)
    rows = (ctypes.c_uint64 * (2 * words[0])).from_address(vram.table_address + 64)
    return [(rows[2 * i], rows[2 * i + 1]) for i in range(words[0])]


class VramMachine(RuleBasedStateMachine):
    """Any order of allocations, writes and frees; the model is a dict from address to the bytes it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.vram = Vram(SIZE)
        self.model: dict[int, bytes] = {}
        self.generation = 0

    def taken(self) -> int:
        return sum(-(-max(len(data), 1) // PAGE) * PAGE for data in self.model.values())

    @rule(nbytes=st.integers(0, SIZE // 2), align=st.sampled_from([1, 16, PAGE, 1 << 16, 1 << 18]), byte=st.integers(1, 255))
    def allocate(self, nbytes: int, align: int, byte: int) -> None:
        fits = self.taken() + -(-max(nbytes, 1) // PAGE) * PAGE <= SIZE
        try:
            address = self.vram.allocate(nbytes, align, label="block")
        except OutOfMemory:
            assert not fits
            return
        assert fits
        assert address % max(align, PAGE) == 0
        assert not self.vram.view(address, nbytes).any(), "fresh memory must be zero"
        self.vram.view(address, nbytes)[:] = byte
        self.model[address] = bytes([byte]) * nbytes

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.model)))
        self.vram.free(address)
        del self.model[address]
        with pytest.raises(UsageError):
            self.vram.free(address)

    @invariant()
    def live_memory_keeps_its_bytes(self) -> None:
        for address, data in self.model.items():
            assert self.vram.view(address, len(data)).tobytes() == data

    @invariant()
    def table_is_the_model_sorted(self) -> None:
        rows = table_rows(self.vram)
        assert rows == [(address, address + -(-len(self.model[address]) // 4) * 4) for address in sorted(self.model)]
        for (_, end), (start, _) in itertools.pairwise(rows):
            assert start - end >= GUARD
        assert self.vram.table.generation % 2 == 0
        assert self.vram.used == self.taken()

    @invariant()
    def find_agrees_with_a_linear_search(self) -> None:
        for address, data in self.model.items():
            for probe in (address - 1, address, address + len(data) - 1, address + len(data) + 3):
                inside = [a for a, d in self.model.items() if a <= probe < a + -(-len(d) // 4) * 4 or probe == a]
                found = self.vram.find(probe)
                assert ([] if found is None else [found.address]) == inside

    def teardown(self) -> None:
        self.vram.close()


VramMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestVramModel = VramMachine.TestCase


class FreeSpaceMachine(RuleBasedStateMachine):
    """The free list against a bitmap of pages."""

    PAGES = 64

    def __init__(self) -> None:
        super().__init__()
        self.space = FreeSpace(PAGE, (self.PAGES + 1) * PAGE)
        self.taken: dict[int, int] = {}

    def free_runs(self) -> list[tuple[int, int]]:
        used = {page for start, size in self.taken.items() for page in range(start // PAGE, (start + size) // PAGE)}
        runs: list[tuple[int, int]] = []
        for page in range(1, self.PAGES + 1):
            if page in used:
                continue
            if runs and runs[-1][0] + runs[-1][1] == page * PAGE:
                runs[-1] = (runs[-1][0], runs[-1][1] + PAGE)
            else:
                runs.append((page * PAGE, PAGE))
        return runs

    @rule(pages=st.integers(1, 20), align_pages=st.sampled_from([1, 2, 8]))
    def take(self, pages: int, align_pages: int) -> None:
        runs = self.free_runs()
        start = self.space.take(pages * PAGE, align_pages * PAGE)
        if start is None:
            assert all(size < (pages + align_pages - 1) * PAGE for _, size in runs)
            return
        assert start % (align_pages * PAGE) == 0
        assert any(begin <= start and start + pages * PAGE <= begin + size for begin, size in runs)
        self.taken[start] = pages * PAGE

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(sorted(self.taken)))
        self.space.give(start, self.taken.pop(start))

    @invariant()
    def blocks_are_the_maximal_free_runs(self) -> None:
        assert self.space.blocks() == self.free_runs()


FreeSpaceMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFreeSpaceModel = FreeSpaceMachine.TestCase


def test_addresses_are_47_bit_page_aligned_and_mapped_at_host_base(vram: Vram) -> None:
    address = vram.allocate(100)
    assert GPU_BASE < address < 1 << 47
    vram.view(address, 100)[:] = 5
    assert ctypes.string_at(vram.host_base + address - GPU_BASE, 100) == b"\x05" * 100


def test_full_size_of_the_largest_device_is_creatable() -> None:
    memory = Vram(309220868096)
    address = memory.allocate(1 << 20)
    memory.view(address, 1 << 20)[-1] = 1
    memory.close()


def test_nearest_names_neighbour_distance_and_side(vram: Vram) -> None:
    assert vram.nearest(GPU_BASE) == "nothing is allocated"
    first = vram.allocate(100, label="a")
    second = vram.allocate(100, label="b")
    assert vram.nearest(first + 3).startswith("3 bytes into a ")
    assert vram.nearest(first + 164).startswith("64 bytes past the end of a ")
    assert vram.nearest(second - 8).startswith("8 bytes before b ")
    assert "before a" in vram.nearest(0)
    assert "past the end of b" in vram.nearest(1 << 63)


def test_view_may_not_leave_its_allocation(vram: Vram) -> None:
    address = vram.allocate(100)
    for start, nbytes in [(address, 101), (address - 1, 4), (address + 96, 8), (address, -1), (0, 1), (address + PAGE, 1)]:
        with pytest.raises(UsageError, match="no device memory"):
            vram.view(start, nbytes)


def test_bad_requests(vram: Vram) -> None:
    for nbytes, align in [(-1, 1), (8, 3), (8, 0), (8, -4)]:
        with pytest.raises(UsageError):
            vram.allocate(nbytes, align)
    with pytest.raises(OutOfMemory, match=rf"{SIZE + 1} bytes asked for, {SIZE} of {SIZE}"):
        vram.allocate(SIZE + 1)
    address = vram.allocate(64)
    with pytest.raises(UsageError, match="not the start"):
        vram.free(address + 4)


def test_more_than_the_host_has_is_refused_before_a_page_is_touched() -> None:
    memory = Vram(1 << 45)
    with pytest.raises(OutOfMemory, match="the host has"):
        memory.allocate(1 << 44)
    memory.close()


def test_promises_count_against_the_host() -> None:
    """Untouched allocations add up: the host's memory is not promised twice."""
    memory = Vram(1 << 45)
    file_system = os.statvfs("/dev/shm")
    third = file_system.f_bavail * file_system.f_frsize // 3 // PAGE * PAGE
    with pytest.raises(OutOfMemory, match="the host has"):
        for _ in range(4):
            memory.allocate(third)
    memory.close()


def test_table_capacity_is_a_limit_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Vram(SIZE)
    monkeypatch.setattr(memory.table, "capacity", 3)
    for _ in range(3):
        memory.allocate(1)
    with pytest.raises(OutOfMemory, match="3 allocations"):
        memory.allocate(1)
    memory.close()
    assert TABLE_CAPACITY == 65536


def test_freed_pages_go_back_to_the_host(vram: Vram) -> None:
    address = vram.allocate(SIZE)
    vram.view(address, SIZE)[:] = 1
    path = f"/dev/shm/{vram.segment_name}"
    assert os.stat(path).st_blocks * 512 == SIZE
    vram.free(address)
    assert os.stat(path).st_blocks == 0


def test_closed_memory_refuses_and_leaves_no_file() -> None:
    memory = Vram(SIZE)
    address = memory.allocate(8)
    view = memory.view(address, 8)
    memory.close()
    memory.close()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{os.getpid()}-")]
    assert np.all(view == 0)
    for call in (lambda: memory.allocate(8), lambda: memory.free(address), lambda: memory.view(address, 8)):
        with pytest.raises(MachineClosed):
            call()
