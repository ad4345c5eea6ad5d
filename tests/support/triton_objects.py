"""Compiling and launching Triton kernels in tests, without a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from rjemu import DeviceArray, DispatchResult, Machine
from rjemu.integrations.triton import compile_kernel, load
from rjemu.vm.geometry import Extent


def compile_triton(
    kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any], target: str, **options: Any
) -> Any:
    """`rjemu.integrations.triton.compile_kernel`; compiled objects are kept in the directory of tests/conftest.py."""
    cache = str(Path(os.environ["RJEMU_TEST_OBJECTS"], "triton"))
    with mock.patch.dict(os.environ, TRITON_CACHE_DIR=cache):
        return compile_kernel(kernel, signature, constants, target, **options)


_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint32": "u32",
    "uint64": "u64",
}
"""numpy's and ml_dtypes' names -> Triton's."""


def run_triton(
    gpu: Machine, function: Any, grid: Extent, arguments: Mapping[str, Any], constants: Mapping[str, Any], **options: Any
) -> DispatchResult:
    """Compiles for the machine's target and launches, as `function[grid](...)` of Triton would.

    The signature follows from the arguments: device arrays, ints (i32) and floats (fp32). Ints that are multiples of
    16, and all addresses, are compiled as such.
    """
    signature = {name: _triton_type(value) for name, value in arguments.items()}
    divisible = [name for name, value in arguments.items() if not isinstance(value, float) and _is_aligned(value)]
    compiled = compile_triton(function, signature, constants, gpu.config.target, divisible_by_16=divisible, **options)
    args = [np.float32(value) if isinstance(value, float) else value for value in arguments.values()]
    return load(gpu, compiled).launch(grid, args, timeout=120)


def _triton_type(value: Any) -> str:
    if isinstance(value, DeviceArray):
        return "*" + _TYPES[value.dtype.name]
    return "i32" if isinstance(value, int) else "fp32"


def _is_aligned(value: DeviceArray | int) -> bool:
    return (value.address if isinstance(value, DeviceArray) else value) % 16 == 0
