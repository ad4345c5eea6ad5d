"""Whole code objects: versions, Triton's and HIP's kernels, targets, and errors that say what was found."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from support.assemble import assemble, build, compile_hip, kernel_text, link
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rjemu.code import CodeObject, load_code_object
from rjemu.errors import CodeObjectError, KernelNotFound, RjemuError


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def dot_kernel(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    at = rows * N + columns
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def compile_triton(kernel: Any, signature: dict[str, str], constants: dict[str, int], target: str) -> bytes:
    source = ASTSource(kernel, {**signature, **dict.fromkeys(constants, "constexpr")}, constants)
    compiled = triton.compile(source, target=GPUTarget("hip", target, 64), options={"num_warps": 4})
    return bytes(compiled.asm["hsaco"])


@pytest.fixture
def triton_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.usefixtures("triton_cache")
def test_triton_kernel(target: str) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    code = load_code_object(compile_triton(add_kernel, signature, {"BLOCK": 1024}, target), target)
    kernel = code.kernel("add_kernel")
    assert (code.target, kernel.descriptor.wave_size, kernel.descriptor.group_segment_fixed_size) == (target, 64, 0)
    assert kernel.metadata is not None
    assert [(a.offset, a.size, a.value_kind) for a in kernel.metadata.explicit_args] == [
        (0, 8, "global_buffer"),
        (8, 8, "global_buffer"),
        (16, 8, "global_buffer"),
        (24, 4, "by_value"),
        (32, 8, "global_buffer"),
        (40, 8, "global_buffer"),
    ]
    assert kernel.metadata.max_flat_workgroup_size == 256
    assert kernel.metadata.kernarg_segment_size == kernel.descriptor.kernarg_size
    assert kernel.descriptor.enable_sgpr_kernarg_segment_ptr


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.usefixtures("triton_cache")
def test_register_counts_agree_with_the_metadata(target: str) -> None:
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32"}
    kernel = load_code_object(compile_triton(dot_kernel, signature, {"N": 64}, target)).kernel("dot_kernel")
    assert kernel.metadata is not None
    assert kernel.metadata.vgpr_count is not None
    assert kernel.metadata.agpr_count is not None
    assert kernel.metadata.sgpr_count is not None
    assert kernel.metadata.vgpr_count <= kernel.descriptor.allocated_vgpr_count < kernel.metadata.vgpr_count + 8
    assert kernel.metadata.agpr_count <= kernel.descriptor.agpr_count
    assert kernel.metadata.sgpr_count <= kernel.descriptor.sgpr_count


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_code_object_versions(version: int, target: str) -> None:
    source = 'extern "C" __attribute__((global)) void k(int* p, short s) { *p = s; }'
    flags = (f"-mcode-object-version={version}",)
    relocatable = compile_hip(source, target, flags)
    for data in (relocatable, link(relocatable)):
        code = load_code_object(data, target)
        assert (code.abi_version, code.target, code.generic_version) == (version, target, 0)
        kernel = code.kernel("k")
        assert kernel.metadata is not None
        assert code.metadata is not None
        assert code.metadata.version == {4: (1, 1), 5: (1, 2), 6: (1, 2)}[version]
        first, second = kernel.metadata.explicit_args
        assert (first.value_kind, first.offset, first.size) == ("global_buffer", 0, 8)
        assert (second.value_kind, second.offset, second.size) == ("by_value", 8, 2)


@pytest.mark.parametrize("version", [2, 3])
def test_older_code_object_versions_are_refused(version: int) -> None:
    data = bytearray(build(kernel_text("s_endpgm"), "gfx942"))
    data[8] = version - 2
    with pytest.raises(CodeObjectError, match=f"ABI version {version - 2}: expected 2, 3 or 4"):
        load_code_object(data)


def test_several_kernels_in_the_order_of_their_descriptors() -> None:
    names = [f"kernel{i}" for i in range(12)]
    text = "".join(kernel_text(f"s_nop {i}\ns_endpgm", name, {"kernarg_size": 8 * i}) for i, name in enumerate(names))
    for data in (assemble(text, "gfx950"), build(text, "gfx950")):
        code = load_code_object(data)
        assert list(code.kernels) == names
        for i, name in enumerate(names):
            kernel = code.kernel(name)
            assert kernel.descriptor.kernarg_size == 8 * i
            words = code.image.data[kernel.entry_offset : kernel.entry_offset + 8]
            assert words == (0xBF800000 + i).to_bytes(4, "little") + (0xBF810000).to_bytes(4, "little")


def test_missing_kernel_lists_the_kernels() -> None:
    code = load_code_object(build(kernel_text("s_endpgm", "one") + kernel_text("s_endpgm", "two"), "gfx950"))
    with pytest.raises(KernelNotFound, match=r"no kernel 'three' in the code object; its kernels: one, two$"):
        code.kernel("three")


def test_missing_kernel_among_many_lists_some() -> None:
    text = "".join(kernel_text("s_endpgm", f"k{i:03}") for i in range(50))
    with pytest.raises(KernelNotFound, match=r"k000, .*, k031 and 18 more"):
        load_code_object(build(text, "gfx950")).kernel("absent")


def test_object_without_kernels() -> None:
    code = load_code_object(assemble("f:\ns_setpc_b64 s[30:31]\n", "gfx950"))
    assert dict(code.kernels) == {}
    with pytest.raises(KernelNotFound, match="its kernels: none"):
        code.kernel("f")


@pytest.mark.parametrize(
    ("made_for", "target", "accepted"),
    [
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx950", False),
        ("gfx942:xnack+", "gfx942:xnack-", False),
        ("gfx942:sramecc+:xnack-", "gfx942", True),
        ("gfx9-4-generic", "gfx942", True),
        ("gfx9-4-generic", "gfx950:xnack-", True),
        ("gfx9-4-generic", "gfx90a", False),
    ],
)
def test_target_must_fit(made_for: str, target: str, accepted: bool) -> None:
    data = build(kernel_text("s_endpgm"), made_for)
    if accepted:
        code = load_code_object(data, target)
        assert str(code.target_id) == made_for
        assert code.generic_version == int("generic" in made_for)
    else:
        with pytest.raises(CodeObjectError, match=f"is for {made_for.replace('+', '[+]')}: expected one for {target}"):
            load_code_object(data, target)


def test_features() -> None:
    assert load_code_object(build(kernel_text("s_endpgm"), "gfx942:sramecc-:xnack+")).features == {
        "xnack": True,
        "sramecc": False,
    }
    assert load_code_object(build(kernel_text("s_endpgm"), "gfx950")).features == {}


def test_forms_of_input(tmp_path: Path) -> None:
    data = build(kernel_text("s_endpgm"), "gfx950")
    path = tmp_path / "k.hsaco"
    path.write_bytes(data)
    for given in (data, bytearray(data), memoryview(data), path, str(path)):
        assert list(load_code_object(given).kernels) == ["kernel"]


@pytest.mark.parametrize("name", ["absent.hsaco", "folder", "nul\0byte"])
def test_unreadable_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CodeObjectError, match=r"no such file|not a regular file"):
        load_code_object(tmp_path / name)


def test_code_objects_can_be_sent_to_other_processes() -> None:
    code = load_code_object(build(kernel_text("s_endpgm"), "gfx950"))
    again: CodeObject = pickle.loads(pickle.dumps(code))
    assert again == code


def patched(data: bytes, at: int, value: int, size: int) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


@pytest.mark.parametrize(
    ("at", "value", "size", "message"),
    [
        (0, 0, 4, "not an ELF file: found first bytes 00 00 00 00, expected 7f 45 4c 46"),
        (4, 1, 1, r"ELF class 1, .*expected ELF64"),
        (5, 2, 1, "encoding 2: .*little-endian"),
        (7, 65, 1, r"OS ABI 65: expected AMDGPU_HSA \(64\)"),
        (8, 9, 1, "ABI version 9: expected 2, 3 or 4"),
        (16, 2, 2, r"ELF type 2: expected a shared object \(ET_DYN, 3\)"),
        (18, 62, 2, "machine 62: expected AMDGPU"),
        (48, 0x21, 4, "machine 0x21: expected a gfx9"),
        (32, 1 << 60, 8, "truncated: program header table"),
        (40, 1 << 60, 8, "truncated: section header table"),
        (54, 57, 2, "program header entries of 57 bytes: expected 56"),
        (58, 63, 2, "section header entries of 63 bytes: expected 64"),
        (60, 0, 2, "no section headers"),
        (56, 0, 2, "no loadable segment"),
    ],
)
def test_damaged_headers_say_what_was_found(at: int, value: int, size: int, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        load_code_object(patched(build(kernel_text("s_endpgm"), "gfx950"), at, value, size))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" * 100, b"#!/bin/sh\n", bytes(4096)])
def test_not_a_code_object(data: bytes) -> None:
    with pytest.raises(CodeObjectError):
        load_code_object(data)


def test_descriptor_must_point_to_code() -> None:
    data = build(kernel_text("s_endpgm"), "gfx950")
    code = load_code_object(data)
    descriptor = data.index(code.image.data[code.kernel("kernel").descriptor_offset :][:64])
    for entry in (0, 2, 1 << 40, (1 << 64) - 8):
        with pytest.raises(CodeObjectError, match=r"'kernel\.kd' starts its code at .*: expected aligned code there"):
            load_code_object(patched(data, descriptor + 16, entry, 8))


def test_every_truncation_is_an_error() -> None:
    for data in (assemble(kernel_text("s_endpgm"), "gfx950"), build(kernel_text("s_endpgm"), "gfx950")):
        for size in range(0, len(data), 7):
            with pytest.raises(RjemuError):
                load_code_object(data[:size])


def test_an_error_names_the_file(tmp_path: Path) -> None:
    for name, content in {"text": b"no code at all", "truncated": build(kernel_text("s_endpgm"), "gfx950")[:200]}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(CodeObjectError, match=f"^{path}: "):
            load_code_object(path)
        with pytest.raises(CodeObjectError, match=r"^[^/]*$"):
            load_code_object(content)
