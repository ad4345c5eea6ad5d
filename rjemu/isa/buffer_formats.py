"""Data formats of typed buffer accesses: where the components lie and how they convert (CDNA3 ISA, "Data Formats").

The format of an MUBUF instruction is only known at run time, so everything here works on scalars for format numbers.
Components of 32 bits are never converted, except to and from 16-bit registers. What the documents leave open: integers
that are too large for their component saturate; a component that the register data lacks is stored as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.isa.lanes import Lanes, Value

COMPONENT_BITS: tuple[tuple[int, ...], ...] = (
    (), (8,), (16,), (8, 8), (32,), (16, 16), (11, 11, 10), (10, 11, 11), (2, 10, 10, 10), (10, 10, 10, 2),
    (8, 8, 8, 8), (32, 32), (16, 16, 16, 16), (32, 32, 32), (32, 32, 32, 32), (),
)  # fmt: skip
"""DFMT -> widths of the components from bit 0 on (the format's name lists them from the top: 10_11_11, 2_10_10_10)."""

UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7


def element_bytes(b: Lanes, dfmt: Value) -> Value:
    """u32 scalar: bytes of an element, 0 for an invalid format."""
    return b.table([sum(widths) // 8 for widths in COMPONENT_BITS], dfmt)


def component_bits(b: Lanes, dfmt: Value, c: int) -> Value:
    """u32 scalar: width of component c, 0 if the format has none."""
    return b.table([widths[c] if c < len(widths) else 0 for widths in COMPONENT_BITS], dfmt)


def component_position(b: Lanes, dfmt: Value, c: int) -> Value:
    """u32 scalar: the first bit of component c in the element."""
    return b.table([sum(widths[:c]) for widths in COMPONENT_BITS], dfmt)


def is_integer(nfmt: Value) -> Value:
    """b1: register data are integers."""
    return (nfmt == UINT) | (nfmt == SINT)


def unpack(b: Lanes, words: Sequence[Value], dfmt: Value, c: int) -> Value:
    """u32 vector: the bits of component c of an element of four dwords, 0 if the format has none."""
    position = component_position(b, dfmt, c)
    word = words[0]
    for k in range(1, 4):
        word = b.select((position >> 5) == k, words[k], word)
    return (word >> (position & 31)) & _ones(b, component_bits(b, dfmt, c))


def pack(b: Lanes, components: Sequence[Value], dfmt: Value) -> list[Value]:
    """Four dwords (u32 vectors) of an element from the bits of its components."""
    zero = b.vector(b.const("u32", 0))
    words = [zero] * 4
    for c, component in enumerate(components):
        position = component_position(b, dfmt, c)
        shifted = (component & _ones(b, component_bits(b, dfmt, c))) << (position & 31)
        words = [word | b.select((position >> 5) == k, shifted, zero) for k, word in enumerate(words)]
    return words


def _ones(b: Lanes, bits: Value) -> Value:
    """u32 scalar: as many ones; none for 0."""
    full = b.const("u32", 0xFFFFFFFF) >> (32 - bits)
    return b.select(bits == 0, b.const("u32", 0), full)


def to_register(b: Lanes, raw: Value, bits: Value, nfmt: Value, half: bool) -> Value:
    """u32 vector: what a load makes of a component's bits. half: a 16-bit one (f16 or an integer)."""
    signed = (raw << (32 - bits)).bits("i32") >> (32 - bits).bits("i32")
    ones = _ones(b, bits)
    results = {
        UNORM: b.raw("div", raw.to("f32"), ones.to("f32")),
        SNORM: _at_least_minus_one(b, b.raw("div", signed.to("f32"), (ones >> 1).to("f32"))),
        USCALED: raw.to("f32"),
        SSCALED: signed.to("f32"),
        FLOAT: _small_float(b, raw, bits),
    }
    out = b.select(nfmt == SINT, signed.bits("u32"), raw)
    for kind, value in results.items():
        converted = _as_half(value) if half else value.bits("u32")
        out = b.select(nfmt == kind, converted, out)
    wide = b.select(nfmt == FLOAT, _as_half(raw.bits("f32")), raw) if half else raw
    out = b.select((bits == 32) | (bits == 0), wide, out)
    return out & 0xFFFF if half else out


def _at_least_minus_one(b: Lanes, x: Value) -> Value:
    return b.select(x < -1.0, b.const("f32", -1.0), x)


def _as_half(x: Value) -> Value:
    return x.to("f16").bits("u16").to("u32")


def _small_float(b: Lanes, raw: Value, bits: Value) -> Value:
    """f32 of a 16-bit float, or of an unsigned 10 or 11-bit one with f16's exponent."""
    shift = b.select(bits == 16, b.const("u32", 0), 15 - bits)
    return (raw << shift).to("u16").bits("f16").to("f32")


def from_register(b: Lanes, data: Value, bits: Value, nfmt: Value, half: bool) -> Value:
    """u32 vector: the bits that a store makes of a register component; those above the width do not count."""
    ones = _ones(b, bits)
    top = ones >> 1
    value = data.to("u16").bits("f16").to("f32") if half else data.bits("f32")
    integer = data.to("u16").bits("i16").to("i32") if half else data.bits("i32")
    results = {
        UNORM: b.float_to_int(b.frint(b.raw("mul", _limit(b, value, 0.0), ones.to("f32"))), "u32"),
        SNORM: b.float_to_int(b.frint(b.raw("mul", _limit(b, value, -1.0), top.to("f32"))), "i32").bits("u32"),
        USCALED: b.min(b.float_to_int(value, "u32"), ones),
        SSCALED: _saturate(b, b.float_to_int(value, "i32"), top),
        SINT: _saturate(b, integer, top),
        FLOAT: _to_small_float(b, value, bits),
    }
    out = b.min(data & 0xFFFF if half else data, ones)
    for kind, converted in results.items():
        out = b.select(nfmt == kind, converted, out)
    if not half:
        return b.select(bits == 32, data, out)
    wide = b.select(nfmt == FLOAT, value.bits("u32"), b.select(nfmt == SINT, integer.bits("u32"), data & 0xFFFF))
    return b.select(bits == 32, wide, out)


def _limit(b: Lanes, x: Value, low: float) -> Value:
    """x between low and 1; NaN becomes 0."""
    x = b.select(b.isnan(x), b.const("f32", 0.0), x)
    x = b.select(x < low, b.const("f32", low), x)
    return b.select(x > 1.0, b.const("f32", 1.0), x)


def _saturate(b: Lanes, x: Value, top: Value) -> Value:
    """A signed integer limited to -top - 1 ... top, as u32."""
    high = top.bits("i32")
    return b.max(b.min(x, high), -1 - high).bits("u32")


def _to_small_float(b: Lanes, x: Value, bits: Value) -> Value:
    """The bits of a 16-bit float, or of an unsigned 10 or 11-bit one, where negative numbers become 0."""
    half = _as_half(x)
    positive = b.select(b.sign_bit(x) & ~b.isnan(x), b.const("u32", 0), half & 0x7FFF)
    return b.select(bits == 16, half, positive >> (15 - bits))
