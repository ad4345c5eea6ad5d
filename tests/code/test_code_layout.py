"""Images and relocation, against symbol addresses that pyelftools reads and the definitions in LLVM's AMDGPUUsage."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile
from support.assemble import assemble, build, compile_hip, kernel_text, link, text_section

from rjemu.code import CodeObject, load_code_object
from rjemu.errors import CodeObjectError, UsageError

BASE = 0x7F12_3456_7000

HIP = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
typedef int (*binary)(int, int);
__device__ __attribute__((noinline)) int add(int a, int b) { return a + b; }
__device__ __attribute__((noinline)) int mul(int a, int b) { return a * b; }
__device__ binary functions[2] = {add, mul};
__attribute__((constant)) int table[4] = {11, 22, 33, 44};
__device__ int counter = 0x12345678;
__device__ int zeros[100];
__device__ int* pointer = &counter;
extern "C" __global__ void first(int* p, int n) { *p = functions[n & 1](n, table[n & 3]) + zeros[n] + *pointer; }
extern "C" __global__ void second(float* p) { *p = 1.0f; }
template <class T> __global__ void third(T* p) { *p = T(2); }
template __global__ void third<double>(double*);
"""

JUMP_TABLE = (
    kernel_text(
        """
  s_getpc_b64 s[4:5]
  s_add_u32 s4, s4, targets@rel32@lo+4
  s_addc_u32 s5, s5, targets@rel32@hi+12
  s_load_dwordx2 s[6:7], s[4:5], 0x8
  s_waitcnt lgkmcnt(0)
  s_setpc_b64 s[6:7]
case0:
  s_endpgm
case1:
  s_nop 1
  s_endpgm"""
    )
    + '.section .data.rel.ro,"aw"\n.p2align 3\n.globl targets\n.protected targets\n.type targets,@object\n'
    + "targets:\n.quad case0\n.quad case1\n.size targets, 16\n"
)


def u32(image: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", image, at)[0])


def u64(image: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", image, at)[0])


def offset(code: CodeObject, name: str) -> int:
    return code.symbols[name].offset


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


@pytest.fixture(scope="module", params=["relocatable", "linked"])
def hip(request: pytest.FixtureRequest) -> CodeObject:
    relocatable = compile_hip(HIP, "gfx942")
    return load_code_object(relocatable if request.param == "relocatable" else link(relocatable))


def test_pointers_in_data(hip: CodeObject) -> None:
    for base in (0, BASE):
        image = hip.image.relocate(base)
        functions = offset(hip, "functions")
        assert u64(image, functions) == base + offset(hip, "_Z3addii")
        assert u64(image, functions + 8) == base + offset(hip, "_Z3mulii")
        assert u64(image, offset(hip, "pointer")) == base + offset(hip, "counter")


def test_contents_of_data(hip: CodeObject) -> None:
    image = hip.image.relocate(BASE)
    assert u32(image, offset(hip, "counter")) == 0x12345678
    assert struct.unpack_from("<4i", image, offset(hip, "table")) == (11, 22, 33, 44)
    assert image[offset(hip, "zeros") : offset(hip, "zeros") + 400] == bytes(400)


def test_kernels_and_entries(hip: CodeObject) -> None:
    assert set(hip.kernels) == {"first", "second", "_Z5thirdIdEvPT_"}
    for name, kernel in hip.kernels.items():
        assert kernel.entry_offset == offset(hip, name)
        assert kernel.entry_offset % 256 == 0
        assert kernel.descriptor_offset == offset(hip, f"{name}.kd")
        assert hip.symbols[name].kind == "function"


def test_permissions(hip: CodeObject) -> None:
    def permissions(at: int) -> tuple[bool, bool]:
        (segment,) = [s for s in hip.image.segments if s.offset <= at < s.end]
        return segment.writable, segment.executable

    assert permissions(offset(hip, "first")) == (False, True)
    assert permissions(offset(hip, "counter")) == (True, False)
    assert permissions(offset(hip, "zeros") + 399) == (True, False)
    assert permissions(offset(hip, "table")) == (False, False)
    starts = [start for start, _ in hip.image.text_ranges]
    assert all(hip.image.is_executable(start) and not hip.image.is_executable(start - 1) for start in starts)
    assert not any(hip.image.is_executable(end) for _, end in hip.image.text_ranges)
    assert not hip.image.is_executable(-4)
    assert not hip.image.is_executable(hip.image.size)


def test_pages_are_not_shared_by_permissions(hip: CodeObject) -> None:
    code_pages = {page for start, end in hip.image.text_ranges for page in range(start >> 12, (end - 1 >> 12) + 1)}
    for segment in hip.image.segments:
        if segment.writable:
            assert code_pages.isdisjoint(range(segment.offset >> 12, (segment.end - 1 >> 12) + 1))


def test_linked_image_is_the_linkers() -> None:
    """Offsets equal the addresses that the linker gave, and the bytes are those of the file's sections."""
    data = link(compile_hip(HIP, "gfx950"))
    code = load_code_object(data)
    elf = ELFFile(io.BytesIO(data))
    symbols = [s for s in elf.get_section_by_name(".symtab").iter_symbols() if s.name and isinstance(s["st_shndx"], int)]
    assert len(symbols) > 12
    for symbol in symbols:
        found = code.symbols[symbol.name]
        assert (found.offset, found.size) == (symbol["st_value"], symbol["st_size"])
    for name in (".text", ".rodata"):
        section = elf.get_section_by_name(name)
        at = section["sh_addr"]
        assert code.image.data[at : at + section["sh_size"]] == section.data()


def test_stripped_object_keeps_its_dynamic_symbols() -> None:
    code = load_code_object(link(compile_hip(HIP, "gfx950"), flags=("-s",)))
    assert set(code.kernels) == {"first", "second", "_Z5thirdIdEvPT_"}
    assert "_Z3addii" not in code.symbols
    assert u64(code.image.relocate(BASE), offset(code, "pointer")) == BASE + offset(code, "counter")


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_jump_table(target: str) -> None:
    relocatable = assemble(JUMP_TABLE, target)
    for data in (relocatable, link(relocatable)):
        code = load_code_object(data)
        image = code.image.relocate(BASE)
        targets, entry = offset(code, "targets"), code.kernel("kernel").entry_offset
        cases = [u64(image, targets) - BASE, u64(image, targets + 8) - BASE]
        assert cases == [offset(code, "case0"), offset(code, "case1")]
        assert all(code.image.is_executable(case) for case in cases)
        distance = u32(image, entry + 8) | u32(image, entry + 16) << 32
        assert signed(distance, 64) == targets - (entry + 4)


EVERY_RELOCATION = """
.weak absent
.section .text.far,"ax"
.p2align 8
.globl far
.type far,@function
far:
  s_nop 7
  s_endpgm
.comm common, 48, 32
.set constant, 0x1122334455667788
.globl constant
.data
.globl data
data:
  .quad far
  .quad far - .
  .long far - .
  .long 0
  .quad absent
  .quad common
  .quad constant
  .quad 5
""" + kernel_text(
    """
  s_branch far
  s_add_u32 s0, s0, far@gotpcrel32@lo+4
  s_addc_u32 s1, s1, far@gotpcrel32@hi+12
  s_add_u32 s0, s0, data@rel32@lo+4
  s_addc_u32 s1, s1, data@rel32@hi+12
  s_mov_b32 s2, far@abs32@lo
  s_mov_b32 s3, far@abs32@hi
  s_mov_b32 s0, common@gotpcrel32@lo+4
  s_mov_b32 s0, far@gotpcrel32@lo+4
  s_endpgm"""
)


@pytest.mark.parametrize("base", [0, 0x10000, BASE])
def test_every_relocation_of_relocatable_objects(base: int) -> None:
    code = load_code_object(assemble(EVERY_RELOCATION, "gfx950"))
    image = code.image.relocate(base)
    far, data, common, entry = (offset(code, name) for name in ("far", "data", "common", "kernel"))
    assert entry == code.kernel("kernel").entry_offset

    assert signed(u32(image, entry) & 0xFFFF, 16) * 4 + 4 == far - entry
    assert u32(image, entry) >> 16 == 0xBF82
    slot = entry + 8 + signed(u32(image, entry + 8) | u32(image, entry + 16) << 32, 64) - 4
    assert u64(image, slot) == base + far
    assert slot % 8 == 0
    assert signed(u32(image, entry + 24) | u32(image, entry + 32) << 32, 64) == data - entry - 20
    assert u32(image, entry + 40) | u32(image, entry + 48) << 32 == base + far
    common_slot = entry + 56 + signed(u32(image, entry + 56), 32) - 4
    assert u64(image, common_slot) == base + common
    assert entry + 64 + signed(u32(image, entry + 64), 32) - 4 == slot, "one slot for each symbol"

    assert u64(image, data) == base + far
    assert signed(u64(image, data + 8), 64) == far - (data + 8)
    assert signed(u32(image, data + 16), 32) == far - (data + 16)
    assert u64(image, data + 24) == 0, "an undefined weak symbol is null wherever the image is"
    assert u64(image, data + 32) == base + common
    assert u64(image, data + 40) == 0x1122334455667788
    assert common % 32 == 0
    assert image[common : common + 48] == bytes(48)


def test_code_is_the_assemblers() -> None:
    relocatable = assemble(kernel_text("v_mov_b32 v0, 1\ns_endpgm"), "gfx950")
    code = load_code_object(relocatable)
    text = text_section(relocatable)
    start, end = code.image.text_ranges[0]
    assert code.image.data[start:end] == text


def test_weak_relative_reference_depends_on_the_base() -> None:
    code = load_code_object(assemble(kernel_text("s_endpgm") + ".weak absent\n.data\nhere: .quad absent - .\n", "gfx950"))
    for base in (0, BASE):
        at = offset(code, "here")
        assert (u64(code.image.relocate(base), at) + base + at) % (1 << 64) == 0


def test_absolute_32_bit_pointer_must_fit() -> None:
    code = load_code_object(assemble(kernel_text("s_endpgm") + ".data\nhere: .long kernel\n", "gfx950"))
    assert u32(code.image.relocate(0x10000), offset(code, "here")) == 0x10000 + offset(code, "kernel")
    with pytest.raises(CodeObjectError, match=r"R_AMDGPU_ABS32 .* does not fit in 32 bits"):
        code.image.relocate(BASE)


def test_undefined_symbols_are_named() -> None:
    text = kernel_text("s_endpgm") + ".data\n.quad nowhere\n.quad nothing + 8\n"
    with pytest.raises(CodeObjectError, match="undefined symbols: nowhere, nothing;"):
        load_code_object(assemble(text, "gfx942"))
    with pytest.raises(CodeObjectError, match="undefined symbols: nowhere, nothing;"):
        load_code_object(build(text, "gfx942"))


def test_lds_symbol_needs_a_linker() -> None:
    text = ".amdgpu_lds tile, 64, 16\n" + kernel_text("s_mov_b32 s4, tile@abs32@lo\ns_endpgm")
    with pytest.raises(CodeObjectError, match="'tile' is an LDS variable"):
        load_code_object(assemble(text, "gfx950"))


@pytest.mark.parametrize("alignment", [12, 16, 18])
def test_alignment_beyond_a_page(alignment: int) -> None:
    relocatable = assemble(f".rodata\n.p2align {alignment}\nbig: .long 1\n" + kernel_text("s_endpgm"), "gfx950")
    for data in (relocatable, link(relocatable)):
        code = load_code_object(data)
        assert code.image.alignment == 1 << alignment
        assert offset(code, "big") % (1 << alignment) == 0


@pytest.mark.parametrize("base", [-4096, 1, 256, BASE + 8])
def test_base_address_must_be_aligned(hip: CodeObject, base: int) -> None:
    with pytest.raises(UsageError, match="expected a multiple of 0x1000"):
        hip.image.relocate(base)


def test_relocate_leaves_the_image_alone(hip: CodeObject) -> None:
    before = hip.image.data
    moved = hip.image.relocate(BASE)
    assert hip.image.data is before
    assert len(moved) == hip.image.size
    assert hip.image.relocate(BASE) == moved


def test_image_size_is_bounded() -> None:
    text = kernel_text("s_endpgm") + ".bss\nhuge: .zero 0x40000000\n"
    for data in (assemble(text, "gfx950"), build(text, "gfx950")):
        with pytest.raises(CodeObjectError, match="expected an image of at most 0x20000000 bytes"):
            load_code_object(data)
