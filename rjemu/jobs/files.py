"""Arrays in files: .npy, .npz and raw ones, and results written so that no half of them is ever seen."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from rjemu.checkpoint.format import replaced_file
from rjemu.errors import CheckpointError, JobError, UsageError

_PIECE = 32 << 20
"""Bytes that are written at a time."""

MAPPED_BYTES = 64 << 20
"""Files from this size on are mapped rather than read: what takes their contents does so piece by piece."""


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """An array in a file.

    An .npz file is told by its suffix; key: which of its arrays, None if it holds only one. shape: of a raw file, whose
    elements of `dtype` begin at byte `offset`; None for .npy and .npz files, whose dtype must be `dtype` if that is given.
    """

    path: Path
    dtype: np.dtype | None = None
    key: str | None = None
    shape: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def is_npz(self) -> bool:
        return self.path.suffix == ".npz"

    def load(self) -> np.ndarray:
        """The array, not to be written. UsageError if the file cannot be read, or does not hold such an array.

        ml_dtypes' types have no name in .npy files: `dtype` says which it is.
        """
        try:
            if self.shape is not None:
                return self._raw()
            array = self._of_npz() if self.is_npz else self._of_npy()
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror or error}") from error
        if self.dtype is None or array.dtype == self.dtype:
            return array
        if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == self.dtype.itemsize:
            return array.view(self.dtype)
        raise UsageError(f"{self.path} holds {array.dtype}, not {self.dtype}")

    def check_readable(self) -> None:
        """UsageError if there is no such file, or it cannot be read."""
        try:
            with self.path.open("rb"):
                pass
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from error

    def _of_npy(self) -> np.ndarray:
        mode: Literal["r"] | None = "r" if self.path.stat().st_size >= MAPPED_BYTES else None
        try:
            array = np.load(self.path, mmap_mode=mode, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise UsageError(f"{self.path} is no .npy file of plain numbers: {error}") from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise UsageError(f"{self.path} is no .npy file of one array")
        return array

    def _of_npz(self) -> np.ndarray:
        try:
            archive = np.load(self.path, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it holds an array alone")
            with archive:
                keys = archive.files
                key = self.key if self.key is not None or len(keys) != 1 else keys[0]
                if key not in keys:
                    named = "which array is wanted" if key is None else f"no array {key!r}"
                    raise UsageError(f"{self.path}: {named}; there are {', '.join(keys)}")
                return np.asarray(archive[key])
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(f"{self.path} is no .npz file of plain numbers: {error}") from error

    def _raw(self) -> np.ndarray:
        assert self.dtype is not None and self.shape is not None
        needed, there = prod(self.shape) * self.dtype.itemsize, self.path.stat().st_size
        if self.offset + needed > there:
            raise UsageError(f"{self.path} has {there} bytes: {needed} from byte {self.offset} on are wanted")
        if needed >= MAPPED_BYTES:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        return np.fromfile(self.path, self.dtype, prod(self.shape), offset=self.offset).reshape(self.shape)


def check_writable(path: Path) -> None:
    """UsageError unless a file can be made, or replaced, in that place. Asked before hours of work, not after."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: {folder} may not be written to")


def write_array(path: Path, array: np.ndarray, between: Callable[[], None] = lambda: None) -> None:
    """Write an .npy file of a C-contiguous array, which replaces what is there when it is complete. between: called now and
    then; what it raises ends the writing. JobError if it fails."""
    try:
        with replaced_file(path) as file:
            write_array_header_1_0(file, header_data_from_array_1_0(array))
            content = array.reshape(-1).view(np.uint8)
            for start in range(0, len(content), _PIECE):
                between()
                file.write(content[start : start + _PIECE].data)
    except CheckpointError as error:
        raise JobError(str(error)) from error


def write_text(path: Path, text: str) -> None:
    """The same for a text."""
    try:
        with replaced_file(path) as file:
            file.write(text.encode())
    except CheckpointError as error:
        raise JobError(str(error)) from error
