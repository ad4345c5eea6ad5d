"""Configurations: presets say what the devices are, rocJITsu's own layout loads, and errors name file and field."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rjemu.config import MachineConfig, load_config, preset_names
from rjemu.errors import ConfigError

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
        "links": [{"pattern": "xcd[i].l2.req -> iod[i/4].msc.cpl_[i%4]", "latency": 1}],
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
        ("wavequantum", 1, "wavequantum is no field"),
        ("topology.root.name", "soc[4:4]", r"topology.root has the empty range 'soc\[4:4\]'"),
        ("topology.root.name", "soc[", "topology.root has a node of name"),
        ("topology.root.children", 3, "children are no list"),
        ("topology.root.children", [3], "a node that is no object"),
        ("topology.root.children", [], "same compute units, not 0 to 0 xcds"),
    ],
)
def test_errors_name_the_field(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(changed(path, value))


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"vm": }')
    with pytest.raises(ConfigError, match=r"broken\.json: line 1, column 8"):
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
