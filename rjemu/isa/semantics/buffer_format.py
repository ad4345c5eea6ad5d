"""Typed buffer loads and stores: MTBUF (format in the instruction) and the format instructions of MUBUF (in the V#)."""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.isa.buffer_formats import (
    component_bits,
    element_bytes,
    from_register,
    is_integer,
    pack,
    to_register,
    unpack,
)
from rjemu.isa.buffers import Place
from rjemu.isa.context import Context, Semantic
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import register
from rjemu.isa.transfers import LOADS, end_direct_load, lds_direct_address, merge_half

_SEL_ONE, _SEL_X = 1, 4
"""V# destination selects: 0 is zero, 1 one, 4 to 7 are the components."""


_DWORDS = (0, 4, 8, 12)


class _Typed:
    """The place and the format of one typed instruction."""

    def __init__(self, b: Context) -> None:
        self.b = b
        self.place = Place(b, typed=True)
        descriptor = self.place.descriptor
        self.from_descriptor = b.instr.encoding == "MUBUF"
        self.dfmt = descriptor.dfmt if self.from_descriptor else b.const("u32", b.instr.mod("dfmt"))
        self.nfmt = descriptor.nfmt if self.from_descriptor else b.const("u32", b.instr.mod("nfmt"))
        self.nbytes = element_bytes(b, self.dfmt)

    def lanes(self) -> Value:
        """The active lanes whose whole element is in range."""
        b, place = self.b, self.place
        in_range = b.vector(b.const("u32", 0)) != 0
        for nbytes in (1, 2, 4, 8, 12, 16):
            in_range = b.select(self.nbytes == nbytes, place.in_range(nbytes), in_range)
        return b.exec_lanes() & in_range

    def load_words(self) -> list[Value]:
        """Four dwords; what lies beyond the element, or out of range, is zero."""
        b, lanes, addresses = self.b, self.lanes(), self.place.addresses(_DWORDS)
        words = [
            b.load("global", address, 4, lanes & (self.nbytes > byte) & (self.nbytes >= 4))[0]
            for byte, address in zip(_DWORDS, addresses, strict=True)
        ]
        for nbytes in (1, 2):
            words[0] = words[0] | b.load("global", addresses[0], nbytes, lanes & (self.nbytes == nbytes))[0]
        return words

    def store_words(self, words: Sequence[Value]) -> None:
        b, lanes, addresses = self.b, self.lanes(), self.place.addresses(_DWORDS)
        for byte, address, word in zip(_DWORDS, addresses, words, strict=True):
            b.store("global", address, [word], 4, lanes & (self.nbytes > byte) & (self.nbytes >= 4))
        for nbytes in (1, 2):
            b.store("global", addresses[0], [words[0]], nbytes, lanes & (self.nbytes == nbytes))

    def select(self, c: int) -> Value:
        """u32 scalar: the V#'s destination select of component c."""
        return (self.place.descriptor.dst_sel >> (3 * c)) & 7


def _loaded_components(b: Context, count: int, half: bool) -> list[Value]:
    """u32 vectors: the first `count` register components of a typed load."""
    typed = _Typed(b)
    words = typed.load_words()
    components = [
        to_register(b, unpack(b, words, typed.dfmt, c), component_bits(b, typed.dfmt, c), typed.nfmt, half) for c in range(4)
    ]
    if not typed.from_descriptor:
        return components[:count]
    one = b.select(is_integer(typed.nfmt), b.const("u32", 1), b.const("u32", 0x3C00 if half else 0x3F800000))
    out = []
    for c in range(count):
        select = typed.select(c)
        value = b.select(select == _SEL_ONE, b.vector(one), b.vector(b.const("u32", 0)))
        for source, component in enumerate(components):
            value = b.select(select == _SEL_X + source, component, value)
        out.append(value)
    return out


def _load(count: int, half: bool) -> Semantic:
    def semantic(b: Context) -> None:
        lanes = b.exec_lanes()
        components = _loaded_components(b, count, half)
        if b.instr.mod("lds"):
            b.store("lds", lds_direct_address(b, LOADS["dword"]), components, 4, lanes)
            end_direct_load(b)
            return
        dst = b.instr.operand("vdata")
        words = _pair_halves(b, components, dst) if half else components
        for k, word in enumerate(words):
            b.set_vgpr(dst, k, word, lanes)

    return semantic


def _pair_halves(b: Context, components: list[Value], dst: Operand) -> list[Value]:
    """Two components per register; an odd one leaves the upper half as it was."""
    pairs = [x | (y << 16) for x, y in zip(components[0::2], components[1::2], strict=False)]
    if len(components) % 2:
        pairs.append((b.vgpr(dst, len(pairs)) & 0xFFFF0000) | components[-1])
    return pairs


def _load_high(b: Context) -> None:
    dst = b.instr.operand("vdata")
    (component,) = _loaded_components(b, 1, half=True)
    b.set_vgpr(dst, 0, merge_half(b, 1, component, dst), b.exec_lanes())


def _store_components(b: Context, data: list[Value], half: bool) -> None:
    typed = _Typed(b)
    zero = b.vector(b.const("u32", 0))
    components = []
    for m in range(4):
        value = data[m] if m < len(data) else zero
        if typed.from_descriptor:
            value = zero
            for c, given in reversed(list(enumerate(data))):
                value = b.select(typed.select(c) == _SEL_X + m, given, value)
        components.append(from_register(b, value, component_bits(b, typed.dfmt, m), typed.nfmt, half))
    typed.store_words(pack(b, components, typed.dfmt))


def _store(count: int, half: bool) -> Semantic:
    def semantic(b: Context) -> None:
        op = b.instr.operand("vdata")
        if half:
            data = [(b.vgpr(op, c // 2) >> (16 * (c % 2))) & 0xFFFF for c in range(count)]
        else:
            data = [b.vgpr(op, c) for c in range(count)]
        _store_components(b, data, half)

    return semantic


def _store_high(b: Context) -> None:
    _store_components(b, [b.vgpr(b.instr.operand("vdata")) >> 16], half=True)


for _count, _components in enumerate(("x", "xy", "xyz", "xyzw"), 1):
    for _prefix in ("buffer", "tbuffer"):
        for _middle, _half in (("", False), ("d16_", True)):
            register(f"{_prefix}_load_format_{_middle}{_components}", _load(_count, _half))
            register(f"{_prefix}_store_format_{_middle}{_components}", _store(_count, _half))
register("buffer_load_format_d16_hi_x", _load_high)
register("buffer_store_format_d16_hi_x", _store_high)
