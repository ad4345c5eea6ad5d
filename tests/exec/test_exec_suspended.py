"""Where resident workgroups go that come from other processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.errors import OutOfMemory
from rjemu.exec.suspended import placement
from rjemu.workers.part import share


def shares(resident: int, takers: int) -> list[tuple[int, int]]:
    return [share(resident, takers, place) for place in range(takers)]


@given(resident=st.integers(1, 300), takers=st.integers(1, 9), data=st.data())
def test_numbers_are_kept_where_scratch_follows_from_them(resident: int, takers: int, data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.integers(0, resident - 1), unique=True))
    parts = shares(resident, takers)
    for slot, (process, number) in zip(slots, placement(slots, parts, keep_numbers=True), strict=True):
        first, count = parts[process]
        assert number < count
        assert first + number == slot


@given(resident=st.integers(1, 300), takers=st.integers(1, 9), data=st.data())
def test_others_are_dealt_out_evenly(resident: int, takers: int, data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.integers(0, 10_000), unique=True, max_size=resident))
    parts = shares(resident, takers)
    places = placement(slots, parts, keep_numbers=False)
    assert len(set(places)) == len(slots)
    assert all(number < parts[process][1] for process, number in places)
    each = [sum(process == other for other, _ in places) for process in range(takers)]
    assert max(each) - min(each) <= 1


@pytest.mark.parametrize("slots, keep", [([4], True), ([0, 1, 2, 3, 4], False)])
def test_too_few_slots(slots: list[int], keep: bool) -> None:
    with pytest.raises(OutOfMemory, match="do not fit into the 4 slots"):
        placement(slots, shares(4, 2), keep_numbers=keep)
