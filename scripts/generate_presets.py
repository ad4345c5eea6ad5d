"""Writes the preset configurations, rjemu/config/presets/*.json, from the tables below.

Geometry and identity: AMD's data sheets and ISA documents, libdrm's amdgpu.ids (device ids), and the properties that the
devices report through KFD, as in rocJITsu's configurations. Compute units are those that are enabled: simd_count is their
number times simd_per_cu. Thread allocations: shared/design.md, section 6.

    python scripts/generate_presets.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PRESETS = Path(__file__).parent.parent / "rjemu" / "config" / "presets"

Json = dict[str, Any]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Device:
    """A GPU. shader_engines: compute units of each shader engine of an XCD. iods, stacks: I/O dies and HBM stacks of each;
    0 where the tree has none. registers: (SGPRs, VGPRs) of a wave. shader_arrays: in each shader engine."""

    arch: str
    xcds: int
    shader_engines: tuple[int, ...]
    registers: Pair
    iods: int
    stacks: int
    allocations: tuple[tuple[int, ...], ...]
    properties: Json = field(default_factory=dict)
    shader_arrays: int = 1


HELPERS = ((8, 25, 2), (8, 25, 4), (8, 25, 8), (8, 25, 16))
CDNA34 = ((1, 1), (1, 2), (2, 3), (2, 7), (8, 9), (8, 17), (8, 25))
CDNA5 = ((1, 1), (1, 2), (1, 4), (2, 7), (8, 9), (8, 17), (8, 25))
ONE_ENGINE = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (1, 32))

GFX9 = {"vendor_id": 0x1002, "simd_per_cu": 4, "wave_front_size": 64, "max_waves_per_simd": 8, "max_slots_scratch_cu": 32}
RDNA = {"vendor_id": 0x1002, "simd_per_cu": 2, "wave_front_size": 32, "max_waves_per_simd": 16, "max_slots_scratch_cu": 32}

MI355X = Device(
    "cdna4", 8, (8, 8, 8, 8), (104, 512), 2, 4, (*CDNA34, *HELPERS),
    {
        "gpu_id": 38144, "gfx_target_version": 90500, "device_id": 0x75A3, "family_id": 160,
        "marketing_name": "AMD Instinct MI355X", "lds_size_kb": 160, "local_mem_size": 309220868096,
        "mem_width": 8192, "mem_clk_max": 2000, "l1_size_kb": 32, "l1_line_size": 128, "l1_assoc": 64,
        "l2_size_kb": 4096, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 14,
        "num_sdma_queues_per_engine": 8, "num_cp_queues": 24, "max_engine_clk_fcompute": 2400, "capability": 2889327232,
        "capability2": 1, "debug_prop": 1494,
    } | GFX9,
)  # fmt: skip
MI300X = Device(
    "cdna3", 8, (10, 10, 9, 9), (104, 512), 4, 2, CDNA34,
    {
        "gpu_id": 50148, "gfx_target_version": 90402, "device_id": 0x74A1, "family_id": 146,
        "marketing_name": "AMD Instinct MI300X", "lds_size_kb": 64, "local_mem_size": 206158430208,
        "mem_width": 8192, "mem_clk_max": 1300, "l1_size_kb": 32, "l1_line_size": 128, "l1_assoc": 64,
        "l2_size_kb": 4096, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 4, "num_sdma_xgmi_engines": 6,
        "num_sdma_queues_per_engine": 8, "num_cp_queues": 128, "max_engine_clk_fcompute": 2100, "capability": 2893521536,
        "capability2": 1, "debug_prop": 1511,
    } | GFX9,
)  # fmt: skip
MI210 = Device(
    "cdna2", 1, (13,) * 8, (104, 512), 0, 0, ONE_ENGINE,
    {
        "gpu_id": 50149, "gfx_target_version": 90010, "device_id": 0x740F, "family_id": 141, "revision_id": 1,
        "pci_revision_id": 2, "marketing_name": "AMD Instinct MI210", "lds_size_kb": 64, "local_mem_size": 68702699520,
        "mem_width": 4096, "mem_clk_max": 1600, "l1_size_kb": 16, "l1_line_size": 64, "l1_assoc": 64,
        "l2_size_kb": 8192, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 3,
        "num_sdma_queues_per_engine": 8, "num_cp_queues": 24, "max_engine_clk_fcompute": 1700,
    } | GFX9,
)  # fmt: skip
MI455X = Device(
    "cdna5", 8, (16, 16), (128, 1024), 2, 6, (*CDNA5, *HELPERS),
    {
        "gpu_id": 1250, "gfx_target_version": 120500, "device_id": 0x75C1, "family_id": 0, "revision_id": 1,
        "marketing_name": "AMD Instinct MI455X", "lds_size_kb": 320, "local_mem_size": 463856467968,
        "mem_width": 24576, "mem_clk_max": 1600, "l1_size_kb": 64, "l1_line_size": 128, "l1_assoc": 4,
        "l2_size_kb": 196608, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 5, "num_sdma_xgmi_engines": 12,
        "num_sdma_queues_per_engine": 2, "num_cp_queues": 128, "max_engine_clk_fcompute": 2700,
    } | GFX9 | {"wave_front_size": 32, "max_waves_per_simd": 16},
    shader_arrays=2,
)  # fmt: skip
R9700 = Device(
    "rdna4", 1, (16,) * 4, (128, 256), 0, 0, ONE_ENGINE,
    {
        "gpu_id": 8716, "gfx_target_version": 120001, "device_id": 0x7551, "family_id": 152, "revision_id": 1,
        "pci_revision_id": 192, "marketing_name": "AMD Radeon AI PRO R9700", "lds_size_kb": 64,
        "local_mem_size": 34208743424, "vram_type": 9, "mem_width": 256, "mem_clk_max": 1258, "l1_size_kb": 32,
        "l1_line_size": 128, "l1_assoc": 4, "l2_size_kb": 8192, "l2_line_size": 256, "l2_assoc": 16,
        "num_sdma_engines": 2, "num_sdma_xgmi_engines": 0, "num_sdma_queues_per_engine": 6, "num_cp_queues": 4,
        "max_engine_clk_fcompute": 2350, "capability": 1745068672, "debug_prop": 1495,
    } | RDNA,
    shader_arrays=2,
)  # fmt: skip
STRIX_HALO = Device(
    "rdna3_5", 1, (20, 20), (106, 256), 0, 0, ONE_ENGINE,
    {
        "gpu_id": 5510, "gfx_target_version": 110501, "device_id": 0x1586, "family_id": 150,
        "marketing_name": "AMD Radeon 8060S", "lds_size_kb": 64, "local_mem_size": 55319121920, "vram_type": 12,
        "mem_width": 256, "mem_clk_max": 1000, "l1_size_kb": 32, "l1_line_size": 128, "l1_assoc": 4,
        "l2_size_kb": 2048, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 1, "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 6, "num_cp_queues": 8, "max_engine_clk_fcompute": 2900,
    } | RDNA,
    shader_arrays=2,
)  # fmt: skip
W7900 = Device(
    "rdna3", 1, (16,) * 6, (106, 256), 0, 0, ONE_ENGINE,
    {
        "gpu_id": 7019, "gfx_target_version": 110000, "device_id": 0x7448, "family_id": 145,
        "marketing_name": "AMD Radeon PRO W7900", "lds_size_kb": 64, "local_mem_size": 48301604864, "vram_type": 9,
        "mem_width": 384, "mem_clk_max": 1124, "l1_size_kb": 32, "l1_line_size": 128, "l1_assoc": 4,
        "l2_size_kb": 6144, "l2_line_size": 128, "l2_assoc": 16, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 6, "num_cp_queues": 8, "max_engine_clk_fcompute": 1760,
    } | RDNA,
    shader_arrays=2,
)  # fmt: skip

CONFIGURATIONS: dict[str, tuple[Device, int, bool]] = {
    "gfx950_mi355x": (MI355X, 1, False),
    "gfx950_mi355x_kmd": (MI355X, 1, True),
    "gfx950_mi355x_kmd_2gpu": (MI355X, 2, True),
    "gfx942_cdna3": (MI300X, 1, False),
    "gfx942_cdna3_kmd": (MI300X, 1, True),
    "gfx90a_mi210_kmd": (MI210, 1, True),
    "gfx1250_mi455x": (MI455X, 1, False),
    "gfx1250_mi455x_kmd_4gpu": (MI455X, 4, True),
    "gfx1201_r9700": (R9700, 1, False),
    "gfx1151": (STRIX_HALO, 1, False),
    "gfx1100_w7900": (W7900, 1, False),
}
"""Name -> device, GPUs, whether it is made to serve clients (`rjemu daemon`)."""


def configuration(device: Device, gpus: int, serves: bool) -> Json:
    """The JSON of a preset. Several GPUs start serial, and have no table: a `cpu_dispatch_threads` of 0 fills a budget."""
    keys = ("num_threads", "cpu_dispatch_threads", "async_helper_threads")
    threads: Json = {"thread_allocations": [dict(zip(keys, (*row, 0)[:3], strict=True)) for row in device.allocations]}
    if gpus > 1:
        threads = {"num_threads": 1, "cpu_dispatch_threads": 1}
    count = {"num_gpus": gpus} if gpus > 1 else {}
    identity = {"drm_render_minor": 128, "location_id": 768, "hive_id": int(gpus > 1)} if serves else {}
    cus = sum(device.shader_engines) * device.xcds
    properties = {
        **device.properties,
        "simd_count": cus * device.properties["simd_per_cu"],
        "num_shader_engines": len(device.shader_engines),
        "num_shader_arrays_per_engine": device.shader_arrays,
        "num_cu_per_sh": max(device.shader_engines) // device.shader_arrays,
        **identity,
    }
    return {
        **threads,
        "max_ticks": 0,
        "exec_mode": "functional",
        "vm": {"arch": device.arch, "gpu": {**count, "device": dict(sorted(properties.items()))}},
        "topology": {"root": tree(device), "links": links(device)},
    }


def tree(device: Device) -> Json:
    """The component tree: equal shader engines share a node."""
    children: list[Json] = [{"name": "vram", "type": "gpu_memory"}]
    if device.iods:
        settings = [{"key": "num_hbm_stacks", "value": str(device.stacks)}]
        children.append({"name": f"iod[0:{device.iods}]", "type": "iod", "config": settings})
    engines = [
        {
            "name": f"se[{start}:{end}]",
            "type": "shader_engine",
            "children": [{"name": f"cu[0:{cus}]", "type": "compute_unit", "config": cu_settings(device)}],
        }
        for start, end, cus in engine_groups(device)
    ]
    parts: list[Json] = [{"name": "l2", "type": "l2_cache"}, {"name": "cp", "type": "command_processor"}, *engines]
    children.append({"name": f"xcd[0:{device.xcds}]", "type": "xcd", "children": parts})
    return {"name": "soc", "type": "soc", "children": children}


def cu_settings(device: Device) -> list[Json]:
    properties = device.properties
    slots = properties["simd_per_cu"] * properties["max_waves_per_simd"]
    sgprs, vgprs = device.registers
    values = {"num_wf_slots": slots, "sgprs_per_wf": sgprs, "vgprs_per_wf": vgprs, "lds_size_kb": properties["lds_size_kb"]}
    return [{"key": key, "value": str(value)} for key, value in values.items()]


def engine_groups(device: Device) -> list[tuple[int, int, int]]:
    """(first, end, compute units) of each run of equal shader engines."""
    groups: list[tuple[int, int, int]] = []
    for index, cus in enumerate(device.shader_engines):
        if groups and groups[-1][2] == cus:
            groups[-1] = (groups[-1][0], index + 1, cus)
        else:
            groups.append((index, index + 1, cus))
    return groups


def links(device: Device) -> list[Json]:
    """Command processors to compute units, these to the L2 cache, L2 caches to I/O dies, I/O dies among each other."""
    most = max(device.shader_engines)
    out: list[Json] = []
    for start, end, cus in engine_groups(device):
        loops = [loop("i", 0, device.xcds), loop("j", start, end), loop("k", 0, cus)]
        out += [
            link(f"xcd[i].cp.req_[j*{most}+k] -> xcd[i].se[j].cu[k].cpl", loops, 2),
            link(f"xcd[i].se[j].cu[k].req -> xcd[i].l2.cpl_[j*{most}+k]", loops, 10),
        ]
    if device.iods:
        share = device.xcds // device.iods
        out.append(link(f"xcd[i].l2.req -> iod[i/{share}].msc.cpl_[i%{share}]", [loop("i", 0, device.xcds)], 3))
        pairs = [loop("i", 0, device.iods), loop("j", 0, device.iods)]
        out.append({**link("iod[i].peer_req -> iod[j].peer_cpl", pairs, 1), "where_expr": "i != j"})
    return out


def link(pattern: str, loops: list[Json], weight: int) -> Json:
    return {"pattern": pattern, "for_ranges": loops, "latency": 1, "weight": weight}


def loop(name: str, start: int, end: int) -> Json:
    return {"var_name": name, "start": start, "end": end}


def main() -> None:
    for name, arguments in CONFIGURATIONS.items():
        (PRESETS / f"{name}.json").write_text(json.dumps(configuration(*arguments), indent=2) + "\n")


if __name__ == "__main__":
    main()
