"""Files in every shape that rocJITsu publishes (emulation/rocjitsu/configs, schemas/simulation_config.fbs) load unchanged.

The texts are made up; fields, nesting and layout are those of its files.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from rjemu.config import MachineConfig, ThreadAllocation, load_config
from rjemu.errors import ConfigError

# A standalone simulation: table of threads, bus, IP versions, pattern links between neighbours and dies.
STANDALONE = """{
  "thread_allocations": [
    {"num_threads": 1, "cpu_dispatch_threads": 1, "async_helper_threads": 0},
    {"num_threads": 2, "cpu_dispatch_threads": 3},
    {"cpu_dispatch_threads": 2, "async_helper_threads": 5}
  ],
  "max_ticks": 100000, "exec_mode": "functional", "async_helper_threads": -1, "cpu_dispatch_threads": 0,
  "vm": {
    "arch": "cdna5", "target": "gfx1250",
    "gpu": {
      "device": {
        "gpu_id": 77, "gfx_target_version": 120500, "vendor_id": 4098, "device_id": 1, "family_id": 0, "unique_id": 5,
        "ip_versions": [{"hardware_id": 11, "major": 12, "minor": 5, "revision": 0}],
        "revision_id": 1, "marketing_name": "Some GPU", "simd_count": 64, "max_waves_per_simd": 16, "num_shader_engines": 2,
        "num_shader_arrays_per_engine": 2, "num_cu_per_sh": 1, "simd_per_cu": 4, "wave_front_size": 32,
        "local_mem_size": 463856467968, "lds_size_kb": 320, "mem_width": 24576, "mem_clk_max": 1600, "l1_size_kb": 64,
        "l2_size_kb": 196608, "num_sdma_engines": 5, "num_sdma_xgmi_engines": 12, "num_sdma_queues_per_engine": 2,
        "num_cp_queues": 128, "max_engine_clk_fcompute": 2700
      },
      "pci": { "vram_aperture_bytes": 268435456 }
    }
  },
  "topology": {
    "root": {
      "name": "soc", "type": "soc",
      "children": [
        { "name": "vram", "type": "gpu_memory" },
        { "name": "iod[0:2]", "type": "iod", "config": [{ "key": "num_hbm_stacks", "value": "6" }] },
        {
          "name": "xcd[0:4]", "type": "xcd",
          "children": [
            { "name": "l2", "type": "l2_cache" },
            { "name": "cp", "type": "command_processor" },
            {
              "name": "se[0:2]", "type": "shader_engine",
              "children": [{
                "name": "cu[0:2]", "type": "compute_unit",
                "config": [
                  { "key": "num_wf_slots", "value": "64" }, { "key": "sgprs_per_wf", "value": "128" },
                  { "key": "vgprs_per_wf", "value": "1024" }, { "key": "lds_size_kb", "value": "320" }
                ]
              }]
            }
          ]
        }
      ]
    },
    "links": [
      {
        "pattern": "xcd[i].cp.req_[j*2+k] -> xcd[i].se[j].cu[k].cpl",
        "for_ranges": [
          { "var_name": "i", "start": 0, "end": 4 },
          { "var_name": "j", "start": 0, "end": 2 },
          { "var_name": "k", "start": 0, "end": 2 }
        ],
        "latency": 1, "weight": 2
      },
      {
        "pattern": "xcd[i].l2.req -> iod[i/2].msc.cpl_[i%2]",
        "for_ranges": [{ "var_name": "i", "start": 0, "end": 4 }],
        "latency": 1, "weight": 3
      },
      {
        "pattern": "iod[i].peer_req -> iod[j].peer_cpl",
        "for_ranges": [{ "var_name": "i", "start": 0, "end": 2 }, { "var_name": "j", "start": 0, "end": 2 }],
        "where_expr": "i != j", "latency": 1, "weight": 1
      },
      {
        "pattern": "xcd[i].se[j].cu[k+1].adj_req_r -> xcd[i].se[j].cu[k].adj_cpl_r",
        "for_ranges": [
          { "var_name": "i", "start": 0, "end": 4 },
          { "var_name": "j", "start": 0, "end": 2 },
          { "var_name": "k", "start": 0, "end": 1 }
        ],
        "latency": 1, "weight": 2
      }
    ]
  }
}
"""

# A synthetic target: single components instead of ranges, links between named ports, few fields of the device.
SYNTHETIC = """{
  "max_ticks": 10000, "num_threads": 1, "exec_mode": "functional",
  "vm": {
    "arch": "cdna4", "target": "gfx950",
    "gpu": { "device": { "gfx_target_version": 90500, "num_sdma_engines": 1, "num_sdma_queues_per_engine": 1 } }
  },
  "topology": {
    "root": {
      "name": "soc", "type": "soc",
      "children": [
        { "name": "vram", "type": "gpu_memory" },
        { "name": "iod0", "type": "iod" },
        {
          "name": "xcd0", "type": "xcd",
          "children": [
            { "name": "l2", "type": "l2_cache", "ports": [{ "name": "extra", "direction": "in", "protocol": "untyped" }] },
            { "name": "cp", "type": "command_processor" },
            {
              "name": "se0", "type": "shader_engine",
              "children": [{
                "name": "cu0", "type": "compute_unit",
                "config": [{ "key": "num_wf_slots", "value": "9" }, { "key": "lds_size_kb", "value": "64" }]
              }]
            }
          ]
        }
      ]
    },
    "links": [
      { "src": "xcd0.cp.req_0", "dst": "xcd0.se0.cu0.cpl", "latency": 1, "weight": 2 },
      { "src": "xcd0.l2.req", "dst": "soc.iod0.msc.cpl_0" }
    ]
  }
}
"""


def loaded(text: str, folder: Path) -> MachineConfig:
    path = folder / "published.json"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_config(path)


def test_a_standalone_simulation(tmp_path: Path) -> None:
    config = loaded(STANDALONE, tmp_path)
    assert (config.target, config.marketing_name, config.devices, config.max_ticks) == ("gfx1250", "Some GPU", 1, 100000)
    assert (config.xcds, config.cus_per_xcd, config.simds_per_cu, config.waves_per_simd) == (4, 4, 4, 16)
    assert (config.wave_size, config.lds_bytes, config.vram_bytes) == (32, 320 << 10, 463856467968)
    threads = config.threads
    assert (threads.num_threads, threads.cpu_dispatch_threads, threads.async_helper_threads) == (None, 0, None)
    assert threads.table == (ThreadAllocation(1, 1, 0), ThreadAllocation(2, 3, 0), ThreadAllocation(1, 2, 5))
    links = config.topology.links
    assert len(links) == 16 + 4 + 2 + 8
    assert [(link.source, link.target) for link in links[16:20]] == [
        (f"xcd{i}.l2.req", f"iod{i // 2}.msc.cpl_{i % 2}") for i in range(4)
    ]
    assert config.request["vm"]["gpu"]["pci"] == {"vram_aperture_bytes": 268435456}


def test_a_synthetic_target(tmp_path: Path) -> None:
    """What the device does not say comes from the compute units, the target, and the schema's defaults."""
    config = loaded(SYNTHETIC, tmp_path)
    assert (config.target, config.marketing_name, config.max_ticks) == ("gfx950", "", 10000)
    assert (config.simds_per_cu, config.waves_per_simd, config.wave_size) == (4, 2, 64)
    assert (config.lds_bytes, config.vram_bytes) == (64 << 10, 16 << 30)
    assert config.threads.num_threads == 1
    assert config.threads.cpu_dispatch_threads is None
    assert [link.target for link in config.topology.links] == ["xcd0.se0.cu0.cpl", "iod0.msc.cpl_0"]


@pytest.mark.parametrize(
    ("device", "target"),
    [('"gfx_target_version": 90402', "gfx942"), ('"device_id": 1', "gfx950")],
)
def test_the_architecture_stands_for_a_target(device: str, target: str, tmp_path: Path) -> None:
    text = SYNTHETIC.replace('"gfx_target_version": 90500', device).replace(', "target": "gfx950"', "")
    assert loaded(text, tmp_path).target == target


def test_a_vm_without_a_device(tmp_path: Path) -> None:
    start, end = SYNTHETIC.index(', "target"'), SYNTHETIC.index('  "topology"')
    config = loaded(f"{SYNTHETIC[:start]}}},\n{SYNTHETIC[end:]}", tmp_path)
    assert (config.target, config.devices, config.lds_bytes) == ("gfx950", 1, 64 << 10)


def test_daemon_files_of_several_gpus(tmp_path: Path) -> None:
    device = (
        '"device": { "drm_render_minor": 128, "location_id": 768, "hive_id": 1, "domain": 0, "max_slots_scratch_cu": 32,'
    )
    text = SYNTHETIC.replace('"device": {', f'"num_gpus": 4, {device}').replace('"arch": "cdna4"', '"arch":"cdna4"')
    assert loaded(text, tmp_path).devices == 4


def test_sections_for_other_programs_are_named_and_kept(tmp_path: Path) -> None:
    text = SYNTHETIC.replace(
        '  "topology": {', '  "timing": { "//": "of another model", "machine": { "l2.ways": 16 } },\n  "topology": {'
    )
    path = tmp_path / "timed.json"
    path.write_text(text)
    with pytest.warns(UserWarning, match=r"timed.json, line 7: timing is no known field") as caught:
        config = load_config(path)
    assert len(caught) == 1
    assert config.request["timing"]["machine"] == {"l2.ways": 16}


def test_binary_translation_is_no_machine(tmp_path: Path) -> None:
    path = tmp_path / "guest.json"
    path.write_text('{\n  "dbt_guest": { "enabled": true, "guest_isa": "gfx950", "host_isa": "gfx942" }\n}\n')
    with (
        pytest.warns(UserWarning, match="dbt_guest"),
        pytest.raises(ConfigError, match=r"line 2: dbt_guest asks for binary"),
    ):
        load_config(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"minor": 5,', '"minor": 5,,', r"column \d+: Expecting property name"),
        (
            '"cpu_dispatch_threads": 2',
            '"cpu_dispatch_threads": 0',
            r"thread_allocations\[2\].cpu_dispatch_threads must be",
        ),
        ('"end": 2 }\n        ],', '"end": -2 }\n        ],', r"topology.links\[0\].for_ranges\[2\].end must be"),
        ("i/2", "i/3+1", r"topology.links\[1\].pattern there is no component 'iod2'"),
        ("i != j", "i != n", r"topology.links\[2\].where_expr no variable 'n'"),
        (
            '"cu[0:2]"',
            '"cu[2:2]"',
            r"topology.root.children\[2\].children\[2\].children\[0\].name is the empty range",
        ),
        (
            '"value": "6"',
            '"valve": "6"',
            r"topology.root.children\[1\].config\[0\] must be an object of key and value",
        ),
        ('"target": "gfx1250"', '"target": "gfx1251"', r"vm.target is 'gfx1251', but"),
        ('"lds_size_kb": 320, "mem', '"lds_size_kb": [], "mem', r"vm.gpu.device.lds_size_kb must be a positive"),
    ],
)
def test_lines_of_mistakes(old: str, new: str, message: str, tmp_path: Path) -> None:
    """The line is that of the change."""
    path = tmp_path / "mistaken.json"
    assert old in STANDALONE
    text = STANDALONE.replace(old, new, 1)
    path.write_text(text)
    line = 1 + text[: text.index(new)].count("\n")
    with pytest.raises(ConfigError, match=rf"mistaken\.json, line {line}[:,] {message}"):
        load_config(path)
