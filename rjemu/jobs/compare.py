"""Comparing a result with what was expected, block by block: neither copies of whole arrays nor long silences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rjemu.errors import UsageError

_BLOCK = 1 << 20
"""Elements that are compared at a time."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a result differs. elements: compared; mismatches: beyond tolerance; first_mismatch: index of one, or None.

    max_absolute and max_relative: the largest errors of finite elements, in the elements' own units and as fractions
    of the expected value.
    """

    elements: int
    mismatches: int
    first_mismatch: tuple[int, ...] | None
    max_absolute: float
    max_relative: float

    @property
    def matches(self) -> bool:
        return self.mismatches == 0


def check_comparable(shape: tuple[int, ...], dtype: np.dtype, expected: np.ndarray, *, exact: bool) -> None:
    """UsageError if a result of that shape and dtype cannot be what is expected."""
    if shape != expected.shape:
        raise UsageError(f"the result has shape {shape}, what is expected {expected.shape}")
    if exact and dtype != expected.dtype:
        raise UsageError(f"the result is {dtype}, what is expected {expected.dtype}: never exactly equal")


def compare(
    result: np.ndarray,
    expected: np.ndarray,
    *,
    rtol: float,
    atol: float,
    exact: bool,
    between: Callable[[], None] = lambda: None,
) -> Comparison:
    """`exact`: the same bits, of the same dtype. Otherwise |result - expected| <= atol + rtol * |expected|, NaN equal
    to NaN; whole numbers and booleans must be equal. between: called now and then.

    UsageError for another shape or, when exact, another dtype."""
    check_comparable(result.shape, result.dtype, expected, exact=exact)
    flat_result, flat_expected = result.reshape(-1), expected.reshape(-1)
    mismatches, first, absolute, relative = 0, None, 0.0, 0.0
    for start in range(0, result.size, _BLOCK):
        between()
        got, wanted = flat_result[start : start + _BLOCK], flat_expected[start : start + _BLOCK]
        wrong = np.flatnonzero(~_equal(got, wanted, rtol, atol, exact))
        if first is None and len(wrong):
            first = tuple(int(i) for i in np.unravel_index(start + wrong[0], result.shape))
        mismatches += len(wrong)
        block_absolute, block_relative = _largest_errors(_widen(got), _widen(wanted))
        absolute, relative = max(absolute, block_absolute), max(relative, block_relative)
    return Comparison(result.size, mismatches, first, absolute, relative)


def _equal(got: np.ndarray, wanted: np.ndarray, rtol: float, atol: float, exact: bool) -> np.ndarray:
    """bool [elements]."""
    if exact:
        width = got.dtype.itemsize
        bits, wanted_bits = (np.ascontiguousarray(array).view(np.uint8).reshape(-1, width) for array in (got, wanted))
        return (bits == wanted_bits).all(axis=1)
    wide_got, wide_wanted = _widen(got), _widen(wanted)
    if wide_got.dtype.kind in "iub" and wide_wanted.dtype.kind in "iub":
        return wide_got == wide_wanted
    return np.isclose(wide_got, wide_wanted, rtol=rtol, atol=atol, equal_nan=True)


def _widen(array: np.ndarray) -> np.ndarray:
    """Numbers that numpy can compute with: ml_dtypes' and half floats as float64."""
    return array if array.dtype.kind in "iubc" else array.astype(np.float64)


def _largest_errors(result: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    kind = complex if "c" in (result.dtype.kind, expected.dtype.kind) else float
    got, wanted = result.astype(kind), expected.astype(kind)
    finite = np.isfinite(got) & np.isfinite(wanted)
    error, size = np.abs(got[finite] - wanted[finite]), np.abs(wanted[finite])
    relative = error[size > 0] / size[size > 0]
    return float(error.max(initial=0.0)), float(relative.max(initial=0.0))
