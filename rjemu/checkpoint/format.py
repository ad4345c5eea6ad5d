"""The file format: one msgpack stream of sections, each with its length and checksum.

The stream is ["rjemu checkpoint", version], then a [name, CRC-32 of name and content, content] for each section, where the
content is a msgpack map, as bytes. The last section is "end", whose content counts those before it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import msgpack
import zstandard

from rjemu.errors import CheckpointError

MAGIC = "rjemu checkpoint"
VERSION = 1
MAX_SECTION = 64 << 20
"""Bytes of a section's content: what a reader must be ready to hold."""

END = "end"
_MAX_NAME = 64
_COMPRESSION_LEVEL = 1


def checksum(name: str, content: bytes) -> int:
    """CRC-32 of a section."""
    return zlib.crc32(content, zlib.crc32(name.encode()))


def framed(name: str, content: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """A section as it is in the file: its beginning, and its content. CheckpointError if it is too long."""
    packed = msgpack.packb(content)
    if len(packed) > MAX_SECTION:
        raise CheckpointError(f"{len(packed)} bytes of {name} are more than a section of a checkpoint can hold")
    # The content is not copied into its frame: it may be long. It is a bin 32 object in any case.
    return b"\x93" + msgpack.packb(name) + msgpack.packb(checksum(name, packed)) + struct.pack(
        ">BI", 0xC6, len(packed)
    ), packed


class Writer:
    """Writes sections to an open file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sections = 0
        file.write(msgpack.packb([MAGIC, VERSION]))

    def section(self, name: str, content: Mapping[str, Any]) -> None:
        """Adds a section. CheckpointError if it is too long."""
        self.add(framed(name, content))

    def add(self, frame: tuple[bytes, bytes]) -> None:
        """Adds a section that `framed` has made."""
        for part in frame:
            self._file.write(part)
        self._sections += 1

    def end(self) -> None:
        self.section(END, {"sections": self._sections})


class Section:
    """A section that has been read. place: file and byte, for messages."""

    def __init__(self, name: str, place: str, content: Mapping[str, Any], nbytes: int) -> None:
        self.name = name
        self.content = content
        self.nbytes = nbytes
        self._place = place

    def fail(self, problem: object) -> NoReturn:
        raise CheckpointError(f"{self._place}: {problem}")


class Reader:
    """Reads the sections of a file, one after another. CheckpointError for what is no checkpoint, or a damaged one."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._name = name
        self._size = os.fstat(file.fileno()).st_size
        self._stream = msgpack.Unpacker(
            file,
            raw=False,
            strict_map_key=True,
            max_buffer_size=MAX_SECTION + (1 << 20),
            max_str_len=_MAX_NAME,
            max_bin_len=MAX_SECTION,
            max_array_len=3,
            max_map_len=0,
            max_ext_len=0,
        )
        header = self._next("the beginning")
        if not isinstance(header, list) or len(header) != 2 or header[0] != MAGIC:
            raise CheckpointError(f"{name} is no checkpoint of rjemu")
        if type(header[1]) is not int or not 1 <= header[1] <= VERSION:
            raise CheckpointError(f"{name} has format version {header[1]!r}; this rjemu reads versions 1 to {VERSION}")
        self.version: int = header[1]

    def sections(self) -> Iterator[Section]:
        """All sections but the last, which says that nothing is missing."""
        count = 0
        while True:
            start = self._stream.tell()
            section = self._section(start)
            if section.name == END:
                break
            count += 1
            yield section
        if section.content.get("sections") != count:
            section.fail(f"the end counts {section.content.get('sections')!r} sections, there are {count}")
        if self._stream.tell() != self._size:
            raise CheckpointError(f"{self._name}, byte {self._stream.tell()}: something follows the end")

    def _section(self, start: int) -> Section:
        place = f"{self._name}, byte {start}"
        value = self._next(f"byte {start}")
        if not isinstance(value, list) or [type(part) for part in value] != [str, int, bytes]:
            raise CheckpointError(f"{place}: a section is expected")
        name, expected, packed = value
        place = f"{place}, section {name!r}"
        if checksum(name, packed) != expected:
            raise CheckpointError(f"{place}: the content is damaged (its checksum is another)")
        content = unpacked(packed, place)
        return Section(name, place, content, len(packed))

    def _next(self, where: str) -> Any:
        try:
            return self._stream.unpack()
        except msgpack.OutOfData:
            raise CheckpointError(f"{self._name} ends too early, at byte {self._size}, in what starts at {where}") from None
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            if where == "the beginning":
                raise CheckpointError(f"{self._name} is no checkpoint of rjemu") from None
            raise CheckpointError(f"{self._name}, {where}: no section ({error})") from None


def unpacked(packed: bytes, place: str) -> Mapping[str, Any]:
    """The map that bytes hold. CheckpointError, naming the place, if they do not."""
    try:
        content = msgpack.unpackb(packed, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise CheckpointError(f"{place}: the content is no msgpack ({error})") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{place}: a map is expected")
    return content


def compressed(data: bytes | memoryview) -> bytes:
    """A zstandard frame, which says how long its content is."""
    return bytes(zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(data))


def decompressed(frame: bytes, most: int) -> bytes:
    """The content of a zstandard frame, of so many bytes at most. ValueError if it is none, or of more."""
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= most:
            raise ValueError(f"{size} compressed bytes where at most {most} are expected")
        return bytes(zstandard.ZstdDecompressor().decompress(frame)) if size else b""
    except zstandard.ZstdError as error:
        raise ValueError(f"compressed data is damaged: {error}") from None


@contextmanager
def replaced_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the path's place at the end of the block, on disk; until then, and if the block raises, what is
    there stays. CheckpointError if it cannot be written."""
    try:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        if not stat.S_ISREG(path.stat().st_mode):  # renaming would take the place of a device, too
            raise CheckpointError(f"cannot write {path}: it is there, and no regular file")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror}") from error
    except ValueError as error:  # no name
        raise CheckpointError(f"cannot write {str(path)!r}: {error}") from error
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_directory(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _sync_directory(path: Path) -> None:
    """Have the file system keep a new name, where it can be asked to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
