"""docs/configuration.md against the presets, the schema and the command that it quotes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rjemu.cli.main import main
from rjemu.config import load_config, preset_names
from rjemu.config.schema import DEVICE_FIELDS, TOP_LEVEL_FIELDS
from rjemu.config.topology import expand

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


def test_the_table_of_presets() -> None:
    lines = [line for line in PAGE.splitlines() if re.match(r"\| `gfx\d", line)]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    expected = []
    for name in preset_names():
        config = load_config(name)
        engines = config.topology.root.count("shader_engine") // config.xcds
        counts = [config.devices, config.xcds, engines, config.cus_per_xcd, config.waves_per_cu, config.wave_size]
        sizes = [config.lds_bytes >> 10, round(config.vram_bytes / (1 << 30))]
        expected.append([name, config.marketing_name, config.target, *(str(number) for number in counts + sizes)])
    assert sorted(rows) == sorted(expected)


def test_every_field_is_described() -> None:
    described = {name.rpartition(".")[2] for name in re.findall(r"`([a-z0-9_.]+)`", PAGE)}
    assert {*TOP_LEVEL_FIELDS, *DEVICE_FIELDS} - described == {"vm"}


def test_the_quoted_command(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = PAGE[PAGE.index("    $ rjemu topology") :].split("\n\n")[0].splitlines()
    assert main(quoted[0].split()[2:]) == 0
    assert capsys.readouterr().out.splitlines() == [line[4:] for line in quoted[1:]]


def test_the_quoted_link() -> None:
    entry = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    root = load_config("gfx950_mi355x").request["topology"]["root"]
    links = expand({"root": root, "links": [entry]}).links
    assert (links[0].source, links[0].target, len(links)) == ("xcd0.l2.req", "iod0.msc.cpl_0", 7)
