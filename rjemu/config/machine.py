"""The machine configuration: rocJITsu's JSON, checked, as a dataclass. Presets are the files of `rjemu/config/presets`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rjemu.config.components import Component, TopologyError
from rjemu.config.fields import Fields
from rjemu.config.schema import DEVICE_FIELDS, TARGETS, TOP_LEVEL_FIELDS, warn_of_unknown
from rjemu.config.source import Source, read_source
from rjemu.config.threads import MAX_HELPERS, ExecutionTopology, ThreadAllocation, ThreadRequest
from rjemu.config.topology import Topology, expand
from rjemu.errors import ConfigError

MAX_DEVICES = 64
MAX_SIMDS = 64
MAX_WAVES_PER_SIMD = 64
MAX_LDS_KB = 1024
MAX_VRAM_BYTES = 1 << 40
"""Limits of what there could be: a number beyond them is a mistake, and would be paid for in memory."""


@dataclass(frozen=True)
class MachineConfig:
    """What a machine is made of.

    name: preset or file it came from. target: "gfx950", ... devices: GPUs (SoCs). xcds: accelerator dies of each;
    cus_per_xcd: compute units of each of these. simds_per_cu, waves_per_simd: residency limits of a compute unit. wave_size:
    lanes. lds_bytes: per workgroup and compute unit. vram_bytes: memory of each GPU. wave_quantum: instructions of a wave's
    turn among its workgroup's waves. time_slice: wave instructions after which a workgroup makes way for other residents.
    max_ticks: rocJITsu's limit of simulated time, 0 for none; nothing here counts ticks. threads: what is asked for of the
    thread policy; cpu_thread_budget: CPUs to use, None: detected. async_window: limit of instructions past the oldest matrix
    job, None for none. plugins: name -> settings; sinks: where they write
    (`rjemu.plugins.sinks`). request: the configuration as it was given, with overrides.
    """

    name: str
    target: str
    arch: str
    marketing_name: str
    devices: int
    xcds: int
    cus_per_xcd: int
    simds_per_cu: int
    waves_per_simd: int
    wave_size: int
    lds_bytes: int
    vram_bytes: int
    wave_quantum: int
    time_slice: int
    max_ticks: int
    threads: ThreadRequest
    cpu_thread_budget: int | None
    async_window: int | None
    plugins: Mapping[str, Any] = field(repr=False)
    sinks: Mapping[str, Any] = field(repr=False)
    topology: Topology = field(repr=False)
    request: Mapping[str, Any] = field(repr=False)

    @property
    def waves_per_cu(self) -> int:
        return self.simds_per_cu * self.waves_per_simd

    @property
    def execution_topology(self) -> ExecutionTopology:
        return ExecutionTopology(self.devices, self.xcds, self.cus_per_xcd)


def load_config(source: str | Path | Mapping[str, Any], **overrides: Any) -> MachineConfig:
    """The configuration of a preset name, a JSON file or a parsed dict.

    An override replaces a top-level field, `num_gpus`, or a field of `vm.gpu.device` (`local_mem_size=1 << 30`). ConfigError
    names the file, the field and its line. Fields without a meaning are kept, with a warning.
    """
    given = read_source(source)
    warn_of_unknown(given)
    return _Machine(_with_overrides(given, overrides)).config()


def _with_overrides(source: Source, overrides: Mapping[str, Any]) -> Source:
    if not overrides:
        return source
    gpu_fields = {key: value for key, value in overrides.items() if key == "num_gpus"}
    device = {key: value for key, value in overrides.items() if key in DEVICE_FIELDS}
    top_level = {key: value for key, value in overrides.items() if key in TOP_LEVEL_FIELDS}
    unknown = sorted(set(overrides) - set(gpu_fields) - set(device) - set(top_level))
    if unknown:
        there_are = ", ".join((*TOP_LEVEL_FIELDS, "num_gpus", *DEVICE_FIELDS))
        raise ConfigError(f"{source.name}: no field {unknown[0]!r} to override; there are {there_are}")
    data = {**source.data, **top_level}
    if device or gpu_fields:
        fields = Fields(Source(source.name, data, source.lines))
        vm, gpu, given_device = (fields.object(path) for path in ("vm", "vm.gpu", "vm.gpu.device"))
        data["vm"] = {**vm, "gpu": {**gpu, **gpu_fields, "device": {**given_device, **device}}}
    replaced = [*top_level, *(f"vm.gpu.{key}" for key in gpu_fields), *(f"vm.gpu.device.{key}" for key in device)]
    below = tuple(f"{path}{separator}" for path in replaced for separator in ".[")
    lines = {path: line for path, line in source.lines.items() if not path.startswith(below)}
    return Source(source.name, data, lines | dict.fromkeys(replaced, 0))


class _Machine(Fields):
    """What the fields of a configuration say about a machine."""

    def config(self) -> MachineConfig:
        if self.text("exec_mode") == "clocked":
            self.fail("exec_mode", "must be 'functional', not 'clocked': rjemu models no timing")
        if self.given("dbt_guest") and not self.given("vm"):
            self.fail("dbt_guest", "asks for binary translation, which rjemu has none of; a machine needs vm and topology")
        topology = self.topology()
        target = self.target()
        xcds, cus_per_xcd = self.compute_units(topology.root)
        simds = self.number("vm.gpu.device.simd_per_cu", most=MAX_SIMDS)
        return MachineConfig(
            name=self.name,
            target=target,
            arch=self.text("vm.arch"),
            marketing_name=self.text("vm.gpu.device.marketing_name"),
            devices=self.number("vm.gpu.num_gpus", most=MAX_DEVICES),
            xcds=xcds,
            cus_per_xcd=cus_per_xcd,
            simds_per_cu=simds,
            waves_per_simd=self.waves_per_simd(topology.root, simds),
            wave_size=self.wave_size(target),
            lds_bytes=self.lds_size_kb(topology.root) * 1024,
            vram_bytes=self.number("vm.gpu.device.local_mem_size", most=MAX_VRAM_BYTES),
            wave_quantum=self.number("wave_quantum"),
            time_slice=self.number("time_slice"),
            max_ticks=self.number("max_ticks", least=0),
            threads=self.threads(),
            cpu_thread_budget=self.number("cpu_thread_budget", least=0) or None,
            async_window=self.number("async_window", least=0) or None,
            plugins=self.object("plugins"),
            sinks=self.object("sinks"),
            topology=topology,
            request=self.data,
        )

    def target(self) -> str:
        """gfx950 for 90500: major version, two decimal digits of minor, two of stepping (printed in hexadecimal)."""
        arch = self.text("vm.arch")
        named = self.text("vm.target") if self.given("vm.target") else None
        if not self.given("vm.gpu.device.gfx_target_version"):
            if named is None and arch not in TARGETS:
                self.fail("vm.gpu.device.gfx_target_version", f"is missing, and vm.arch {arch!r} stands for no target")
            return named or TARGETS[arch]
        version = self.number("vm.gpu.device.gfx_target_version")
        target = f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"
        if named not in (None, target):
            self.fail("vm.target", f"is {named!r}, but vm.gpu.device.gfx_target_version {version} is {target}")
        return target

    def topology(self) -> Topology:
        try:
            return expand(self.object("topology"))
        except TopologyError as error:
            self.fail(f"topology.{error.path}", str(error))

    def compute_units(self, root: Component) -> tuple[int, int]:
        """XCDs of a SoC, and compute units of each."""
        cus = [component.count("compute_unit") for component in root.walk() if component.kind == "xcd"]
        if not cus or 0 in cus or len(set(cus)) > 1:
            found = f"{len(cus)} xcds" if len(set(cus)) < 2 else f"xcds of {min(cus)} to {max(cus)}"
            self.fail("topology.root", f"must have xcds with the same number of compute units, not {found} compute units")
        return len(cus), cus[0]

    def waves_per_simd(self, root: Component, simds: int) -> int:
        path = "vm.gpu.device.max_waves_per_simd"
        if self.given(path):
            return self.number(path, most=MAX_WAVES_PER_SIMD)
        return max(self.of_compute_unit(root, "num_wf_slots", path) // simds, 1)

    def lds_size_kb(self, root: Component) -> int:
        path = "vm.gpu.device.lds_size_kb"
        return self.number(path, most=MAX_LDS_KB) if self.given(path) else self.of_compute_unit(root, "lds_size_kb", path)

    def of_compute_unit(self, root: Component, key: str, path: str) -> int:
        """The setting of the tree's compute units that stands for a device's field that is not given."""
        settings = {component.config.get(key) for component in root.walk() if component.kind == "compute_unit"}
        value = settings.pop()
        if settings or value is None or not value.isdecimal() or not 0 < int(value) <= MAX_LDS_KB:
            self.fail(path, f"is missing, and the compute units of topology.root have no {key} that could stand for it")
        return int(value)

    def wave_size(self, target: str) -> int:
        path = "vm.gpu.device.wave_front_size"
        if not self.given(path):
            return 64 if target.startswith("gfx9") else 32
        size = self.number(path)
        if size not in (32, 64):
            self.fail(path, f"must be 32 or 64, not {size}")
        return size

    def threads(self) -> ThreadRequest:
        entries = self.value("thread_allocations")
        if not isinstance(entries, list):
            self.fail("thread_allocations", f"must be a list, not {entries!r}")
        return ThreadRequest(
            num_threads=self.optional("num_threads"),
            cpu_dispatch_threads=self.optional("cpu_dispatch_threads"),
            async_helper_threads=self.helpers(),
            table=tuple(self.allocation(f"thread_allocations[{index}]") for index in range(len(entries))),
        )

    def allocation(self, path: str) -> ThreadAllocation:
        """An entry of the table; E and D are 1 where they are left out, H is 0."""
        keys = ("num_threads", "cpu_dispatch_threads")
        engines, dispatch = (self.number(f"{path}.{key}") if self.given(f"{path}.{key}") else 1 for key in keys)
        helpers = f"{path}.async_helper_threads"
        return ThreadAllocation(
            engines, dispatch, self.number(helpers, least=0, most=MAX_HELPERS) if self.given(helpers) else 0
        )

    def helpers(self) -> int | None:
        """async_helper_threads: -1 leaves the choice to the table, as None does."""
        path = "async_helper_threads"
        number = self.number(path, least=-1, most=MAX_HELPERS) if self.given(path) else -1
        return None if number == -1 else number
