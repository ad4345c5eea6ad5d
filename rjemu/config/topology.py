"""The topology of a SoC: its components, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rjemu.config.components import Component, expand_root
from rjemu.config.links import Link, expand_links


@dataclass(frozen=True, slots=True)
class Topology:
    """A SoC's components, and the links between them."""

    root: Component
    links: tuple[Link, ...]


def expand(topology: Mapping[str, Any]) -> Topology:
    """The tree and the links of a configuration's `topology` object. TopologyError for what is malformed or too large."""
    root = expand_root(topology.get("root"))
    return Topology(root, expand_links(topology.get("links", []), root))
