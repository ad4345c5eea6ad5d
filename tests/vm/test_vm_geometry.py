"""Launch shapes: grids of workgroups or work-items, partial workgroups, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.errors import LaunchError
from rjemu.vm.geometry import resolve_geometry


def test_grid_counts_workgroups_and_missing_dimensions_are_one() -> None:
    geometry = resolve_geometry(5, None, (16, 4))
    assert (geometry.grid, geometry.block, geometry.global_size) == ((5, 1, 1), (16, 4, 1), (80, 4, 1))
    assert (geometry.dimensions, geometry.workgroup_size, geometry.remainders) == (2, 64, (0, 0, 0))


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=3), block=st.integers(1, 1024))
def test_global_size_counts_work_items(sizes: list[int], block: int) -> None:
    geometry = resolve_geometry(None, sizes, block)
    padded = [*sizes, 1, 1][:3]
    assert list(geometry.global_size) == padded
    assert (geometry.grid[0] - 1) * block < padded[0] <= geometry.grid[0] * block
    assert geometry.full_workgroups[0] * block + geometry.remainders[0] == padded[0]
    assert geometry.dimensions == len(sizes)


def test_numpy_integers_and_the_largest_sizes() -> None:
    assert resolve_geometry([np.int32(2), np.uint8(3)], None, np.int64(64)).global_size == (128, 3, 1)
    assert resolve_geometry((1, 1, 2**32 - 1), None, (1024, 1, 1)).grid[2] == 2**32 - 1
    assert resolve_geometry(None, 2**32 - 1, 1024).grid[0] == 2**22


@pytest.mark.parametrize(
    ("grid", "global_size", "block", "message"),
    [
        (None, None, 64, "either grid"),
        (1, 64, 64, "either grid"),
        (0, None, 64, "grid 0: every size must be at least 1"),
        ((4, -1), None, 64, "at least 1"),
        (1, None, 0, "block 0: every size"),
        (1, None, (1024, 2), r"block \(1024, 2, 1\) has 2048 work-items: at most 1024"),
        ((1, 2, 3, 4), None, 64, "4 dimensions"),
        ((), None, 64, "0 dimensions"),
        (1.5, None, 64, "whole numbers"),
        ("8", None, 64, "whole numbers"),
        (2**26, None, 64, r"at most 4294967295 per dimension"),
        (None, 2**32, 64, r"at most 4294967295 per dimension"),
    ],
)
def test_bad_shapes(grid: Any, global_size: Any, block: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        resolve_geometry(grid, global_size, block)
