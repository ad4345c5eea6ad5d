"""The metadata note, against notes that the assembler packs from YAML and against documents packed here."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from support.assemble import build, kernel_text

from rjemu.code import load_code_object
from rjemu.code.metadata import decode_metadata
from rjemu.errors import CodeObjectError

YAML = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.printf: ['1:1:4:%d']
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 296
    .kernarg_segment_align: 16
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 64
    .wavefront_size: 64
    .sgpr_count: 30
    .vgpr_count: 70
    .agpr_count: 6
    .max_flat_workgroup_size: 256
    .reqd_workgroup_size: [64, 2, 2]
    .workgroup_size_hint: [64, 1, 1]
    .uses_dynamic_stack: true
    .uniform_work_group_size: 1
    .language: OpenCL C
    .args:
      - .name: out
        .type_name: 'float*'
        .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
        .access: read_write
        .actual_access: write_only
        .is_restrict: true
      - {.name: n, .offset: 8, .size: 4, .value_kind: by_value}
      - {.offset: 12, .size: 4, .value_kind: dynamic_shared_pointer, .address_space: local, .pointee_align: 16}
      - {.offset: 16, .size: 4, .value_kind: hidden_block_count_x}
      - {.offset: 24, .size: 8, .value_kind: hidden_global_offset_x}
...
.end_amdgpu_metadata
"""


def test_every_field_of_a_kernel() -> None:
    code = load_code_object(build(kernel_text("s_endpgm") + YAML, "gfx950"))
    assert code.metadata is not None
    assert code.metadata.version == (1, 2)
    assert code.metadata.target == "amdgcn-amd-amdhsa--gfx950"
    assert code.metadata.printf == ("1:1:4:%d",)
    kernel = code.kernel("kernel").metadata
    assert kernel is not None
    assert (kernel.kernarg_segment_size, kernel.kernarg_segment_align) == (296, 16)
    assert (kernel.group_segment_fixed_size, kernel.private_segment_fixed_size, kernel.wavefront_size) == (1024, 64, 64)
    assert (kernel.sgpr_count, kernel.vgpr_count, kernel.agpr_count) == (30, 70, 6)
    assert (kernel.max_flat_workgroup_size, kernel.reqd_workgroup_size) == (256, (64, 2, 2))
    assert (kernel.workgroup_size_hint, kernel.cluster_dims) == ((64, 1, 1), None)
    assert (kernel.uses_dynamic_stack, kernel.uniform_work_group_size, kernel.language) == (True, 1, "OpenCL C")
    assert [(arg.name, arg.offset, arg.size, arg.value_kind) for arg in kernel.explicit_args] == [
        ("out", 0, 8, "global_buffer"),
        ("n", 8, 4, "by_value"),
        ("", 12, 4, "dynamic_shared_pointer"),
    ]
    out = kernel.args[0]
    assert (out.type_name, out.address_space, out.access, out.actual_access) == (
        "float*",
        "global",
        "read_write",
        "write_only",
    )
    assert (out.is_restrict, out.is_const) == (True, False)
    assert kernel.args[2].pointee_align == 16
    assert [arg.value_kind for arg in kernel.hidden_args] == ["hidden_block_count_x", "hidden_global_offset_x"]


def test_object_without_a_note() -> None:
    code = load_code_object(build(kernel_text("s_endpgm"), "gfx942"))
    assert code.metadata is None
    assert code.kernel("kernel").metadata is None


def test_note_about_a_kernel_that_is_missing() -> None:
    with pytest.raises(CodeObjectError, match=r"'kernel\.kd'"):
        load_code_object(build(kernel_text("s_endpgm", name="other") + YAML, "gfx950"))


def document(**changes: Any) -> dict[str, Any]:
    kernel = {".name": "k", ".symbol": "k.kd", ".kernarg_segment_size": 8, ".args": []}
    return {"amdhsa.version": [1, 1], "amdhsa.kernels": [kernel | changes]}


def test_least_document() -> None:
    kernel = decode_metadata(msgpack.packb(document())).kernels["k.kd"]
    assert (kernel.name, kernel.args, kernel.max_flat_workgroup_size, kernel.reqd_workgroup_size) == ("k", (), None, None)


def test_document_without_kernels() -> None:
    assert decode_metadata(msgpack.packb({})).kernels == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({".kernarg_segment_size": "8"}, r"kernel 'k': .kernarg_segment_size is str, expected int"),
        ({".kernarg_segment_size": -1}, r"is -1"),
        ({".kernarg_segment_size": True}, r"is bool, expected int"),
        ({".name": 5}, r"kernel 0: .name is int, expected str"),
        ({".args": {}}, r".args is dict, expected list"),
        ({".args": [7]}, r"argument 0 is int, expected a map"),
        ({".args": [{".offset": 0, ".size": 8}]}, r"argument 0 has no .value_kind"),
        ({".args": [{".offset": 0, ".size": 2.0, ".value_kind": "by_value"}]}, r".size is float"),
        ({".reqd_workgroup_size": [1, 2]}, r"expected three sizes"),
        ({".reqd_workgroup_size": ["1", "2", "3"]}, r"other than int"),
    ],
)
def test_wrong_types_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        decode_metadata(msgpack.packb(document(**changes)))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb([1, 2]),
        msgpack.packb({"amdhsa.kernels": 3}),
        msgpack.packb(document())[:-1],
        msgpack.packb(document()) + b"\x00",
        b"\xdd\xff\xff\xff\xff" * 200,
        b"\xdd\x00\x00\xff\xff" * 20_000,
        b"\x91" * 5000,
        b"\x81\x91\x01\x02",
    ],
    ids=[
        "empty",
        "reserved",
        "short",
        "list",
        "kernels",
        "truncated",
        "trailing",
        "huge",
        "wide and deep",
        "deep",
        "list key",
    ],
)
def test_damaged_documents(payload: bytes) -> None:
    with pytest.raises(CodeObjectError):
        decode_metadata(payload)
