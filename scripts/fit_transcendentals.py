"""Fit the polynomials of rjemu/isa/transcendental.py and print their coefficients.

Each polynomial minimises the largest relative error of its function (Lawson's iteration: least squares whose weights
grow where the error is large). Coefficients are rounded to float32 one after another from the lowest degree up, which
weighs most, and the rest is fitted again to what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

POINTS = 4000
ITERATIONS = 400


@dataclass(frozen=True)
class Fit:
    """A polynomial of `degree` in x on [low, high] for `target`, that minimises the largest |error * weight|.

    fixed: the lowest coefficients, given.
    """

    name: str
    target: Callable[[Vector], Vector]
    weight: Callable[[Vector], Vector]
    low: float
    high: float
    degree: int
    fixed: tuple[float, ...] = ()

    def points(self) -> Vector:
        """Chebyshev points, so that the ends of the interval count."""
        angles = (np.arange(POINTS) + 0.5) * np.pi / POINTS
        return (self.low + self.high) / 2 + (self.high - self.low) / 2 * np.cos(angles)


def lawson(fit: Fit, known: list[float]) -> Vector:
    """The coefficients that follow the known ones."""
    x = fit.points()
    weight = fit.weight(x)
    powers = np.arange(len(known), fit.degree + 1)
    columns = x[:, None] ** powers * weight[:, None]
    rest = (fit.target(x) - np.polynomial.polynomial.polyval(x, known or [0.0])) * weight
    emphasis = np.full(POINTS, 1.0 / POINTS)
    for _ in range(ITERATIONS):
        root = np.sqrt(emphasis)
        solution = np.linalg.lstsq(columns * root[:, None], rest * root, rcond=None)[0]
        emphasis *= np.abs(columns @ solution - rest)
        emphasis /= emphasis.sum()
    return solution


def rounded(fit: Fit) -> list[float]:
    """All coefficients, each a float32."""
    known = list(fit.fixed)
    while len(known) <= fit.degree:
        known.append(float(np.float32(lawson(fit, known)[0])))
    return known


def worst(fit: Fit, coefficients: list[float]) -> float:
    x = fit.points()
    return float(np.max(np.abs((np.polynomial.polynomial.polyval(x, coefficients) - fit.target(x)) * fit.weight(x))))


LOG2_E = 1 / np.log(2.0)
LOG2_E_HIGH = float(np.float32(LOG2_E))
TWO_PI = 2 * np.pi
TWO_PI_HIGH = float(np.nextafter(np.float32(TWO_PI), np.float32(0)))
"""Below 2 pi, so that what is left is positive."""


def log2_rest(f: Vector) -> Vector:
    """(log2(1 + f) - f log2(e)) / f**2, by its series near 0."""
    k = np.arange(2, 12)
    series = LOG2_E * np.sum((-1.0) ** (k + 1) / k * f[:, None] ** (k - 2), axis=1)
    with np.errstate(all="ignore"):
        direct = (np.log1p(f) - f) * LOG2_E / f**2
    return np.where(np.abs(f) < 0.01, series, direct)


def sine_rest(z: Vector) -> Vector:
    """(sin(2 pi r) - r TWO_PI_HIGH) / r with z = r**2."""
    r = np.sqrt(z)
    return np.sin(TWO_PI * r) / r - TWO_PI_HIGH


def cosine_rest(z: Vector) -> Vector:
    """(cos(2 pi r) - 1) / r**2 with z = r**2."""
    half = np.sin(np.pi * np.sqrt(z))
    return -2 * half**2 / z


FITS = (
    Fit("EXP2", np.exp2, lambda r: np.exp2(-r), -0.5, 0.5, 6, (1.0,)),
    Fit("LOG2_REST", log2_rest, lambda f: np.abs(f / (np.log1p(f) / f * LOG2_E)), 0.5**0.5 - 1, 2**0.5 - 1, 8),
    Fit("SINE_REST", sine_rest, lambda z: np.sqrt(z) / np.sin(TWO_PI * np.sqrt(z)), 0.0, 1 / 64, 3),
    Fit("COSINE_REST", cosine_rest, lambda z: z, 0.0, 1 / 64, 3),
)


def main() -> None:
    print(f"LOG2_E_HIGH {LOG2_E_HIGH.hex()} LOG2_E_LOW {float(np.float32(LOG2_E - LOG2_E_HIGH)).hex()}")
    print(f"TWO_PI_HIGH {TWO_PI_HIGH.hex()}")
    for fit in FITS:
        coefficients = rounded(fit)
        print(f"{fit.name}: relative error 2**{np.log2(worst(fit, coefficients)):.2f}")
        for c in coefficients:
            print(f"    {c!r},")


if __name__ == "__main__":
    main()
