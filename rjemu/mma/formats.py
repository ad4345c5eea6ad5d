"""Element formats of matrix operands: from register words to numbers.

`decoder` gives, for a format, how many registers hold a whole number of elements and a function that turns their words
(u32 lane vectors) into element values (lane vectors of f32, or f64 for f64), first element first. All narrow formats
are exact in f32. NaN payloads are not kept: results have the canonical NaN (see `rjemu.mma.unit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value, float_bits

Decode = Callable[[Sequence[Value]], list[Value]]


@dataclass(frozen=True, slots=True)
class Decoder:
    """`decode` turns the words of `registers` registers into the elements that they hold."""

    registers: int
    decode: Decode


def decoder(b: Context, element: str) -> Decoder:
    """How to decode elements of a format of `geometry.BITS` on the context's target."""
    if element == "f64":
        return Decoder(2, lambda words: [b.join64(words[0], words[1]).bits("f64")])
    if element == "f32":
        return Decoder(1, lambda words: [b.flush_input(words[0].bits("f32"))])
    if element == "xf32":
        return Decoder(1, lambda words: [_xf32(b, words[0])])
    if element == "bf16":
        return Decoder(1, lambda words: [(words[0] << 16).bits("f32"), (words[0] & 0xFFFF0000).bits("f32")])
    if element == "f16":
        return Decoder(1, lambda words: [_half(b, field) for field in _fields(words, 16)])
    if element == "i8":
        return Decoder(1, lambda words: [_signed_byte(words[0], k).to("f32") for k in range(4)])
    if element == "fp4":
        return Decoder(1, lambda words: [b.table(_FP4, words[0] >> 4 * k & 15).bits("f32") for k in range(8)])
    if element in ("fp6", "bf6"):
        small = _FP6 if element == "fp6" else _BF6
        return Decoder(3, lambda words: [small.value(b, field) for field in _fields(words, 6)])
    byte = {
        ("fp8", False): _fp8, ("fp8", True): _fp8_fnuz, ("bf8", False): _bf8, ("bf8", True): _bf8_fnuz,
    }[element, b.target == "gfx942"]  # fmt: skip
    return Decoder(1, lambda words: [byte(b, field) for field in _fields(words, 8)])


def _fields(words: Sequence[Value], bits: int) -> list[Value]:
    """The fields of `bits` bits in a little-endian row of words, each as u16 with whatever lies above it."""
    out = []
    for start in range(0, 32 * len(words), bits):
        k, shift = divmod(start, 32)
        field = words[k] >> shift if shift else words[k]
        if shift + bits > 32:
            field = field | words[k + 1] << 32 - shift
        out.append(field.to("u16"))
    return out


def _half(b: Context, pattern: Value) -> Value:
    """The f32 value of an f16 pattern (u16)."""
    return b.raw_convert(pattern.bits("f16"), "f32")


def _signed_byte(word: Value, k: int) -> Value:
    return (word.bits("i32") if k == 3 else (word << 24 - 8 * k).bits("i32")) >> 24


def _xf32(b: Context, word: Value) -> Value:
    """f32 with the significand rounded to 10 bits, to nearest even (CDNA3 ISA, "XF32"); denormals are kept."""
    rounded = (word + 0xFFF + (word >> 13 & 1)) & 0xFFFFE000
    value = word.bits("f32")
    return b.select(b.isnan(value), value, rounded.bits("f32"))


@dataclass(frozen=True, slots=True)
class _SmallFloat:
    """A float of sign, exponent and mantissa bits with that bias, without infinities and NaN.

    As the upper bits of an f16 it stands for value * 2^(bias - 15), denormals included: f16 does the normalising.
    """

    exponent: int
    mantissa: int
    bias: int

    def as_half(self, field: Value) -> Value:
        """The f16 pattern (u16) of value * 2^(bias - 15). Bits above the field are ignored."""
        width = 1 + self.exponent + self.mantissa
        at_top = (field << 16 - width).bits("i16")
        magnitude_mask = ((1 << width - 1) - 1) << 10 - self.mantissa
        return (at_top >> 5 - self.exponent).bits("u16") & (0x8000 | magnitude_mask)

    def value(self, b: Context, field: Value) -> Value:
        """The f32 value."""
        return self.scaled(b, self.as_half(field))

    def scaled(self, b: Context, half: Value) -> Value:
        """The f32 value from `as_half`'s pattern."""
        return b.raw("mul", _half(b, half), 2.0 ** (15 - self.bias))


_FP6 = _SmallFloat(2, 3, 1)
_BF6 = _SmallFloat(3, 2, 3)
_E4M3 = _SmallFloat(4, 3, 7)
_E4M3_FNUZ = _SmallFloat(4, 3, 8)
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The numbers of fp4's codes 0 to 15."""
_FP4 = [float_bits(value, 32) for value in FP4_VALUES]
_HALF_NAN = 0x7E00


def _fp8(b: Context, field: Value) -> Value:
    """e4m3fn: the code with all exponent and mantissa bits set is NaN, there is no infinity."""
    half = _E4M3.as_half(field)
    all_ones = (half & 0x7FFF) == 0x3F80
    return _E4M3.scaled(b, b.select(all_ones, _HALF_NAN, half))


def _fp8_fnuz(b: Context, field: Value) -> Value:
    """e4m3fnuz: bias 8, and the code of minus zero is the only NaN."""
    half = _E4M3_FNUZ.as_half(field)
    return _E4M3_FNUZ.scaled(b, b.select(half == 0x8000, _HALF_NAN, half))


def _bf8(b: Context, field: Value) -> Value:
    """e5m2: the upper half of an f16."""
    return _half(b, field << 8)


def _bf8_fnuz(b: Context, field: Value) -> Value:
    """e5m2fnuz: bias 16, finite up to the largest exponent, and the code of minus zero is the only NaN.

    The largest exponent would mean infinity in f16: those codes go one binade down and are doubled after.
    """
    half = field << 8
    largest = (half & 0x7C00) == 0x7C00
    safe = b.select(half == 0x8000, _HALF_NAN, b.select(largest, half - 0x0400, half))
    return b.raw("mul", _half(b, safe), b.select(largest, b.const("f32", 1.0), b.const("f32", 0.5)))
