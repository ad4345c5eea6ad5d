"""`rjemu topology`: the components of a configuration."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rjemu.config import load_config
from rjemu.config.components import Component
from rjemu.config.topology import Topology
from rjemu.errors import UsageError

_NUMBERED = re.compile(r"(\w*?)(\d+)")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("topology", description="Print the components of a configuration and their links.")
    parser.add_argument("--config", required=True, metavar="FILE", help="a configuration file or a preset's name")
    parser.add_argument("--depth", type=int, metavar="N", help="levels to print, all by default")
    parser.add_argument("--expand", action="store_true", help="print every component, not ranges of equal ones")
    parser.add_argument("--json", action="store_true", help="print it as JSON, with every component and link")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.depth is not None and arguments.depth < 1:
        raise UsageError(f"--depth is {arguments.depth}: expected 1 or more")
    config = load_config(arguments.config)
    if arguments.json:
        print(json.dumps({"devices": config.devices, **as_json(config.topology)}, indent=2))
        return 0
    if config.devices > 1:
        print(f"{config.devices} GPUs, each:")
    depth = arguments.depth if arguments.depth is not None else 1 << 30
    print("\n".join(tree_lines([config.topology.root], depth, expand=arguments.expand)))
    print("\n".join(link_lines(config.topology)))
    return 0


def as_json(topology: Topology) -> dict[str, Any]:
    """The whole topology as JSON values."""
    fields = ("source", "target", "latency", "weight")
    links = [{name: getattr(link, name) for name in fields} for link in topology.links]
    return {"root": _component(topology.root), "links": links}


def _component(component: Component) -> dict[str, Any]:
    children = [_component(child) for child in component.children]
    return {"name": component.name, "type": component.kind, "config": dict(component.config), "children": children}


def tree_lines(components: Sequence[Component], depth: int, *, expand: bool, indent: str = "") -> Iterator[str]:
    """One line for each component, or run of equal ones, and those below it, `depth` levels."""
    if depth < 1:
        return
    for name, count, component in _runs(components, expand):
        settings = "".join(f" {key}={value}" for key, value in component.config.items())
        times = f" ({count})" if count > 1 else ""
        yield f"{indent}{name}{times}: {component.kind}{settings}"
        yield from tree_lines(component.children, depth - 1, expand=expand, indent=indent + "  ")


def _runs(components: Sequence[Component], expand: bool) -> Iterator[tuple[str, int, Component]]:
    """(name, or names as a range, how many, the first) of each run of components that differ in their number only."""
    for _, group in itertools.groupby(enumerate(components), key=lambda item: _shape(*item)):
        run = [component for _, component in group]
        match = _NUMBERED.fullmatch(run[0].name)
        if expand or len(run) == 1 or match is None:
            yield from ((component.name, 1, component) for component in run)
        else:
            first = int(match[2])
            yield f"{match[1]}[{first}:{first + len(run)}]", len(run), run[0]


def _shape(index: int, component: Component) -> tuple[Any, ...]:
    """What components of one run have in common: consecutive numbers differ from the indices by the same number."""
    match = _NUMBERED.fullmatch(component.name)
    name = (match[1], int(match[2]) - index) if match else (component.name, 0)
    return name, component.kind, component.config, component.children


def link_lines(topology: Topology) -> Iterator[str]:
    """How many links there are, in all and of each pattern."""
    yield f"{len(topology.links)} links"
    for pattern, count in Counter(link.pattern for link in topology.links).items():
        yield f"  {pattern} ({count})"
