"""Configurations: what a machine consists of, and on how many processes it runs."""

from rjemu.config.machine import MachineConfig, load_config
from rjemu.config.source import preset_names
from rjemu.config.threads import ThreadAllocation, resolve_execution_threads

__all__ = ["MachineConfig", "ThreadAllocation", "load_config", "preset_names", "resolve_execution_threads"]
