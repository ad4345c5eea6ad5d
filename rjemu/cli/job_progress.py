"""How a job's progress is shown: a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rjemu.jobs import JobListener, LaunchPlace
from rjemu.jobs.duration import duration_text
from rjemu.vm.executor import Progress as ProgressCallback

LINE_SECONDS = 30.0
"""Between two lines in a log, unless --progress says otherwise."""


class Display(JobListener):
    """Warnings only. Used as a context manager for the time of the job."""

    def warn(self, text: str) -> None:
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        print(f"rjemu: {text}", file=sys.stderr, flush=True)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leaves what was written as it is."""


class Lines(Display):
    """A line every so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds
        self._first: tuple[int, float] | None = None

    def note(self, text: str) -> None:
        self._print(text)

    def launch_begins(self, place: LaunchPlace) -> ProgressCallback:
        begun = time.monotonic()
        first_launch, first_begun = self._first = self._first or (place.launch, begun)
        first: int | None = None

        def progress(done: int, total: int) -> None:
            nonlocal first
            first = done if first is None else first
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + self._seconds
            text = f"{_title(place)}: {done} of {total} workgroups"
            if done > first:
                text += _pace(done - first, total - done, now - begun, "/s")
            elif place.launch > first_launch:
                text += _pace(place.launch - first_launch, place.launches - place.launch, now - first_begun, " launches/s")
            self._print(text)

        return progress


class Bars(Display):
    """A bar for the launch under way."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("loading", total=None)

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(f"rjemu: {text}", markup=False, highlight=False)

    def launch_begins(self, place: LaunchPlace) -> ProgressCallback:
        self._progress.reset(self._task, total=None, description=_title(place))
        return lambda done, total: self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()


class _Rate(ProgressColumn):
    """Workgroups per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f}/s")


def _title(place: LaunchPlace) -> str:
    """The kernel, and which launch it is where there are several."""
    return place.kernel if place.launches == 1 else f"{place.kernel} (launch {place.launch} of {place.launches})"


def _pace(done: int, left: int, seconds: float, unit: str) -> str:
    """How fast it goes, and how long that takes for what is left."""
    rate = done / max(seconds, 1e-9)
    return f", {rate:.3g}{unit}, about {duration_text(left / rate)} left"


def display(seconds: float | None, quiet: bool) -> Display:
    """What suits standard error. seconds: between lines, if lines are asked for."""
    if quiet:
        return Display()
    if seconds is None and sys.stderr.isatty():
        return Bars()
    return Lines(LINE_SECONDS if seconds is None else seconds)
