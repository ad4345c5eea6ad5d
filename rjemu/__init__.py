"""rjemu runs AMD GPU machine code on CPU cores: `Machine` is the emulated GPU, `rjemu.errors` what can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rjemu import errors

if TYPE_CHECKING:
    from rjemu.checkpoint.restore import restore as restore
    from rjemu.daemon.client import connect as connect
    from rjemu.exec.dispatch import DispatchResult as DispatchResult
    from rjemu.vm.array import DeviceArray as DeviceArray
    from rjemu.vm.machine import Machine as Machine
    from rjemu.vm.module import LoadedKernel as LoadedKernel
    from rjemu.vm.module import Module as Module

_EXPORTS = {
    "DeviceArray": "rjemu.vm.array",
    "DispatchResult": "rjemu.exec.dispatch",
    "LoadedKernel": "rjemu.vm.module",
    "Machine": "rjemu.vm.machine",
    "Module": "rjemu.vm.module",
    "connect": "rjemu.daemon.client",
    "restore": "rjemu.checkpoint.restore",
}

__all__ = ["DeviceArray", "DispatchResult", "LoadedKernel", "Machine", "Module", "connect", "errors", "restore"]


def __getattr__(name: str) -> Any:
    """Imports on first use: `import rjemu` alone, and every command's `--help`, stay quick."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rjemu' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_EXPORTS[name]), name)
