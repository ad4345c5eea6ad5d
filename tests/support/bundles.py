"""Offload bundles laid out by hand, as Clang's "Clang Offload Bundler" document describes them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping

import zstandard

ZLIB, ZSTD = 0, 1


def bundle(entries: Mapping[str, bytes], alignment: int = 4096) -> bytes:
    """An uncompressed bundle; the code of each entry starts at a multiple of `alignment`."""
    header_size = 32 + sum(24 + len(name) for name in entries)
    header = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    body = b""
    for name, code in entries.items():
        start = -(-(header_size + len(body)) // alignment) * alignment
        header += struct.pack("<QQQ", start, len(code), len(name)) + name.encode()
        body += bytes(start - header_size - len(body)) + code
    return header + body


def compress(plain: bytes, version: int, method: int, stated_size: int | None = None) -> bytes:
    """A compressed bundle with the header of `version`: 1, 2 (with total size) or 3 (sizes of 64 bits)."""
    packed = zlib.compress(plain) if method == ZLIB else zstandard.ZstdCompressor().compress(plain)
    size = len(plain) if stated_size is None else stated_size
    digest = hashlib.md5(plain).digest()[:8]
    total = len(packed) + {1: 20, 2: 24, 3: 32}[version]
    sizes = {1: struct.pack("<I", size & 0xFFFFFFFF), 2: struct.pack("<II", total, size & 0xFFFFFFFF)}
    return (
        b"CCOB" + struct.pack("<HH", version, method) + sizes.get(version, struct.pack("<QQ", total, size)) + digest + packed
    )


def host_binary(fat_binary: bytes, section: str = ".hip_fatbin", machine: int = 62) -> bytes:
    """A minimal ELF64 object for a host (x86-64) with one section that holds `fat_binary`."""
    names = b"\0.shstrtab\0" + section.encode() + b"\0"
    at = 64
    fat_at = at + len(names)
    headers_at = fat_at + len(fat_binary)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, headers_at, 0, 64, 56, 0, 64, 3, 1)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 11, 1, 2, 0, fat_at, len(fat_binary), 0, 0, 1, 0)
    return header + names + fat_binary + sections
