"""Component trees and links."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.config import load_config, preset_names
from rjemu.config.components import MAX_COMPONENTS, MAX_DEPTH, TopologyError
from rjemu.config.links import MAX_ROUNDS
from rjemu.config.topology import expand

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
    names = [f"n{depth}{start + length - 1}" for depth, (start, length) in reversed(list(enumerate(ranges)))]
    found = root.find(".".join([*names, "leaf"]))
    assert found is not None
    assert found.kind == "leaf"
    assert root.find(f"n{len(ranges) - 1}{ranges[-1][0] + ranges[-1][1]}") is None
    assert root.size == sum(1 for _ in root.walk())


def test_a_range_may_be_anywhere_in_a_name() -> None:
    root = expand({"root": node("soc", node("pre[8:11]post"), node("[0:2]"), node("plain"))}).root
    assert [child.name for child in root.children] == ["pre8post", "pre9post", "pre10post", "0", "1", "plain"]


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
    wanted = [(f"x{i}.y{j}.req", f"hub.in_{i * b + j}") for i in range(a) for j in range(b) if (i + j) % width == 0]
    assert [(link.source, link.target) for link in topology.links] == wanted
    assert all((link.latency, link.weight) == (2, 5) for link in topology.links)


def test_links_of_two_named_ports() -> None:
    """rocJITsu's other form of a link; latency and weight are 1 where they are left out."""
    root = node("soc", node("xcd[0:2]", node("l2")), node("iod0"))
    entries = [{"src": "xcd1.l2.req", "dst": "soc.iod0.msc.cpl_0"}, {"src": "xcd0.l2.req", "dst": "iod0.in", "weight": 3}]
    links = expand({"root": root, "links": entries}).links
    assert [(link.source, link.target, link.latency, link.weight) for link in links] == [
        ("xcd1.l2.req", "iod0.msc.cpl_0", 1, 1),
        ("xcd0.l2.req", "iod0.in", 1, 3),
    ]


def test_neighbours_and_an_empty_loop() -> None:
    loops = [{"var_name": "k", "start": 0, "end": 3}]
    pattern = "soc.cu[k].adj_req -> cu[k+1].adj_cpl"
    topology = {"root": node("soc", node("cu[0:4]")), "links": [{"pattern": pattern, "for_ranges": loops}]}
    assert [link.target for link in expand(topology).links] == ["cu1.adj_cpl", "cu2.adj_cpl", "cu3.adj_cpl"]
    loops[0]["end"] = 0
    assert expand(topology).links == ()


def link(pattern: str, **fields: Any) -> Node:
    return {"root": node("soc", node("a[0:2]", node("b"))), "links": [{"pattern": pattern, **fields}]}


def nested(levels: int) -> Node:
    tree = node("n")
    for _ in range(levels - 1):
        tree = node("n", tree)
    return tree


@pytest.mark.parametrize(
    ("topology", "path", "message"),
    [
        (link("a[0].b.p"), "links[0].pattern", "source -> target"),
        (link("a[0].b.p -> a[2].b.p"), "links[0].pattern", "no component 'a2'"),
        (link("a[0].b.p -> a[0].c[1].p"), "links[0].pattern", "no component 'a0.c1'"),
        (link("a[i].b.p -> a[0].b.p"), "links[0].pattern", "no variable 'i'"),
        (link("a[0].b.p -> a[0].b"), "links[0].pattern", "names no port"),
        (link("a -> a[0].b.p"), "links[0].pattern", "no component 'a'"),
        (link("a[0].b.p -> a[0].bb.p"), "links[0].pattern", "no component 'a0.bb'"),
        (link("a[0].b.p -> a[0].b.part.more.p"), "links[0].pattern", "no component 'a0.b.part'"),
        (link("a[-1].b.p -> a[0].b.p"), "links[0].pattern", "no component 'a-1'"),
        (link("a[1/0].b.p -> a[0].b.p"), "links[0].pattern", "division by zero"),
        (link(""), "links[0].src", "path of a port"),
        (link("", src="a0.b.p", dst=3), "links[0].dst", "path of a port"),
        (link("", src="a0.b.p", dst="a2.b.p"), "links[0].dst", "no component 'a2'"),
        (link("a[0]..p -> a[0].b.p"), "links[0].pattern", "neither a name"),
        (link("a[0.b].p -> a[0].b.p"), "links[0].pattern", "neither a name"),
        (link("a[1+].p -> a[0].b.p"), "links[0].pattern", "not complete"),
        (link("a[0].p -> a[1].p", where_expr="1 +"), "links[0].where_expr", "not complete"),
        (link("a[0].p -> a[1].p", where_expr="x"), "links[0].where_expr", "no variable 'x'"),
        (link("a[0].p -> a[1].p", latency=-1), "links[0].latency", "whole number"),
        (link("a[0].p -> a[1].p", where_expr=1), "links[0].where_expr", "must be a string"),
        (link("a[0].p -> a[1].p", for_ranges=3), "links[0].for_ranges", "must be a list"),
        (link("a[0].p -> a[1].p", for_ranges=[{"var_name": "i"}] * 2), "links[0].for_ranges[1].var_name", "second time"),
        (link("a[0].p -> a[1].p", for_ranges=[3]), "links[0].for_ranges[0]", "var_name"),
        (link("a[0].p -> a[1].p", for_ranges=[{"var_name": "i", "end": "x"}]), "links[0].for_ranges[0].end", "whole number"),
        (
            link("a[0].p -> a[1].p", for_ranges=[{"var_name": name, "start": 0, "end": 1000} for name in "ijk"]),
            "links[0].for_ranges",
            "more than",
        ),
        ({"root": node("soc", node("a"), node("a"))}, "root.children[1].name", "a second component 'a'"),
        ({"root": node("soc", node("a[0:3]"), node("a2"))}, "root.children[1].name", "a second component 'a2'"),
        ({"root": node("soc", {"type": "t"})}, "root.children[0].name", "must be a string"),
        ({"root": node("soc", node("a b"))}, "root.children[0].name", "name[first:end]"),
        ({"root": nested(MAX_DEPTH + 1)}, "root" + ".children[0]" * MAX_DEPTH, "nested more than"),
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


def test_the_deepest_tree_that_is_allowed() -> None:
    assert expand({"root": nested(MAX_DEPTH)}).root.size == MAX_DEPTH


def test_hostile_files_end_early() -> None:
    """Each node and each pattern is within the limits, but not all of them together."""
    wide = [node(f"{letter}[0:{MAX_COMPONENTS // 4}]") for letter in "abcdefgh"]
    deep = node("a[0:40]", node("b[0:40]", node("c[0:40]", node("d[0:40]"))))
    many = {
        "pattern": "a.p -> a.q",
        "for_ranges": [{"var_name": "i", "start": 0, "end": MAX_ROUNDS // 2}],
        "where_expr": "0",
    }
    for topology, path in (
        ({"root": node("soc", *wide)}, "root.children[3].name"),
        ({"root": node("soc", deep)}, "root.children[0].children[0].name"),
        ({"root": node("soc", node("a")), "links": [many] * 3}, "links[2].for_ranges"),
    ):
        tracemalloc.start()
        try:
            with pytest.raises(TopologyError, match="more than") as caught:
                expand(topology)
            assert caught.value.path == path
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


GEOMETRY = {
    # XCDs, CUs and shader engines of a SoC. AMD's CDNA 2, 3 and 4 white papers (MI210: one die of 104 CUs in 8 engines;
    # MI300X: 8 XCDs of 38 CUs; MI355X: 8 of 32), product pages (R9700: 64 CUs, Radeon 8060S: 40, W7900: 96), and rocJITsu's
    # file for MI455X.
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
    assert device["num_shader_engines"] == engines // xcds
    per_array = device["num_shader_arrays_per_engine"] * device["num_cu_per_sh"]
    assert per_array == max(
        component.count("compute_unit") for component in root.walk() if component.kind == "shader_engine"
    )
    cu = next(component for component in root.walk() if component.kind == "compute_unit")
    assert int(cu.config["num_wf_slots"]) == config.waves_per_cu
    assert int(cu.config["lds_size_kb"]) * 1024 == config.lds_bytes
    assert name.startswith(config.target)
    to_cus = [link for link in config.topology.links if ".cp.req_" in link.source]
    assert len({link.target for link in to_cus}) == len({link.source for link in to_cus}) == cus
    assert config.devices == {"2gpu": 2, "4gpu": 4}.get(name.rpartition("_")[2], 1)
