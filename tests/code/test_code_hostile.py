"""Files that somebody broke: whatever the bytes, a code object or an rjemu error, soon and in little memory."""

from __future__ import annotations

import functools
import struct
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.assemble import assemble, compile_hip, kernel_text, link
from support.bundles import ZLIB, ZSTD, bundle, compress, host_binary

from rjemu.code import load_code_object
from rjemu.errors import CodeObjectError, RjemuError

SOURCE = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
__device__ __attribute__((noinline)) int twice(int x) { return 2 * x; }
__device__ int (*function)(int) = twice;
__device__ int zeros[10];
extern "C" __global__ void first(int* p, int n) { *p = function(n) + zeros[n]; }
extern "C" __global__ void second(float* p) { *p = 1.0f; }
"""

KINDS = ("relocatable", "linked", "assembly", "bundle", "zlib", "zstd", "fat binary")


@functools.cache
def sample(kind: str) -> bytes:
    relocatable = compile_hip(SOURCE, "gfx950")
    if kind == "relocatable":
        return relocatable
    if kind == "assembly":
        return assemble(kernel_text("s_endpgm"), "gfx950")
    linked = link(relocatable)
    if kind == "linked":
        return linked
    plain = bundle({"host-x86_64-unknown-linux--": b"", "hip-amdgcn-amd-amdhsa--gfx950": linked}, alignment=64)
    return {
        "bundle": plain,
        "zlib": compress(plain, 2, ZLIB),
        "zstd": compress(plain, 3, ZSTD),
        "fat binary": host_binary(plain),
    }[kind]


def load(data: bytes) -> None:
    """Load and place; anything but a result or an rjemu error fails the test."""
    try:
        code = load_code_object(data, "gfx950")
        code.image.relocate(code.image.alignment * 0x10001)
    except RjemuError as error:
        assert str(error)


EDGES = st.sampled_from([0, 1, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1])
QUICK = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sample with stretches cut, doubled or exchanged, or its file header overwritten."""
    data = bytearray(sample(draw(st.sampled_from(KINDS))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(1, 64))
        edit = draw(st.sampled_from(("cut", "double", "truncate", "splice", "header")))
        if edit == "cut":
            del data[at : at + length]
        elif edit == "double":
            data[at:at] = data[at : at + length]
        elif edit == "truncate":
            del data[at:]
        elif edit == "splice":
            other = sample(draw(st.sampled_from(KINDS)))
            start = draw(st.integers(0, len(other) - 1))
            data[at : at + length] = other[start : start + length]
        else:
            overwrite(data, at % 64, draw(st.sampled_from((1, 2, 4, 8))), draw(EDGES))
    return bytes(data)


@st.composite
def overwritten(draw: st.DrawFn) -> bytes:
    """An ELF file with a sound file header, and words or bits of its tables and contents overwritten."""
    data = bytearray(sample(draw(st.sampled_from(("relocatable", "linked")))))
    random = draw(st.randoms(use_true_random=False))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(64, len(data) - 8)
        if random.random() < 0.5:
            data[at] ^= 1 << random.randrange(8)
        else:
            size = random.choice((1, 2, 4, 8))
            overwrite(data, at // size * size, size, draw(EDGES))
    return bytes(data)


def overwrite(data: bytearray, at: int, size: int, value: int) -> None:
    data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


@QUICK
@given(damaged())
@example(b"")
@example(b"\x7fELF")
def test_damaged_files(data: bytes) -> None:
    load(data)


@QUICK
@given(overwritten())
def test_overwritten_files(data: bytes) -> None:
    load(data)


@pytest.mark.long
@THOROUGH
@given(damaged() | overwritten())
def test_broken_files_at_length(data: bytes) -> None:
    load(data)


@pytest.mark.parametrize("kind", ["relocatable", "linked"])
def test_every_header_field_overwritten(kind: str) -> None:
    """Each 8-byte word of the file header, the program headers and the section headers, with values at the edges."""
    data = sample(kind)
    segments, sections = struct.unpack_from("<QQ", data, 32)
    segment_count, section_count = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    places = [
        *range(0, 64, 8),
        *range(segments, segments + 56 * segment_count, 8),
        *range(sections, sections + 64 * section_count, 8),
    ]
    for at in places:
        for value in (0, 1, len(data), 1 << 32, 1 << 63, (1 << 64) - 1):
            load(data[:at] + value.to_bytes(8, "little") + data[at + 8 :])


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x7fELF\x02\x01\x01\x40\x04", b"CCOB\x02\0\0\0", b"__CLANG_OFFLOAD_BUNDLE__"]),
)
def test_random_bytes(data: bytes, start: bytes) -> None:
    load(start + data)


def elf_with_sections(sections: list[tuple[int, ...]], content: bytes) -> bytes:
    """An ET_REL object for gfx950 whose section headers are given; the content starts at byte 64."""
    ident = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)
    header = struct.pack("<HHIQQQIHHHHHH", 1, 224, 1, 0, 0, 64 + len(content), 0x54F, 64, 56, 0, 64, len(sections), 0)
    return ident + header + content + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)


SIZE = 1 << 20
PROGBITS = (0, 1, 6, 0, 64, SIZE, 0, 0, 1, 0)
SYMTAB = (0, 2, 0, 0, 64, SIZE // 24 * 24, 3, 0, 1, 24)


@pytest.mark.parametrize(
    "section",
    [
        PROGBITS,
        (0, 4, 0, 0, 64, SIZE // 24 * 24, 1, 2, 8, 24),
        (0, 7, 2, 0, 64, SIZE, 0, 0, 4, 0),
        (0, 11, 2, 0, 64, SIZE // 24 * 24, 3, 0, 8, 24),
        SYMTAB,
    ],
    ids=["contents", "relocations", "notes", "dynamic symbols", "symbols"],
)
@pytest.mark.parametrize("filler", [b"\x00", b"\x01", b"a"])
def test_sections_that_share_their_bytes_are_refused_at_once(section: tuple[int, ...], filler: bytes) -> None:
    """Sixty thousand headers over the same megabyte: the work must not be their product."""
    sections = [PROGBITS, SYMTAB, (0, 3, 0, 0, 64, SIZE, 0, 0, 1, 0)] + [section] * 60_000
    started = time.process_time()
    with pytest.raises(CodeObjectError):
        load_code_object(elf_with_sections(sections, filler * SIZE))
    assert time.process_time() - started < 5


def test_names_that_share_their_bytes_are_bounded() -> None:
    """Each symbol a tail of the same 60,000 letters: a table of 100 MB would hold terabytes of names."""
    strings = b"a" * 60_000 + b"\0"
    symbols = b"".join(struct.pack("<IBBHQQ", i % 60_000, 0, 0, 1, 0, 0) for i in range(12_000))
    content = strings + symbols
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 1, 6, 0, 64, 16, 0, 0, 1, 0),
        (0, 3, 0, 0, 64, len(strings), 0, 0, 1, 0),
        (0, 2, 0, 0, 64 + len(strings), len(symbols), 2, 0, 8, 24),
    ]
    with pytest.raises(CodeObjectError, match="symbol names of more than"):
        load_code_object(elf_with_sections(sections, content))


def test_many_small_bundles_take_linear_time() -> None:
    empty = b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8)
    started = time.process_time()
    with pytest.raises(CodeObjectError, match="holds nothing"):
        load_code_object(empty * 100_000, "gfx950")
    assert time.process_time() - started < 5
