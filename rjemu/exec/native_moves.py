"""Native code that moves whole dwords between memory, at one address per lane, and rows of the register file.

A row holds one dword of every lane. Sixteen lanes at a time: their dwords are read or written as one piece per lane and
transposed in vector registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rjemu.exec.ir import IrLanes, Ptr
from rjemu.isa.lanes import TYPES, Value

GROUP = 16
"""Lanes that are transposed together: four 128-bit pieces in each of four 512-bit registers."""

PointerOf = Callable[[Value, int], Ptr]
"""(u64 number of a group's first lane, position in the group) -> where that lane's data lie in the host's memory."""


def load_groups(b: IrLanes, rows: Sequence[Ptr], pointer: PointerOf) -> None:
    """Read len(rows) dwords per lane into the rows, for all lanes."""
    with b.count(b.wave // GROUP) as group:
        first = group * GROUP
        pieces = [_load_piece(b, pointer(first, lane), len(rows)) for lane in range(GROUP)]
        for row, words in zip(rows, _PIECES_TO_ROWS[len(rows)](b, pieces), strict=True):
            b.store_value(b.offset(row, first * 4), words, align=64)


def store_groups(b: IrLanes, rows: Sequence[Ptr], pointer: PointerOf) -> None:
    """Write len(rows) dwords per lane from the rows, for all lanes in ascending order."""
    with b.count(b.wave // GROUP) as group:
        first = group * GROUP
        words = [b.load_value(b.offset(row, first * 4), "u32", GROUP, align=64) for row in rows]
        for lane, piece in enumerate(_ROWS_TO_PIECES[len(rows)](b, words)):
            _store_piece(b, pointer(first, lane), piece, len(rows))


def copy_lane(b: IrLanes, rows: Sequence[Ptr], lane: Value, memory: Ptr, *, to_memory: bool) -> None:
    """Move the dwords of one lane (u64 number)."""
    for k, row in enumerate(rows):
        cell, word = b.offset(row, lane << 2), b.offset(memory, 4 * k)
        source, target = (cell, word) if to_memory else (word, cell)
        b.store_value(target, b.load_value(source, "u32", align=1), align=1)


def copy_groups(b: IrLanes, source: PointerOf, target: PointerOf, dwords: int) -> None:
    """Copy dwords from one place per lane to another, for all lanes in ascending order."""
    with b.count(b.wave // GROUP) as group:
        first = group * GROUP
        for lane in range(GROUP):
            copy_piece(b, source(first, lane), target(first, lane), dwords)


def copy_piece(b: IrLanes, source: Ptr, target: Ptr, dwords: int) -> None:
    """Copy some dwords from one place in the host's memory to another."""
    _store_piece(b, target, _load_piece(b, source, dwords), dwords)


# --- one lane's piece -----------------------------------------------------------------------------------------------------


def _load_piece(b: IrLanes, pointer: Ptr, dwords: int) -> Value:
    if dwords != 3:
        return b.load_value(pointer, "u32", dwords, align=1)
    low = b.load_value(pointer, "u32", 2, align=1)
    last = b.load_value(b.offset(pointer, 8), "u32", align=1)
    return _mix(b, low, b.splat(last, 2), (0, 1, 2, 3))


def _store_piece(b: IrLanes, pointer: Ptr, piece: Value, dwords: int) -> None:
    if dwords != 3:
        b.store_value(pointer, piece, align=1)
        return
    b.store_value(pointer, b.extract(piece, 0, 2), align=1)
    b.store_value(b.offset(pointer, 8), b.extract(piece, 2, 1), align=1)


# --- transposition --------------------------------------------------------------------------------------------------------


def _mix(b: IrLanes, x: Value, y: Value, lanes: Sequence[int]) -> Value:
    """The chosen elements of x followed by y."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {b.typed(x)}, {b.typed(y)}, <{len(lanes)} x i32> <{mask}>"
    return b.make(TYPES["u32"], len(lanes), b.define(text))


def _interleave(b: IrLanes, x: Value, y: Value, pattern: Sequence[int]) -> Value:
    """The same choice of four in every 128-bit part of two registers: 0-3 from x, 4-7 from y."""
    lanes = [part + p if p < 4 else GROUP + part + p - 4 for part in range(0, GROUP, 4) for p in pattern]
    return _mix(b, x, y, lanes)


def _rows_of_one(b: IrLanes, pieces: Sequence[Value]) -> list[Value]:
    row = b.splat(pieces[0], GROUP)
    for lane, piece in enumerate(pieces[1:], 1):
        row = b.make(row.type, GROUP, b.define(f"insertelement {b.typed(row)}, {b.typed(piece)}, i32 {lane}"))
    return [row]


def _pieces_of_one(b: IrLanes, words: Sequence[Value]) -> list[Value]:
    return [b.extract(words[0], lane, 1) for lane in range(GROUP)]


def _rows_of_two(b: IrLanes, pieces: Sequence[Value]) -> list[Value]:
    """Lanes 4j, 4j+1 in part j of one register and 4j+2, 4j+3 of another; then even and odd dwords."""
    pairs = [b.concat([pieces[lane], pieces[lane + 1]]) for lane in range(0, GROUP, 2)]
    low, high = b.concat(pairs[0::2]), b.concat(pairs[1::2])
    return [_interleave(b, low, high, (0, 2, 4, 6)), _interleave(b, low, high, (1, 3, 5, 7))]


def _pieces_of_two(b: IrLanes, words: Sequence[Value]) -> list[Value]:
    low, high = _interleave(b, words[0], words[1], (0, 4, 1, 5)), _interleave(b, words[0], words[1], (2, 6, 3, 7))
    return [b.extract(source, part + half, 2) for part in range(0, GROUP, 4) for source in (low, high) for half in (0, 2)]


def _rows_of_four(b: IrLanes, pieces: Sequence[Value]) -> list[Value]:
    """Register j holds lanes j, j+4, j+8, j+12; a 4x4 transposition inside the 128-bit parts does the rest."""
    return _transpose(b, [b.concat(pieces[j::4]) for j in range(4)])


def _pieces_of_four(b: IrLanes, words: Sequence[Value]) -> list[Value]:
    columns = _transpose(b, words)
    return [b.extract(columns[j], part, 4) for part in range(0, GROUP, 4) for j in range(4)]


def _transpose(b: IrLanes, rows: Sequence[Value]) -> list[Value]:
    """4x4 transpositions of dwords in each 128-bit part of four registers."""
    low = [_interleave(b, rows[0], rows[1], (0, 4, 1, 5)), _interleave(b, rows[2], rows[3], (0, 4, 1, 5))]
    high = [_interleave(b, rows[0], rows[1], (2, 6, 3, 7)), _interleave(b, rows[2], rows[3], (2, 6, 3, 7))]
    return [_interleave(b, x, y, choice) for x, y in (low, high) for choice in ((0, 1, 4, 5), (2, 3, 6, 7))]


_PIECES_TO_ROWS: dict[int, Callable[[IrLanes, Sequence[Value]], list[Value]]] = {
    1: _rows_of_one,
    2: _rows_of_two,
    3: lambda b, pieces: _rows_of_four(b, pieces)[:3],
    4: _rows_of_four,
}
_ROWS_TO_PIECES: dict[int, Callable[[IrLanes, Sequence[Value]], list[Value]]] = {
    1: _pieces_of_one,
    2: _pieces_of_two,
    3: lambda b, words: _pieces_of_four(b, [*words, words[0]]),
    4: _pieces_of_four,
}
