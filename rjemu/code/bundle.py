"""Clang offload bundles: one file with code objects for several targets, plain or compressed, or inside a host binary.

Sources: Clang's "Clang Offload Bundler" document, "Bundled Code Object Layout" and "Compressed Bundle" headers.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import zstandard

from rjemu.code.elf import ELF_MAGIC, EM_AMDGPU, ElfFile
from rjemu.code.targets import TargetId
from rjemu.errors import CodeObjectError

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
FAT_BINARY_SECTION = ".hip_fatbin"
MAX_BUNDLE_BYTES = 1 << 30

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_COMPRESSED_PREFIX = struct.Struct("<4sHH")
_COMPRESSED_REST = {1: struct.Struct("<I8x"), 2: struct.Struct("<II8x"), 3: struct.Struct("<QQ8x")}
"""By version, what follows magic, version and method: total size (from version 2 on), size when unpacked, hash."""

_CHUNK = 1 << 20
_MAX_ZSTD_WINDOW = 1 << 30
_ENTRIES_SHOWN = 16
_ZEROS = re.compile(rb"\0*")
_GPU_ENTRY = re.compile(r"[a-z0-9]+-amdgcn-amd-amdhsa-[a-z]*-(?P<target>gfx.+)")


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """One entry of a bundle. `target` is None for the host's entry and for devices that are no AMD GPU."""

    id: str
    target: TargetId | None
    code: memoryview


def is_bundle(data: bytes) -> bool:
    """Whether the bytes are a bundle, plain or compressed, or a host binary, which may hold one."""
    if data.startswith((BUNDLE_MAGIC, COMPRESSED_MAGIC)):
        return True
    return data.startswith(ELF_MAGIC) and len(data) >= 20 and int.from_bytes(data[18:20], "little") != EM_AMDGPU


def read_bundle(data: bytes) -> list[BundleEntry]:
    """The entries of all bundles that the bytes hold, in order."""
    if data.startswith(ELF_MAGIC):
        data = _fat_binary(data)
    return [entry for bundle in _split(data) for entry in _entries(bundle)]


def pick(entries: list[BundleEntry], target: TargetId | None) -> BundleEntry:
    """The entry whose code fits `target` most closely; without a target, the only GPU entry.

    Raises CodeObjectError, with the entries found, if none fits or if several fit equally well.
    """
    candidates = [(entry, entry.target) for entry in entries if entry.target is not None]
    if target is not None:
        candidates = [(entry, code) for entry, code in candidates if code.runs_on(target)]
        best = max((code.match_rank(target) for _, code in candidates), default=None)
        candidates = [(entry, code) for entry, code in candidates if code.match_rank(target) == best]
    if len(candidates) == 1:
        return candidates[0][0]
    found = ", ".join(entry.id for entry in entries[:_ENTRIES_SHOWN]) or "nothing"
    if len(entries) > _ENTRIES_SHOWN:
        found += f" and {len(entries) - _ENTRIES_SHOWN} more"
    wanted = "one code object for an AMD GPU" if target is None else f"one code object for {target}"
    advice = "; name a target" if target is None and candidates else ""
    raise CodeObjectError(f"the offload bundle holds {found}: expected {wanted}, found {len(candidates)}{advice}")


def _fat_binary(data: bytes) -> bytes:
    host = ElfFile(data)
    section = host.find_section(FAT_BINARY_SECTION)
    if section is None:
        raise CodeObjectError(
            f"ELF file for machine {host.machine}: expected AMDGPU ({EM_AMDGPU}), "
            f"or a host binary with a {FAT_BINARY_SECTION} section"
        )
    return host.content(section)


def _split(data: bytes) -> Iterator[memoryview]:
    """The bundles, unpacked, that follow each other in `data` with zeros between them."""
    view = memoryview(data)
    budget = MAX_BUNDLE_BYTES
    at = 0
    while at < len(data):
        if data.startswith(BUNDLE_MAGIC, at):
            bundle = view[at:]
            at += _bundle_size(bundle)
        elif data.startswith(COMPRESSED_MAGIC, at):
            bundle, size = _unpack(view[at:], budget)
            budget -= len(bundle)
            at += size
        else:
            raise CodeObjectError(
                f"bytes {data[at : at + 8].hex(' ')} at {at:#x}: expected an offload bundle "
                f"({BUNDLE_MAGIC.decode()} or {COMPRESSED_MAGIC.decode()})"
            )
        yield bundle
        padding = _ZEROS.match(data, at)
        at = padding.end() if padding else at


def _entry_table(bundle: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """Offset, size and id of each entry, checked against the bundle's size."""
    if bundle[: len(BUNDLE_MAGIC)] != BUNDLE_MAGIC:
        found = bundle[:8].hex(" ")
        raise CodeObjectError(f"compressed offload bundle unpacks to {found}...: expected {BUNDLE_MAGIC.decode()}")
    at = len(BUNDLE_MAGIC)
    (count,) = _unpack_from(_COUNT, bundle, at)
    at += _COUNT.size
    for _ in range(count):
        offset, size, id_size = _unpack_from(_ENTRY, bundle, at)
        at += _ENTRY.size
        if at + id_size > len(bundle) or offset + size > len(bundle):
            raise CodeObjectError(
                f"truncated: offload bundle of {len(bundle):#x} bytes has an entry of bytes "
                f"{offset:#x} to {offset + size:#x} with an id of {id_size} bytes"
            )
        yield offset, size, bytes(bundle[at : at + id_size])
        at += id_size


def _bundle_size(bundle: memoryview) -> int:
    """Bytes up to the end of the last entry."""
    end = len(BUNDLE_MAGIC) + _COUNT.size
    last = 0
    for offset, size, id in _entry_table(bundle):
        end += _ENTRY.size + len(id)
        last = max(last, offset + size)
    return max(end, last)


def _entries(bundle: memoryview) -> Iterator[BundleEntry]:
    for offset, size, raw_id in _entry_table(bundle):
        id = raw_id.decode("utf-8", "backslashreplace")
        match = _GPU_ENTRY.fullmatch(id)
        yield BundleEntry(id, TargetId.parse(match["target"]) if match else None, bundle[offset : offset + size])


def _unpack(data: memoryview, budget: int) -> tuple[memoryview, int]:
    """A compressed bundle's contents, of at most `budget` bytes, and the bytes of `data` that it takes."""
    _, version, method = _unpack_from(_COMPRESSED_PREFIX, data, 0)
    if version not in _COMPRESSED_REST:
        raise CodeObjectError(f"compressed offload bundle of version {version}: expected one of {sorted(_COMPRESSED_REST)}")
    if method not in _DECOMPRESSORS:
        raise CodeObjectError(f"compressed offload bundle with method {method}: expected 0 (zlib) or 1 (zstd)")
    rest = _COMPRESSED_REST[version]
    header = _COMPRESSED_PREFIX.size + rest.size
    *total, unpacked_size = _unpack_from(rest, data, _COMPRESSED_PREFIX.size)
    packed_end = total[0] if total else len(data)
    if not header <= packed_end <= len(data):
        raise CodeObjectError(f"truncated: compressed offload bundle of {packed_end} bytes, found {len(data)}")
    if unpacked_size > budget:
        raise CodeObjectError(f"compressed offload bundle unpacks to {unpacked_size} bytes: expected at most {budget}")
    try:
        unpacked = _DECOMPRESSORS[method](data[header:packed_end], unpacked_size)
    except (zlib.error, zstandard.ZstdError) as error:
        raise CodeObjectError(f"compressed offload bundle is damaged: {error}") from error
    if len(unpacked) != unpacked_size:
        size = "more" if len(unpacked) > unpacked_size else f"only {len(unpacked)}"
        raise CodeObjectError(f"compressed offload bundle unpacks to {size} bytes: expected {unpacked_size}")
    return memoryview(unpacked), packed_end


def _zlib_decompress(packed: memoryview, size: int) -> bytes:
    """What the stream holds, but at most one byte more than `size`."""
    stream = zlib.decompressobj()
    unpacked = stream.decompress(packed, size + 1)
    if len(unpacked) <= size and not stream.eof:
        raise zlib.error("the stream does not end")
    return unpacked


def _zstd_decompress(packed: memoryview, size: int) -> bytes:
    """What the stream holds, but at most one chunk more than `size`: the size that the frame states is not trusted."""
    unpacked = bytearray()
    with zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).stream_reader(packed) as reader:
        while len(unpacked) <= size and (chunk := reader.read(_CHUNK)):
            unpacked += chunk
    return bytes(unpacked)


_DECOMPRESSORS: dict[int, Callable[[memoryview, int], bytes]] = {0: _zlib_decompress, 1: _zstd_decompress}


def _unpack_from(layout: struct.Struct, data: memoryview, at: int) -> tuple[int, ...]:
    if at + layout.size > len(data):
        raise CodeObjectError(f"truncated: offload bundle of {len(data)} bytes, expected at least {at + layout.size}")
    return layout.unpack_from(data, at)
