"""Laying out an ELF file's contents as an image.

A linked object (ET_DYN) is laid out by its program headers. A relocatable one (ET_REL) has none: its allocated
sections are grouped by permission here, and common symbols and a GOT follow them, as a linker would do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rjemu.code import elf
from rjemu.code.elf import ElfFile, Relocation, Section, Symbol
from rjemu.code.image import PAGE, ImageBuilder, ImageSymbol, LoadedImage
from rjemu.code.relocation import (
    R_AMDGPU_ABS64,
    R_AMDGPU_NONE,
    R_AMDGPU_RELATIVE64,
    Fixup,
    Value,
    relocated_value,
    relocation_type,
)
from rjemu.errors import CodeObjectError

_GOT_SLOT_BYTES = 8
_SYMBOL_KINDS = {elf.STT_FUNC: "function", elf.STT_OBJECT: "object"}
_NAMES_SHOWN = 8

_PlaceOf = Callable[[Symbol], int | None]
"""The image offset of a symbol; None if it has none."""


def lay_out(file: ElfFile) -> LoadedImage:
    """The image of a linked or relocatable AMDGPU object."""
    if file.type == elf.ET_DYN:
        return _lay_out_linked(file)
    if file.type == elf.ET_REL:
        return _lay_out_relocatable(file)
    raise CodeObjectError(f"ELF type {file.type}: expected a shared object (ET_DYN, 3) or a relocatable one (ET_REL, 1)")


def _lay_out_linked(file: ElfFile) -> LoadedImage:
    loads = [segment for segment in file.segments if segment.type == elf.PT_LOAD and segment.memory_size]
    if not loads:
        raise CodeObjectError("the shared object has no loadable segment")
    builder = ImageBuilder()
    for segment in loads:
        builder.require_alignment(segment.alignment, f"segment at address {segment.address:#x}")
    start = loads[0].address // builder.alignment * builder.alignment
    for segment in loads:
        what = f"segment at address {segment.address:#x}"
        offset = segment.address - start
        if offset < builder.size:
            raise CodeObjectError(f"{what} overlaps the one before it, which ends at {start + builder.size:#x}")
        if segment.file_size > segment.memory_size:
            raise CodeObjectError(f"{what} has {segment.file_size:#x} bytes in the file, {segment.memory_size:#x} in memory")
        builder.extend_to(offset + segment.memory_size, what)
        builder.store(offset, file.read(segment.offset, segment.file_size, what))
        builder.add_segment(offset, writable=bool(segment.flags & elf.PF_W), executable=bool(segment.flags & elf.PF_X))

    def place_of(symbol: Symbol) -> int | None:
        return symbol.value - start if elf.SHN_UNDEF < symbol.section < elf.SHN_LORESERVE else None

    dynamic_symbols = [symbol for section in file.sections_of_type(elf.SHT_DYNSYM) for symbol in file.symbol_table(section)]
    resolver = _Resolver(dynamic_symbols, place_of, load_bias=-start)
    fixups = [
        resolver.fixup(relocation, relocation.offset - start)
        for section in _relocation_sections(file)
        if section.flags & elf.SHF_ALLOC
        for relocation in _relocations(file, section)
    ]
    resolver.require_all_defined()
    return builder.finish(_image_symbols(file.symbols, place_of, builder.size), fixups)


def _lay_out_relocatable(file: ElfFile) -> LoadedImage:
    builder = ImageBuilder()
    section_places = _place_sections(file, builder)
    begin = builder.reserve(0, PAGE, "the common symbols")
    common = {
        symbol: builder.reserve(symbol.size, symbol.value, f"common symbol {symbol.name!r}")
        for symbol in file.symbols
        if symbol.section == elf.SHN_COMMON
    }

    def place_of(symbol: Symbol) -> int | None:
        if symbol.section >= elf.SHN_LORESERVE:
            return common.get(symbol)
        section_place = section_places.get(symbol.section)
        return None if section_place is None else section_place + symbol.value

    resolver = _Resolver(file.symbols, place_of, got=builder)
    fixups = []
    for section in _relocation_sections(file):
        if section.info in section_places:
            size = file.sections[section.info].size
            for relocation in _relocations(file, section):
                if relocation.offset >= size:
                    name = file.section_name(file.sections[section.info])
                    raise CodeObjectError(f"relocation at {relocation.offset:#x}: section {name!r} has {size:#x} bytes")
                fixups.append(resolver.fixup(relocation, section_places[section.info] + relocation.offset))
    resolver.require_all_defined()
    if builder.size > begin:
        builder.add_segment(begin, writable=True, executable=False)
    return builder.finish(_image_symbols(file.symbols, place_of, builder.size), fixups + resolver.got_fixups)


def _place_sections(file: ElfFile, builder: ImageBuilder) -> dict[int, int]:
    """Section index -> image offset, for the sections to load: read-only ones first, then code, then data."""
    groups: dict[int, list[int]] = {
        0: [],
        elf.SHF_EXECINSTR: [],
        elf.SHF_WRITE: [],
        elf.SHF_WRITE | elf.SHF_EXECINSTR: [],
    }
    for index, section in enumerate(file.sections):
        if section.flags & elf.SHF_ALLOC and section.type != elf.SHT_NOTE:
            groups[section.flags & (elf.SHF_WRITE | elf.SHF_EXECINSTR)].append(index)
    places: dict[int, int] = {}
    stored = 0
    for permissions, indices in groups.items():
        begin = builder.reserve(0, PAGE, "a section")
        for index in indices:
            section = file.sections[index]
            what = f"section {file.section_name(section)!r}"
            places[index] = builder.reserve(section.size, section.alignment, what)
            content = file.content(section)
            stored += len(content)
            if stored > len(file.data):
                raise CodeObjectError(f"{what} shares its bytes with another section")
            builder.store(places[index], content)
        if builder.size > begin:
            builder.add_segment(
                begin,
                writable=bool(permissions & elf.SHF_WRITE),
                executable=bool(permissions & elf.SHF_EXECINSTR),
            )
    if not builder.size:
        raise CodeObjectError("the relocatable object has no section to load")
    return places


class _Resolver:
    """Turns the relocations of one symbol table into fix-ups.

    load_bias: what R_AMDGPU_RELATIVE64's addends lack to be image offsets. got: where GOT slots are reserved; a linked
    object brings its own.
    """

    def __init__(
        self, symbols: Sequence[Symbol], place_of: _PlaceOf, load_bias: int = 0, got: ImageBuilder | None = None
    ) -> None:
        self.got_fixups: list[Fixup] = []
        self._symbols = symbols
        self._place_of = place_of
        self._load_bias = load_bias
        self._got = got
        self._slots: dict[int, int] = {}
        self._undefined: dict[str, None] = {}

    def fixup(self, relocation: Relocation, place: int) -> Fixup:
        """The fix-up that the relocation asks for at image offset `place`."""
        kind = relocation_type(relocation.type)
        if relocation.type == R_AMDGPU_RELATIVE64:
            symbol = Value(self._load_bias, 1)
        elif kind.through_got:
            symbol = Value(self._got_slot(relocation.symbol), 1)
        else:
            symbol = self._value(relocation.symbol)
        return Fixup(place, kind, relocated_value(kind, symbol, relocation.addend, place))

    def require_all_defined(self) -> None:
        """CodeObjectError naming the undefined symbols that relocations needed, if any."""
        if self._undefined:
            raise CodeObjectError(f"undefined symbols: {_some(list(self._undefined))}; the object must be linked with them")

    def _value(self, index: int) -> Value:
        if index >= len(self._symbols):
            raise CodeObjectError(f"relocation against symbol {index}: the table has {len(self._symbols)}")
        symbol = self._symbols[index]
        if index == 0 or (symbol.section == elf.SHN_UNDEF and symbol.binding == elf.STB_WEAK):
            return Value(0, 0)
        if symbol.section == elf.SHN_UNDEF:
            self._undefined[symbol.name] = None
            return Value(0, 0)
        if symbol.section == elf.SHN_ABS:
            return Value(symbol.value, 0)
        if symbol.section == elf.SHN_AMDGPU_LDS:
            raise CodeObjectError(f"symbol {symbol.name!r} is an LDS variable with no address: expected it to be lowered")
        place = self._place_of(symbol)
        if place is None:
            raise CodeObjectError(f"relocation against symbol {symbol.name!r}, whose section {symbol.section} is not loaded")
        return Value(place, 1)

    def _got_slot(self, index: int) -> int:
        if self._got is None:
            raise CodeObjectError("GOT relocation in a linked object: expected the linker to have resolved it")
        if index not in self._slots:
            slot = self._got.reserve(_GOT_SLOT_BYTES, _GOT_SLOT_BYTES, "the GOT")
            self._slots[index] = slot
            self.got_fixups.append(Fixup(slot, relocation_type(R_AMDGPU_ABS64), self._value(index)))
        return self._slots[index]


def _relocation_sections(file: ElfFile) -> list[Section]:
    """The RELA sections; CodeObjectError for the other forms, which no AMDGPU tool writes by default."""
    for section in file.sections:
        if section.type in (elf.SHT_REL, elf.SHT_RELR) and section.size:
            name = file.section_name(section)
            raise CodeObjectError(f"relocation section {name!r} has type {section.type}: expected SHT_RELA, {elf.SHT_RELA}")
    return file.sections_of_type(elf.SHT_RELA)


def _relocations(file: ElfFile, section: Section) -> Iterator[Relocation]:
    return (relocation for relocation in file.relocations(section) if relocation.type != R_AMDGPU_NONE)


def _image_symbols(symbols: Sequence[Symbol], place_of: _PlaceOf, size: int) -> dict[str, ImageSymbol]:
    """The named symbols that have a place in the image; of equal names, the one that is not local."""
    found: dict[str, ImageSymbol] = {}
    for symbol in sorted(symbols, key=lambda symbol: symbol.binding != elf.STB_LOCAL):
        if not symbol.name or symbol.type in (elf.STT_SECTION, elf.STT_FILE):
            continue
        place = place_of(symbol)
        if place is not None and 0 <= place <= size:
            kind = _SYMBOL_KINDS.get(symbol.type, "other")
            found[symbol.name] = ImageSymbol(symbol.name, place, symbol.size, kind)
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
