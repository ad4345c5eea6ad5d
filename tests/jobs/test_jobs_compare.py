"""Comparisons: what counts as equal, and what is said about what does not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rjemu.errors import UsageError
from rjemu.jobs.compare import Comparison, compare


def check(result: object, expected: object, *, exact: bool = False, rtol: float = 1e-5, atol: float = 0) -> Comparison:
    return compare(np.asarray(result), np.asarray(expected), rtol=rtol, atol=atol, exact=exact)


def test_tolerance_counts_places_and_errors() -> None:
    found = check([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.3, 4.0]])
    assert (found.elements, found.mismatches, found.first_mismatch, found.matches) == (4, 1, (1, 0), False)
    assert found.max_absolute == pytest.approx(0.3)
    assert found.max_relative == pytest.approx(1 / 11)
    assert check([1.0, 2.0], [1.1, 2.1], atol=0.11).matches
    assert check([100.0], [101.0], rtol=0.01).matches


def test_special_values() -> None:
    nan, inf = float("nan"), float("inf")
    assert check([nan, inf, -inf], [nan, inf, -inf]).matches
    assert check([nan], [1.0]).mismatches == 1
    assert check([inf], [-inf]).mismatches == 1
    assert check([0.0], [-0.0]).matches
    assert check([], []).matches


def test_exact_compares_bits() -> None:
    zero, nan = np.float32(0), np.array([0x7FC00000], np.uint32).view(np.float32)
    assert check([zero], [-zero], exact=True).mismatches == 1
    assert check(nan, nan, exact=True).matches
    assert check(nan, -nan, exact=True).mismatches == 1
    assert check(np.float64(1), np.float64(1), exact=True).matches
    with pytest.raises(UsageError, match="never exactly equal"):
        check([zero], [0.0], exact=True)


def test_whole_numbers_must_be_equal_whatever_the_tolerance() -> None:
    assert check([1, 2], [1, 3], rtol=1.0, atol=5).mismatches == 1
    assert check(np.array([2**63], np.uint64), np.array([2**63 + 1], np.uint64)).mismatches == 1
    assert check([True], [False]).mismatches == 1
    assert check(np.array([200], np.uint8), np.array([200], np.int64)).matches


def test_narrow_results_may_be_compared_with_wider_expectations() -> None:
    result = np.array([1.5, 3.0], ml_dtypes.bfloat16)
    assert check(result, [1.5, 3.01], rtol=1e-2).matches
    assert check(np.array([0.5], ml_dtypes.float8_e4m3fn), np.array([0.5], np.float32)).matches
    assert check(np.array([1 + 1j], np.complex64), np.array([1 + 2j], np.complex64)).max_absolute == 1


def test_shapes_must_agree() -> None:
    with pytest.raises(UsageError, match=r"\(1, 2\).*\(2,\)"):
        check([[1, 2]], [1, 2])
