"""The shape of a launch: work-items per dimension, workgroup sizes, and the limits on both."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from rjemu.errors import LaunchError

Extent: TypeAlias = int | Sequence[int]
"""One to three sizes, x first; a plain number is x alone."""

Size3: TypeAlias = tuple[int, int, int]

MAX_WORKGROUP_SIZE = 1024
MAX_GLOBAL_SIZE = (1 << 32) - 1
"""Work-items per dimension: the AQL packet's grid sizes are 32 bits wide."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A checked launch shape. grid: workgroups; block: work-items per workgroup; global_size: work-items.

    dimensions: how many the caller spoke of, 1 to 3.
    """

    grid: Size3
    block: Size3
    global_size: Size3
    dimensions: int

    @property
    def workgroup_size(self) -> int:
        return prod(self.block)

    @property
    def full_workgroups(self) -> Size3:
        """Workgroups per dimension that are not partial."""
        return _triple(size // block for size, block in zip(self.global_size, self.block, strict=True))

    @property
    def remainders(self) -> Size3:
        """Size per dimension of the partial last workgroup, 0 where there is none."""
        return _triple(size % block for size, block in zip(self.global_size, self.block, strict=True))


def resolve_geometry(grid: Extent | None, global_size: Extent | None, block: Extent) -> Geometry:
    """The geometry of `grid` workgroups, or of `global_size` work-items, in workgroups of `block`.

    LaunchError for none or both of grid and global_size, for a size below 1 or not whole, and over a limit.
    """
    if (grid is None) == (global_size is None):
        raise LaunchError("a launch takes either grid= (in workgroups) or global_size= (in work-items)")
    block_size, block_dimensions = _extent("block", block)
    if prod(block_size) > MAX_WORKGROUP_SIZE:
        raise LaunchError(f"block {block_size} has {prod(block_size)} work-items: at most {MAX_WORKGROUP_SIZE}")
    if grid is not None:
        counts, dimensions = _extent("grid", grid)
        sizes = _triple(count * size for count, size in zip(counts, block_size, strict=True))
    else:
        assert global_size is not None
        sizes, dimensions = _extent("global_size", global_size)
        counts = _triple(-(-size // step) for size, step in zip(sizes, block_size, strict=True))
    if max(sizes) > MAX_GLOBAL_SIZE:
        raise LaunchError(f"{sizes} work-items: at most {MAX_GLOBAL_SIZE} per dimension")
    return Geometry(counts, block_size, sizes, max(dimensions, block_dimensions))


def _extent(what: str, value: Extent) -> tuple[Size3, int]:
    """Three sizes, missing ones as 1, and how many were given."""
    values = list(value) if isinstance(value, Sequence) else [value]
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"{what} {value!r} has {len(values)} dimensions: expected 1 to 3")
    try:
        sizes = [operator.index(size) for size in values]
    except TypeError as error:
        raise LaunchError(f"{what} {value!r}: sizes are whole numbers") from error
    if min(sizes) < 1:
        raise LaunchError(f"{what} {value!r}: every size must be at least 1")
    return _triple([*sizes, 1, 1][:3]), len(sizes)


def _triple(values: Iterable[int]) -> Size3:
    x, y, z = values
    return x, y, z
