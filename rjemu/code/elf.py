"""Reading ELF64 files that nobody vouches for.

Tables are read whole with `struct`, every range is checked against the file before it is read, and the work is
bounded by the file's size: a general ELF library follows links between sections without such limits.
Source: the ELF-64 object file format, and AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rjemu.errors import CodeObjectError

ELF_MAGIC = b"\x7fELF"
EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ET_REL, ET_DYN = 1, 3
PT_LOAD = 1
PF_X, PF_W = 1, 2
SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM, SHT_RELR = 2, 4, 7, 8, 9, 11, 19
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_LORESERVE, SHN_AMDGPU_LDS, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFF00, 0xFFF1, 0xFFF2
STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 1, 2, 3, 4
STB_LOCAL, STB_WEAK = 0, 2

_IDENT = struct.Struct("<4sBBBBB7x")
_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_NOTE = struct.Struct("<III")

_MAX_NAME = 1 << 16
_MAX_NAMES = 1 << 28
"""Bytes of one symbol name, and of all: names may share their tails, so the file's size does not bound their sum."""


class Segment(NamedTuple):
    """A program header."""

    type: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int


class Section(NamedTuple):
    """A section header; `name` is an offset into the section name table."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol table entry."""

    name: str
    type: int
    binding: int
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    """A RELA entry."""

    offset: int
    symbol: int
    type: int
    addend: int


class Note(NamedTuple):
    """An entry of a note section."""

    owner: bytes
    type: int
    payload: bytes


class ElfFile:
    """The headers and tables of one ELF64 little-endian file. Every failure is a `CodeObjectError`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != ELF_MAGIC:
            raise CodeObjectError(f"not an ELF file: found first bytes {data[:4].hex(' ') or 'none'}, expected 7f 45 4c 46")
        header = self.read(0, _IDENT.size + _HEADER.size, "ELF header")
        _, file_class, encoding, _, self.os_abi, self.abi_version = _IDENT.unpack_from(header)
        if (file_class, encoding) != (2, 1):
            raise CodeObjectError(
                f"ELF class {file_class}, encoding {encoding}: expected ELF64 (class 2), little-endian (encoding 1)"
            )
        (
            self.type,
            self.machine,
            _,
            _,
            segments_at,
            sections_at,
            self.flags,
            _,
            segment_size,
            segment_count,
            section_size,
            section_count,
            self._names_index,
        ) = _HEADER.unpack_from(header, _IDENT.size)
        self.segments = [
            Segment(*row) for row in self._table(_SEGMENT, segments_at, segment_count, segment_size, "program header")
        ]
        self.sections = [
            Section(*row) for row in self._table(_SECTION, sections_at, section_count, section_size, "section header")
        ]

    def content(self, section: Section) -> bytes:
        """The bytes of a section that the file holds (none for SHT_NOBITS)."""
        if section.type == SHT_NOBITS:
            return b""
        return self.read(section.offset, section.size, f"section {self.section_name(section)!r}")

    def section_name(self, section: Section) -> str:
        """The section's name, or its header's numbers where the file names no section."""
        if self._section_names is None:
            return f"of type {section.type} at {section.offset:#x}"
        return _string(self._section_names, section.name, "section name")

    @cached_property
    def _section_names(self) -> bytes | None:
        if not 0 < self._names_index < len(self.sections):
            return None
        names = self.sections[self._names_index]
        return self.read(names.offset, names.size, "section name table")

    def sections_of_type(self, kind: int) -> list[Section]:
        """The sections of that type; CodeObjectError if they are larger than the file, as none share their bytes."""
        found = [section for section in self.sections if section.type == kind]
        if sum(section.size for section in found) > len(self.data):
            raise CodeObjectError(
                f"truncated: sections of type {kind} are larger than the file of {len(self.data):#x} bytes"
            )
        return found

    def find_section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if self.section_name(section) == name), None)

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The full symbol table, or the dynamic one where the file has been stripped."""
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            for section in self.sections_of_type(kind):
                return self.symbol_table(section)
        return []

    def symbol_table(self, section: Section) -> list[Symbol]:
        """The entries of one symbol table, the null symbol included."""
        if not 0 < section.link < len(self.sections):
            raise CodeObjectError(
                f"symbol table names string section {section.link}: expected one of 1 to {len(self.sections) - 1}"
            )
        strings = self.content(self.sections[section.link])
        names: dict[int, str] = {}
        total = 0
        symbols = []
        for name_at, info, _, index, value, size in self._entries(_SYMBOL, section, "symbol table"):
            if name_at not in names:
                names[name_at] = _string(strings, name_at, "symbol name")
                total += len(names[name_at])
                if total > _MAX_NAMES:
                    raise CodeObjectError(f"symbol names of more than {_MAX_NAMES} bytes in all")
            symbols.append(Symbol(names[name_at], info & 15, info >> 4, index, value, size))
        return symbols

    def relocations(self, section: Section) -> list[Relocation]:
        """The entries of one SHT_RELA section."""
        rows = self._entries(_RELOCATION, section, "relocation table")
        return [Relocation(offset, info >> 32, info & 0xFFFFFFFF, addend) for offset, info, addend in rows]

    def notes(self) -> Iterator[Note]:
        """The entries of all note sections."""
        for section in self.sections_of_type(SHT_NOTE):
            yield from _notes(self.content(section))

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Bytes of the file; `what` names them in the error if the file is too short."""
        if offset + size > len(self.data):
            raise CodeObjectError(
                f"truncated: {what} takes bytes {offset:#x} to {offset + size:#x}, the file has {len(self.data):#x}"
            )
        return self.data[offset : offset + size]

    def _table(self, row: struct.Struct, offset: int, count: int, size: int, what: str) -> Iterator[tuple[int, ...]]:
        if count == 0:
            return iter(())
        if size != row.size:
            raise CodeObjectError(f"{what} entries of {size} bytes: expected {row.size}")
        return row.iter_unpack(self.read(offset, count * size, f"{what} table"))

    def _entries(self, row: struct.Struct, section: Section, what: str) -> Iterator[tuple[int, ...]]:
        if section.entry_size != row.size or section.size % row.size:
            raise CodeObjectError(
                f"{what} of {section.size} bytes in entries of {section.entry_size}: expected entries of {row.size} bytes"
            )
        return row.iter_unpack(self.content(section))


def _string(table: bytes, offset: int, what: str) -> str:
    end = table.find(b"\0", offset, offset + _MAX_NAME)
    if offset >= len(table) or end < 0:
        raise CodeObjectError(f"{what} at {offset:#x} does not end within its table of {len(table):#x} bytes")
    return table[offset:end].decode("utf-8", "backslashreplace")


def _notes(content: bytes) -> Iterator[Note]:
    at = 0
    while at + _NOTE.size <= len(content):
        owner_size, payload_size, kind = _NOTE.unpack_from(content, at)
        owner_at = at + _NOTE.size
        payload_at = owner_at + _round_up_4(owner_size)
        if payload_at + payload_size > len(content):
            raise CodeObjectError(
                f"truncated: note at {at:#x} ends at {payload_at + payload_size:#x}, its section at {len(content):#x}"
            )
        owner = content[owner_at : owner_at + owner_size].rstrip(b"\0")
        yield Note(owner, kind, content[payload_at : payload_at + payload_size])
        at = payload_at + _round_up_4(payload_size)


def _round_up_4(size: int) -> int:
    return (size + 3) & ~3
