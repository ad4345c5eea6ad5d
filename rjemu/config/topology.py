"""The component tree of a configuration: `name[a:b]` ranges become components, link patterns become links."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rjemu.config.expressions import parse

MAX_COMPONENTS = 200_000
MAX_LINKS = 500_000

_NODE_NAME = re.compile(r"(\w+)(?:\[(\d{1,9}):(\d{1,9})\])?")
_ENDPOINT_PART = re.compile(r"(\w+)(?:\[([^\[\]]+)\])?")


class TopologyError(ValueError):
    """A topology that cannot be expanded. path: of the field that is wrong, below `topology`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


@dataclass(frozen=True, slots=True)
class Component:
    """A component: its name with its number (`xcd[3]`, or `vram`), what it is, its settings and its parts."""

    name: str
    kind: str
    config: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Component, ...] = ()

    def walk(self) -> Iterator[Component]:
        """The component itself and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def count(self, kind: str) -> int:
        """How many components of a kind there are."""
        return sum(component.kind == kind for component in self.walk())

    def find(self, path: str) -> Component | None:
        """The component at a dotted path below this one: "xcd[0].se[1]"."""
        component: Component | None = self
        for name in path.split("."):
            component = next((child for child in component.children if child.name == name), None) if component else None
        return component


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two ports, each given by a component's path and the port's own name."""

    source: str
    target: str
    latency: int
    weight: int


@dataclass(frozen=True, slots=True)
class Topology:
    """A SoC's components, and the links between them."""

    root: Component
    links: tuple[Link, ...]


def expand(topology: Mapping[str, Any]) -> Topology:
    """The tree and the links of a configuration's `topology` object. TopologyError for what is malformed or too large."""
    root = topology.get("root")
    components = _expand_node(root, "root")
    if len(components) != 1:
        raise TopologyError("root.name", f"must stand for one component, not {len(components)}")
    paths = set(_paths(components[0]))
    links: list[Link] = []
    entries = topology.get("links", [])
    if not isinstance(entries, list):
        raise TopologyError("links", f"must be a list, not {entries!r}")
    for index, entry in enumerate(entries):
        for link in _expand_link(entry, f"links[{index}]", paths):
            links.append(link)
            if len(links) > MAX_LINKS:
                raise TopologyError(f"links[{index}]", f"gives more than {MAX_LINKS} links")
    return Topology(components[0], tuple(links))


def _expand_node(node: Any, path: str) -> list[Component]:
    """The components that a node stands for. They share their children, which are equal."""
    if not isinstance(node, Mapping):
        raise TopologyError(path, f"must be an object, not {node!r}")
    name, numbers = _node_name(node.get("name"), f"{path}.name")
    kind = node.get("type")
    if not isinstance(kind, str):
        raise TopologyError(f"{path}.type", f"must be a string, not {kind!r}")
    children = node.get("children", [])
    if not isinstance(children, list):
        raise TopologyError(f"{path}.children", f"must be a list, not {children!r}")
    config = _settings(node.get("config", []), f"{path}.config")
    below: list[Component] = []
    for index, child in enumerate(children):
        below += _expand_node(child, f"{path}.children[{index}]")
    twice = [component for component, count in _counted(below).items() if count > 1]
    if twice:
        raise TopologyError(f"{path}.children", f"has two components {twice[0]}")
    size = 1 + sum(1 for child in below for _ in child.walk())
    copies = 1 if numbers is None else len(numbers)
    if copies * size > MAX_COMPONENTS:
        raise TopologyError(f"{path}.name", f"gives more than {MAX_COMPONENTS} components")
    names = [name] if numbers is None else [f"{name}[{number}]" for number in numbers]
    parts = tuple(below)
    return [Component(each, kind, config, parts) for each in names]


def _counted(components: list[Component]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for component in components:
        counts[component.name] = counts.get(component.name, 0) + 1
    return counts


def _node_name(name: Any, path: str) -> tuple[str, range | None]:
    match = _NODE_NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise TopologyError(path, f"must be a name or name[first:end], not {name!r}")
    if match[2] is None:
        return match[1], None
    numbers = range(int(match[2]), int(match[3]))
    if not numbers:
        raise TopologyError(path, f"is the empty range {name!r}")
    if len(numbers) > MAX_COMPONENTS:
        raise TopologyError(path, f"gives more than {MAX_COMPONENTS} components")
    return match[1], numbers


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


def _paths(component: Component, prefix: str = "") -> Iterator[str]:
    """The dotted paths of everything below a component."""
    for child in component.children:
        path = prefix + child.name
        yield path
        yield from _paths(child, f"{path}.")


def _expand_link(entry: Any, path: str, known: set[str]) -> Iterator[Link]:
    if not isinstance(entry, Mapping):
        raise TopologyError(path, f"must be an object, not {entry!r}")
    ends = str(entry.get("pattern", "")).split("->")
    if len(ends) != 2:
        raise TopologyError(f"{path}.pattern", f"must have the form 'source -> target', not {entry.get('pattern')!r}")
    variables = [_loop(loop, f"{path}.for_ranges[{index}]") for index, loop in enumerate(entry.get("for_ranges", []))]
    latency, weight = (_count(entry, key, path) for key in ("latency", "weight"))
    rounds = 1
    for _, numbers in variables:
        rounds *= len(numbers)
    if rounds > MAX_LINKS:
        raise TopologyError(f"{path}.for_ranges", f"gives more than {MAX_LINKS} links")
    where_path, pattern_path = f"{path}.where_expr", f"{path}.pattern"
    try:
        where = parse(entry["where_expr"]) if entry.get("where_expr") else None
    except (ValueError, TypeError) as error:
        raise TopologyError(where_path, str(error)) from error
    try:
        source, target = (_Endpoint(end.strip()) for end in ends)
    except ValueError as error:
        raise TopologyError(pattern_path, str(error)) from error
    for chosen in itertools.product(*(numbers for _, numbers in variables)):
        values = dict(zip((name for name, _ in variables), chosen, strict=True))
        try:
            if where is not None and not where(values):
                continue
        except ValueError as error:
            raise TopologyError(where_path, str(error)) from error
        try:
            yield Link(source.resolve(values, known), target.resolve(values, known), latency, weight)
        except ValueError as error:
            raise TopologyError(pattern_path, str(error)) from error


def _loop(loop: Any, path: str) -> tuple[str, range]:
    if not isinstance(loop, Mapping) or not isinstance(loop.get("var_name"), str):
        raise TopologyError(path, f"must be an object of var_name, start and end, not {loop!r}")
    return loop["var_name"], range(_count(loop, "start", path), _count(loop, "end", path))


def _count(entry: Mapping[str, Any], key: str, path: str) -> int:
    value = entry.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise TopologyError(f"{path}.{key}", f"must be a whole number from 0 on, not {value!r}")
    return value


class _Endpoint:
    """One side of a link pattern: component names with index expressions, then the port, `xcd[i].se[j].cu[k].req`. The port
    may have an index of its own, `cpl_[j*9+k]`, and lie in a part of the component that the tree does not list,
    `iod[0].msc.cpl_[1]`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts = []
        for part in text.split("."):
            match = _ENDPOINT_PART.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r} in {text!r} is neither a name nor name[index]")
            self._parts.append((match[1], parse(match[2]) if match[2] else None))
        if len(self._parts) < 2:
            raise ValueError(f"{text!r} names no port of a component")

    def resolve(self, values: Mapping[str, int], known: set[str]) -> str:
        """The endpoint's path. ValueError unless its component exists."""
        names = [name if index is None else f"{name}[{index(values)}]" for name, index in self._parts]
        path = ".".join(names)
        component = names[0]
        if component not in known:
            raise ValueError(f"there is no component {component!r} for {path!r}")
        for k in range(1, len(names) - 1):
            component = f"{component}.{names[k]}"
            if self._parts[k][1] is not None and component not in known:
                raise ValueError(f"there is no component {component!r} for {path!r}")
        return path
