"""The kernarg segment: a launch's arguments, checked against the kernel's metadata, and the hidden ones filled in.

Kinds and hidden arguments: LLVM's AMDGPUUsage, "Code Object V3 Metadata" to "Code Object V5 Metadata".
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from rjemu.code.metadata import KernelArg, KernelMetadata
from rjemu.errors import LaunchError
from rjemu.isa.apertures import LDS_APERTURE, SCRATCH_APERTURE
from rjemu.vm.array import DeviceArray
from rjemu.vm.geometry import Geometry

_POINTER_KINDS = ("global_buffer", "image", "sampler", "pipe", "queue")
_INTEGERS_BY_SIZE: Mapping[int, tuple[np.dtype, ...]] = {
    size: (np.dtype(f"i{size}"), np.dtype(f"u{size}")) for size in (1, 2, 4, 8)
}
_FLOATS_BY_SIZE: Mapping[int, tuple[np.dtype, ...]] = {4: (np.dtype(np.float32),), 8: (np.dtype(np.float64),)}

_TYPE_NAMES: Mapping[str, np.dtype] = {
    "char": np.dtype(np.int8),
    "uchar": np.dtype(np.uint8),
    "short": np.dtype(np.int16),
    "ushort": np.dtype(np.uint16),
    "int": np.dtype(np.int32),
    "uint": np.dtype(np.uint32),
    "long": np.dtype(np.int64),
    "ulong": np.dtype(np.uint64),
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
"""OpenCL type names, which OpenCL's metadata states and other languages' does not."""

TRITON_SCRATCH_POINTERS = 2
"""Triton ends every argument list with pointers to global and to profiling scratch that its own launcher supplies."""


@dataclass(frozen=True, slots=True)
class HiddenValues:
    """What hidden arguments are computed from. dynamic_lds_bytes: of the launch; queue_address: amd_queue_t."""

    geometry: Geometry
    dynamic_lds_bytes: int
    queue_address: int


_HIDDEN: Mapping[str, Callable[[HiddenValues], int]] = {
    "hidden_block_count_x": lambda values: values.geometry.full_workgroups[0],
    "hidden_block_count_y": lambda values: values.geometry.full_workgroups[1],
    "hidden_block_count_z": lambda values: values.geometry.full_workgroups[2],
    "hidden_group_size_x": lambda values: values.geometry.block[0],
    "hidden_group_size_y": lambda values: values.geometry.block[1],
    "hidden_group_size_z": lambda values: values.geometry.block[2],
    "hidden_remainder_x": lambda values: values.geometry.remainders[0],
    "hidden_remainder_y": lambda values: values.geometry.remainders[1],
    "hidden_remainder_z": lambda values: values.geometry.remainders[2],
    "hidden_global_offset_x": lambda values: 0,
    "hidden_global_offset_y": lambda values: 0,
    "hidden_global_offset_z": lambda values: 0,
    "hidden_grid_dims": lambda values: values.geometry.dimensions,
    "hidden_dynamic_lds_size": lambda values: values.dynamic_lds_bytes,
    "hidden_private_base": lambda values: SCRATCH_APERTURE >> 32,
    "hidden_shared_base": lambda values: LDS_APERTURE >> 32,
    "hidden_queue_ptr": lambda values: values.queue_address,
    # Services of a host runtime that an emulator without one leaves null, so that their use is a memory fault.
    "hidden_none": lambda values: 0,
    "hidden_printf_buffer": lambda values: 0,
    "hidden_hostcall_buffer": lambda values: 0,
    "hidden_heap_v1": lambda values: 0,
    "hidden_multigrid_sync_arg": lambda values: 0,
    "hidden_default_queue": lambda values: 0,
    "hidden_completion_action": lambda values: 0,
}


def pack_arguments(metadata: KernelMetadata, args: Sequence[Any], hidden: HiddenValues) -> bytes:
    """The kernarg segment for `args`, one for each explicit argument, in order.

    A pointer takes a DeviceArray, an int address or None. A value takes a numpy scalar of exactly its size, `bytes` of
    its size, or a Python number: an int that fits its size, a float where its size is 4 (float32) or 8 (float64).
    OpenCL's type names, where the metadata has them, settle what a Python number becomes.
    LaunchError names the argument, what it takes and what was given.
    """
    segment = bytearray(_segment_size(metadata))
    values = _complete(metadata, args)
    for index, (arg, value) in enumerate(zip(metadata.explicit_args, values, strict=True)):
        try:
            data = _encode(arg, value)
        except _Mismatch as mismatch:
            name = f" ({arg.name})" if arg.name else ""
            raise LaunchError(f"kernel {metadata.name}, argument {index}{name}: {mismatch}") from None
        segment[arg.offset : arg.offset + arg.size] = data
    _fill_hidden(segment, metadata, hidden)
    return bytes(segment)


def pack_raw(kernel: str, metadata: KernelMetadata | None, kernarg_size: int, data: bytes, hidden: HiddenValues) -> bytes:
    """The kernarg segment from the caller's own bytes.

    `data` is the whole segment of `kernarg_size` bytes (the descriptor's; any length where that says 0), or only the
    explicit arguments of a kernel whose metadata lists hidden ones, which are then filled in.
    """
    if kernarg_size in (0, len(data)):
        return bytes(data)
    if metadata is not None and metadata.hidden_args:
        explicit_end = max((arg.offset + arg.size for arg in metadata.explicit_args), default=0)
        if explicit_end <= len(data) <= min(arg.offset for arg in metadata.hidden_args):
            segment = bytearray(data.ljust(max(kernarg_size, _segment_size(metadata)), b"\0"))
            _fill_hidden(segment, metadata, hidden)
            return bytes(segment)
    raise LaunchError(f"kernel {kernel}: kernarg= takes {kernarg_size} bytes, {len(data)} given")


class _Mismatch(Exception):
    """What an argument takes and what was given instead."""


def _complete(metadata: KernelMetadata, args: Sequence[Any]) -> list[Any]:
    """`args`, with null for Triton's two scratch pointers where the caller left out exactly those.

    Their metadata does not tell them from other pointers, except that Triton's arguments have no names.
    """
    explicit = metadata.explicit_args
    missing = explicit[len(args) :]
    is_triton_scratch = len(missing) == TRITON_SCRATCH_POINTERS and all(
        arg.value_kind == "global_buffer" and not arg.name for arg in missing
    )
    if is_triton_scratch:
        return [*args, None, None]
    if len(args) != len(explicit):
        listing = ", ".join(f"{arg.name or index}: {_takes(arg)}" for index, arg in enumerate(explicit))
        raise LaunchError(f"kernel {metadata.name} takes {len(explicit)} arguments ({listing}), {len(args)} given")
    return list(args)


def _encode(arg: KernelArg, value: Any) -> bytes:
    if arg.value_kind in _POINTER_KINDS or (isinstance(value, DeviceArray) and arg.size == 8):
        return _encode_pointer(arg, value)
    if arg.value_kind not in ("by_value", "dynamic_shared_pointer"):
        raise _Mismatch(f"arguments of kind {arg.value_kind} are not known")
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (np.generic, bytes, bytearray, memoryview)):
        data = value.tobytes() if isinstance(value, (np.generic, memoryview)) else bytes(value)
        if len(data) != arg.size:
            raise _mismatch(arg, value)
        return data
    if isinstance(value, (int, float)):
        return _encode_number(arg, value)
    raise _mismatch(arg, value)


def _encode_pointer(arg: KernelArg, value: Any) -> bytes:
    if value is None:
        return bytes(arg.size)
    if isinstance(value, DeviceArray):
        return struct.pack("<Q", value.address)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= operator.index(value) < 1 << 64:
        raise _mismatch(arg, value)
    return struct.pack("<Q", operator.index(value))


def _encode_number(arg: KernelArg, value: int | float) -> bytes:
    """A Python number in the type that the metadata names, or else in the one that its own type and the size leave."""
    named = _TYPE_NAMES.get(arg.type_name)
    by_size = _INTEGERS_BY_SIZE if isinstance(value, int) else _FLOATS_BY_SIZE
    for dtype in (named,) if named is not None and named.itemsize == arg.size else by_size.get(arg.size, ()):
        if dtype.kind == "f" and abs(value) > float(np.finfo(dtype).max) and value not in (inf, -inf):
            continue
        if dtype.kind in "iu" and not (isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max):
            continue
        return dtype.type(value).tobytes()
    raise _mismatch(arg, value)


def _mismatch(arg: KernelArg, value: Any) -> _Mismatch:
    return _Mismatch(f"takes {_takes(arg)}, given {_describe(value)}")


def _takes(arg: KernelArg) -> str:
    if arg.value_kind in _POINTER_KINDS:
        return "a pointer (device array, address or None)"
    if arg.value_kind == "dynamic_shared_pointer":
        return f"an LDS address of {arg.size} bytes"
    return f"{arg.type_name or 'a value'} of {arg.size} bytes"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a host array of {value.dtype} {value.shape} (to_device makes a device array of it)"
    if isinstance(value, np.generic):
        return f"{value.dtype} of {value.itemsize} bytes"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} bytes"
    if isinstance(value, DeviceArray):
        return "a device array"
    return f"{type(value).__name__} {value!r}"


def _segment_size(metadata: KernelMetadata) -> int:
    return max(metadata.kernarg_segment_size, max((arg.offset + arg.size for arg in metadata.args), default=0))


def _fill_hidden(segment: bytearray, metadata: KernelMetadata, values: HiddenValues) -> None:
    for arg in metadata.hidden_args:
        if arg.value_kind not in _HIDDEN:
            raise LaunchError(f"kernel {metadata.name} needs the hidden argument {arg.value_kind}, which is not known")
        value = _HIDDEN[arg.value_kind](values)
        segment[arg.offset : arg.offset + arg.size] = value.to_bytes(arg.size, "little")
