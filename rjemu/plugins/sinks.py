"""Where plugins write: the configuration's `sinks`.

    "sinks": { "types": ["stderr", "file"], "dir": "/tmp/out" }

types: any of stderr (alone the default), stdout and file; dir: where file sinks lie, one `<plugin>.log` each, begun anew by
every machine, or gone on with where `append` is true.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rjemu.errors import ConfigError, UsageError

_KEYS = ("types", "dir", "append")
_TYPES = ("stderr", "stdout", "file")

MOST_KEPT = 1000
"""Lines that a sink keeps for reports: the first ones."""


class Sink:
    """The places that one plugin's lines go to. written: how many lines there were; kept: the first MOST_KEPT of them."""

    def __init__(self, streams: tuple[str, ...], path: Path | None, *, append: bool = False) -> None:
        """streams: names in `sys`, looked up at every line so that redirections hold; path: a file that is created now, or
        gone on with."""
        self.written = 0
        self.kept: list[str] = []
        self._streams = streams
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            self._file = path.open("a" if append else "w", encoding="utf-8", errors="backslashreplace")

    def line(self, text: str) -> None:
        """Write a line, at once. UsageError if the file cannot be written, such as on a full disk."""
        self.written += 1
        if len(self.kept) < MOST_KEPT:
            self.kept.append(text)
        for name in self._streams:
            print(text, file=getattr(sys, name), flush=True)
        if self._file is not None:
            try:
                print(text, file=self._file, flush=True)
            except OSError as error:
                raise UsageError(f"sinks.dir: cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # `line` has raised it
                self._file.close()


class Sinks:
    """Makes each plugin's sink from the configuration's `sinks` object. ConfigError for what it cannot be."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        unknown = [key for key in given if key not in _KEYS]
        if unknown:
            raise ConfigError(f"sinks.{unknown[0]} is no setting of sinks; there are {', '.join(_KEYS)}")
        types = given.get("types", ["stderr"])
        if not isinstance(types, list) or not types or any(kind not in _TYPES for kind in types):
            raise ConfigError(f"sinks.types must be a list of some of {', '.join(_TYPES)}, not {types!r}")
        folder = given.get("dir")
        if folder is not None and not isinstance(folder, str):
            raise ConfigError(f"sinks.dir must be a string, not {folder!r}")
        if "file" in types and folder is None:
            raise ConfigError("sinks.dir is missing: sinks.types has 'file'")
        self._append = given.get("append", False)
        if not isinstance(self._append, bool):
            raise ConfigError(f"sinks.append must be true or false, not {self._append!r}")
        self._streams = tuple(kind for kind in dict.fromkeys(types) if kind != "file")
        self._folder = Path(folder) if folder is not None and "file" in types else None
        self._writers: dict[Path, str] = {}

    def open(self, plugin: str) -> Sink:
        """The sink of a plugin. ConfigError if its file cannot be written, or is another plugin's already."""
        if self._folder is None:
            return Sink(self._streams, None)
        # A plugin may be named by module and class.
        path = self._folder / (re.sub(r"[^\w.-]", "_", plugin) + ".log")
        if path in self._writers:
            raise ConfigError(f"plugins {self._writers[path]} and {plugin} would both write {path}")
        self._writers[path] = plugin
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return Sink(self._streams, path, append=self._append)
        except OSError as error:
            raise ConfigError(f"sinks.dir: cannot write {path}: {error.strerror}") from error
