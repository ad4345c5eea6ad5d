"""The topology tree of a configuration: nodes whose names may carry a range, `xcd[0:8]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NODE_NAME = re.compile(r"(\w+)(?:\[(\d+):(\d+)\])?")


def count_nodes(node: Mapping[str, Any], kind: str) -> int:
    """How many nodes of type `kind` the tree below and including `node` expands to. ValueError for a malformed node."""
    if not isinstance(node, Mapping):
        raise ValueError(f"has a node that is no object: {node!r}")
    copies = range_length(node.get("name", ""))
    children = node.get("children", [])
    if not isinstance(children, list):
        raise ValueError(f"has a node {node['name']!r} whose children are no list")
    below = sum(count_nodes(child, kind) for child in children)
    return copies * (below + (node.get("type") == kind))


def range_length(name: Any) -> int:
    """The number of nodes that a name stands for: 8 for `xcd[0:8]`, 1 without a range."""
    match = _NODE_NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"has a node of name {name!r}; a name or name[first:end] is expected")
    if match[2] is None:
        return 1
    if int(match[3]) <= int(match[2]):
        raise ValueError(f"has the empty range {name!r}")
    return int(match[3]) - int(match[2])
