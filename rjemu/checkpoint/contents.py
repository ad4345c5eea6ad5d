"""What the sections hold: machines' parts as plain values, and back with every value checked.

A checkpoint is data: whatever a file holds, reading it gives numbers, texts and bytes of bounded size, or a ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgpack
import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from rjemu.checkpoint.format import compressed, decompressed
from rjemu.exec.suspended import WAVE_LONGS, WAVE_WORDS, WaveRecord, WorkgroupRecord
from rjemu.shm.vram import PAGE
from rjemu.vm.array import resolve_dtype

T = TypeVar("T")

PIECE = 4 << 20
"""Bytes of memory in a section, before compression."""

MAX_LONG = (1 << 64) - 1
MAX_WORD = (1 << 32) - 1
MAX_COUNT = 1 << 48
MAX_WORKGROUP = 64 << 20
"""Bytes of a workgroup's LDS and registers, packed."""


def value(content: Any, name: str, kind: type[T]) -> T:
    """A field of just that type. ValueError if it is missing or of another."""
    if not isinstance(content, Mapping) or name not in content:
        raise ValueError(f"{name} is missing")
    found = content[name]
    if type(found) is not kind:
        raise ValueError(f"{name} must be of type {kind.__name__}, not {type(found).__name__}")
    return found


def number(content: Any, name: str, most: int = MAX_LONG) -> int:
    """A field that is a whole number from 0 to `most`."""
    found = value(content, name, int)
    if not 0 <= found <= most:
        raise ValueError(f"{name} is {found}, expected 0 to {most}")
    return found


def numbers(content: Any, name: str, most: int = MAX_COUNT) -> tuple[int, ...]:
    """A field that is a list of whole numbers from 0 to `most`."""
    found = value(content, name, list)
    if not all(type(entry) is int and 0 <= entry <= most for entry in found):
        raise ValueError(f"{name} must hold numbers from 0 to {most}")
    return tuple(found)


def triple(content: Any, name: str) -> tuple[int, int, int]:
    """A field that is three whole numbers."""
    found = numbers(content, name)
    if len(found) != 3:
        raise ValueError(f"{name} has {len(found)} numbers, expected 3")
    return found[0], found[1], found[2]


def rows_of(content: Any, *columns: str) -> list[dict[str, Any]]:
    """A table, whose rows are lists, by the names of its columns. ValueError if it is none."""
    found = value(content, "rows", list)
    if not all(isinstance(row, list) and len(row) == len(columns) for row in found):
        raise ValueError(f"a row has not the {len(columns)} columns {', '.join(columns)}")
    return [dict(zip(columns, row, strict=True)) for row in found]


def encode_dtype(dtype: np.dtype) -> Any:
    """A name, for numpy's own and those of ml_dtypes; numpy's description of its fields for a structure."""
    if dtype.names is not None:
        return dtype_to_descr(dtype)
    return dtype.str if dtype.isbuiltin != 2 else dtype.name  # 2: registered by ml_dtypes


def decode_dtype(encoded: Any) -> np.dtype:
    """ValueError if it is none."""
    try:
        return resolve_dtype(encoded if isinstance(encoded, str) else descr_to_dtype(_tuples(encoded)))
    except Exception as error:  # numpy raises many kinds for what is no dtype
        raise ValueError(f"{encoded!r:.80} is no dtype ({error})") from None


def _tuples(descr: Any) -> Any:
    """A structure's description as numpy wants it: a list of tuples, shapes as tuples."""
    if not isinstance(descr, list):
        return descr
    fields = []
    for name, of, *shape in descr:
        fields.append((tuple(name) if isinstance(name, list) else name, _tuples(of), *map(tuple, shape)))
    return fields


def decode_piece(content: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """(address, bool [pages]: which are not zero, uint8 [those, PAGE]). ValueError if it is none."""
    present = np.unpackbits(np.frombuffer(value(content, "pages", bytes), np.uint8)).astype(bool)
    if len(present) > PIECE // PAGE:
        raise ValueError(f"{len(present)} pages in one piece")
    data = decompressed(value(content, "data", bytes), PIECE)
    if len(data) != PAGE * np.count_nonzero(present):
        raise ValueError(f"{len(data)} bytes for {np.count_nonzero(present)} pages")
    return number(content, "address"), present, np.frombuffer(data, np.uint8).reshape(-1, PAGE)


def encode_piece(address: int, pages: np.ndarray) -> dict[str, Any] | None:
    """A piece of memory without its zero pages; None if there are no others. pages: uint8, whole pages."""
    rows = pages.reshape(-1, PAGE)
    present = rows.view(np.uint64).any(axis=1)
    if not present.any():
        return None
    kept = rows if present.all() else rows[present]
    return {"address": address, "pages": np.packbits(present).tobytes(), "data": compressed(kept.data)}


def encode_workgroup(record: WorkgroupRecord) -> bytes:
    """Compressed, without the slot."""
    plain = {
        "number": record.number,
        "next_wave": record.next_wave,
        "lds": record.lds,
        "waves": [
            {"vgprs": wave.vgprs, "agprs": wave.agprs, "scalars": wave.scalars, **wave.fields} for wave in record.waves
        ],
    }
    return compressed(msgpack.packb(plain))


def decode_workgroup(slot: int, data: bytes) -> WorkgroupRecord:
    """ValueError if the data is not a workgroup's."""
    try:
        plain = msgpack.unpackb(decompressed(data, MAX_WORKGROUP), raw=False, strict_map_key=True)
    except (TypeError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"no msgpack ({error})") from None
    waves = tuple(_wave(entry) for entry in value(plain, "waves", list))
    return WorkgroupRecord(
        slot, number(plain, "number"), number(plain, "next_wave", MAX_WORD), value(plain, "lds", bytes), waves
    )


def _wave(plain: Any) -> WaveRecord:
    fields = {name: number(plain, name) for name in WAVE_LONGS}
    fields |= {name: number(plain, name, MAX_WORD) for name in WAVE_WORDS}
    return WaveRecord(value(plain, "vgprs", bytes), value(plain, "agprs", bytes), value(plain, "scalars", bytes), fields)
