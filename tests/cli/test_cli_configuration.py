"""`rjemu topology` and `rjemu thread-budget-table`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from rjemu.cli.main import main
from rjemu.cli.topology import tree_lines
from rjemu.config import preset_names
from rjemu.config.topology import expand


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_topology_shows_equal_components_as_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "topology", "--config", "gfx942_cdna3").splitlines()
    assert lines[:4] == [
        "soc: soc",
        "  vram: gpu_memory",
        "  iod[0:4] (4): iod num_hbm_stacks=2",
        "  xcd[0:8] (8): xcd",
    ]
    assert "    se[0:2] (2): shader_engine" in lines
    assert any(line.startswith("      cu[0:9] (9): compute_unit num_wf_slots=32") for line in lines)
    assert lines[-5] == "628 links"
    assert lines[-4] == "  xcd[i].cp.req_[j*10+k] -> xcd[i].se[j].cu[k].cpl (304)"
    assert lines[-1] == "  iod[i].peer_req -> iod[j].peer_cpl (12)"


def test_topology_expands_and_stops(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "topology", "--config", "gfx950_mi355x", "--expand")
    assert text.count("compute_unit") == 256
    assert text.count(": xcd") == 8
    short = printed(capsys, "topology", "--config", "gfx950_mi355x", "--depth", "2")
    assert "xcd[0:8]" in short
    assert "shader_engine" not in short
    assert printed(capsys, "topology", "--config", "gfx950_mi355x_kmd_2gpu").startswith("2 GPUs, each:\nsoc: soc\n")


def test_only_consecutive_equal_components_are_a_range() -> None:
    def part(name: str, slots: str = "8") -> dict[str, Any]:
        return {"name": name, "type": "compute_unit", "config": [{"key": "num_wf_slots", "value": slots}]}

    parts = [part("cu[0:2]"), part("cu2"), part("cu[4:6]"), part("cu[6:8]", "9"), part("l2"), part("last")]
    root = expand({"root": {"name": "soc", "type": "soc", "children": parts}}).root
    assert [line.strip() for line in tree_lines(root.children, 1, expand=False)] == [
        "cu[0:3] (3): compute_unit num_wf_slots=8",
        "cu[4:6] (2): compute_unit num_wf_slots=8",
        "cu[6:8] (2): compute_unit num_wf_slots=9",
        "l2: compute_unit num_wf_slots=8",
        "last: compute_unit num_wf_slots=8",
    ]


def test_a_depth_of_nothing_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--config", "gfx1151", "--depth", "0"]) == 2
    assert capsys.readouterr().err == "rjemu: --depth is 0: expected 1 or more\n"


def test_topology_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(printed(capsys, "topology", "--config", "gfx1100_w7900", "--json"))
    xcd = facts["root"]["children"][1]
    assert [engine["name"] for engine in xcd["children"][2:]] == [f"se{k}" for k in range(6)]
    assert sum(len(engine["children"]) for engine in xcd["children"][2:]) == 96
    assert facts["links"][-1] == {
        "source": "xcd0.se5.cu15.req",
        "target": "xcd0.l2.cpl_95",
        "latency": 1,
        "weight": 10,
    }


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_a_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(printed(capsys, "thread-budget-table", "--config", name, "--json", "--budget", "9"))
    assert facts["configured"]["budget"] == 9
    assert (facts["budget"]["cpus"], facts["budget"]["bound_by"]) == (9, "cpu_thread_budget")
    for row in [facts["configured"], *facts["rows"]]:
        assert row["total"] == row["engines"] + facts["devices"] * (row["dispatch"] - 1) + row["helpers"] <= row["budget"]


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "thread-budget-table", "--config", "gfx950_mi355x", "--budget", "12").splitlines()
    assert lines[0] == "gfx950_mi355x; budget 12 (cpu_thread_budget)"
    assert lines[1].split() == ["budget", "engines", "dispatch", "helpers", "total"]
    assert lines[2].split() == ["configured", "12", "2", "7", "0", "8"]
    assert [line.split() for line in lines[3:]][-1] == ["48", "8", "25", "16", "48"]


def test_taskset_bounds_the_budget() -> None:
    """A real process with one CPU."""
    command = [
        "taskset",
        "-c",
        "0",
        sys.executable,
        "-m",
        "rjemu",
        "thread-budget-table",
        "--config",
        "gfx950_mi355x",
        "--json",
    ]
    facts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert facts["configured"] == {"budget": 1, "engines": 1, "dispatch": 1, "helpers": 0, "total": 1}
    assert facts["budget"]["affinity"] == 1
    assert facts["budget"]["bound_by"] == "affinity"


@pytest.mark.parametrize("command", ["topology", "thread-budget-table"])
def test_mistakes_are_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--config", "gfx000"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rjemu: no configuration 'gfx000': not a preset (gfx1100_w7900,")
    assert error.count("\n") == 1
