"""Matrix instructions computed apart from rjemu: register words to matrices by reshaping, elements by ml_dtypes and numpy,
arithmetic by the C library's fma. Written from the ISA documents' layout tables, not from `rjemu.mma`."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterable

import ml_dtypes
import numpy as np

WIDTH = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}

_DTYPES = {
    "f64": np.float64, "f32": np.float32, "xf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2,
    "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
_FNUZ = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}
_STORE = {64: np.uint64, 32: np.uint32, 16: np.uint16, 8: np.uint8}

_libm = ctypes.CDLL(ctypes.util.find_library("m"))
_libm.fmaf.restype, _libm.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
_libm.fma.restype, _libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3


def dtype_of(element: str, target: str) -> np.dtype:
    """numpy's type of the elements. gfx942 has the fnuz flavours of the 8-bit floats."""
    return np.dtype(_FNUZ[element] if target == "gfx942" and element in _FNUZ else _DTYPES[element])


def lane_elements(words: np.ndarray, element: str, target: str) -> np.ndarray:
    """[64, items]: the elements of each lane in order, from register words [registers, 64]. Fields narrower than a byte
    are packed without gaps, lowest bits first."""
    raw = np.ascontiguousarray(words.T)
    width = WIDTH[element]
    if width >= 8:
        codes = raw.view(_STORE[width])
    else:
        digits = np.unpackbits(raw.view(np.uint8), axis=1, bitorder="little").reshape(64, -1, width)
        codes = np.packbits(digits, axis=2, bitorder="little")[:, :, 0]
    return np.ascontiguousarray(codes).view(dtype_of(element, target))


def words_from_elements(elements: np.ndarray) -> np.ndarray:
    """The register words [registers, 64] of lane elements [64, items] of a type of 8 bits or more."""
    return np.ascontiguousarray(np.ascontiguousarray(elements).view(np.uint32).T)


def input_matrix(elements: np.ndarray, dim: int, blocks: int) -> np.ndarray:
    """[blocks, dim, k] from lane elements [64, items].

    Lane = index + dim * (block + blocks * group). A group's items are consecutive k; but where a lane has eight registers
    of whole bytes, its first four hold consecutive k of the first half of K, its last four of the second half.
    """
    groups, items = 64 // (dim * blocks), elements.shape[1]
    halves = 2 if items * elements.dtype.itemsize == 32 and elements.dtype not in _NARROW else 1
    split = elements.reshape(groups, blocks, dim, halves, items // halves)
    return np.ascontiguousarray(split.transpose(1, 2, 3, 0, 4)).reshape(blocks, dim, groups * items)


_NARROW = tuple(np.dtype(_DTYPES[name]) for name in ("fp6", "bf6", "fp4"))


def result_position(m: int, n: int, bits: int, block: int, i: int, j: int) -> tuple[int, int]:
    """(first register, lane) of D[block, i, j], as the ISA documents' examples show them for each size."""
    if bits == 64:
        return (2 * (i // 4), 16 * (i % 4) + j) if m == 16 else (0, 16 * block + 4 * i + j)
    if m == 32:
        return 16 * block + 4 * (i // 8) + i % 4, 32 * (i // 4 % 2) + j
    if m == 16:
        return 4 * block + i % 4, 16 * (i // 4) + j
    return i, 4 * block + j


def result_matrix(words: np.ndarray, m: int, n: int, blocks: int, type_name: str) -> np.ndarray:
    """C or D as [blocks, m, n] from register words."""
    bits = 64 if type_name == "f64" else 32
    out = np.zeros((blocks, m, n), _STORE[bits])
    for position in np.ndindex(blocks, m, n):
        register, lane = result_position(m, n, bits, *position)
        out[position] = words[register, lane]
        if bits == 64:
            out[position] |= np.uint64(words[register + 1, lane]) << np.uint64(32)
    return out.view({"f32": np.float32, "f64": np.float64, "i32": np.int32}[type_name])


def fma_chain(c: float, pairs: Iterable[tuple[float, float]], *, double: bool = False) -> float:
    """fma(a, b, ...) over the pairs in order, each step rounded to f32 (or f64)."""
    fma = _libm.fma if double else _libm.fmaf
    total = float(c)
    for a, b in pairs:
        total = fma(float(a), float(b), total)
    return total
