"""Machine configurations: rocJITsu's JSON files and the built-in presets."""

from rjemu.config.machine import MachineConfig, load_config, preset_names

__all__ = ["MachineConfig", "load_config", "preset_names"]
