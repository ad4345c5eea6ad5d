"""Component trees and links."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.config import load_config, preset_names
from rjemu.config.topology import MAX_COMPONENTS, TopologyError, expand

Node = dict[str, Any]


def node(name: str, *children: Node, kind: str = "thing") -> Node:
    return {"name": name, "type": kind, "children": list(children)}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=5))
def test_ranges_multiply(ranges: list[tuple[int, int]]) -> None:
    tree = node("leaf", kind="leaf")
    for depth, (start, length) in enumerate(ranges):
        tree = node(f"n{depth}[{start}:{start + length}]", tree)
    root = expand({"root": node("soc", tree)}).root
    product = 1
    for _, length in ranges:
        product *= length
    assert root.count("leaf") == product
    names = [f"n{depth}[{start + length - 1}]" for depth, (start, length) in reversed(list(enumerate(ranges)))]
    found = root.find(".".join([*names, "leaf"]))
    assert found is not None
    assert found.kind == "leaf"
    assert root.find(f"n{len(ranges) - 1}[{ranges[-1][0] + ranges[-1][1]}]") is None


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))
def test_links_of_nested_loops(a: int, b: int, width: int) -> None:
    topology = expand(
        {
            "root": node("soc", node(f"x[0:{a}]", node(f"y[0:{b}]")), node("hub")),
            "links": [
                {
                    "pattern": f"x[i].y[j].req -> hub.in_[i*{b}+j]",
                    "for_ranges": [{"var_name": "i", "start": 0, "end": a}, {"var_name": "j", "start": 0, "end": b}],
                    "where_expr": f"(i + j) % {width} == 0",
                    "latency": 2,
                    "weight": 5,
                }
            ],
        }
    )
    wanted = [(f"x[{i}].y[{j}].req", f"hub.in_[{i * b + j}]") for i in range(a) for j in range(b) if (i + j) % width == 0]
    assert [(link.source, link.target) for link in topology.links] == wanted
    assert all((link.latency, link.weight) == (2, 5) for link in topology.links)


def link(pattern: str, **fields: Any) -> Node:
    return {"root": node("soc", node("a[0:2]", node("b"))), "links": [{"pattern": pattern, **fields}]}


@pytest.mark.parametrize(
    ("topology", "path", "message"),
    [
        (link("a[0].b.p"), "links[0].pattern", "source -> target"),
        (link("a[0].b.p -> a[2].b.p"), "links[0].pattern", "no component 'a[2]'"),
        (link("a[0].b.p -> a[0].c[1].p"), "links[0].pattern", "no component 'a[0].c[1]'"),
        (link("a[i].b.p -> a[0].b.p"), "links[0].pattern", "no variable 'i'"),
        (link("a -> a[0].b.p"), "links[0].pattern", "names no port"),
        (link("a[0]..p -> a[0].b.p"), "links[0].pattern", "neither a name"),
        (link("a[0.b].p -> a[0].b.p"), "links[0].pattern", "neither a name"),
        (link("a[1+].p -> a[0].b.p"), "links[0].pattern", "not complete"),
        (link("a[0].p -> a[1].p", where_expr="1 +"), "links[0].where_expr", "not complete"),
        (link("a[0].p -> a[1].p", where_expr="x"), "links[0].where_expr", "no variable 'x'"),
        (link("a[0].p -> a[1].p", latency=-1), "links[0].latency", "whole number"),
        (link("a[0].p -> a[1].p", for_ranges=[3]), "links[0].for_ranges[0]", "var_name"),
        (link("a[0].p -> a[1].p", for_ranges=[{"var_name": "i", "end": "x"}]), "links[0].for_ranges[0].end", "whole number"),
        (
            link("a[0].p -> a[1].p", for_ranges=[{"var_name": name, "start": 0, "end": 1000} for name in "ijk"]),
            "links[0].for_ranges",
            "more than",
        ),
        ({"root": node("soc", node("a"), node("a"))}, "root.children", "two components a"),
        ({"root": node("soc", node(f"a[0:{MAX_COMPONENTS + 1}]"))}, "root.children[0].name", "more than"),
        ({"root": node("soc", node("a[0:1000]", node("b[0:1000]")))}, "root.children[0].name", "more than"),
        (
            {"root": node("soc", {"name": "a", "type": "t", "config": [{"key": 1}]})},
            "root.children[0].config[0]",
            "key and value",
        ),
    ],
)
def test_errors_name_the_field(topology: Node, path: str, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        expand(topology)
    assert caught.value.path == path
    assert message in str(caught.value)


GEOMETRY = {
    # XCDs, CUs and shader engines of a SoC: CDNA3 and CDNA4 white papers, AMD's product pages.
    "gfx950_mi355x": (8, 256, 32),
    "gfx950_mi355x_kmd": (8, 256, 32),
    "gfx950_mi355x_kmd_2gpu": (8, 256, 32),
    "gfx942_cdna3": (8, 304, 32),
    "gfx942_cdna3_kmd": (8, 304, 32),
    "gfx90a_mi210_kmd": (1, 104, 8),
    "gfx1250_mi455x": (8, 256, 16),
    "gfx1250_mi455x_kmd_4gpu": (8, 256, 16),
    "gfx1201_r9700": (1, 64, 4),
    "gfx1151": (1, 40, 2),
    "gfx1100_w7900": (1, 96, 6),
}


def test_the_presets_are_those_of_the_design() -> None:
    assert preset_names() == sorted(GEOMETRY)


@pytest.mark.parametrize("name", GEOMETRY)
def test_presets_have_the_devices_geometry(name: str) -> None:
    config = load_config(name)
    xcds, cus, engines = GEOMETRY[name]
    root = config.topology.root
    assert (root.count("xcd"), root.count("compute_unit"), root.count("shader_engine")) == (xcds, cus, engines)
    assert (config.xcds, config.cus_per_xcd) == (xcds, cus // xcds)
    device = config.request["vm"]["gpu"]["device"]
    assert device["simd_count"] == cus * config.simds_per_cu
    cu = next(component for component in root.walk() if component.kind == "compute_unit")
    assert int(cu.config["num_wf_slots"]) == config.waves_per_cu
    assert int(cu.config["lds_size_kb"]) * 1024 == config.lds_bytes
    assert name.startswith(config.target)
    to_cus = [link for link in config.topology.links if ".cp.req_" in link.source]
    assert len({link.target for link in to_cus}) == len({link.source for link in to_cus}) == cus
    assert config.devices == {"2gpu": 2, "4gpu": 4}.get(name.rpartition("_")[2], 1)
