"""Unpacking matrix operands in native code: from registers to panels on the stack, one row per k.

Where the host multiplies bytes (VNNI) and the products are exact in integers, four k share a row: a word holds the
elements of four k as signed bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rjemu.exec.ir import Ptr, type_text
from rjemu.exec.native_context import NativeContext
from rjemu.isa.lanes import TYPES, Value
from rjemu.isa.operands import raw_source
from rjemu.mma.formats import FP4_VALUES, Decoder
from rjemu.mma.geometry import WAVE, InputLayout
from rjemu.mma.unit import Input, Product

REGISTER_BYTES = 4 * WAVE
BYTES_IN_WORD = 4
BYTE_FRACTION_BITS = {"i8": 0, "fp4": 1}
"""Formats whose elements are whole bytes times 2^-fraction bits."""

_NIBBLES = 0x0F0F0F0F


@dataclass(frozen=True, slots=True)
class Panel:
    """A scratch array [rows][columns] of a `Lanes` type."""

    type_name: str
    rows: int
    columns: int
    ptr: Ptr

    @property
    def row_bytes(self) -> int:
        return self.columns * TYPES[self.type_name].bits // 8


def new_panel(b: NativeContext, type_name: str, rows: int, columns: int) -> Panel:
    """A panel of undefined content."""
    kind = type_text(TYPES[type_name], 1)
    return Panel(type_name, rows, columns, b.stack(f"[{rows * columns} x {kind}]"))


def unpack(b: NativeContext, source: Input) -> Panel:
    """The operand's elements."""
    layout, decoder = source.layout, source.decoder
    panel = new_panel(b, source.type_name, layout.k, layout.columns)
    turns = layout.registers // decoder.registers
    if turns == 1:
        _unpack_turn(b, panel, _words(b, source, None), layout, decoder, panel.ptr)
        return panel
    starts = [layout.k_of(turn * layout.items // turns, 0) * panel.row_bytes for turn in range(turns)]
    with b.count(turns) as turn:
        start = b.offset(panel.ptr, b.table(starts, turn).to("u64"))
        _unpack_turn(b, panel, _words(b, source, turn), layout, decoder, start)
    return panel


def _words(b: NativeContext, source: Input, turn: Value | None) -> list[Value]:
    """The registers that one call of the decoder takes."""
    registers = source.decoder.registers
    if source.operand.kind != "v":
        return [b.vector(raw_source(b, source.operand, "u32"))] * registers
    first = b.operand_ptr(source.operand)
    if turn is not None:
        first = b.offset(first, turn * (registers * REGISTER_BYTES))
    words = [b.load_value(b.offset(first, k * REGISTER_BYTES), "u32", WAVE) for k in range(registers)]
    return words if source.lanes is None else [b.shuffle(word, source.lanes) for word in words]


def _unpack_turn(
    b: NativeContext, panel: Panel, words: list[Value], layout: InputLayout, decoder: Decoder, start: Ptr
) -> None:
    for item, value in enumerate(decoder.decode(words)):
        for group in range(layout.groups):
            part = value if layout.groups == 1 else b.extract(value, group * layout.columns, layout.columns)
            b.store_value(b.offset(start, layout.k_of(item, group) * panel.row_bytes), part)


def multiplies_bytes(b: NativeContext, product: Product) -> bool:
    """Whether to use integer dot products of bytes: A and B of one such format, a sum in which only the total counts
    (i32, or the exact sum of a scale block), and rows of whole vector registers."""
    formats = {product.a.element, product.b.element}
    return (
        "avx512vnni" in b.module.features
        and len(formats) == 1
        and formats <= BYTE_FRACTION_BITS.keys()
        and (product.result == "i32" or product.scales is not None)
        and product.selected is None
        and product.layout.n % 16 == 0
    )


def unpack_bytes(b: NativeContext, source: Input) -> Panel:
    """The operand's elements times 2^fraction bits as words of four signed bytes: row q holds four k of each column.

    Which four differs from format to format, but not between A and B, and not across a scale block.
    """
    dim, blocks, k = source.layout.dim, source.layout.blocks, source.layout.k // BYTES_IN_WORD
    if source.element == "i8":
        layout, decoder = InputLayout(dim, blocks, k, 32), Decoder(1, list)
    else:
        layout, decoder = InputLayout(dim, blocks, k, 16), Decoder(1, lambda words: _fp4_bytes(b, words))
    return unpack(b, replace(source, layout=layout, type_name="u32", decoder=decoder))


def _fp4_bytes(b: NativeContext, words: Sequence[Value]) -> list[Value]:
    """The even and the odd nibbles' values, doubled."""
    table = b.lane_constants("u8", [int(2 * value) for value in FP4_VALUES] * BYTES_IN_WORD)
    return [_byte_table(b, table, nibbles & _NIBBLES) for nibbles in (words[0], words[0] >> 4)]


def _byte_table(b: NativeContext, table: Value, index: Value) -> Value:
    """For each byte of u32 lanes, the table's byte that it names: 64 bytes that repeat a table of 16."""
    name = b.module.declare("llvm.x86.avx512.pshuf.b.512", "<64 x i8>", "<64 x i8>, <64 x i8>")
    pieces = []
    for start in range(0, index.lanes, 16):
        where = b.define(f"bitcast {b.typed(b.extract(index, start, 16))} to <64 x i8>")
        found = b.define(f"call <64 x i8> {name}({b.typed(table)}, <64 x i8> {where})")
        pieces.append(b.make(index.type, 16, b.define(f"bitcast <64 x i8> {found} to <16 x i32>")))
    return b.concat(pieces)
