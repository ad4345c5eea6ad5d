"""The component tree of a configuration: each node of `topology.root`, whose name may be a range, becomes components."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_COMPONENTS = 1 << 16
MAX_DEPTH = 32

_RANGE = re.compile(r"(\w*)\[(\d{1,9}):(\d{1,9})\](\w*)")


class TopologyError(ValueError):
    """A topology that cannot be expanded. path: of the field that is wrong, below `topology`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


@dataclass(frozen=True, slots=True)
class Component:
    """A component: its name, which ends in its number where it is one of a range (`xcd3` of `xcd[0:8]`), what it is, its
    settings and its parts. size: how many components it and its parts are."""

    name: str
    kind: str
    config: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Component, ...] = ()
    size: int = 1

    def walk(self) -> Iterator[Component]:
        """The component itself and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def count(self, kind: str) -> int:
        """How many components of a kind there are."""
        return sum(component.kind == kind for component in self.walk())

    def find(self, path: str) -> Component | None:
        """The component at a dotted path below this one: "xcd0.se1"."""
        component: Component | None = self
        for name in path.split("."):
            component = next((child for child in component.children if child.name == name), None) if component else None
        return component


def expand_root(node: Any) -> Component:
    """The tree that `topology.root` stands for. TopologyError for what is malformed or too large."""
    components = _expand(node, "root", MAX_COMPONENTS, 1)
    if len(components) != 1:
        raise TopologyError("root.name", f"must stand for one component, not {len(components)}")
    return components[0]


def _expand(node: Any, path: str, room: int, depth: int) -> list[Component]:
    """The components that a node stands for, at most `room` with their parts. They share their parts, which are equal."""
    if not isinstance(node, Mapping):
        raise TopologyError(path, f"must be an object, not {node!r}")
    if depth > MAX_DEPTH:
        raise TopologyError(path, f"is nested more than {MAX_DEPTH} levels deep")
    kind = node.get("type")
    if not isinstance(kind, str):
        raise TopologyError(f"{path}.type", f"must be a string, not {kind!r}")
    config = _settings(node.get("config", []), f"{path}.config")
    children = node.get("children", [])
    if not isinstance(children, list):
        raise TopologyError(f"{path}.children", f"must be a list, not {children!r}")
    below: list[Component] = []
    taken: set[str] = set()
    size = 1
    for index, child in enumerate(children):
        for component in _expand(child, f"{path}.children[{index}]", room - size, depth + 1):
            if component.name in taken:
                raise TopologyError(f"{path}.children[{index}].name", f"gives a second component {component.name!r}")
            taken.add(component.name)
            below.append(component)
            size += component.size
    names = _names(node.get("name"), f"{path}.name", room // size)
    return [Component(name, kind, config, tuple(below), size) for name in names]


def _names(pattern: Any, path: str, most: int) -> list[str]:
    """The names that `name` or `name[first:end]` stands for."""
    if not isinstance(pattern, str):
        raise TopologyError(path, f"must be a string, not {pattern!r}")
    match = _RANGE.fullmatch(pattern)
    if match is None and re.fullmatch(r"\w+", pattern) is None:
        raise TopologyError(path, f"must be a name or name[first:end], not {pattern!r}")
    numbers = range(int(match[2]), int(match[3])) if match else range(1)
    if not numbers:
        raise TopologyError(path, f"is the empty range {pattern!r}")
    if len(numbers) > most:
        raise TopologyError(path, f"{pattern!r} gives the SoC more than {MAX_COMPONENTS} components")
    return [f"{match[1]}{number}{match[4]}" for number in numbers] if match else [pattern]


def _settings(entries: Any, path: str) -> dict[str, str]:
    """A component's settings from rocJITsu's list of key and value pairs."""
    if not isinstance(entries, list):
        raise TopologyError(path, f"must be a list, not {entries!r}")
    settings: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("key"), str) or "value" not in entry:
            raise TopologyError(f"{path}[{index}]", f"must be an object of key and value, not {entry!r}")
        settings[entry["key"]] = str(entry["value"])
    return settings
