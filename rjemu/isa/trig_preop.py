"""v_trig_preop_f64: segments of 2 / pi, for the exact reduction of huge arguments of f64 sine and cosine."""

from __future__ import annotations

from rjemu.isa.floats import biased_exponent, ldexp
from rjemu.isa.lanes import Lanes, Value

FRACTION_BITS = 1201
TWO_OVER_PI = int(
    "0x145f306dc9c882a53f84eafa3ea69bb81b6c52b3278872083fca2c757bd778ac36e48dc74849ba5c00c925dd413a32439f"
    "c3bd63962534e7dd1046bea5d768909d338e04d68befc827323ac7306a673e93908bf177bf250763ff12fffbc0b301fde5e2"
    "316b414da3eda6cfd9e4f96136e9e8c7ecd3cbfd45aea4f758fd7cbe2f67a0e73ef14a525d4d7f6bf623f1aba10ac06608df"
    "8f6",
    16,
)
"""2 / pi times 2**1201, truncated."""

_SEGMENT_BITS = 53
_TABLE_BITS = 32 * 44
"""The fraction with zeros after it: further right, all segments are 0."""
_WORDS = tuple(TWO_OVER_PI << (_TABLE_BITS - FRACTION_BITS) >> (_TABLE_BITS - 32 * (k + 1)) & 0xFFFF_FFFF for k in range(44))


def trig_preop(b: Lanes, x: Value, segment: Value) -> Value:
    """The 53 bits of 2 / pi that begin 53 * segment (u32, five bits count) bits behind the point, further right by what
    x's exponent exceeds 2**54, as an f64 in their place; scaled up by 2**128 where x is huge."""
    exponent = biased_exponent(b, x)
    beyond = b.max(exponent - 1077, b.const("i32", 0))
    shift = (segment & 31).bits("i32") * _SEGMENT_BITS + beyond
    inside = b.min(shift.bits("u32"), b.const("u32", _TABLE_BITS - 96))
    index, offset = inside >> 5, (inside & 31).to("u64")
    first, second, third = (b.table(_WORDS, index + k) for k in range(3))
    window = (b.join64(second, first) << offset) | (third.to("u64") << offset >> 32)
    bits = window >> (64 - _SEGMENT_BITS)
    scale = b.select(exponent >= 1968, b.const("i32", 128 - _SEGMENT_BITS), b.const("i32", -_SEGMENT_BITS)) - shift
    return ldexp(b, bits.to("f64"), scale)
