"""The fields of a configuration that have a meaning, here or in rocJITsu. Others are kept, and warned about.

Names: rocJITsu's configuration files (ROCm/rocm-systems, emulation/rocjitsu/configs) and its configuration.md.
`wave_quantum`, `time_slice` and `async_window` are rjemu's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from rjemu.config.source import Source

OWN_FIELDS = ("wave_quantum", "time_slice", "async_window")
ROCJITSU_FIELDS = (
    "exec_mode",
    "max_ticks",
    "num_threads",
    "cpu_dispatch_threads",
    "async_helper_threads",
    "cpu_thread_budget",
    "thread_allocations",
    "vm",
    "topology",
    "plugins",
    "sinks",
)
TOP_LEVEL_FIELDS = (*OWN_FIELDS, *ROCJITSU_FIELDS)

DEFAULTS: Mapping[str, Any] = {
    "exec_mode": "functional",
    "max_ticks": 0,
    "cpu_thread_budget": 0,
    "thread_allocations": [],
    "vm.gpu": {},
    "vm.gpu.num_gpus": 1,
    "vm.gpu.device": {},
    "vm.gpu.device.marketing_name": "",
    "vm.gpu.device.simd_per_cu": 4,
    "vm.gpu.device.local_mem_size": 16 << 30,
    "wave_quantum": 16,
    "time_slice": 65536,
    "async_window": 0,
    "plugins": {},
    "sinks": {},
}
"""What a field holds that is left out. rocJITsu's schema has these defaults, but for the size of memory, which it does not
limit, and rjemu's own fields."""

TARGETS = {
    "cdna2": "gfx90a",
    "cdna3": "gfx942",
    "cdna4": "gfx950",
    "cdna5": "gfx1250",
    "rdna3": "gfx1100",
    "rdna3_5": "gfx1151",
    "rdna4": "gfx1201",
}
"""vm.arch -> the target that it stands for where a configuration names none."""

USED_DEVICE_FIELDS = (
    "gfx_target_version",
    "marketing_name",
    "simd_per_cu",
    "max_waves_per_simd",
    "wave_front_size",
    "lds_size_kb",
    "local_mem_size",
)
IDENTITY_DEVICE_FIELDS = (
    "gpu_id",
    "ip_versions",
    "vendor_id",
    "device_id",
    "family_id",
    "unique_id",
    "drm_render_minor",
    "revision_id",
    "pci_revision_id",
    "simd_count",
    "num_shader_engines",
    "num_shader_arrays_per_engine",
    "num_cu_per_sh",
    "max_slots_scratch_cu",
    "vram_type",
    "mem_width",
    "mem_clk_max",
    "l1_size_kb",
    "l1_line_size",
    "l1_assoc",
    "l2_size_kb",
    "l2_line_size",
    "l2_assoc",
    "num_sdma_engines",
    "num_sdma_xgmi_engines",
    "num_sdma_queues_per_engine",
    "num_cp_queues",
    "max_engine_clk_fcompute",
    "location_id",
    "hive_id",
    "domain",
    "capability",
    "capability2",
    "debug_prop",
)
"""What a device tells about itself; no kernel's result depends on it."""

DEVICE_FIELDS = (*USED_DEVICE_FIELDS, *IDENTITY_DEVICE_FIELDS)

_NODE_FIELDS = ("name", "type", "config", "children", "ports")
_LINK_FIELDS = ("src", "dst", "pattern", "for_ranges", "where_expr", "latency", "weight")
_LOOP_FIELDS = ("var_name", "start", "end")
_ALLOCATION_FIELDS = ("num_threads", "cpu_dispatch_threads", "async_helper_threads")

_warned: set[tuple[str, str]] = set()


def warn_of_unknown(source: Source) -> None:
    """A warning for each field that has no meaning, once per process, configuration and field."""
    for path in unknown_fields(source.data):
        if (source.name, path) not in _warned:
            _warned.add((source.name, path))
            where = f", line {source.lines[path]}" if path in source.lines else ""
            warnings.warn(f"{source.name}{where}: {path} is no known field, and is ignored", stacklevel=3)


def unknown_fields(data: Mapping[str, Any]) -> Iterator[str]:
    """The paths of the fields without a meaning."""
    yield from _unknown(data, "", TOP_LEVEL_FIELDS)
    yield from _unknown(data.get("vm"), "vm.", ("arch", "target", "gpu"))
    gpu = _at(data, "vm", "gpu")
    yield from _unknown(gpu, "vm.gpu.", ("num_gpus", "device", "pci"))
    yield from _unknown(_at(gpu, "device"), "vm.gpu.device.", DEVICE_FIELDS)
    topology = data.get("topology")
    yield from _unknown(topology, "topology.", ("root", "links"))
    yield from _unknown_in_tree(_at(topology, "root"), "topology.root")
    links = _at(topology, "links")
    yield from _unknown_in_list(links, "topology.links", _LINK_FIELDS)
    for index, link in enumerate(links if isinstance(links, list) else []):
        yield from _unknown_in_list(_at(link, "for_ranges"), f"topology.links[{index}].for_ranges", _LOOP_FIELDS)
    yield from _unknown_in_list(data.get("thread_allocations"), "thread_allocations", _ALLOCATION_FIELDS)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _unknown(value: Any, prefix: str, known: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{prefix}{key}" for key in value if key not in known)


def _unknown_in_list(entries: Any, path: str, known: tuple[str, ...]) -> Iterator[str]:
    if isinstance(entries, list):
        for index, entry in enumerate(entries):
            yield from _unknown(entry, f"{path}[{index}].", known)


def _unknown_in_tree(root: Any, path: str) -> Iterator[str]:
    nodes = [(root, path)]
    while nodes:
        node, path = nodes.pop()
        yield from _unknown(node, f"{path}.", _NODE_FIELDS)
        children = _at(node, "children")
        if isinstance(children, list):
            nodes += [(child, f"{path}.children[{index}]") for index, child in enumerate(children)]
