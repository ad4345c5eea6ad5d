"""A code object's contents as one image that can be copied to any GPU address."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rjemu.code.relocation import Fixup
from rjemu.errors import CodeObjectError, UsageError

MAX_IMAGE_BYTES = 1 << 29
PAGE = 4096
_MAX_ALIGNMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class ImageSegment:
    """A part of the image with one set of permissions. `offset` and `size` are bytes of the image."""

    offset: int
    size: int
    writable: bool
    executable: bool

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class ImageSymbol:
    """A symbol at an image offset. kind: "function", "object", or "other" (a label)."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """A code object's contents, independent of the address that they will have.

    data: the image, complete but for the fields that depend on its address. segments: in order of offset, not
    overlapping. fixups: those fields. alignment: what the base address must be a multiple of.
    """

    data: bytes
    segments: tuple[ImageSegment, ...]
    symbols: Mapping[str, ImageSymbol]
    fixups: tuple[Fixup, ...]
    alignment: int

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def text_ranges(self) -> tuple[tuple[int, int], ...]:
        """Start and end of each executable part, as image offsets."""
        return tuple((segment.offset, segment.end) for segment in self.segments if segment.executable)

    def is_executable(self, offset: int) -> bool:
        """Whether code may be at that image offset."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment.offset) - 1
        return index >= 0 and offset < self.segments[index].end and self.segments[index].executable

    def relocate(self, base_address: int) -> bytes:
        """The image's bytes for a GPU address; UsageError if that is not a multiple of `alignment`."""
        if base_address < 0 or base_address % self.alignment:
            raise UsageError(f"base address {base_address:#x}: expected a multiple of {self.alignment:#x}")
        image = bytearray(self.data)
        _apply(image, self.fixups, base_address)
        return bytes(image)


@dataclass(slots=True)
class ImageBuilder:
    """An image that grows at its end."""

    size: int = 0
    alignment: int = PAGE
    segments: list[ImageSegment] = field(default_factory=list)
    _contents: list[tuple[int, bytes]] = field(default_factory=list)

    def reserve(self, size: int, alignment: int, what: str) -> int:
        """The offset of `size` new bytes. An alignment of 0 means 1, as in section headers."""
        self.require_alignment(alignment, what)
        alignment = max(alignment, 1)
        offset = -(-self.size // alignment) * alignment
        self.extend_to(offset + size, what)
        return offset

    def require_alignment(self, alignment: int, what: str) -> None:
        """Make the base address a multiple of `alignment`, a power of two or 0."""
        if alignment & (alignment - 1) or alignment > _MAX_ALIGNMENT:
            raise CodeObjectError(f"{what} has alignment {alignment:#x}: expected a power of two up to {_MAX_ALIGNMENT:#x}")
        self.alignment = max(self.alignment, alignment)

    def extend_to(self, end: int, what: str) -> None:
        """Grow the image to `end` bytes, of which `what` is the last part."""
        if end > MAX_IMAGE_BYTES:
            raise CodeObjectError(f"{what} ends at {end:#x}: expected an image of at most {MAX_IMAGE_BYTES:#x} bytes")
        self.size = end

    def store(self, offset: int, content: bytes) -> None:
        """Put bytes at a place that has been reserved."""
        self._contents.append((offset, content))

    def add_segment(self, begin: int, *, writable: bool, executable: bool) -> None:
        """Give what lies between `begin` and the image's end its permissions."""
        self.segments.append(ImageSegment(begin, self.size - begin, writable, executable))

    def finish(self, symbols: Mapping[str, ImageSymbol], fixups: Iterable[Fixup]) -> LoadedImage:
        """The image, with the fix-ups applied that do not depend on the base address."""
        image = bytearray(self.size)
        for offset, content in self._contents:
            image[offset : offset + len(content)] = content
        fixed: list[Fixup] = []
        deferred: list[Fixup] = []
        for fixup in fixups:
            if not 0 <= fixup.offset <= self.size - fixup.type.size:
                raise CodeObjectError(
                    f"{fixup.type.name} at {fixup.offset:#x}: expected a place in the image of {self.size:#x} bytes"
                )
            (deferred if fixup.value.base_factor else fixed).append(fixup)
        _apply(image, fixed, 0)
        return LoadedImage(bytes(image), tuple(self.segments), symbols, tuple(deferred), self.alignment)


def _apply(image: bytearray, fixups: Iterable[Fixup], base_address: int) -> None:
    for fixup in fixups:
        image[fixup.offset : fixup.offset + fixup.type.size] = fixup.encode(base_address)
