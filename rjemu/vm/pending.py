"""Launches that a restored machine has not gone on with yet."""

from __future__ import annotations

from dataclasses import dataclass

from rjemu.exec.suspended import SuspendedDispatch
from rjemu.vm.launch import LaunchMemory, PackedLaunch


@dataclass
class PendingLaunch:
    """A launch that was under way, whose memory is set up. taken: it goes on, or has ended."""

    launch: PackedLaunch
    memory: LaunchMemory
    suspended: SuspendedDispatch
    taken: bool = False
