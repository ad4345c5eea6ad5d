"""The machine configuration: rocJITsu's JSON, checked, as a dataclass.

Field names are rocJITsu's (ROCm/rocm-systems, emulation/rocjitsu/configs), so that its files load unchanged;
`wave_quantum` and `time_slice` are rjemu's own. Presets are the JSON files of `rjemu/config/presets`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from rjemu.config.topology import count_nodes
from rjemu.errors import ConfigError

_PRESETS = resources.files("rjemu.config") / "presets"

_OWN_KEYS = {"wave_quantum": 16, "time_slice": 65536}
_STRUCTURE_KEYS = ("exec_mode", "vm", "topology")
_EXECUTION_KEYS = (
    "max_ticks",
    "num_threads",
    "cpu_dispatch_threads",
    "async_helper_threads",
    "cpu_thread_budget",
    "thread_allocations",
)
"""How long and on how many threads to run: accepted here, as they change no result of a kernel."""

_DEVICE_KEYS = (
    "gfx_target_version",
    "simd_per_cu",
    "max_waves_per_simd",
    "wave_front_size",
    "lds_size_kb",
    "local_mem_size",
)


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """What a machine is made of.

    name: preset or file it came from. target: "gfx950", ... xcds: accelerator dies; cus_per_xcd: compute units of each.
    simds_per_cu, waves_per_simd: residency limits of a compute unit. wave_size: lanes. lds_bytes: per workgroup and
    compute unit. vram_bytes: device memory. wave_quantum: instructions of a wave's turn among its workgroup's waves.
    time_slice: wave instructions after which a workgroup makes way for other resident ones.
    """

    name: str
    target: str
    arch: str
    marketing_name: str
    xcds: int
    cus_per_xcd: int
    simds_per_cu: int
    waves_per_simd: int
    wave_size: int
    lds_bytes: int
    vram_bytes: int
    wave_quantum: int
    time_slice: int
    devices: int = 1

    @property
    def waves_per_cu(self) -> int:
        return self.simds_per_cu * self.waves_per_simd


def preset_names() -> list[str]:
    """The names that `load_config` knows without a file."""
    return sorted(entry.name.removesuffix(".json") for entry in _PRESETS.iterdir() if entry.name.endswith(".json"))


def load_config(source: str | Path | Mapping[str, Any], **overrides: Any) -> MachineConfig:
    """The configuration of a preset name, a JSON file or a parsed dict.

    An override replaces a top-level key or a key of `vm.gpu.device` (`local_mem_size=1 << 30`). ConfigError names the
    file and the field.
    """
    name, data = _read(source)
    return _Fields(name, _with_overrides(name, data, overrides)).config()


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(source, Mapping):
        return "configuration", dict(source)
    name = str(source)
    if name in preset_names():
        text = (_PRESETS / f"{name}.json").read_text()
    else:
        try:
            text = Path(source).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            known = ", ".join(preset_names())
            raise ConfigError(f"no configuration {name!r}: not a preset ({known}), and as a file: {reason}") from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: a JSON object is expected, not {type(data).__name__}")
    return name, data


def _with_overrides(name: str, data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    top_level = (*_OWN_KEYS, *_STRUCTURE_KEYS, *_EXECUTION_KEYS)
    result = {**data, **{key: value for key, value in overrides.items() if key in top_level}}
    device = {key: value for key, value in overrides.items() if key in _DEVICE_KEYS}
    unknown = sorted(set(overrides) - set(top_level) - set(device))
    if unknown:
        raise ConfigError(f"{name}: no field {unknown[0]!r} to override; there are {', '.join((*top_level, *_DEVICE_KEYS))}")
    if device:
        fields = _Fields(name, result)
        gpu = {**fields.object("vm.gpu"), "device": {**fields.object("vm.gpu.device"), **device}}
        result["vm"] = {**fields.object("vm"), "gpu": gpu}
    return result


class _Fields:
    """Typed access to the fields of one configuration by dotted path; a ConfigError names what does not fit."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data

    def config(self) -> MachineConfig:
        known = {*_OWN_KEYS, *_STRUCTURE_KEYS, *_EXECUTION_KEYS}
        for key in self.data:
            if key not in known:
                self.fail(key, f"is no field of a configuration; there are {', '.join(sorted(known))}")
        mode = self.data.get("exec_mode", "functional")
        if mode != "functional":
            self.fail("exec_mode", f"must be 'functional', not {mode!r}: rjemu models no timing")
        xcds, cus = self.compute_units()
        return MachineConfig(
            name=self.name,
            target=self.target(),
            arch=self.text("vm.arch"),
            marketing_name=self.text("vm.gpu.device.marketing_name"),
            xcds=xcds,
            cus_per_xcd=cus // xcds,
            simds_per_cu=self.number("vm.gpu.device.simd_per_cu"),
            waves_per_simd=self.number("vm.gpu.device.max_waves_per_simd"),
            wave_size=self.number("vm.gpu.device.wave_front_size"),
            lds_bytes=self.number("vm.gpu.device.lds_size_kb") * 1024,
            vram_bytes=self.number("vm.gpu.device.local_mem_size"),
            wave_quantum=self.number("wave_quantum"),
            time_slice=self.number("time_slice"),
        )

    def target(self) -> str:
        """gfx950 for 90500: major version, two decimal digits of minor, two of stepping (printed in hexadecimal)."""
        version = self.number("vm.gpu.device.gfx_target_version")
        return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"

    def compute_units(self) -> tuple[int, int]:
        """XCDs and compute units of the whole topology."""
        root = self.object("topology.root")
        try:
            xcds, cus = count_nodes(root, "xcd"), count_nodes(root, "compute_unit")
        except ValueError as error:
            self.fail("topology.root", str(error))
        if xcds == 0 or cus == 0 or cus % xcds:
            self.fail("topology.root", f"must give every xcd the same compute units, not {cus} to {xcds} xcds")
        return xcds, cus

    def number(self, path: str) -> int:
        value = self.value(path)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fail(path, f"must be a positive whole number, not {value!r}")
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
        value: Any = self.data
        walked: list[str] = []
        for key in path.split("."):
            if not isinstance(value, Mapping):
                self.fail(".".join(walked), f"must be an object, not {value!r}")
            walked.append(key)
            if key not in value:
                if path in _OWN_KEYS:
                    return _OWN_KEYS[path]
                self.fail(".".join(walked), "is missing")
            value = value[key]
        return value

    def fail(self, path: str, problem: str) -> NoReturn:
        raise ConfigError(f"{self.name}: {path} {problem}")
