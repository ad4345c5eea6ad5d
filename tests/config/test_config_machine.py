"""Configurations: presets say what the devices are, rocJITsu's own layout loads, and errors name file and field."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import rjemu
from rjemu.config import MachineConfig, load_config, preset_names
from rjemu.errors import ConfigError
from rjemu.isa.tables import FAMILIES

# The shape of rocJITsu's own files: execution tables, identity fields that rjemu does not read, links.
ROCJITSU: dict[str, Any] = {
    "thread_allocations": [{"num_threads": 1, "cpu_dispatch_threads": 1, "async_helper_threads": 0}],
    "max_ticks": 100000,
    "exec_mode": "functional",
    "vm": {
        "arch": "cdna4",
        "gpu": {
            "device": {
                "gpu_id": 1,
                "gfx_target_version": 90500,
                "marketing_name": "device",
                "max_waves_per_simd": 8,
                "simd_per_cu": 4,
                "wave_front_size": 64,
                "local_mem_size": 1 << 34,
                "lds_size_kb": 160,
                "capability": 2889327232,
            }
        },
    },
    "topology": {
        "root": {
            "name": "soc",
            "type": "soc",
            "children": [
                {"name": "vram", "type": "gpu_memory"},
                {"name": "iod[0:2]", "type": "iod", "config": [{"key": "num_hbm_stacks", "value": "4"}]},
                {
                    "name": "xcd[0:3]",
                    "type": "xcd",
                    "children": [
                        {"name": "l2", "type": "l2_cache"},
                        {
                            "name": "se[1:5]",
                            "type": "shader_engine",
                            "children": [{"name": "cu[0:7]", "type": "compute_unit"}],
                        },
                    ],
                },
            ],
        },
        "links": [
            {
                "pattern": "xcd[i].l2.req -> iod[i/2].msc.cpl_[i%2]",
                "for_ranges": [{"var_name": "i", "start": 0, "end": 3}],
                "latency": 1,
                "weight": 3,
            }
        ],
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """ROCJITSU with one field replaced, or left out where `value` is `...`."""
    data = copy.deepcopy(ROCJITSU)
    *parents, last = path.split(".")
    node = data
    for key in parents:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return data


@pytest.mark.parametrize(
    ("name", "target", "lds", "vram"),
    [("gfx950_mi355x", "gfx950", 160 * 1024, 309220868096), ("gfx942_cdna3", "gfx942", 64 * 1024, 192 << 30)],
)
def test_presets(name: str, target: str, lds: int, vram: int) -> None:
    config = load_config(name)
    assert (config.target, config.lds_bytes, config.vram_bytes) == (target, lds, vram)
    assert (config.xcds, config.waves_per_cu, config.wave_size, config.wave_quantum) == (8, 32, 64, 16)
    assert name in preset_names()


@pytest.mark.parametrize("name", preset_names())
def test_a_machine_of_another_target_says_which_ones_run(name: str) -> None:
    target = load_config(name).target
    if target in FAMILIES:
        return
    runs = " and ".join(sorted(FAMILIES))
    with pytest.raises(ConfigError, match=f"^{name}: rjemu does not execute {target} code; it executes {runs}$"):
        rjemu.Machine(name)


def test_presets_are_the_files_of_the_top_level_folder() -> None:
    folder = Path(__file__).parents[2] / "configs"
    assert sorted(path.stem for path in folder.glob("*.json")) == preset_names()
    for path in folder.glob("*.json"):
        assert load_config(path).target == load_config(path.stem).target


def test_rocjitsu_layout_from_dict_and_file(tmp_path: Path) -> None:
    config = load_config(ROCJITSU)
    assert (config.xcds, config.cus_per_xcd, config.vram_bytes) == (3, 28, 1 << 34)
    path = tmp_path / "own.json"
    path.write_text(json.dumps(ROCJITSU))
    from_file = load_config(path)
    assert from_file.name == str(path)
    assert from_file.cus_per_xcd == 28


@pytest.mark.parametrize(
    ("version", "target"), [(90402, "gfx942"), (90010, "gfx90a"), (110501, "gfx1151"), (120500, "gfx1250")]
)
def test_target_names(version: int, target: str) -> None:
    assert load_config(changed("vm.gpu.device.gfx_target_version", version)).target == target


def test_overrides_replace_top_level_and_device_fields_only_in_the_result() -> None:
    config = load_config("gfx950_mi355x", wave_quantum=1, local_mem_size=1 << 20, lds_size_kb=64)
    assert (config.wave_quantum, config.vram_bytes, config.lds_bytes) == (1, 1 << 20, 65536)
    data = copy.deepcopy(ROCJITSU)
    load_config(data, local_mem_size=1 << 20)
    assert data == ROCJITSU
    with pytest.raises(ConfigError, match=r"gfx950_mi355x: no field 'wave_quant' to override.*wave_quantum"):
        load_config("gfx950_mi355x", wave_quant=1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("vm", ..., "vm is missing"),
        ("vm.gpu.device.lds_size_kb", ..., "vm.gpu.device.lds_size_kb is missing"),
        ("vm.gpu", 5, "vm.gpu must be an object, not 5"),
        ("vm.gpu.device.local_mem_size", "much", "vm.gpu.device.local_mem_size must be a positive whole number, not 'much'"),
        ("vm.gpu.device.local_mem_size", 0, "local_mem_size must be a positive"),
        ("vm.gpu.device.local_mem_size", True, "local_mem_size must be a positive"),
        ("vm.arch", 4, "vm.arch must be a string"),
        ("exec_mode", "clocked", "exec_mode must be 'functional', not 'clocked'"),
        ("wave_quantum", -1, "wave_quantum must be a positive whole number"),
        ("num_threads", -1, "num_threads must be a whole number from 0 on, not -1"),
        ("thread_allocations", [{"num_threads": 0}], r"thread_allocations\[0\].num_threads must be a positive"),
        ("async_helper_threads", -2, "async_helper_threads must be a whole number from -1 on, not -2"),
        ("max_ticks", 1.5, "max_ticks must be a whole number from 0 on, not 1.5"),
        ("exec_mode", 3, "exec_mode must be a string, not 3"),
        ("vm.target", "gfx942", "vm.target is 'gfx942', but vm.gpu.device.gfx_target_version 90500 is gfx950"),
        ("vm.gpu.device.wave_front_size", 48, "wave_front_size must be 32 or 64, not 48"),
        ("vm.gpu.device.local_mem_size", 1 << 60, "local_mem_size must be at most 1099511627776"),
        ("vm.gpu.device.simd_per_cu", 1 << 20, "simd_per_cu must be at most 64"),
        ("vm.gpu.device.max_waves_per_simd", ..., "max_waves_per_simd is missing, and the compute units .* no num_wf_slots"),
        ("thread_allocations", [3], r"thread_allocations\[0\] must be an object, not 3"),
        ("thread_allocations", {}, "thread_allocations must be a list"),
        ("vm.gpu.num_gpus", 65, "num_gpus must be at most 64"),
        ("plugins", [], "plugins must be an object"),
        ("topology.root.name", "soc[4:4]", r"topology.root.name is the empty range 'soc\[4:4\]'"),
        ("topology.root.name", "soc[0:2]", "topology.root.name must stand for one component, not 2"),
        ("topology.root.name", "soc[", "topology.root.name must be a name or name"),
        ("topology.root.type", ..., "topology.root.type must be a string"),
        ("topology.root.children", 3, "topology.root.children must be a list"),
        ("topology.root.children", [3], r"topology.root.children\[0\] must be an object"),
        ("topology.links", [], None),
        ("topology.links", 3, "topology.links must be a list"),
        ("topology.links", [{"pattern": "xcd[0].l2.req"}], r"topology.links\[0\].pattern must have the form"),
        ("topology.links", [{"pattern": "xcd[3].l2.a -> vram.b"}], r"links\[0\].pattern there is no component 'xcd3'"),
    ],
)
def test_errors_name_the_field(path: str, value: Any, message: str | None) -> None:
    if message is None:
        load_config(changed(path, value))
        return
    with pytest.raises(ConfigError, match=message):
        load_config(changed(path, value))


def test_xcds_must_be_alike() -> None:
    data = copy.deepcopy(ROCJITSU)
    other = {"name": "odd", "type": "xcd", "children": [{"name": "cu", "type": "compute_unit"}]}
    for children, found in (([], "not 0 xcds compute units"), ([*data["topology"]["root"]["children"], other], "1 to 28")):
        data["topology"]["root"]["children"] = children
        data["topology"]["links"] = []
        with pytest.raises(ConfigError, match=f"must have xcds with the same number of compute units.*{found}"):
            load_config(data)


def test_errors_name_the_line(tmp_path: Path) -> None:
    """Of the field, or of the object that lacks it."""
    path = tmp_path / "own.json"
    for field, value in (
        ("vm.gpu.device.lds_size_kb", -4),
        ("topology.links", [{"pattern": "a"}]),
        ("vm.gpu.device.lds_size_kb", ...),
    ):
        text = json.dumps(changed(field, value), indent=1)
        path.write_text(text)
        key = field.rpartition(".")[2] if value is not ... else "device"
        line = next(k for k, line in enumerate(text.splitlines(), 1) if f'"{key}"' in line)
        if key == "links":
            line += 2  # the pattern itself
        with pytest.raises(ConfigError, match=rf"own\.json, line {line}: {field.rpartition('.')[0]}"):
            load_config(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"lds_size_kb": -4}, "vm.gpu.device.lds_size_kb must be a positive whole number, not -4"),
        ({"num_gpus": -4}, "vm.gpu.num_gpus must be a positive whole number, not -4"),
        ({"max_ticks": -4}, "max_ticks must be a whole number from 0 on, not -4"),
        ({"topology": {"root": {"name": "soc", "type": 3}}}, "topology.root.type must be a string, not 3"),
        (
            {"thread_allocations": [{"num_threads": -4}]},
            "thread_allocations[0].num_threads must be a positive whole number, not -4",
        ),
    ],
)
def test_what_was_overridden_has_no_line(overrides: dict[str, Any], message: str) -> None:
    """It is not in the file with that value."""
    with pytest.raises(ConfigError) as caught:
        load_config("gfx950_mi355x", **overrides)
    assert str(caught.value) == f"gfx950_mi355x: {message}"


def test_unknown_fields_are_kept_and_warned_about_once(tmp_path: Path) -> None:
    data = changed("vm.gpu.device.warp_drive", 9)
    data["topology"]["root"]["children"][1]["colour"] = "red"
    path = tmp_path / "future.json"
    path.write_text(json.dumps(data, indent=1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = load_config(path)
        load_config(path)
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 2
    assert re.search(r"future.json, line \d+: vm.gpu.device.warp_drive is no known field", texts[0])
    assert "topology.root.children[1].colour" in texts[1]
    assert config.request["vm"]["gpu"]["device"]["warp_drive"] == 9


def test_the_request_is_kept_with_its_overrides() -> None:
    config = load_config(ROCJITSU, cpu_thread_budget=3, num_gpus=2, local_mem_size=1 << 20)
    assert (config.cpu_thread_budget, config.devices, config.vram_bytes) == (3, 2, 1 << 20)
    again = load_config(config.request)
    assert again == config
    assert load_config(ROCJITSU, cpu_thread_budget=0).cpu_thread_budget is None


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"vm": }')
    with pytest.raises(ConfigError, match=r"broken\.json, line 1, column 8"):
        load_config(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"broken\.json: a JSON object is expected, not list"):
        load_config(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"gfx960_none.*not a preset \(.*gfx950_mi355x.*No such file"):
        load_config("gfx960_none")


def test_config_is_immutable_and_needs_nothing_else_of_the_package() -> None:
    config = load_config("gfx942_cdna3")
    assert isinstance(config, MachineConfig)
    with pytest.raises(AttributeError):
        config.xcds = 1  # type: ignore[misc]
    code = "import sys, rjemu.config; print(sorted(m for m in sys.modules if m.startswith('rjemu.') and 'config' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "['rjemu.errors']\n"
