"""Plugins: observers of dispatches (docs/plugins.md)."""

from __future__ import annotations

from rjemu.plugins.contract import (
    Dispatch,
    MemoryAccess,
    Outcome,
    Plugin,
    RegisterAccess,
    Step,
    WaitCounters,
    Wave,
)
from rjemu.plugins.executed import Executed
from rjemu.plugins.issue import AsyncIssue
from rjemu.plugins.schema import REQUIRED, Setting
from rjemu.plugins.shared_wave import IssuedWave
from rjemu.plugins.sinks import Sink

__all__ = [
    "REQUIRED",
    "AsyncIssue",
    "Dispatch",
    "Executed",
    "IssuedWave",
    "MemoryAccess",
    "Outcome",
    "Plugin",
    "RegisterAccess",
    "Setting",
    "Sink",
    "Step",
    "WaitCounters",
    "Wave",
]
