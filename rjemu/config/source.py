"""Where a configuration comes from: a preset, a file or a dict; and the line of each of its fields."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from rjemu.errors import ConfigError

_PRESETS = resources.files("rjemu.config") / "presets"
MAX_FILE_BYTES = 16 << 20
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True)
class Source:
    """A configuration as it was given. name: the preset's or file's. lines: line numbers by path, empty for a dict; 0 for
    what does not come from the file."""

    name: str
    data: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    def fail(self, path: str, problem: str) -> NoReturn:
        """Raise a ConfigError about a field, with its line, or that of the object that it should be in."""
        known = path
        while known and known not in self.lines:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        line = self.lines.get(known)
        where = f"{self.name}, line {line}" if line else self.name
        raise ConfigError(f"{where}: {path} {problem}")


def preset_names() -> list[str]:
    """The names that `load_config` knows without a file."""
    return sorted(entry.name.removesuffix(".json") for entry in _PRESETS.iterdir() if entry.name.endswith(".json"))


def read_source(source: str | os.PathLike[str] | Mapping[str, Any]) -> Source:
    """A preset's name, a JSON file or a parsed dict, read. ConfigError if there is none, or it is no JSON object."""
    if isinstance(source, Mapping):
        return Source("configuration", dict(source))
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"a configuration is a preset's name, a file's path or a dict, not {source!r}")
    name = os.fspath(source)
    if name in preset_names():
        text = (_PRESETS / f"{name}.json").read_text(encoding="utf-8")
    else:
        try:
            text = _read_file(Path(name))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            known = ", ".join(preset_names())
            raise ConfigError(f"no configuration {name!r}: not a preset ({known}), and as a file: {reason}") from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: its objects are nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python converts
        raise ConfigError(f"{name}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: a JSON object is expected, not {type(data).__name__}")
    return Source(name, data, field_lines(text))


def _read_file(path: Path) -> str:
    """A file's text. It may be a pipe, but not one without end. OSError, ValueError, ConfigError."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: more than {MAX_FILE_BYTES} bytes are no configuration")
    return content.decode()


def field_lines(text: str) -> dict[str, int]:
    """The line of every field and list element of a valid JSON text by its path, such as "topology.links[2].pattern"."""
    lines: dict[str, int] = {}
    containers: list[tuple[str, int | None]] = []  # path; the next element's number in a list, None in an object
    path, line, position = "", 1, 0
    is_key = False
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        token = match[0]
        if token in "}]":
            path, _ = containers.pop()
            is_key = False
            continue
        if token == ",":
            path, number = containers[-1]
            is_key = number is None
            continue
        if token == ":":
            is_key = False
            continue
        if containers and is_key:
            path = f"{containers[-1][0]}.{json.loads(token)}".lstrip(".")
            lines[path] = line
            continue
        parent, number = containers[-1] if containers else ("", None)
        if number is not None:
            path = f"{parent}[{number}]"
            containers[-1] = (parent, number + 1)
            lines[path] = line
        if token in "{[":
            containers.append((path, None if token == "{" else 0))
            is_key = token == "{"
    return lines
