"""The arguments of a job's dispatches: as the file says them, and as launches take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rjemu.errors import LaunchError
from rjemu.jobs.table import Table
from rjemu.vm.array import DeviceArray

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


@dataclass(frozen=True, slots=True)
class BufferArgument:
    """The address of a buffer, plus bytes."""

    name: str
    offset: int = 0


Argument = BufferArgument | np.generic | int | float | bytes
Arrays = Mapping[str, DeviceArray]
"""The device arrays of a job by name."""


def parse_arguments(table: Table, key: str, buffers: set[str]) -> tuple[Argument, ...] | None:
    """A list of arguments, if there is one. UsageError for what is none."""
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


def launch_values(arguments: Sequence[Argument], arrays: Arrays) -> list[Any]:
    """The arguments as `LoadedKernel.launch` takes them."""
    return [_launch_value(argument, arrays) for argument in arguments]


def _launch_value(argument: Argument, arrays: Arrays) -> Any:
    if isinstance(argument, BufferArgument):
        array = arrays[argument.name]
        return array.address + argument.offset if argument.offset else array
    return argument


def kernarg_segment(kernel: str, arguments: Sequence[Argument], arrays: Arrays) -> bytes:
    """The segment of a kernel without metadata: the values one after another, each at a multiple of its size."""
    segment = b""
    for index, argument in enumerate(arguments):
        if isinstance(argument, BufferArgument):
            argument = np.uint64(arrays[argument.name].address + argument.offset)
        if isinstance(argument, bytes):
            segment += argument
        elif isinstance(argument, np.generic):
            segment = segment.ljust(-(-len(segment) // argument.itemsize) * argument.itemsize, b"\0") + argument.tobytes()
        else:
            raise LaunchError(f"kernel {kernel}, kernarg[{index}]: {argument} needs a type, as in {{ i32 = 1 }}")
    return segment
