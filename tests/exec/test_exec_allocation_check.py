"""The native look-up of live allocations against the allocator's own, at and around every boundary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_runs import MemoryRig, memory_rig, pair
from support.vector_runs import LANES

LOAD = "global_load_dwordx2 v[8:9], v[0:1], off"
NBYTES = 8


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    """60 allocations of 0 to 9000 bytes, with holes where others have been freed."""
    with memory_rig() as one:
        sizes = np.random.default_rng(2).integers(0, 9000, 90)
        starts = [one.vram.allocate(int(size)) for size in sizes]
        for start in starts[1::3]:
            one.vram.free(start)
        yield one


def _accepted(rig: MemoryRig, address: int) -> bool:
    allocation = rig.vram.find(address)
    return allocation is not None and address + NBYTES <= allocation.end


def _addresses(rig: MemoryRig, which: int, distance: int, from_end: bool) -> int:
    allocations = rig.vram.allocations()
    chosen = allocations[which % len(allocations)]
    return (chosen.end if from_end else chosen.address) + distance


@settings(max_examples=300, deadline=None)
@given(data=st.data(), cold=st.booleans())
def test_a_wave_is_refused_at_its_first_lane_outside_every_allocation(
    rig: MemoryRig, data: st.DataObject, cold: bool
) -> None:
    if cold:
        rig.forget_hits()
    probes = st.tuples(st.integers(0, 59), st.integers(-20, 20), st.booleans())
    some = [_addresses(rig, *probe) for probe in data.draw(st.lists(probes, min_size=1, max_size=6))]
    addresses = [some[lane % len(some)] for lane in range(LANES)]
    low, high = pair(np.array(addresses, np.uint64))
    fault = rig.run("native", LOAD, {0: low, 1: high}).fault
    bad = [lane for lane in range(LANES) if not _accepted(rig, addresses[lane])]
    if not bad:
        assert fault is None
    else:
        assert fault is not None
        assert (fault.lane, fault.address, fault.nbytes) == (bad[0], addresses[bad[0]], NBYTES)


@pytest.mark.parametrize("address", [0, 8, (1 << 64) - 8, 1 << 63, 0x6000_0000_0000])
def test_wild_addresses_are_refused(rig: MemoryRig, address: int) -> None:
    low, high = pair(address)
    for _ in range(2):
        fault = rig.run("native", LOAD, {0: low, 1: high}).fault
        assert fault is not None
        assert (fault.lane, fault.address) == (0, address)


def test_an_empty_table_refuses_everything() -> None:
    with memory_rig() as empty:
        fault = empty.run("native", LOAD, dict(enumerate(pair(0x6000_0000_1000)))).fault
        assert fault is not None
        assert fault.lane == 0
