"""The handler cache on disk: whatever has happened to its files, results are right, and the next run finds a sound cache."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rjemu
from rjemu.examples.gemm.run import code_object
from rjemu.exec.cache import HandlerCache

SIZE, DEPTH = 128, 64


def multiply(cache: Path) -> int:
    """A matrix multiplication with the handlers of a cache directory; how many had to be compiled."""
    with rjemu.Machine("gfx950_mi355x", workers="inline", cache_dir=cache) as gpu:
        a = np.random.default_rng(0).integers(-4, 5, (SIZE, DEPTH)).astype(np.float16)
        left, c = gpu.to_device(a), gpu.empty((SIZE, SIZE), np.float32)
        arguments = [left, left, c, np.int32(SIZE), np.int32(DEPTH)]
        result = gpu.load(code_object())["gemm"].launch(grid=1, block=256, args=arguments)
        assert (c.to_host() == a.astype(np.float32) @ a.T.astype(np.float32)).all()
        return int(result.stats["handlers_compiled"])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has all that the multiplication needs."""
    directory = tmp_path_factory.mktemp("sound")
    assert multiply(directory) > 0
    assert multiply(directory) == 0
    return directory


def flip_a_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def flip_many_bits(path: Path, rng: random.Random) -> None:
    for _ in range(20):
        flip_a_bit(path, rng)


def truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def zero(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def overwrite(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def replace_by_a_directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [flip_a_bit, flip_many_bits, truncate, zero, overwrite, delete, replace_by_a_directory]


@pytest.mark.parametrize("files", ["*.o", "*.txt", "*"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_files_are_compiled_anew(
    sound: Path, tmp_path: Path, damage: Callable[[Path, random.Random], None], files: str
) -> None:
    directory = tmp_path / "cache"
    shutil.copytree(sound, directory)
    rng = random.Random(f"{damage.__name__} {files}")
    for path in sorted(path for path in directory.rglob(files) if path.is_file()):
        damage(path, rng)
    assert multiply(directory) > 0
    if damage is not replace_by_a_directory:  # which stays in the way of the file
        assert multiply(directory) == 0


def test_packs_that_have_changed_places_are_not_used(sound: Path, tmp_path: Path) -> None:
    """Sound object code under another pack's name: its functions would be other ones."""
    directory = tmp_path / "cache"
    shutil.copytree(sound, directory)
    for suffix in ("o", "txt"):
        first, *others = sorted(directory.rglob(f"*.{suffix}"))
        contents = [path.read_bytes() for path in (first, *others)]
        for path, content in zip((*others, first), contents, strict=True):
            path.write_bytes(content)
    assert multiply(directory) > 0
    assert multiply(directory) == 0


def test_a_pack_is_found_whole_or_not_at_all(tmp_path: Path) -> None:
    written = HandlerCache(tmp_path)
    written.write(b"object code", ["one", "two"])
    cache = HandlerCache(tmp_path)
    assert cache.find("one") == cache.find("two") == (b"object code", ["one", "two"])
    assert cache.find("three") is None
    (pack,) = tmp_path.rglob("*.o")
    pack.write_bytes(b"object kode")
    assert cache.find("two") is None
    assert list(tmp_path.rglob("*.o")) == list(tmp_path.rglob("*.txt")) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_enter_is_not_used(sound: Path, tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "cache"
    shutil.copytree(sound, directory)
    (inner,) = directory.iterdir()
    inner.chmod(mode)
    assert multiply(directory) > 0


def test_a_directory_that_cannot_be_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert multiply(tmp_path / "file" / "cache") > 0
