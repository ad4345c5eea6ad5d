"""Finding plugin classes by name: built in, an entry point of the group `rjemu.plugins`, or `module:Class`."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from rjemu.errors import ConfigError
from rjemu.plugins.contract import Plugin

GROUP = "rjemu.plugins"

BUILT_IN = {
    "race": "rjemu.plugins.race:RaceDetector",
    "waitcheck": "rjemu.plugins.waitcheck:WaitCheck",
    "throughput": "rjemu.plugins.throughput:Throughput",
    "instruction_mix": "rjemu.plugins.instruction_mix:InstructionMix",
    "logging": "rjemu.plugins.logging:KernelLogging",
}


def plugin_places() -> dict[str, str]:
    """Name -> `module:Class` of all plugins that have a name. Built-in ones cannot be replaced."""
    return {point.name: point.value for point in entry_points(group=GROUP)} | BUILT_IN


def find_plugin(name: str) -> type[Plugin]:
    """The class of a name, or of `module:Class`. ConfigError if there is none."""
    place = name if ":" in name else plugin_places().get(name)
    if place is None:
        raise ConfigError(f"plugins.{name}: no plugin of that name; there are {', '.join(sorted(plugin_places()))}")
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute.strip())
    except Exception as error:  # a module runs when it is imported, and may raise anything
        raise ConfigError(f"plugins.{name}: cannot import {place}: {type(error).__name__}: {error}") from error
    if not isinstance(found, type) or not issubclass(found, Plugin):
        raise ConfigError(f"plugins.{name}: {place} is no subclass of rjemu.plugins.Plugin")
    return found
