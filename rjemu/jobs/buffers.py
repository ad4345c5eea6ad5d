"""The `buffers` of a job file: device arrays, and what they start as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from rjemu.errors import UsageError
from rjemu.jobs.files import ArrayFile
from rjemu.jobs.table import Table
from rjemu.vm.array import resolve_dtype


@dataclass(frozen=True, slots=True)
class RandomFill:
    """Random numbers. first, second: mean and standard deviation (normal), or lower and upper bound (uniform)."""

    distribution: Literal["normal", "uniform"]
    seed: int
    first: float
    second: float

    def make(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of the same numbers on every host; uniform whole numbers leave the upper bound out."""
        rng = np.random.default_rng(self.seed)
        if self.distribution == "normal":
            return rng.normal(self.first, self.second, shape).astype(dtype)
        if dtype.kind in "iu":
            return rng.integers(int(self.first), int(self.second), shape, dtype)
        return rng.uniform(self.first, self.second, shape).astype(dtype)


@dataclass(frozen=True, slots=True)
class Fill:
    """An array of a shape and dtype, filled with a number or random ones."""

    dtype: np.dtype
    shape: tuple[int, ...]
    value: RandomFill | float

    def load(self) -> np.ndarray:
        if isinstance(self.value, RandomFill):
            return self.value.make(self.shape, self.dtype)
        return np.full(self.shape, self.value, self.dtype)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A device array, by its name in the job."""

    name: str
    source: ArrayFile | Fill

    def contents(self) -> np.ndarray:
        """The host array that the buffer starts as; UsageError for a file that does not hold it."""
        return self.source.load()


def parse_buffer(table: Table) -> Buffer:
    """An entry of `buffers`. UsageError, as all functions here, for what is wrong with it."""
    name = table.require("name", str)
    table.place = f"buffer {name!r}"
    path = table.path("file")
    dtype = _dtype(table)
    shape = _shape(table)
    if path is not None:
        key = table.take("key", str)
        offset = table.take("offset", int)
        table.finish()
        return Buffer(name, _array_file(table, ArrayFile(path, dtype, key, shape), offset))
    if dtype is None:
        table.fail("needs a file, or dtype and shape")
    if shape is None:
        table.fail("needs a shape")
    fill = _fill(table, dtype)
    table.finish()
    return Buffer(name, Fill(dtype, shape, fill))


def _array_file(table: Table, file: ArrayFile, offset: int | None) -> ArrayFile:
    """The file, if its keys go together."""
    if file.key is not None and not file.is_npz:
        table.fail("key names an array of an .npz file")
    if file.shape is None:
        if offset is not None:
            table.fail("offset is for raw files, which have a dtype and a shape")
        return file
    if file.is_npz or file.path.suffix == ".npy":
        table.fail(f"shape is what {file.path.suffix} files say themselves")
    if file.dtype is None:
        table.fail("a raw file needs a dtype")
    if offset is not None and offset < 0:
        table.fail(f"offset is {offset}: expected no negative number")
    return ArrayFile(file.path, file.dtype, None, file.shape, offset or 0)


def _shape(table: Table) -> tuple[int, ...] | None:
    given: Sequence[int] | None = table.extent("shape")
    if given is None:
        return None
    if min(given, default=0) < 0 or prod(given) > 1 << 48:
        table.fail("needs a shape of sizes that are not negative, and no larger than memories are")
    return tuple(given)


def _dtype(table: Table) -> np.dtype | None:
    name = table.take("dtype", str)
    try:
        return None if name is None else resolve_dtype(name)
    except UsageError as error:
        table.fail(str(error))


def _fill(table: Table, dtype: np.dtype) -> RandomFill | float:
    value = table.take("fill", int, float, str, dict, default=0)
    if isinstance(value, dict):
        return _random_fill(Table(table.file, f"{table.place}, fill", value), dtype)
    if isinstance(value, str):
        if value != "nan":
            table.fail(f"fill {value!r} is not known: a number, 'nan' or a table is expected")
        value = float("nan")
    if dtype.kind in "iub":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not isinstance(value, int) or not limits[0] <= value <= limits[1]:
            table.fail(f"fill {value} is no {dtype}")
    return value


def _random_fill(table: Table, dtype: np.dtype) -> RandomFill:
    distribution = table.require("random", str)
    seed = table.take("seed", int, default=0)
    if seed < 0:
        table.fail(f"seed is {seed}: expected no negative number")
    if distribution == "normal":
        if dtype.kind in "iub":
            table.fail(f"normal random numbers are no {dtype}")
        first, second = table.take("mean", int, float, default=0), table.take("std", int, float, default=1)
        valid = second >= 0
    elif distribution == "uniform":
        first, second = table.take("low", int, float, default=0), table.take("high", int, float, default=1)
        valid = first < second
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            valid = valid and isinstance(first, int) and isinstance(second, int)
            valid = valid and limits.min <= first and second - 1 <= limits.max
    else:
        table.fail(f"random {distribution!r} is not known: 'normal' or 'uniform' is expected")
    if not valid:
        table.fail(f"{first} and {second} are no bounds of {distribution} numbers of {dtype}")
    table.finish()
    return RandomFill(distribution, seed, first, second)
