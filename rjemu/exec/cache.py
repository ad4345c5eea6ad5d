"""The handler cache on disk: object code by function name, for this version of rjemu, of LLVM and of the host's CPU.

The directory holds code that will be executed, so it must belong to the user and be closed to others (mode 0700).
A pack is two files, NAME.o (the object) and NAME.txt (its functions, a line each), the second written last. NAME is a
hash of both: a disk that lost power, or bits, must cost a compilation, and nothing of it may ever be executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from functools import cache, lru_cache
from pathlib import Path

import llvmlite.binding as llvm

from rjemu.exec.compiler import Host, this_host

_CODE_PACKAGES = ("isa", "exec", "mma", "shm")
_MAX_OBJECT = 64 << 20


@lru_cache(maxsize=8)
def fingerprint(host: Host) -> str:
    """Hash of everything that handlers' code for a host depends on besides their key."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    for package in _CODE_PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    digest.update(repr((llvm.llvm_version_info, host.cpu, sorted(host.features))).encode())
    return digest.hexdigest()[:32]


def default_directory() -> Path:
    """The user's cache directory by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "rjemu" / "handlers"


class HandlerCache:
    """Packs of object code. A directory that is not private, or cannot be written, is not used: everything is compiled."""

    def __init__(self, directory: Path | None = None, host: Host | None = None) -> None:
        self.host = host or this_host()
        self.directory = _private_directory((directory or default_directory()) / fingerprint(self.host))
        self._packs: dict[str, Path] = {}
        if self.directory is not None:
            for entry in os.scandir(self.directory):
                if entry.name.endswith(".txt"):
                    pack = self.directory / f"{entry.name.removesuffix('.txt')}.o"
                    with contextlib.suppress(OSError, ValueError):  # deleted meanwhile, or no text
                        self._packs.update(dict.fromkeys(_functions(entry.path, entry.stat().st_mtime_ns), pack))

    def find(self, name: str) -> tuple[bytes, list[str]] | None:
        """The pack that holds a function: object code and its functions. None without one that is undamaged."""
        pack = self._packs.get(name)
        if pack is None:
            return None
        listing = pack.with_suffix(".txt")
        try:
            with pack.open("rb") as file:
                code = file.read(_MAX_OBJECT)
            names = listing.read_text(errors="replace").split()
        except OSError:  # deleted meanwhile, or too many open files
            return None
        if _stem(code, names) == pack.stem and name in names:
            return code, names
        # Also from the disk: what replaces it may have another name.
        self._packs = {name: path for name, path in self._packs.items() if path != pack}
        for path in (pack, listing):
            with contextlib.suppress(OSError):
                path.unlink()
        return None

    def write(self, code: bytes, names: list[str]) -> None:
        """Keep an object for later processes; a full or read-only disk is no error, the cache only saves time."""
        if self.directory is None:
            return
        stem = _stem(code, names)
        try:
            _write_atomically(self.directory / f"{stem}.o", code)
            _write_atomically(self.directory / f"{stem}.txt", "\n".join(names).encode())
        except OSError:
            return
        for name in names:
            self._packs.setdefault(name, self.directory / f"{stem}.o")


def _stem(code: bytes, names: list[str]) -> str:
    """The name of a pack's files."""
    return hashlib.sha256("\n".join(names).encode() + b"\n" + code).hexdigest()[:32]


@cache
def _functions(listing: str, changed: int) -> tuple[str, ...]:
    """The names in a pack's listing, which is read again only if it has changed since: machines open often."""
    return tuple(Path(listing).read_text().split())


def _write_atomically(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _private_directory(path: Path) -> Path | None:
    """The directory, made if need be; None unless it is this user's and nobody else's."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return None
    private = status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077 == 0
    return path if private and os.access(path, os.W_OK) else None
