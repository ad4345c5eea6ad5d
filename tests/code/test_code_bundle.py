"""Offload bundles: layouts, compression, the choice of an entry, and files that are not what they say."""

from __future__ import annotations

import struct

import pytest
from support.assemble import build, kernel_text
from support.bundles import ZLIB, ZSTD, bundle, compress, host_binary

from rjemu.code import TargetId, load_code_object
from rjemu.code.bundle import MAX_BUNDLE_BYTES, read_bundle
from rjemu.errors import CodeObjectError

HOST = "host-x86_64-unknown-linux-gnu-"
PREFIX = "hipv4-amdgcn-amd-amdhsa--"


def code_for(target: str) -> bytes:
    """A code object whose only kernel is named after its target."""
    return build(kernel_text("s_endpgm", name="kernel_" + target.translate(str.maketrans(":+-", "_pm"))), target)


@pytest.fixture(scope="module")
def plain() -> bytes:
    return bundle({HOST: b"", PREFIX + "gfx942": code_for("gfx942"), PREFIX + "gfx950": code_for("gfx950")})


def kernel_names(data: bytes, target: str | None) -> list[str]:
    return list(load_code_object(data, target).kernels)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_picks_the_target(plain: bytes, target: str) -> None:
    assert kernel_names(plain, target) == [f"kernel_{target}"]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_compressed(plain: bytes, version: int, method: int) -> None:
    assert kernel_names(compress(plain, version, method), "gfx950") == ["kernel_gfx950"]


@pytest.mark.parametrize(
    "prefix", ["hip-amdgcn-amd-amdhsa--", "hip-amdgcn-amd-amdhsa-unknown-", "openmp-amdgcn-amd-amdhsa--"]
)
def test_spellings_of_ids(prefix: str) -> None:
    assert kernel_names(bundle({prefix + "gfx950": code_for("gfx950")}), "gfx950") == ["kernel_gfx950"]


def test_only_gpu_entry_needs_no_target() -> None:
    assert kernel_names(bundle({HOST: b"host", PREFIX + "gfx942": code_for("gfx942")}), None) == ["kernel_gfx942"]


def test_several_entries_need_a_target(plain: bytes) -> None:
    with pytest.raises(CodeObjectError, match=r"gfx942, .*gfx950: .*found 2; name a target"):
        load_code_object(plain)


def test_missing_target_names_what_is_there(plain: bytes) -> None:
    with pytest.raises(CodeObjectError, match=r"gfx942, .*gfx950: expected one code object for gfx1100, found 0"):
        load_code_object(plain, "gfx1100")


def test_features_decide() -> None:
    targets = ("gfx942:xnack+", "gfx942:xnack-", "gfx942:sramecc-:xnack-")
    data = bundle({PREFIX + target: code_for(target) for target in targets})
    assert kernel_names(data, "gfx942:xnack+") == ["kernel_gfx942_xnackp"]
    assert kernel_names(data, "gfx942:sramecc+:xnack-") == ["kernel_gfx942_xnackm"]
    assert kernel_names(data, "gfx942:sramecc-:xnack-") == ["kernel_gfx942_srameccm_xnackm"]
    with pytest.raises(CodeObjectError, match="found 3"):
        load_code_object(data, "gfx942")


def test_a_specific_processor_comes_before_a_generic_one() -> None:
    data = bundle({PREFIX + target: code_for(target) for target in ("gfx9-4-generic", "gfx950")})
    assert kernel_names(data, "gfx950") == ["kernel_gfx950"]
    assert kernel_names(data, "gfx942") == ["kernel_gfx9m4mgeneric"]


@pytest.mark.parametrize("packed", [False, True])
def test_bundles_in_a_row(packed: bool) -> None:
    parts = [bundle({PREFIX + target: code_for(target)}) for target in ("gfx942", "gfx950")]
    if packed:
        parts = [compress(parts[0], 2, ZSTD), compress(parts[1], 3, ZLIB)]
    data = parts[0] + bytes(-len(parts[0]) % 4096) + parts[1] + bytes(100)
    assert [str(entry.target) for entry in read_bundle(data)] == ["gfx942", "gfx950"]
    assert kernel_names(data, "gfx950") == ["kernel_gfx950"]


def test_host_binary(plain: bytes) -> None:
    assert kernel_names(host_binary(plain), "gfx950") == ["kernel_gfx950"]
    assert kernel_names(host_binary(compress(plain, 3, ZSTD)), "gfx942") == ["kernel_gfx942"]


def test_host_binary_without_device_code() -> None:
    with pytest.raises(CodeObjectError, match=r"machine 62: expected AMDGPU \(224\), or a host binary with a \.hip_fatbin"):
        load_code_object(host_binary(b"", section=".text"))


def test_target_ids_of_entries() -> None:
    ids = [HOST, "hip-spirv64-amd-amdhsa--amdgcnspirv", PREFIX + "gfx942:sramecc+:xnack-"]
    targets = [entry.target for entry in read_bundle(bundle(dict.fromkeys(ids, b"x")))]
    assert targets == [None, None, TargetId("gfx942", xnack=False, sramecc=True)]


def test_entry_that_is_no_code_object() -> None:
    with pytest.raises(CodeObjectError, match="not an ELF file"):
        load_code_object(bundle({PREFIX + "gfx950": b"hello, world"}), "gfx950")


def test_entry_for_another_target_than_its_id_says() -> None:
    with pytest.raises(CodeObjectError, match="is for gfx942: expected one for gfx950"):
        load_code_object(bundle({PREFIX + "gfx950": code_for("gfx942")}), "gfx950")


def test_every_truncation_is_an_error() -> None:
    data = bundle({PREFIX + "gfx950": code_for("gfx950")}, alignment=8)
    for size in (*range(24, 120), len(data) // 2, len(data) - 1):
        with pytest.raises(CodeObjectError, match="truncated"):
            load_code_object(data[:size], "gfx950")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_every_truncation_of_compressed_bundles_is_an_error(plain: bytes, version: int, method: int) -> None:
    data = compress(plain, version, method)
    for size in (*range(4, 48), len(data) // 2, len(data) - 1):
        with pytest.raises(CodeObjectError):
            load_code_object(data[:size], "gfx950")


@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_stated_size_is_held_to(plain: bytes, method: int) -> None:
    with pytest.raises(CodeObjectError, match="unpacks to only"):
        load_code_object(compress(plain, 2, method, stated_size=len(plain) + 1), "gfx950")
    with pytest.raises(CodeObjectError, match="unpacks to more"):
        load_code_object(compress(plain, 2, method, stated_size=1000), "gfx950")
    with pytest.raises(CodeObjectError, match=f"expected at most {MAX_BUNDLE_BYTES}"):
        load_code_object(compress(plain, 3, method, stated_size=MAX_BUNDLE_BYTES + 1), "gfx950")


@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_bombs_stop_at_the_stated_size(method: int) -> None:
    bomb = compress(bytes(1 << 28), 3, method, stated_size=4096)
    with pytest.raises(CodeObjectError, match="unpacks to more"):
        load_code_object(bomb, "gfx950")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"CCOB" + struct.pack("<HH", 4, 0) + bytes(40), "version 4"),
        (b"CCOB" + struct.pack("<HH", 2, 7) + bytes(40), "method 7"),
        (b"CCOB" + struct.pack("<HHQQQ", 3, 1, 1 << 40, 8, 0), "truncated"),
        (b"CCOB" + struct.pack("<HHIIQ", 2, 0, 3, 8, 0), "truncated"),
        (compress(b"not a bundle at all.....", 2, ZLIB), "unpacks to 6e 6f"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", (1 << 64) - 1), "truncated"),
        (bundle({HOST: b""}) + b"rubbish", "expected an offload bundle"),
    ],
    ids=["version", "method", "long", "short", "contents", "count", "rubbish"],
)
def test_damaged_headers(data: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        load_code_object(data, "gfx950")


def test_overlapping_entries_cost_no_memory() -> None:
    """Ten thousand entries that all claim the whole file: read lazily, and refused for their number."""
    count, name = 10_000, b"hip-amdgcn-amd-amdhsa--gfx950"
    size = 32 + count * (24 + len(name))
    entry = struct.pack("<QQQ", 0, size, len(name)) + name
    data = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", count) + entry * count
    with pytest.raises(CodeObjectError, match="found 10000"):
        load_code_object(data, "gfx950")
