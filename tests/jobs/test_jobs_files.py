"""Arrays from .npy, .npz and raw files, and results written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from rjemu.errors import JobError, JobInterrupted, UsageError
from rjemu.jobs import files
from rjemu.jobs.files import ArrayFile, check_writable, write_array
from rjemu.vm.array import resolve_dtype

BF16 = np.dtype(ml_dtypes.bfloat16)


def test_npy_files_of_nameless_types(tmp_path: Path) -> None:
    bf16 = np.arange(4).astype(BF16)
    np.save(tmp_path / "bf16.npy", bf16)
    assert ArrayFile(tmp_path / "bf16.npy", BF16).load().tobytes() == bf16.tobytes()
    np.save(tmp_path / "f32.npy", np.zeros(3, np.float32))
    with pytest.raises(UsageError, match="holds float32, not float64"):
        ArrayFile(tmp_path / "f32.npy", np.dtype(np.float64)).load()


def test_what_is_no_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}]))
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.savez(tmp_path / "many", a=np.zeros(1))
    os.rename(tmp_path / "many.npz", tmp_path / "many.npy")
    for name in ("objects.npy", "text.npy", "many.npy", "empty.npy"):
        with pytest.raises(UsageError, match=rf"{name} is no \.npy file"):
            ArrayFile(tmp_path / name).load()
    with pytest.raises(UsageError, match=r"cannot read .*absent\.npy: No such file"):
        ArrayFile(tmp_path / "absent.npy").load()


def test_npz_files(tmp_path: Path) -> None:
    a, b = np.arange(6).reshape(2, 3), np.ones(4).astype(BF16)
    np.savez(tmp_path / "two.npz", a=a, b=b)
    np.savez_compressed(tmp_path / "one.npz", only=a)
    assert np.array_equal(ArrayFile(tmp_path / "two.npz", key="a").load(), a)
    assert ArrayFile(tmp_path / "two.npz", BF16, key="b").load().tobytes() == b.tobytes()
    assert np.array_equal(ArrayFile(tmp_path / "one.npz").load(), a)
    with pytest.raises(UsageError, match=r"two\.npz: which array is wanted; there are a, b"):
        ArrayFile(tmp_path / "two.npz").load()
    with pytest.raises(UsageError, match="no array 'c'; there are a, b"):
        ArrayFile(tmp_path / "two.npz", key="c").load()


@pytest.mark.parametrize("content", [b"", b"text", b"PK\3\4 and then nothing", b"\x93NUMPY"])
def test_what_is_no_npz_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.npz is no \.npz file"):
        ArrayFile(tmp_path / "a.npz").load()
    np.save(tmp_path / "a.npy", np.zeros(2))
    os.rename(tmp_path / "a.npy", tmp_path / "a.npz")
    with pytest.raises(UsageError, match="it holds an array alone"):
        ArrayFile(tmp_path / "a.npz").load()


def test_damaged_npz_members_are_one_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[1000] ^= 0xFF
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.npz is no \.npz file"):
        ArrayFile(tmp_path / "a.npz", key="a").load()


def test_raw_files(tmp_path: Path) -> None:
    numbers = np.arange(20, dtype=np.float32)
    (tmp_path / "a.bin").write_bytes(b"head" + numbers.tobytes())
    file = ArrayFile(tmp_path / "a.bin", np.dtype(np.float32), None, (4, 5), 4)
    assert np.array_equal(file.load(), numbers.reshape(4, 5))
    assert ArrayFile(tmp_path / "a.bin", BF16, None, (2,)).load().tobytes() == b"head"
    assert ArrayFile(tmp_path / "a.bin", np.dtype(np.float32), None, (0, 5), 84).load().shape == (0, 5)
    with pytest.raises(UsageError, match="has 84 bytes: 80 from byte 8 on are wanted"):
        ArrayFile(tmp_path / "a.bin", np.dtype(np.float32), None, (4, 5), 8).load()
    with pytest.raises(UsageError, match="cannot read"):
        ArrayFile(tmp_path / "b.bin", np.dtype(np.float32), None, (4, 5)).load()


def test_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAPPED_BYTES", 64)
    numbers = np.arange(20, dtype=np.float32).reshape(4, 5)
    np.save(tmp_path / "a.npy", numbers)
    np.save(tmp_path / "bf16.npy", numbers.astype(BF16))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(numbers))
    (tmp_path / "a.bin").write_bytes(b"head" + numbers.tobytes())
    (tmp_path / "text.npy").write_text("1 2 3" * 20)
    raw = ArrayFile(tmp_path / "a.bin", np.dtype(np.float32), None, (4, 5), 4).load()
    assert isinstance(raw, np.memmap)
    assert np.array_equal(raw, numbers)
    for name in ("a.npy", "fortran.npy"):
        loaded = ArrayFile(tmp_path / name).load()
        assert isinstance(loaded, np.memmap)
        assert np.array_equal(loaded, numbers)
    assert np.array_equal(ArrayFile(tmp_path / "bf16.npy", BF16).load(), numbers.astype(BF16))
    with pytest.raises(UsageError, match=r"text\.npy is no \.npy file"):
        ArrayFile(tmp_path / "text.npy").load()


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "uint64", "complex64", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (), (0, 7), (100,)])
def test_results_are_what_numpy_saves(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PIECE", 7)
    array = np.random.default_rng(1).integers(0, 2, shape).astype(resolve_dtype(dtype))
    write_array(tmp_path / "ours.npy", array)
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_results_replace_what_is_there_when_they_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.npy"
    write_array(path, np.arange(3))
    write_array(path, np.arange(4))
    assert np.array_equal(np.load(path), np.arange(4))
    monkeypatch.setattr(files, "_PIECE", 16)
    for error, raised, message in (
        (OSError(28, "No space left on device"), JobError, r"cannot write .*c\.npy: No space left on device"),
        (JobInterrupted("enough"), JobInterrupted, "enough"),
    ):
        calls = iter([None, error])

        def between(calls: Iterator[Exception | None] = calls) -> None:
            problem = next(calls)
            if problem is not None:
                raise problem

        with pytest.raises(raised, match=message):
            write_array(path, np.arange(5), between)
        assert np.array_equal(np.load(path), np.arange(4))
        assert os.listdir(tmp_path) == ["c.npy"]


def test_places_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "new")
    for path, reason in ((tmp_path, "it is a directory"), (tmp_path / "none" / "c", "there is no directory")):
        with pytest.raises(UsageError, match=f"cannot write {path}: {reason}"):
            check_writable(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may be run by root
    with pytest.raises(UsageError, match="may not be written to"):
        check_writable(tmp_path / "new")
