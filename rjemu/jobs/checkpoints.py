"""When a job's checkpoints are written: periodically, and once more when it shall end early."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgpack

from rjemu.checkpoint.format import MAGIC
from rjemu.errors import CannotSuspend, CheckpointError, JobError, JobInterrupted, UsageError
from rjemu.jobs.files import check_writable
from rjemu.jobs.interruption import Interruption
from rjemu.jobs.listener import JobListener
from rjemu.jobs.report import SaveTally

_MAGIC_BYTES = msgpack.packb([MAGIC, 0])[: len(msgpack.packb(MAGIC)) + 1]

Write = Callable[[bool, SaveTally], None]
"""Saves the machine and the job, the tally of checkpoints with this one included; if the first argument is true, what is
being launched ends with that."""


class Checkpoints:
    """The checkpoints of a job in one process. The thread that runs the job writes them all, where it looks: between
    launches, buffers and outputs, and in launches' progress callbacks. So machine and state never contradict each other."""

    def __init__(
        self, path: Path, every: float | None, interruption: Interruption, write: Write, listener: JobListener
    ) -> None:
        self.path = path
        self.tally = SaveTally()
        self.seconds = 0.0
        """Spent on them in this process."""
        self.stopped: str | None = None
        """Why the job ends, once its last checkpoint is written."""
        self._every = every
        self._interruption = interruption
        self._write = write
        self._listener = listener
        self._due = None if every is None else time.monotonic() + every
        self._launch_goes_on = False
        """The launch under way cannot be suspended."""

    def look(self) -> None:
        """Write one if it is time for that. JobInterrupted after the last one, JobError if that cannot be written."""
        self._launch_goes_on = False
        self.look_in_launch()
        if self.stopped is not None:
            raise JobInterrupted(f"interrupted by {self.stopped}: rjemu resume {self.path} goes on")

    def look_in_launch(self) -> None:
        """The same in a launch's progress callback: after the last checkpoint the launch ends with LaunchSuspended."""
        if self.stopped is not None:
            return
        reason = self._interruption.reason
        if self._launch_goes_on or (reason is None and (self._due is None or time.monotonic() < self._due)):
            return
        try:
            self.save(stop=reason is not None)
        except CannotSuspend:
            self._launch_goes_on = True
            self._listener.warn("this launch cannot be suspended: a checkpoint is written when it has ended")
            return
        except CheckpointError as error:
            if reason is not None:
                raise JobError(
                    f"interrupted by {reason}, but no checkpoint could be written: {error}{self._left()}"
                ) from error
            self._listener.warn(f"no checkpoint was written: {error}; the job goes on{self._left()}")
        self.stopped = reason
        self._due = None if self._every is None else time.monotonic() + self._every

    def save(self, *, stop: bool) -> None:
        """Write one now. CheckpointError if that fails."""
        started = time.perf_counter()
        counted = replace(self.tally, count=self.tally.count + 1)
        try:
            self._write(stop, counted)
        finally:
            seconds = time.perf_counter() - started
            self.seconds += seconds
        nbytes = self.path.stat().st_size if self.path.exists() else 0  # somebody may have taken it away
        self.tally = replace(counted, timed=counted.timed + 1, seconds=counted.seconds + seconds, last_bytes=nbytes)
        self._listener.note(f"checkpoint {self.path}: {nbytes / 1e6:.1f} MB in {seconds:.2f} s")

    def _left(self) -> str:
        """For messages: what there is instead."""
        return "; the checkpoint written before is still there" if self.tally.count and self.path.exists() else ""


def remove_leftovers(path: Path) -> None:
    """Remove what processes have left that were killed while they wrote this checkpoint: each may be as large as it is."""
    parts = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    for entry in path.parent.iterdir():
        if parts.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def check_checkpoint_place(path: Path) -> None:
    """UsageError if no checkpoint can be written there, or a file of another kind would be lost."""
    check_writable(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC_BYTES))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    if start and start != _MAGIC_BYTES:
        raise UsageError(f"{path} is no checkpoint: it would be lost")
