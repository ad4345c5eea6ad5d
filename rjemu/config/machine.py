"""The machine configuration: rocJITsu's JSON, checked, as a dataclass. Presets are the files of `rjemu/config/presets`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rjemu.config.schema import DEVICE_FIELDS, OWN_DEFAULTS, TOP_LEVEL_FIELDS, warn_of_unknown
from rjemu.config.source import Source, read_source
from rjemu.config.threads import ExecutionTopology, ThreadAllocation, ThreadRequest
from rjemu.config.topology import Topology, TopologyError, expand
from rjemu.errors import ConfigError

MAX_DEVICES = 64


@dataclass(frozen=True)
class MachineConfig:
    """What a machine is made of.

    name: preset or file it came from. target: "gfx950", ... devices: GPUs (SoCs). xcds: accelerator dies of each;
    cus_per_xcd: compute units of each of these. simds_per_cu, waves_per_simd: residency limits of a compute unit. wave_size:
    lanes. lds_bytes: per workgroup and compute unit. vram_bytes: memory of each GPU. wave_quantum: instructions of a wave's
    turn among its workgroup's waves. time_slice: wave instructions after which a workgroup makes way for other residents.
    threads: what is asked for of the thread policy; cpu_thread_budget: CPUs to use, None: detected. async_window: limit of
    instructions past the oldest matrix job, None for none. plugins: name -> settings. request: the configuration as it was
    given, with overrides.
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
    threads: ThreadRequest
    cpu_thread_budget: int | None
    async_window: int | None
    plugins: Mapping[str, Any] = field(repr=False)
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
    return _Fields(_with_overrides(given, overrides)).config()


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
        fields = _Fields(Source(source.name, data, source.lines))
        merged = {**fields.object("vm.gpu.device"), **device}
        data["vm"] = {**fields.object("vm"), "gpu": {**fields.object("vm.gpu"), **gpu_fields, "device": merged}}
    replaced = {*top_level, *(f"vm.gpu.{key}" for key in gpu_fields), *(f"vm.gpu.device.{key}" for key in device)}
    return Source(source.name, data, {path: line for path, line in source.lines.items() if path not in replaced})


class _Fields:
    """Typed access to the fields of one configuration by dotted path; a ConfigError names what does not fit."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.fail = source.fail

    def config(self) -> MachineConfig:
        mode = self._source.data.get("exec_mode", "functional")
        if mode == "clocked":
            self.fail("exec_mode", "must be 'functional', not 'clocked': rjemu models no timing")
        topology = self.topology()
        xcds, cus = self.compute_units(topology)
        return MachineConfig(
            name=self._source.name,
            target=self.target(),
            arch=self.text("vm.arch"),
            marketing_name=self.text("vm.gpu.device.marketing_name"),
            devices=self.devices(),
            xcds=xcds,
            cus_per_xcd=cus // xcds,
            simds_per_cu=self.number("vm.gpu.device.simd_per_cu"),
            waves_per_simd=self.number("vm.gpu.device.max_waves_per_simd"),
            wave_size=self.number("vm.gpu.device.wave_front_size"),
            lds_bytes=self.number("vm.gpu.device.lds_size_kb") * 1024,
            vram_bytes=self.number("vm.gpu.device.local_mem_size"),
            wave_quantum=self.number("wave_quantum"),
            time_slice=self.number("time_slice"),
            threads=self.threads(),
            cpu_thread_budget=self.optional("cpu_thread_budget") or None,
            async_window=self.optional("async_window") or None,
            plugins=self.object("plugins") if "plugins" in self._source.data else {},
            topology=topology,
            request=self._source.data,
        )

    def target(self) -> str:
        """gfx950 for 90500: major version, two decimal digits of minor, two of stepping (printed in hexadecimal)."""
        version = self.number("vm.gpu.device.gfx_target_version")
        return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"

    def devices(self) -> int:
        if "num_gpus" not in self.object("vm.gpu"):
            return 1
        devices = self.number("vm.gpu.num_gpus")
        if devices > MAX_DEVICES:
            self.fail("vm.gpu.num_gpus", f"must be at most {MAX_DEVICES}, not {devices}")
        return devices

    def topology(self) -> Topology:
        try:
            return expand(self.object("topology"))
        except TopologyError as error:
            self.fail(f"topology.{error.path}", str(error))

    def compute_units(self, topology: Topology) -> tuple[int, int]:
        """XCDs and compute units of a SoC."""
        xcds = [component for component in topology.root.walk() if component.kind == "xcd"]
        cus = [xcd.count("compute_unit") for xcd in xcds]
        if not cus or 0 in cus or len(set(cus)) > 1:
            found = f"{len(xcds)} xcds" if len(set(cus)) < 2 else f"xcds of {min(cus)} to {max(cus)}"
            self.fail("topology.root", f"must have xcds with the same number of compute units, not {found} compute units")
        return len(xcds), sum(cus)

    def threads(self) -> ThreadRequest:
        entries = self._source.data.get("thread_allocations", [])
        if not isinstance(entries, list):
            self.fail("thread_allocations", f"must be a list, not {entries!r}")
        table = []
        for index in range(len(entries)):
            path = f"thread_allocations[{index}]"
            engines, dispatch = self.number(f"{path}.num_threads"), self.number(f"{path}.cpu_dispatch_threads")
            table.append(ThreadAllocation(engines, dispatch, self.optional(f"{path}.async_helper_threads") or 0))
        return ThreadRequest(
            num_threads=self.optional("num_threads"),
            cpu_dispatch_threads=self.optional("cpu_dispatch_threads"),
            async_helper_threads=self.optional("async_helper_threads"),
            table=tuple(table),
        )

    def number(self, path: str) -> int:
        value = self.value(path)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fail(path, f"must be a positive whole number, not {value!r}")
        return value

    def optional(self, path: str) -> int | None:
        """A whole number from 0 on; None where the field is missing."""
        parent, _, key = path.rpartition(".")
        if key not in (self.object(parent) if parent else self._source.data):
            return None
        value = self.value(path)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.fail(path, f"must be a whole number from 0 on, not {value!r}")
        return value

    def text(self, path: str) -> str:
        value = self.value(path)
        if not isinstance(value, str):
            self.fail(path, f"must be a string, not {value!r}")
        return value

    def object(self, path: str) -> Mapping[str, Any]:
        value = self.value(path)
        if not isinstance(value, Mapping):
            self.fail(path, f"must be an object, not {value!r}")
        return value

    def value(self, path: str) -> Any:
        value: Any = self._source.data
        walked = ""
        for step in path.split("."):
            key, _, index = step.partition("[")
            if not isinstance(value, Mapping):
                self.fail(walked, f"must be an object, not {value!r}")
            walked = f"{walked}.{key}".lstrip(".")
            if key not in value:
                if path in OWN_DEFAULTS:
                    return OWN_DEFAULTS[path]
                self.fail(walked, "is missing")
            value = value[key]
            if index:
                walked += f"[{index}"
                value = value[int(index.rstrip("]"))]
        return value
