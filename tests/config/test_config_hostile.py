"""Whatever a file holds, it loads or is a ConfigError; and the lines of its fields are right."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rjemu.config import MachineConfig, load_config
from rjemu.config.source import field_lines
from rjemu.errors import ConfigError

PRESET: dict[str, Any] = dict(load_config("gfx950_mi355x").request)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["xcd[0:8]", "a[5:2]", "xcd[i].l2.p -> vram.p", "i", "i/0", "clocked", "gfx950", "x[0:999999999]", "->", "["]
    ),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)

Path_ = tuple[Any, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The keys and indices that lead to everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def loads_or_fails(source: Any) -> MachineConfig | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_config(source)
        except ConfigError as error:
            assert "\n" not in str(error)
            return None


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(places(PRESET))), VALUES | st.just(...)), min_size=1, max_size=3))
def test_any_value_in_any_place(changes: list[tuple[Path_, Any]]) -> None:
    data = copy.deepcopy(PRESET)
    for (*parents, last), value in changes:
        node: Any = data
        try:
            for key in parents:
                node = node[key]
            if value is ...:
                del node[last]
            else:
                node[last] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken the place away
    config = loads_or_fails(data)
    if config is not None:
        assert config.xcds * config.cus_per_xcd == config.topology.root.count("compute_unit")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | VALUES.map(json.dumps), st.integers(0, 5000), st.integers(0, 40))
def test_any_damage_to_the_text(tmp_path_factory: pytest.TempPathFactory, text: str, at: int, length: int) -> None:
    whole = json.dumps(PRESET, indent=1)
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(whole[:at] + text + whole[at + length :], encoding="utf-8", errors="surrogatepass")
    loads_or_fails(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"vm":' * 100_000, "", " ", "nul", '{"vm": 1e999}', '{"a": NaN}', "\ufeff{}", "9" * 5000]
)
def test_texts_that_are_no_configuration(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    assert loads_or_fails(path) is None


@pytest.mark.parametrize(
    "source", [None, 5, [], b"gfx950_mi355x", "", "a\0b", "\udc80", "x" * 5000, ".", "/dev/null", "/dev/zero"]
)
def test_what_names_no_configuration(source: Any) -> None:
    """Among them a file without end."""
    with pytest.raises(ConfigError):
        load_config(source)


KEYS = st.text(st.characters(codec="utf-8", exclude_characters=".[]"), min_size=1, max_size=6)
TREES = st.recursive(
    st.none(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(KEYS, TREES, max_size=4), st.integers(0, 3), st.booleans())
def test_lines_of_fields(tree: dict[str, Any], indent: int, ascii_only: bool) -> None:
    """Every leaf becomes a number of its own, which shows on which line it is."""
    leaves: dict[str, int] = {}

    def numbered(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: numbered(inner, f"{path}.{key}".lstrip(".")) for key, inner in value.items()}
        if isinstance(value, list):
            return [numbered(inner, f"{path}[{index}]") for index, inner in enumerate(value)]
        leaves[path] = 10_000 + len(leaves)
        return leaves[path]

    text = json.dumps(numbered(tree, ""), indent=indent or None, ensure_ascii=ascii_only)
    lines = field_lines(text)
    for path, number in leaves.items():
        assert lines[path] == 1 + text[: text.index(str(number))].count("\n")
