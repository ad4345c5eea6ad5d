"""Comparing a result with what was expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rjemu.errors import UsageError


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


def compare(result: np.ndarray, expected: np.ndarray, *, rtol: float, atol: float, exact: bool) -> Comparison:
    """`exact`: the same bits, of the same dtype. Otherwise |result - expected| <= atol + rtol * |expected|, NaN equal
    to NaN; whole numbers and booleans must be equal. UsageError for another shape or, when exact, another dtype."""
    if result.shape != expected.shape:
        raise UsageError(f"the result has shape {result.shape}, what is expected {expected.shape}")
    if exact and result.dtype != expected.dtype:
        raise UsageError(f"the result is {result.dtype}, what is expected {expected.dtype}: never exactly equal")
    wide_result, wide_expected = _widen(result), _widen(expected)
    if exact:
        width = result.dtype.itemsize
        bits = (np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, width) for array in (result, expected))
        good = (next(bits) == next(bits)).all(axis=-1)
    elif wide_result.dtype.kind in "iub" and wide_expected.dtype.kind in "iub":
        good = wide_result == wide_expected
    else:
        good = np.isclose(wide_result, wide_expected, rtol=rtol, atol=atol, equal_nan=True)
    absolute, relative = _largest_errors(wide_result, wide_expected)
    wrong = np.argwhere(~good)
    first = tuple(int(i) for i in wrong[0]) if len(wrong) else None
    return Comparison(result.size, len(wrong), first, absolute, relative)


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
