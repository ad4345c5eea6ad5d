"""What a job did: its dispatches, outputs, checkpoints and plugins, and all of that as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rjemu.jobs.files import write_text
from rjemu.jobs.outputs import OutputReport

_LATEST = frozenset({"helpers", "handoff_nanoseconds"})
"""Statistics of helpers that are no sums."""


@dataclass(frozen=True, slots=True)
class DispatchReport:
    """A dispatch's launches so far. launch_seconds: wall time of each, without that of checkpoints; wave_instructions: of
    all; interruptions: how often one was interrupted and gone on with; stats: `rjemu.exec.dispatch.launch_stats` of all,
    joined, of those interrupted since they went on last."""

    kernel: str
    code: Path
    launch_seconds: tuple[float, ...]
    wave_instructions: int
    interruptions: int
    stats: dict[str, Any]

    @property
    def launches(self) -> int:
        return len(self.launch_seconds)

    @property
    def seconds(self) -> float:
        """Of all launches together."""
        return sum(self.launch_seconds)


@dataclass(frozen=True, slots=True)
class Part:
    """What one process did of a job. started: seconds since the epoch; seconds: until it ended, or wrote the checkpoint that
    the next part began with; ended_by: "SIGTERM", "the time limit", ...; "lost" if it was killed after that checkpoint;
    None for the part that ended the job, or is under way."""

    host: str
    started: float
    seconds: float
    ended_by: str | None


@dataclass(frozen=True, slots=True)
class SaveTally:
    """Checkpoints written: how many; of these the ones whose time is known (not the last one of a process that has ended, as
    it would have to tell itself), and their seconds; bytes of the last one."""

    count: int = 0
    timed: int = 0
    seconds: float = 0.0
    last_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PluginLines:
    """What a plugin wrote: the number of lines, and the first of them."""

    count: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job did. status: "done", "mismatch", "failed" or "interrupted"; error: the message of one that did not end.

    configuration, host, allocation: `rjemu.jobs.host`. parts: one for each process that worked on it.
    """

    job: Path
    status: str
    dispatches: tuple[DispatchReport, ...]
    outputs: tuple[OutputReport, ...]
    error: str | None = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    allocation: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    checkpoints: SaveTally = SaveTally()
    plugins: Mapping[str, PluginLines] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether it ran to its end, and every comparison came out as expected."""
        return self.status == "done"

    def write(self, path: Path) -> None:
        """Write it as JSON. JobError if that fails."""
        write_text(path, json.dumps(self.as_json(), indent=2) + "\n")

    def as_json(self) -> dict[str, Any]:
        """The report as JSON has it (docs/jobs.md)."""
        return {
            "job": str(self.job),
            "status": self.status,
            "succeeded": self.succeeded,
            "error": self.error,
            "configuration": _plain(self.configuration),
            "host": dict(self.host),
            "allocation": dict(self.allocation),
            "seconds": sum(part.seconds for part in self.parts),
            "interruptions": max(len(self.parts) - 1, 0),
            "parts": [asdict(part) for part in self.parts],
            "dispatches": [_dispatch_as_json(dispatch) for dispatch in self.dispatches],
            "outputs": [output_as_json(output) for output in self.outputs],
            "checkpoints": asdict(self.checkpoints),
            "plugins": {
                name: {"lines": found.count, "output": [_parsed(line) for line in found.lines]}
                for name, found in self.plugins.items()
            },
        }


def _dispatch_as_json(dispatch: DispatchReport) -> dict[str, Any]:
    return {
        "kernel": dispatch.kernel,
        "code": str(dispatch.code),
        "launches": dispatch.launches,
        "seconds": dispatch.seconds,
        "launch_seconds": list(dispatch.launch_seconds),
        "wave_instructions": dispatch.wave_instructions,
        "interruptions": dispatch.interruptions,
        "stats": dispatch.stats,
    }


def output_as_json(output: OutputReport) -> dict[str, Any]:
    """The entry of an output; without the keys of a comparison where none was made."""
    entry: dict[str, Any] = {"buffer": output.buffer}
    if output.file is not None:
        entry["file"] = str(output.file)
    if output.comparison is not None:
        entry |= {"matches": output.comparison.matches, **asdict(output.comparison)}
    return entry


def _parsed(line: str) -> Any:
    """A line that a plugin wrote: a JSON object as such, any other as the text that it is."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return value if isinstance(value, dict) else line


def _plain(value: Any) -> Any:
    """A configuration's values as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def joined_stats(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of two launches as those of one: sums, worker by worker; the allocation of the second."""
    if not first:
        return dict(second)
    workers = {entry["worker"]: dict(entry) for entry in first["workers"]}
    for entry in second["workers"]:
        known = workers.setdefault(entry["worker"], {**entry, **dict.fromkeys(_WORKER_SUMS, 0)})
        known |= {"cpu": entry["cpu"], **{name: known[name] + entry[name] for name in _WORKER_SUMS}}
    return {
        "allocation": second["allocation"],
        "workers": list(workers.values()),
        "handlers_compiled": first["handlers_compiled"] + second["handlers_compiled"],
        "compile_seconds": first["compile_seconds"] + second["compile_seconds"],
        "async": _joined_async(first["async"], second["async"]),
    }


_WORKER_SUMS: Sequence[str] = ("workgroups", "wave_instructions", "busy_seconds", "idle_seconds")


def _joined_async(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if first is None or second is None:
        found = second if first is None else first
        return None if found is None else dict(found)
    return {name: second[name] if name in _LATEST else first.get(name, 0) + second[name] for name in second}
