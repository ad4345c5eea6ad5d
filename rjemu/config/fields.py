"""Typed access to the fields of a configuration by dotted path, such as "vm.gpu.device.simd_per_cu"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rjemu.config.schema import DEFAULTS
from rjemu.config.source import Source

MAX_NUMBER = (1 << 63) - 1

_MISSING = object()


class Fields:
    """A configuration's fields, with their defaults. A ConfigError names the file, the line and what does not fit."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.data = source.data
        self.fail = source.fail

    def number(self, path: str, *, least: int = 1, most: int = MAX_NUMBER) -> int:
        """A whole number between two limits."""
        value = self.value(path)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            expected = "a positive whole number" if least == 1 else f"a whole number from {least} on"
            self.fail(path, f"must be {expected}, not {value!r}")
        if value > most:
            self.fail(path, f"must be at most {most}, not {value}")
        return value

    def optional(self, path: str) -> int | None:
        """A whole number from 0 on; None where the field is missing."""
        return self.number(path, least=0) if self.given(path) else None

    def text(self, path: str) -> str:
        value = self.value(path)
        if not isinstance(value, str):
            self.fail(path, f"must be a string, not {value!r}")
        return value

    def object(self, path: str) -> Mapping[str, Any]:
        value = self.value(path)
        if not isinstance(value, Mapping):
            self.fail(path, f"must be an object, not {value!r}")
        return value

    def given(self, path: str) -> bool:
        """Whether the configuration has the field."""
        return self._find(path) is not _MISSING

    def value(self, path: str) -> Any:
        """What the field holds, or its default. ConfigError if it has neither."""
        value = self._find(path)
        if value is _MISSING and path not in DEFAULTS:
            steps = path.split(".")
            beginnings = (".".join(steps[: k + 1]) for k in range(len(steps)))
            self.fail(next(each for each in beginnings if not self.given(each)), "is missing")
        return DEFAULTS[path] if value is _MISSING else value

    def _find(self, path: str) -> Any:
        """What the field holds, or _MISSING."""
        value: Any = self.data
        walked = ""
        for step in path.split("."):
            key, _, index = step.partition("[")
            if not isinstance(value, Mapping):
                self.fail(walked, f"must be an object, not {value!r}")
            if key not in value:
                return _MISSING
            value = value[key]
            walked = f"{walked}.{step}".lstrip(".")
            if index:
                value = value[int(index.rstrip("]"))]
        return value
