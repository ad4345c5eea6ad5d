"""AITER's hand-written kernels: where the compiled ones are, how their arguments are packed, and layouts of their data.

The code objects come with the `amd-aiter` wheel (aiter_meta/hsa/TARGET/**.co) or from a directory that RJEMU_AITER_HSA
names; argument lists and layouts are those of AITER's launchers (ROCm/aiter, csrc/py_itfs_cu/asm_*.cu,
aiter/ops/shuffle.py).
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rjemu

BF16 = ml_dtypes.bfloat16
FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}
MACHINES = {"gfx942": "gfx942_cdna3", "gfx950": "gfx950_mi355x"}
VARIABLE = "RJEMU_AITER_HSA"


@functools.cache
def _root() -> Path | None:
    """The directory that holds gfx942/ and gfx950/."""
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE])
    try:
        return Path(str(importlib.metadata.distribution("amd-aiter").locate_file("aiter_meta/hsa")))
    except importlib.metadata.PackageNotFoundError:
        return None


def objects(target: str) -> Path:
    """The directory of a target's code objects; skips the test where there are none."""
    root = _root()
    if root is None:
        pytest.skip(f"AITER's kernels are not here: install amd-aiter or set {VARIABLE} to its aiter_meta/hsa")
    if not (root / target).is_dir():
        pytest.skip(f"no AITER kernels for {target} in {root}")
    return root / target


def table(target: str, path: str) -> list[dict[str, str]]:
    """A family's table of kernels."""
    with (objects(target) / path).open(newline="") as file:
        return list(csv.DictReader(file))


class Aiter:
    """A machine that runs AITER's kernels of its target. What is sent to it stays alive as long as it does."""

    def __init__(self, target: str, **overrides: Any) -> None:
        self.target = target
        self.directory = objects(target)
        self.gpu = rjemu.Machine(MACHINES[target], workers="inline", local_mem_size=1 << 30, **overrides)
        self._sent: list[rjemu.DeviceArray] = []

    def send(self, array: np.ndarray) -> rjemu.DeviceArray:
        self._sent.append(self.gpu.to_device(np.ascontiguousarray(array)))
        return self._sent[-1]

    def run(self, path: str, grid: tuple[int, ...], arguments: list[Any], *, block: int = 256, slot: int = 16) -> None:
        """Launches the object's only kernel. slot: bytes from one argument to the next."""
        module = self.gpu.load((self.directory / path).read_bytes())
        (name,) = module.kernels
        module[name].launch(grid, block, kernarg=self._kernarg(arguments, slot), timeout=120)
        module.unload()

    def _kernarg(self, arguments: list[Any], slot: int) -> bytes:
        return b"".join(self._bytes(value).ljust(slot, b"\0") for value in arguments)

    def _bytes(self, value: Any) -> bytes:
        """Arrays are sent and stand for their addresses; None is a null pointer, an int 32 bits, a float single; bytes are
        packed arguments."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, np.ndarray):
            value = self.send(value)
        if value is None or isinstance(value, rjemu.DeviceArray):
            return np.uint64(0 if value is None else value.address).tobytes()
        return (np.float32(value) if isinstance(value, float) else np.uint32(value)).tobytes()


def machines(target: str, **overrides: Any) -> Iterator[Aiter]:
    """For fixtures: one machine, closed at the end."""
    aiter = Aiter(target, **overrides)
    with aiter.gpu:
        yield aiter


def shuffle_weight(x: np.ndarray, rows: int = 16) -> np.ndarray:
    """Weights [..., N, K] as the matrix instructions take them: blocks of `rows` x 32 elements, 16 bytes at a time."""
    columns, piece = 32, 16 // x.itemsize
    *_, n, k = x.shape
    blocks = x.reshape(-1, n // rows, rows, k // columns, columns // piece, piece)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 4, 2, 5)).reshape(x.shape)


def quantize(x: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(numbers, float32 scales, what they stand for) with one scale for each row of the last axis."""
    largest = 127.0 if dtype == np.int8 else float(ml_dtypes.finfo(dtype).max)
    scale = (np.abs(x).max(axis=-1, keepdims=True) / largest).astype(np.float32)
    scaled = x / scale
    numbers = np.rint(scaled).astype(np.int8) if dtype == np.int8 else scaled.astype(dtype)
    return numbers, scale, numbers.astype(np.float64) * scale


def check(got: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """Relative error in the Euclidean norm: the roundings of many elements average out, a wrong element does not."""
    error = np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected)
    assert error < tolerance, f"{what}: relative error {error:.3g}, expected below {tolerance:g}"
