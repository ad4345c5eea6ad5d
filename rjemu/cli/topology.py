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
from rjemu.config.topology import Component, Topology

_NUMBERED = re.compile(r"(\w+)\[(\d+)\]")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("topology", description="Print the components of a configuration and their links.")
    parser.add_argument("--config", required=True, metavar="FILE", help="a configuration file or a preset's name")
    parser.add_argument("--depth", type=int, metavar="N", help="levels to print, all by default")
    parser.add_argument("--expand", action="store_true", help="print every component, not ranges of equal ones")
    parser.add_argument("--json", action="store_true", help="print it as JSON, with every component and link")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
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
    for _, group in itertools.groupby(components, key=lambda component: component.name if expand else _shape(component)):
        run = list(group)
        first, last = (_NUMBERED.fullmatch(component.name) for component in (run[0], run[-1]))
        if len(run) > 1 and first and last:
            yield f"{first[1]}[{first[2]}:{int(last[2]) + 1}]", len(run), run[0]
        else:
            yield run[0].name, 1, run[0]


def _shape(component: Component) -> tuple[Any, ...]:
    """What components of one run have in common. Copies of one node share their children."""
    numbered = _NUMBERED.fullmatch(component.name)
    return numbered[1] if numbered else component.name, component.kind, id(component.children)


def link_lines(topology: Topology) -> Iterator[str]:
    """How many links there are between which ports, without their numbers."""
    counts = Counter(tuple(re.sub(r"\[\d+\]", "", end) for end in (link.source, link.target)) for link in topology.links)
    yield f"{len(topology.links)} links"
    for (source, target), count in counts.items():
        yield f"  {source} -> {target} ({count})"
