"""The kernarg segment against what compilers state and what `struct` and numpy lay out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.assemble import compile_hip, link

from rjemu.code import KernelArg, KernelMetadata, load_code_object
from rjemu.errors import LaunchError, MachineClosed
from rjemu.shm.vram import Vram
from rjemu.vm.array import DeviceArray
from rjemu.vm.geometry import resolve_geometry
from rjemu.vm.kernargs import HiddenValues, pack_arguments, pack_raw

HIDDEN = HiddenValues(resolve_geometry((4, 3), None, (8, 4)), dynamic_lds_bytes=4096, queue_address=0x6000_0000_1000)


@pytest.fixture
def vram() -> Iterator[Vram]:
    memory = Vram(1 << 20)
    yield memory
    memory.close()


def metadata(*args: KernelArg, size: int = 0) -> KernelMetadata:
    return KernelMetadata("k", "k.kd", size, args=args)


def value_arg(size: int, type_name: str = "", name: str = "x") -> KernelArg:
    return KernelArg(0, size, "by_value", name, type_name)


def pack_one(arg: KernelArg, value: Any) -> bytes:
    return pack_arguments(metadata(arg), [value], HIDDEN)


HIP = """
struct S { int a; double b; char c; };
extern "C" __attribute__((global)) void k(char c, float *p, short s, S t, double d, int n, const int *q) {
  p[c] = q[s] + t.b + d + n + t.a + t.c;
}
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_compiled_kernel_gets_the_c_layout(target: str, vram: Vram) -> None:
    """Offsets and sizes are clang's; the expected bytes are the C structure of the same parameters by numpy."""
    kernel = load_code_object(link(compile_hip(HIP, target))).kernel("k")
    assert kernel.metadata is not None
    array = DeviceArray(vram, 4, np.float32)
    by_value = np.array((7, 2.5, 3), np.dtype([("a", "i4"), ("b", "f8"), ("c", "i1")], align=True))[()]
    segment = pack_arguments(kernel.metadata, [-5, array, np.int16(-300), by_value, 0.1, 1 << 31, None], HIDDEN)
    layout = np.dtype(
        [("c", "i1"), ("p", "u8"), ("s", "i2"), ("t", by_value.dtype), ("d", "f8"), ("n", "u4"), ("q", "u8")], align=True
    )
    fields = np.frombuffer(segment[: layout.itemsize], layout)[0]
    assert fields["c"] == -5
    assert fields["p"] == array.address
    assert fields["s"] == -300
    assert fields["t"] == by_value
    assert (fields["d"], fields["n"], fields["q"]) == (0.1, 1 << 31, 0)
    assert len(segment) == kernel.descriptor.kernarg_size


@given(size=st.sampled_from([1, 2, 4, 8]), value=st.integers(-(1 << 70), 1 << 70))
def test_python_ints_fit_their_size_or_are_refused(size: int, value: int) -> None:
    bits = 8 * size
    if -(1 << (bits - 1)) <= value < 1 << bits:
        assert pack_one(value_arg(size), value) == (value % (1 << bits)).to_bytes(size, "little")
    else:
        with pytest.raises(LaunchError, match=rf"argument 0 \(x\): takes a value of {size} bytes, given int {value}"):
            pack_one(value_arg(size), value)


@given(value=st.floats(width=32))
def test_python_floats_by_size(value: float) -> None:
    assert pack_one(value_arg(4), value) == struct.pack("<f", value)
    assert pack_one(value_arg(8), value) == struct.pack("<d", value)


@pytest.mark.parametrize(
    ("size", "type_name", "value", "expected"),
    [
        (4, "float", 3, struct.pack("<f", 3)),
        (2, "half", 1.5, np.float16(1.5).tobytes()),
        (8, "double", 3, struct.pack("<d", 3)),
        (4, "uint", 0xFFFFFFFF, b"\xff" * 4),
        (1, "", True, b"\1"),
        (4, "", False, bytes(4)),
        (4, "", float("inf"), struct.pack("<f", float("inf"))),
        (2, "", ml_dtypes.bfloat16(1.0), b"\x80\x3f"),
        (1, "", ml_dtypes.float8_e4m3fn(1.0), b"\x38"),
        (8, "", np.float64(2.0), struct.pack("<d", 2)),
        (2, "", np.array(7, np.int16), b"\x07\x00"),
        (3, "", b"abc", b"abc"),
        (3, "", bytearray(b"abc"), b"abc"),
        (4, "", memoryview(b"abcd"), b"abcd"),
        (8, "myint", 1, b"\1" + bytes(7)),
    ],
)
def test_values(size: int, type_name: str, value: Any, expected: bytes) -> None:
    assert pack_one(value_arg(size, type_name), value) == expected


@pytest.mark.parametrize(
    ("size", "type_name", "value", "given_text"),
    [
        (4, "", np.int64(1), "int64 of 8 bytes"),
        (8, "", np.float32(1), "float32 of 4 bytes"),
        (2, "", 1.5, "float 1.5"),
        (4, "", 1e39, r"float 1e\+39"),
        (4, "int", 1.5, "float 1.5"),
        (4, "int", 1 << 31, "int 2147483648"),
        (4, "uint", -1, "int -1"),
        (4, "float", 10**400, "int 1000"),
        (12, "", 5, "int 5"),
        (12, "", b"12345678", "8 bytes"),
        (4, "", None, "NoneType None"),
        (4, "", "text", "str 'text'"),
        (4, "", np.zeros(1, np.int32), r"a host array of int32 \(1,\)"),
    ],
)
def test_values_that_do_not_fit(size: int, type_name: str, value: Any, given_text: str) -> None:
    with pytest.raises(LaunchError, match=rf"kernel k, argument 0 \(x\): takes .* of {size} bytes, given {given_text}"):
        pack_one(value_arg(size, type_name), value)


def test_pointers(vram: Vram) -> None:
    pointer = KernelArg(0, 8, "global_buffer", "p")
    array = DeviceArray(vram, 4, np.int8)
    assert pack_one(pointer, array) == struct.pack("<Q", array.address)
    assert pack_one(pointer, array.address + 1) == struct.pack("<Q", array.address + 1)
    assert pack_one(pointer, np.uint64(5)) == struct.pack("<Q", 5)
    assert pack_one(pointer, None) == bytes(8)
    for wrong in (-1, 1 << 64, 1.0, True, "a", np.zeros(4), b"12345678"):
        with pytest.raises(LaunchError, match=r"argument 0 \(p\): takes a pointer"):
            pack_one(pointer, wrong)
    with pytest.raises(LaunchError, match="to_device makes a device array"):
        pack_one(pointer, np.zeros(4))
    array.free()
    with pytest.raises(MachineClosed):
        pack_one(pointer, array)


def test_argument_count_lists_what_the_kernel_takes() -> None:
    taken = metadata(KernelArg(0, 8, "global_buffer", "p"), KernelArg(8, 4, "by_value", "n"))
    with pytest.raises(LaunchError, match=r"takes 2 arguments \(p: a pointer .*, n: a value of 4 bytes\), 1 given"):
        pack_arguments(taken, [None], HIDDEN)
    with pytest.raises(LaunchError, match="3 given"):
        pack_arguments(taken, [None, 1, 2], HIDDEN)


def test_triton_scratch_pointers_may_be_left_out() -> None:
    """Two unnamed pointers at the end, as Triton's launcher supplies; one alone or named ones are a mistake."""
    unnamed = [KernelArg(8 * i, 8, "global_buffer") for i in range(3)]
    assert pack_arguments(metadata(*unnamed), [7], HIDDEN) == struct.pack("<QQQ", 7, 0, 0)
    assert pack_arguments(metadata(*unnamed), [7, 8, 9], HIDDEN) == struct.pack("<QQQ", 7, 8, 9)
    with pytest.raises(LaunchError, match="2 given"):
        pack_arguments(metadata(*unnamed), [7, 8], HIDDEN)
    named = [KernelArg(8 * i, 8, "global_buffer", f"p{i}") for i in range(3)]
    with pytest.raises(LaunchError, match="1 given"):
        pack_arguments(metadata(*named), [7], HIDDEN)


# Code object V5's implicit block (AMDGPUUsage): kind -> offset in it and size.
IMPLICIT = {
    "hidden_block_count_x": (0, 4),
    "hidden_block_count_y": (4, 4),
    "hidden_block_count_z": (8, 4),
    "hidden_group_size_x": (12, 2),
    "hidden_group_size_y": (14, 2),
    "hidden_group_size_z": (16, 2),
    "hidden_remainder_x": (18, 2),
    "hidden_remainder_y": (20, 2),
    "hidden_remainder_z": (22, 2),
    "hidden_global_offset_x": (40, 8),
    "hidden_grid_dims": (64, 2),
    "hidden_hostcall_buffer": (80, 8),
    "hidden_dynamic_lds_size": (120, 4),
    "hidden_private_base": (192, 4),
    "hidden_shared_base": (196, 4),
    "hidden_queue_ptr": (200, 8),
}


def test_hidden_arguments_of_a_partial_grid() -> None:
    """Counts are of whole workgroups, remainders of the partial ones: AMDGPUUsage, V5 argument kinds."""
    args = [KernelArg(0, 8, "global_buffer"), *(KernelArg(8 + at, size, kind) for kind, (at, size) in IMPLICIT.items())]
    geometry = resolve_geometry(None, (100, 7), (32, 2))
    segment = pack_arguments(metadata(*args, size=264), [None], HiddenValues(geometry, 640, 0x6000_0000_1000))
    values = {kind: int.from_bytes(segment[8 + at : 8 + at + size], "little") for kind, (at, size) in IMPLICIT.items()}
    assert values == {
        "hidden_block_count_x": 3,
        "hidden_block_count_y": 3,
        "hidden_block_count_z": 1,
        "hidden_group_size_x": 32,
        "hidden_group_size_y": 2,
        "hidden_group_size_z": 1,
        "hidden_remainder_x": 4,
        "hidden_remainder_y": 1,
        "hidden_remainder_z": 0,
        "hidden_global_offset_x": 0,
        "hidden_grid_dims": 2,
        "hidden_hostcall_buffer": 0,
        "hidden_dynamic_lds_size": 640,
        "hidden_private_base": 0x20000,
        "hidden_shared_base": 0x10000,
        "hidden_queue_ptr": 0x6000_0000_1000,
    }


def test_unknown_hidden_argument_is_an_error() -> None:
    with pytest.raises(LaunchError, match="hidden_wormhole"):
        pack_arguments(metadata(KernelArg(0, 8, "hidden_wormhole")), [], HIDDEN)


def test_raw_kernarg() -> None:
    with_hidden = metadata(
        KernelArg(0, 8, "global_buffer"), KernelArg(8, 2, "by_value"), KernelArg(16, 4, "hidden_block_count_x"), size=24
    )
    whole = bytes(range(24))
    assert pack_raw("k", None, 24, whole, HIDDEN) == whole
    assert pack_raw("k", None, 0, whole, HIDDEN) == whole
    for length in (10, 12, 16):
        filled = pack_raw("k", with_hidden, 24, whole[:length], HIDDEN)
        assert filled == whole[:length].ljust(16, b"\0") + struct.pack("<Ixxxx", 4)
    for length, described in [(23, None), (9, with_hidden), (17, with_hidden), (25, None)]:
        with pytest.raises(LaunchError, match=rf"kernarg= takes 24 bytes, {length} given"):
            pack_raw("k", described, 24, bytes(length), HIDDEN)
