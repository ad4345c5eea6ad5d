"""The links of a configuration: `src` and `dst`, or a pattern with index expressions over the loops of `for_ranges`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rjemu.config.components import Component, TopologyError
from rjemu.config.expressions import Expression, parse

MAX_ROUNDS = 100_000
"""Of all loops of all patterns; links are no more than these."""

_NUMBER_BITS = 31
_PART = re.compile(r"(\w+)(?:\[([^\[\]]+)\])?")


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two ports, each given by its component's path and its own name, and the pattern that it is of."""

    source: str
    target: str
    latency: int
    weight: int
    pattern: str


def expand_links(entries: Any, root: Component) -> tuple[Link, ...]:
    """The links that the entries of `topology.links` stand for. TopologyError for what is malformed, too much, or leads
    nowhere."""
    if not isinstance(entries, list):
        raise TopologyError("links", f"must be a list, not {entries!r}")
    ports = _Ports(root)
    room = MAX_ROUNDS
    links: list[Link] = []
    for index, entry in enumerate(entries):
        path = f"links[{index}]"
        if not isinstance(entry, Mapping):
            raise TopologyError(path, f"must be an object, not {entry!r}")
        loops = _loops(entry, f"{path}.for_ranges")
        room -= math.prod(len(numbers) for numbers in loops.values())
        if room < 0:
            raise TopologyError(f"{path}.for_ranges", f"makes it more than {MAX_ROUNDS} links")
        links += _expand(entry, path, loops, ports)
    return tuple(links)


def _expand(entry: Mapping[str, Any], path: str, loops: Mapping[str, range], ports: _Ports) -> Iterator[Link]:
    latency, weight = (_whole(entry, key, path, default=1) for key in ("latency", "weight"))
    if not entry.get("pattern"):
        source, target = (_resolved(entry.get(key), ports, f"{path}.{key}") for key in ("src", "dst"))
        yield Link(source, target, latency, weight, f"{source} -> {target}")
        return
    pattern_path, where_path = f"{path}.pattern", f"{path}.where_expr"
    ends = str(entry["pattern"]).split("->")
    if len(ends) != 2:
        raise TopologyError(pattern_path, f"must have the form 'source -> target', not {entry['pattern']!r}")
    where = _condition(entry.get("where_expr", ""), where_path)
    try:
        sides = [_Pattern(end.strip()) for end in ends]
    except ValueError as error:
        raise TopologyError(pattern_path, str(error)) from error
    for numbers in itertools.product(*loops.values()):
        values = dict(zip(loops, numbers, strict=True))
        try:
            if not where(values):
                continue
        except ValueError as error:
            raise TopologyError(where_path, str(error)) from error
        try:
            source, target = (ports.resolve(side.path(values)) for side in sides)
            yield Link(source, target, latency, weight, entry["pattern"])
        except ValueError as error:
            raise TopologyError(pattern_path, str(error)) from error


def _condition(text: Any, path: str) -> Expression:
    if not isinstance(text, str):
        raise TopologyError(path, f"must be a string, not {text!r}")
    try:
        return parse(text or "1")
    except ValueError as error:
        raise TopologyError(path, str(error)) from error


def _resolved(port: Any, ports: _Ports, path: str) -> str:
    if not isinstance(port, str):
        raise TopologyError(path, f"must be the path of a port, where there is no pattern, not {port!r}")
    try:
        return ports.resolve(port)
    except ValueError as error:
        raise TopologyError(path, str(error)) from error


def _loops(entry: Mapping[str, Any], path: str) -> dict[str, range]:
    loops = entry.get("for_ranges", [])
    if not isinstance(loops, list):
        raise TopologyError(path, f"must be a list, not {loops!r}")
    numbers: dict[str, range] = {}
    for index, loop in enumerate(loops):
        where = f"{path}[{index}]"
        if not isinstance(loop, Mapping) or not isinstance(loop.get("var_name"), str):
            raise TopologyError(where, f"must be an object of var_name, start and end, not {loop!r}")
        if loop["var_name"] in numbers:
            raise TopologyError(f"{where}.var_name", f"is {loop['var_name']!r} for a second time")
        first, end = (_whole(loop, key, where, default=0) for key in ("start", "end"))
        numbers[loop["var_name"]] = range(first, end)
    return numbers


def _whole(entry: Mapping[str, Any], key: str, path: str, *, default: int) -> int:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << _NUMBER_BITS:
        raise TopologyError(f"{path}.{key}", f"must be a whole number from 0 on, not {value!r}")
    return value


class _Pattern:
    """One side of a link pattern: names that may have an index expression, `xcd[i].se[j].cu[k].req`, `l2.cpl_[j*9+k]`."""

    def __init__(self, text: str) -> None:
        self._parts: list[tuple[str, Expression | None]] = []
        for part in text.split("."):
            match = _PART.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r} in {text!r} is neither a name nor name[index]")
            self._parts.append((match[1], parse(match[2]) if match[2] else None))

    def path(self, values: Mapping[str, int]) -> str:
        """The path for some values of the loops' variables, `xcd0.se1.cu2.req`."""
        return ".".join(name if index is None else f"{name}{index(values)}" for name, index in self._parts)


class _Ports:
    """The paths that a link may lead to: a component, and its port. A component that lists no parts may have the port in a
    part of its own (`iod0.msc.cpl_1`). The root's name may come first."""

    def __init__(self, root: Component) -> None:
        self._root = root.name
        self._components: dict[str, Component] = {}
        self._add(root, "")

    def _add(self, component: Component, prefix: str) -> None:
        for child in component.children:
            self._components[prefix + child.name] = child
            self._add(child, f"{prefix}{child.name}.")

    def resolve(self, path: str) -> str:
        """The path below the root. ValueError if there is no component for it."""
        names = path.split(".")
        if names[0] == self._root and names[0] not in self._components:
            del names[0]
        known = 0
        while known < len(names) and ".".join(names[: known + 1]) in self._components:
            known += 1
        if known == len(names):
            raise ValueError(f"{path!r} names no port of the component")
        component = self._components.get(".".join(names[:known]))
        if component is None or len(names) - known > (1 if component.children else 2):
            raise ValueError(f"there is no component {'.'.join(names[: known + 1])!r} for {path!r}")
        return ".".join(names)
