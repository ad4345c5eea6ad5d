"""What a job file says, checked, before anything runs. Paths are relative to the job file's folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np

from rjemu.config import preset_names
from rjemu.errors import UsageError
from rjemu.jobs.table import Table
from rjemu.vm.array import resolve_dtype

ARGUMENT_TYPES: Mapping[str, np.dtype] = {
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "u16": np.dtype(np.uint16),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}

DEFAULT_RTOL, DEFAULT_ATOL = 1e-5, 1e-8


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
class Buffer:
    """A device array: from an .npy file, or of a shape and dtype with a fill."""

    name: str
    file: Path | None
    dtype: np.dtype | None
    shape: tuple[int, ...]
    fill: RandomFill | float

    def contents(self) -> np.ndarray:
        """The host array that the buffer starts as; UsageError for a file that is none."""
        if self.file is not None:
            return load_array(self.file, self.dtype)
        assert self.dtype is not None
        if isinstance(self.fill, RandomFill):
            return self.fill.make(self.shape, self.dtype)
        return np.full(self.shape, self.fill, self.dtype)


@dataclass(frozen=True, slots=True)
class BufferArgument:
    """The address of a buffer, plus bytes."""

    name: str
    offset: int = 0


Argument = BufferArgument | np.generic | int | float | bytes


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch. `kernarg` lists the segment's values, for objects without metadata; else `args`."""

    kernel: str
    grid: Sequence[int] | None
    global_size: Sequence[int] | None
    block: Sequence[int] | None
    lds_bytes: int
    args: tuple[Argument, ...] | None
    kernarg: tuple[Argument, ...] | None
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Output:
    """What to do with a buffer in the end: save it to `file`, compare it with the .npy file `expect`."""

    buffer: str
    file: Path | None
    expect: Path | None
    rtol: float
    atol: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A whole job. config and overrides are `rjemu.config.load_config`'s."""

    file: Path
    config: str | Path | Mapping[str, Any]
    overrides: Mapping[str, Any]
    code: Path
    buffers: tuple[Buffer, ...]
    dispatches: tuple[Dispatch, ...]
    outputs: tuple[Output, ...]


def load_job(path: Path) -> Job:
    """Reads a job file; UsageError says which key of it is wrong."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    table = Table(path, "", data)
    code = table.file.parent / table.require("code", str)
    config = _config(table)
    buffers = tuple(_buffer(entry) for entry in table.tables("buffers"))
    names = {buffer.name for buffer in buffers}
    if len(names) != len(buffers):
        table.fail("two buffers have the same name")
    dispatches = tuple(_dispatch(entry, names) for entry in table.tables("dispatches"))
    if not dispatches:
        table.fail("dispatches is missing")
    outputs = tuple(_output(entry, names) for entry in table.tables("outputs"))
    return Job(path, config, table.rest(), code, buffers, dispatches, outputs)


def load_array(path: Path, dtype: np.dtype | None) -> np.ndarray:
    """The array of an .npy file. ml_dtypes' types are stored there without a name: `dtype` says which it is."""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path} is no .npy file of plain numbers: {error}") from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path} is no .npy file of one array")
    if dtype is None or array.dtype == dtype:
        return array
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    raise UsageError(f"{path} holds {array.dtype}, not {dtype}")


def _config(table: Table) -> str | Path | Mapping[str, Any]:
    value = table.take("config", str, dict, default="gfx950_mi355x")
    if isinstance(value, str) and value not in preset_names() and (table.file.parent / value).exists():
        return table.file.parent / value
    return value


def _buffer(table: Table) -> Buffer:
    name = table.require("name", str)
    table.place = f"buffer {name!r}"
    file = table.path("file")
    dtype = _dtype(table)
    shape: Sequence[int] = ()
    fill: RandomFill | float = 0
    if file is None:
        if dtype is None:
            table.fail("needs a file, or dtype and shape")
        given = table.extent("shape")
        if given is None or min(given, default=0) < 0:
            table.fail("needs a shape of sizes that are not negative")
        shape = given
        fill = _fill(table, dtype)
    table.finish()
    return Buffer(name, file, dtype, tuple(shape), fill)


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


def _dispatch(table: Table, buffers: set[str]) -> Dispatch:
    kernel = table.require("kernel", str)
    table.place = f"{table.place} ({kernel})"
    dispatch = Dispatch(
        kernel=kernel,
        grid=table.extent("grid"),
        global_size=table.extent("global_size"),
        block=table.extent("block"),
        lds_bytes=table.take("lds_bytes", int, default=0),
        args=_arguments(table, "args", buffers),
        kernarg=_arguments(table, "kernarg", buffers),
        timeout=table.take("timeout", int, float),
    )
    table.finish()
    return dispatch


def _arguments(table: Table, key: str, buffers: set[str]) -> tuple[Argument, ...] | None:
    values = table.take(key, list)
    if values is None:
        return None
    return tuple(_argument(table, f"{key}[{index}]", value, buffers) for index, value in enumerate(values))


def _argument(table: Table, place: str, value: Any, buffers: set[str]) -> Argument:
    """A buffer's name, a plain number, or a table: {i32 = 5}, {buffer = "a", offset = 64}, {hex = "00ff"}."""
    if isinstance(value, str):
        value = {"buffer": value}
    if isinstance(value, (int, float)):
        return value
    entry = Table(table.file, f"{table.place}, {place}", value)
    name = entry.take("buffer", str)
    if name is not None:
        offset = entry.take("offset", int, default=0)
        entry.finish()
        if name not in buffers:
            entry.fail(f"there is no buffer {name!r}")
        return BufferArgument(name, offset)
    if len(value) != 1:
        entry.fail(f"{value!r} is no argument: a buffer, a number or one typed value is expected")
    (kind,) = value
    if kind == "hex":
        return _hex_bytes(entry)
    if kind not in ARGUMENT_TYPES:
        entry.fail(f"type {kind!r} is not known; there are {', '.join(ARGUMENT_TYPES)}, hex, buffer")
    return _typed_value(entry, kind, ARGUMENT_TYPES[kind])


def _hex_bytes(entry: Table) -> bytes:
    text = entry.take("hex", str)
    try:
        return bytes.fromhex(text)
    except ValueError:
        entry.fail(f"{text!r} is no hexadecimal")


def _typed_value(entry: Table, kind: str, dtype: np.dtype) -> np.generic:
    if dtype.kind not in "iu":
        return dtype.type(entry.take(kind, int, float))
    value = entry.take(kind, int)
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        entry.fail(f"{value} is no {kind}")
    return dtype.type(value)


def _output(table: Table, buffers: set[str]) -> Output:
    buffer = table.require("buffer", str)
    table.place = f"{table.place} ({buffer})"
    if buffer not in buffers:
        table.fail(f"there is no buffer {buffer!r}")
    output = Output(
        buffer=buffer,
        file=table.path("file"),
        expect=table.path("expect"),
        rtol=table.take("rtol", int, float, default=DEFAULT_RTOL),
        atol=table.take("atol", int, float, default=DEFAULT_ATOL),
        exact=table.take("exact", bool, default=False),
    )
    table.finish()
    if output.file is None and output.expect is None:
        table.fail("needs a file to write, or an expect to compare with")
    return output
