"""What a job tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass

from rjemu.vm.executor import Progress


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """A launch of a job. dispatch, launch: numbers from 1 on, of so many dispatches of the job file and launches in all."""

    kernel: str
    dispatch: int
    dispatches: int
    launch: int
    launches: int


class JobListener:
    """Hears nothing; subclasses show progress."""

    def launch_begins(self, place: LaunchPlace) -> Progress | None:
        """A launch begins, or goes on; gives what to tell about its workgroups."""
        return None

    def note(self, text: str) -> None:
        """Something that a log should have: a checkpoint was written."""

    def warn(self, text: str) -> None:
        """Something that went wrong while the job goes on."""
