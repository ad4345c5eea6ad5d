"""What a plugin's settings may be: types, defaults, required keys; and the check of what a configuration gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rjemu.errors import ConfigError

REQUIRED = object()
"""The default of settings that have none."""

_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "boolean": (bool,)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. type: as JSON has it. choices: the values there are, if not all of the type."""

    type: Literal["string", "number", "boolean"]
    description: str
    default: Any = REQUIRED
    choices: tuple[Any, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def fault(self, value: Any) -> str | None:
        """What is wrong with a value, None if nothing is."""
        # JSON's true is an int in Python.
        if not isinstance(value, _TYPES[self.type]) or (self.type == "number" and isinstance(value, bool)):
            return f"must be a {self.type}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(repr(choice) for choice in self.choices)}, not {value!r}"
        return None

    def as_json(self) -> dict[str, Any]:
        """The setting for people and programs."""
        out: dict[str, Any] = {"type": self.type, "description": self.description, "required": self.required}
        if not self.required:
            out["default"] = self.default
        if self.choices:
            out["choices"] = list(self.choices)
        return out


def resolve(plugin: str, schema: Mapping[str, Setting], given: Any) -> dict[str, Any]:
    """The settings that a plugin gets: what is given, and defaults. ConfigError names what does not fit the schema."""
    where = f"plugins.{plugin}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be an object, not {given!r}")
    for key, value in given.items():
        if key not in schema:
            there_are = f"it has {', '.join(schema)}" if schema else "it has none"
            raise ConfigError(f"{where}.{key} is no setting of the plugin; {there_are}")
        fault = schema[key].fault(value)
        if fault is not None:
            raise ConfigError(f"{where}.{key} {fault}")
    for key, setting in schema.items():
        if setting.required and key not in given:
            raise ConfigError(f"{where}.{key} is missing: {setting.description}")
    return {key: given.get(key, setting.default) for key, setting in schema.items()}
