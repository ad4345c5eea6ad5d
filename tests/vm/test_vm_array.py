"""Device arrays: round trips in every dtype, shape rules, life time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import rjemu
from rjemu.errors import MachineClosed, OutOfMemory, UsageError
from rjemu.shm.vram import Vram
from rjemu.vm.array import DeviceArray, resolve_dtype


@pytest.fixture
def vram() -> Iterator[Vram]:
    memory = Vram(1 << 20)
    yield memory
    memory.close()


@pytest.mark.parametrize(
    "dtype",
    [
        "float64", np.float32, np.float16, np.int8, np.uint64, np.bool_, np.complex64, "bfloat16", ml_dtypes.bfloat16,
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "float6_e2m3fn", "int4",
        np.dtype([("a", "i4"), ("b", "f8")]),
    ],
)  # fmt: skip
def test_round_trip(vram: Vram, dtype: object) -> None:
    rng = np.random.default_rng(1)
    resolved = resolve_dtype(dtype)
    host = np.zeros((3, 5), resolved) if resolved.names else rng.integers(0, 2, (3, 5)).astype(np.float32).astype(resolved)
    array = DeviceArray(vram, (3, 5), dtype)
    assert (array.shape, array.dtype, array.size, array.nbytes) == ((3, 5), host.dtype, 15, host.nbytes)
    array.copy_from(host)
    assert array.to_host().tobytes() == host.tobytes()
    assert array.to_host().dtype == host.dtype
    assert vram.view(array.address, array.nbytes).tobytes() == host.tobytes()


def test_to_host_is_a_copy_and_non_contiguous_sources_are_laid_out_in_c_order(vram: Vram) -> None:
    source = np.arange(12, dtype=np.int32).reshape(3, 4).T
    array = DeviceArray(vram, (4, 3), np.int32)
    array.copy_from(source)
    copy = array.to_host()
    copy[:] = 0
    assert np.array_equal(array.to_host(), source)
    assert vram.view(array.address, 48).view(np.int32)[1] == 4


@pytest.mark.parametrize("shape", [(), (0,), 0, (2, 0, 3), 7, [2, 3]])
def test_shapes(vram: Vram, shape: object) -> None:
    array = DeviceArray(vram, shape, np.float32)  # type: ignore[arg-type]
    assert array.to_host().shape == np.zeros(shape).shape  # type: ignore[call-overload]


def test_bad_shapes_and_dtypes(vram: Vram) -> None:
    for shape in [(-1,), 1.5, ("a",)]:
        with pytest.raises(UsageError):
            DeviceArray(vram, shape, np.float32)  # type: ignore[arg-type]
    for dtype in [object, "nothing", "V0", 12]:
        with pytest.raises(UsageError):
            DeviceArray(vram, 1, dtype)
    with pytest.raises(OutOfMemory):
        DeviceArray(vram, 1 << 30, np.float32)


def test_copy_from_wants_the_same_shape_and_dtype(vram: Vram) -> None:
    array = DeviceArray(vram, (4,), np.float32)
    for wrong in [np.zeros(4), np.zeros(3, np.float32), np.zeros((1, 4), np.float32), 1.0]:
        with pytest.raises(UsageError, match=r"float32 \(4,\)"):
            array.copy_from(wrong)


def test_freed_array_refuses(vram: Vram) -> None:
    array = DeviceArray(vram, 4, np.float32)
    array.free()
    array.free()
    assert vram.used == 0
    for use in (lambda: array.address, array.to_host, lambda: array.copy_from(np.zeros(4, np.float32))):
        with pytest.raises(MachineClosed, match="freed"):
            use()


def test_collected_array_gives_its_memory_to_the_next_allocation(vram: Vram) -> None:
    array = DeviceArray(vram, 1 << 20, np.uint8)
    del array
    gc.collect()
    DeviceArray(vram, 1 << 20, np.uint8).free()
    assert vram.used == 0


def test_array_outlives_its_memory_only_as_an_error() -> None:
    memory = Vram(1 << 20)
    array = DeviceArray(memory, 4, np.float32)
    memory.close()
    with pytest.raises(MachineClosed, match="machine"):
        array.to_host()
    array.free()


def test_big_endian_elements_are_turned_round() -> None:
    with rjemu.Machine("gfx950_mi355x") as gpu:
        array = gpu.to_device(np.arange(5, dtype=">i4"))
        assert array.dtype == np.dtype("<i4")
        assert gpu.vram.view(array.address, 8).tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
        assert array.to_host().tolist() == [0, 1, 2, 3, 4]
