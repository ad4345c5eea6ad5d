"""IEEE 754 arithmetic on patterns by exact fractions: what the float instructions must give, told without floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

NEAREST, UP, DOWN, ZERO = range(4)
"""MODE's FP_ROUND values."""


@dataclass(frozen=True)
class Format:
    """A binary interchange format; patterns are unsigned numbers."""

    exponent: int
    mantissa: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def quiet_bit(self) -> int:
        return 1 << (self.mantissa - 1)

    @property
    def default_nan(self) -> int:
        return self.sign | self.infinity | self.quiet_bit

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    def magnitude(self, pattern: int) -> int:
        return pattern & (self.sign - 1)

    def negative(self, pattern: int) -> bool:
        return bool(pattern & self.sign)

    def is_nan(self, pattern: int) -> bool:
        return self.magnitude(pattern) > self.infinity

    def is_signalling(self, pattern: int) -> bool:
        return self.is_nan(pattern) and not pattern & self.quiet_bit

    def is_inf(self, pattern: int) -> bool:
        return self.magnitude(pattern) == self.infinity

    def is_zero(self, pattern: int) -> bool:
        return self.magnitude(pattern) == 0

    def is_denormal(self, pattern: int) -> bool:
        return 0 < self.magnitude(pattern) < 1 << self.mantissa

    def quiet(self, pattern: int) -> int:
        return pattern | self.quiet_bit

    def flush(self, pattern: int) -> int:
        return pattern & self.sign if self.is_denormal(pattern) else pattern

    def value(self, pattern: int) -> Fraction:
        """The number that a finite pattern stands for."""
        field, rest = self.magnitude(pattern) >> self.mantissa, pattern & ((1 << self.mantissa) - 1)
        significand = rest + (1 << self.mantissa) if field else rest
        number = Fraction(significand) * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa)
        return -number if self.negative(pattern) else number

    def round(self, number: Fraction, rounding: int = NEAREST, zero_sign: bool = False) -> int:
        """The pattern of a number. zero_sign: the sign of an exact zero."""
        if number == 0:
            return self.sign if zero_sign else 0
        negative, size = number < 0, abs(number)
        low = Fraction(2) ** (1 - self.bias)
        exponent = 1 - self.bias
        if size >= low:
            exponent = size.numerator.bit_length() - size.denominator.bit_length()
            if Fraction(2) ** exponent > size:
                exponent -= 1
        unit = Fraction(2) ** (exponent - self.mantissa)
        count, rest = divmod(size / unit, 1)
        away = {NEAREST: rest > Fraction(1, 2) or (rest == Fraction(1, 2) and count % 2 == 1), ZERO: False}
        away |= {UP: rest > 0 and not negative, DOWN: rest > 0 and negative}
        count += away[rounding]
        pattern = int(count) + max(exponent + self.bias - 1, 0) * (1 << self.mantissa)
        if pattern >= self.infinity:
            to_infinity = rounding == NEAREST or (rounding == UP and not negative) or (rounding == DOWN and negative)
            pattern = self.infinity if to_infinity else self.infinity - 1
        return pattern | (self.sign if negative else 0)


F16, F32, F64 = Format(5, 10), Format(8, 23), Format(11, 52)
FORMATS = {"f16": F16, "f32": F32, "f64": F64}


@dataclass(frozen=True)
class Rules:
    """What MODE says about one format: rounding, whether denormal sources and results are kept, IEEE mode."""

    format: Format
    rounding: int = NEAREST
    denormal_sources: bool = True
    denormal_results: bool = True
    ieee: bool = True

    @staticmethod
    def of(form: Format, mode: int) -> Rules:
        low = 0 if form is F32 else 2
        return Rules(form, mode >> low & 3, bool(mode >> (4 + low) & 1), bool(mode >> (5 + low) & 1), bool(mode >> 9 & 1))

    def source(self, pattern: int) -> int:
        return pattern if self.denormal_sources else self.format.flush(pattern)

    def result(self, pattern: int) -> int:
        return pattern if self.denormal_results else self.format.flush(pattern)

    def first_nan(self, patterns: Sequence[int]) -> int | None:
        for pattern in patterns:
            if self.format.is_nan(pattern):
                return self.format.quiet(pattern)
        return None

    def add(self, x: int, y: int) -> int:
        one = self.format.round(Fraction(1))
        return self.fma(x, one, y, nan_order=(0, 2))

    def multiply(self, x: int, y: int) -> int:
        f = self.format
        x, y = self.source(x), self.source(y)
        nan = self.first_nan((x, y))
        if nan is not None:
            return nan
        sign = f.negative(x) != f.negative(y)
        if f.is_inf(x) or f.is_inf(y):
            return f.default_nan if f.is_zero(x) or f.is_zero(y) else f.infinity | (f.sign if sign else 0)
        return self.result(f.round(f.value(x) * f.value(y), self.rounding, sign))

    def fma(self, x: int, y: int, z: int, nan_order: Sequence[int] = (0, 1, 2)) -> int:
        f = self.format
        x, y, z = self.source(x), self.source(y), self.source(z)
        nan = self.first_nan([(x, y, z)[k] for k in nan_order])
        if nan is not None:
            return nan
        sign = f.negative(x) != f.negative(y)
        if f.is_inf(x) or f.is_inf(y):
            if f.is_zero(x) or f.is_zero(y) or (f.is_inf(z) and f.negative(z) != sign):
                return f.default_nan
            return f.infinity | (f.sign if sign else 0)
        if f.is_inf(z):
            return z
        product, addend = f.value(x) * f.value(y), f.value(z)
        both_zero = product == 0 and addend == 0
        zero_sign = sign if both_zero and sign == f.negative(z) else self.rounding == DOWN
        return self.result(f.round(product + addend, self.rounding, zero_sign))

    def divide(self, x: int, y: int) -> int:
        f = self.format
        sign = f.sign if f.negative(x) != f.negative(y) else 0
        if f.is_zero(y) or f.is_inf(x):
            return f.infinity | sign
        if f.is_inf(y):
            return sign
        return self.result(f.round(f.value(x) / f.value(y), self.rounding, bool(sign)))


def edge_patterns(form: Format) -> list[int]:
    """Zeros, denormals, ones, halves, extremes, infinities, NaNs of either kind, in both signs."""
    one = form.bias << form.mantissa
    smallest = 1 << form.mantissa
    positive = [0, 1, 2, smallest - 1, smallest, smallest + 1, one - 1, one, one + 1, one + smallest // 2, one + smallest]
    positive += [one - smallest, form.infinity - smallest, form.infinity - 1, form.infinity]
    positive += [form.infinity | form.quiet_bit, form.infinity | form.quiet_bit | 5, form.infinity | 1, form.infinity | 6]
    return [p | s for p in positive for s in (0, form.sign)]


def patterns(form: Format, count: int, seed: int) -> list[int]:
    """A mixture: edges, random patterns, and numbers near 1 whose sums cancel and tie."""
    rng = np.random.default_rng(seed)
    edges = edge_patterns(form)
    one = form.bias << form.mantissa
    chosen = []
    for kind, low in zip(rng.integers(0, 4, count), rng.integers(0, 1 << 62, count), strict=True):
        random = int(low) << 2 & ((1 << form.bits) - 1) | int(low) >> 60
        near = one + ((int(low) % 7 - 3) << form.mantissa) + (int(low) >> 8) % (1 << form.mantissa)
        short = near & ~((1 << (form.mantissa - 3)) - 1)
        sign = form.sign if int(low) & 16 else 0
        chosen.append([edges[int(low) % len(edges)], random, near | sign, short | sign][kind])
    return chosen


def to_registers(values: Sequence[int], form: Format, first: int) -> dict[int, np.ndarray]:
    """Registers of a VGPR operand that hold the patterns (f16 in the low half, f64 in two)."""
    array = np.array(values, dtype=np.uint64)
    registers = {first: array & np.uint64(0xFFFFFFFF)}
    if form is F64:
        registers[first + 1] = array >> np.uint64(32)
    return registers


def from_registers(vgpr: np.ndarray, form: Format, first: int) -> list[int]:
    """The patterns in a result's registers (of an f16 its low half)."""
    if form is F64:
        return [int(low) | int(high) << 32 for low, high in zip(vgpr[first], vgpr[first + 1], strict=True)]
    mask = (1 << form.bits) - 1
    return [int(word) & mask for word in vgpr[first]]


def operand(form: Format, first: int) -> str:
    return f"v[{first}:{first + 1}]" if form is F64 else f"v{first}"
