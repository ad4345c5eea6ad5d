"""How far a job is: what a checkpoint holds of it beside its machine, as plain values and back with every value checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rjemu.checkpoint.contents import MAX_LONG, number, numbers, value
from rjemu.errors import CheckpointError, UsageError
from rjemu.jobs.compare import Comparison
from rjemu.jobs.outputs import OutputReport
from rjemu.jobs.report import DispatchReport, Part, PluginLines, SaveTally, joined_stats
from rjemu.jobs.spec import Job, parse_job

KIND = "rjemu job"
VERSION = 1

LOST = "lost"
"""What ended a part that a periodic checkpoint was the last of."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job's command asked for, and `rjemu resume` goes by unless it is told otherwise. every, time_limit: seconds;
    keep_checkpoint: also when the job has ended; report: a file, absolute."""

    every: float | None = None
    time_limit: float | None = None
    keep_checkpoint: bool = False
    report: Path | None = None


@dataclass
class Tally:
    """What the launches of a dispatch have given so far: `DispatchReport`."""

    launch_seconds: list[float] = field(default_factory=list)
    wave_instructions: int = 0
    interruptions: int = 0
    stats: dict[str, Any] = field(default_factory=dict)

    def add(self, seconds: float, wave_instructions: int, stats: Mapping[str, Any]) -> None:
        """A launch has ended."""
        self.launch_seconds.append(seconds)
        self.wave_instructions += wave_instructions
        self.stats = joined_stats(self.stats, stats)


@dataclass
class JobState:
    """A job under way.

    arrays: GPU addresses of the buffers that have been loaded, by name; modules: those of `job.codes`, as far as they have
    been loaded. launched: launches that have ended; under_way: seconds that the next one has taken in processes before this
    one, None if it has not begun. outputs: those that are finished. parts: of the job, before this process. saves, plugins:
    before this process.
    """

    job: Job
    options: JobOptions = field(default_factory=JobOptions)
    arrays: dict[str, int] = field(default_factory=dict)
    modules: list[int] = field(default_factory=list)
    launched: int = 0
    under_way: float | None = None
    tallies: list[Tally] = field(default_factory=list)
    outputs: list[OutputReport] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    saves: SaveTally = field(default_factory=SaveTally)
    plugins: dict[str, PluginLines] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tallies = self.tallies or [Tally() for _ in self.job.dispatches]

    def dispatch_reports(self) -> tuple[DispatchReport, ...]:
        return tuple(
            DispatchReport(
                dispatch.kernel,
                dispatch.code,
                tuple(tally.launch_seconds),
                tally.wave_instructions,
                tally.interruptions,
                tally.stats,
            )
            for dispatch, tally in zip(self.job.dispatches, self.tallies, strict=True)
        )

    def as_data(self, part: Part, under_way: float | None, plugins: Mapping[str, PluginLines]) -> dict[str, Any]:
        """What a checkpoint's `data` is. part: this process's, so far; under_way: as of now; plugins: all so far."""
        return {
            "kind": KIND,
            "version": VERSION,
            "file": str(self.job.file.absolute()),
            "job": dict(self.job.data),
            "options": {
                "every": self.options.every,
                "time_limit": self.options.time_limit,
                "keep_checkpoint": self.options.keep_checkpoint,
                "report": None if self.options.report is None else str(self.options.report.absolute()),
            },
            "arrays": self.arrays,
            "modules": self.modules,
            "launched": self.launched,
            "under_way": under_way,
            "dispatches": [asdict(tally) for tally in self.tallies],
            "outputs": [_output_data(output) for output in self.outputs],
            "parts": [asdict(entry) for entry in (*self.parts, part)],
            "saves": asdict(self.saves),
            "plugins": {name: [found.count, list(found.lines)] for name, found in plugins.items()},
        }


def _output_data(output: OutputReport) -> dict[str, Any]:
    found = output.comparison
    comparison = None
    if found is not None:
        first = None if found.first_mismatch is None else list(found.first_mismatch)
        comparison = {**asdict(found), "first_mismatch": first}
    return {"file": None if output.file is None else str(output.file.absolute()), "comparison": comparison}


def is_job(data: Any) -> bool:
    """Whether a checkpoint's data says that it is a job's."""
    return isinstance(data, Mapping) and data.get("kind") == KIND


def read_state(data: Any, path: Path) -> JobState:
    """The job of a checkpoint. CheckpointError if its data is not a job's, or cannot be."""
    if not is_job(data):
        raise CheckpointError(f"{path} is no job's checkpoint, but another program's: rjemu.restore reads it")
    version = data.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise CheckpointError(f"{path}: the job in it has version {version!r}; this rjemu reads versions 1 to {VERSION}")
    try:
        return _state(data)
    except (ValueError, UsageError) as problem:
        raise CheckpointError(f"{path}: the job in it is damaged: {problem}") from None


def _state(data: Mapping[str, Any]) -> JobState:
    file = Path(value(data, "file", str))
    if not file.is_absolute():
        raise ValueError(f"file is {str(file)!r}, which is no absolute path")
    job = parse_job(file, value(data, "job", dict))
    state = JobState(
        job=job,
        options=_options(value(data, "options", dict)),
        arrays=_arrays(data, [buffer.name for buffer in job.buffers]),
        modules=list(numbers(data, "modules", MAX_LONG)),
        launched=number(data, "launched", job.launches),
        under_way=_seconds(data, "under_way"),
        tallies=[_tally(entry) for entry in value(data, "dispatches", list)],
        outputs=_outputs(data, job),
        parts=[_part(entry) for entry in value(data, "parts", list)],
        saves=_saves(value(data, "saves", dict)),
        plugins={_text(name): _plugin_lines(entry) for name, entry in value(data, "plugins", dict).items()},
    )
    _check_consistent(state)
    return state


def _check_consistent(state: JobState) -> None:
    job = state.job
    addresses = [*state.arrays.values(), *state.modules]
    if len(set(addresses)) != len(addresses):
        raise ValueError("two arrays or modules are at the same address")
    if len(state.modules) > len(job.codes):
        raise ValueError(f"{len(state.modules)} modules are loaded, the job has {len(job.codes)}")
    loaded = len(state.arrays) == len(job.buffers) and len(state.modules) == len(job.codes)
    begun = state.launched > 0 or state.under_way is not None
    if begun and not loaded:
        raise ValueError("launches have begun, but not all buffers and code objects are there")
    ended = state.launched == job.launches
    if ended and state.under_way is not None:
        raise ValueError("a launch is under way after the last one")
    if state.outputs and not ended:
        raise ValueError("outputs are finished before the launches are")
    if len(state.tallies) != len(job.dispatches):
        raise ValueError(f"{len(state.tallies)} dispatches are counted, the job has {len(job.dispatches)}")
    if sum(len(tally.launch_seconds) for tally in state.tallies) != state.launched:
        raise ValueError(f"the times of {state.launched} launches are not there")


def _options(data: Mapping[str, Any]) -> JobOptions:
    report = data.get("report")
    return JobOptions(
        _seconds(data, "every"),
        _seconds(data, "time_limit"),
        value(data, "keep_checkpoint", bool),
        None if report is None else Path(value(data, "report", str)),
    )


def _arrays(data: Mapping[str, Any], names: list[str]) -> dict[str, int]:
    """Addresses of the first ones of these buffers, which are loaded in order."""
    found = value(data, "arrays", dict)
    if list(found) != names[: len(found)]:
        raise ValueError(f"arrays are {', '.join(map(str, found))}, the job has {', '.join(names)}")
    return {name: number(found, name) for name in found}


def _real(data: Any, key: str, *, least: float = 0.0) -> float:
    found = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(found, int | float) or isinstance(found, bool) or not least <= found:
        raise ValueError(f"{key} is {found!r}, expected a number of at least {least:g}")
    return float(found)


def _seconds(data: Mapping[str, Any], key: str) -> float | None:
    return None if data.get(key) is None else _real(data, key)


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError(f"{found!r} is no text")
    return found


def _tally(data: Any) -> Tally:
    times = value(data, "launch_seconds", list)
    if not all(type(entry) in (int, float) and entry >= 0 for entry in times):
        raise ValueError("launch_seconds must hold numbers")
    stats = value(data, "stats", dict)
    return Tally(
        [float(entry) for entry in times],
        number(data, "wave_instructions"),
        number(data, "interruptions"),
        _stats(stats) if stats else {},
    )


def _stats(data: Mapping[str, Any]) -> dict[str, Any]:
    """`launch_stats`, joined ones too."""
    allocation = value(data, "allocation", dict)
    workers = [
        {
            "worker": value(entry, "worker", str),
            "cpu": None if entry.get("cpu") is None else number(entry, "cpu"),
            "workgroups": number(entry, "workgroups"),
            "wave_instructions": number(entry, "wave_instructions"),
            "busy_seconds": _real(entry, "busy_seconds"),
            "idle_seconds": _real(entry, "idle_seconds"),
        }
        for entry in value(data, "workers", list)
    ]
    asynchronous = data.get("async")
    return {
        "allocation": {name: number(allocation, name) for name in ("engines", "dispatch", "helpers")},
        "workers": workers,
        "handlers_compiled": number(data, "handlers_compiled"),
        "compile_seconds": _real(data, "compile_seconds"),
        "async": None
        if asynchronous is None
        else {_text(name): _number_of(entry) for name, entry in value(data, "async", dict).items()},
    }


def _number_of(found: Any) -> int | float:
    if type(found) not in (int, float):
        raise ValueError(f"{found!r} is no number")
    number_found: int | float = found
    return number_found


def _outputs(data: Mapping[str, Any], job: Job) -> list[OutputReport]:
    entries = value(data, "outputs", list)
    if len(entries) > len(job.outputs):
        raise ValueError(f"{len(entries)} outputs are finished, the job has {len(job.outputs)}")
    reports = []
    for output, entry in zip(job.outputs, entries, strict=False):
        comparison = None if output.expect is None else _comparison(value(entry, "comparison", dict))
        reports.append(OutputReport(output.buffer, output.file, comparison))
    return reports


def _comparison(data: Mapping[str, Any]) -> Comparison:
    first = None if data.get("first_mismatch") is None else numbers(data, "first_mismatch")
    return Comparison(
        number(data, "elements"),
        number(data, "mismatches"),
        first,
        _real(data, "max_absolute"),
        _real(data, "max_relative"),
    )


def _part(data: Any) -> Part:
    ended_by = value(data, "ended_by", str)
    return Part(value(data, "host", str), _real(data, "started"), _real(data, "seconds"), ended_by)


def _saves(data: Mapping[str, Any]) -> SaveTally:
    return SaveTally(number(data, "count"), number(data, "timed"), _real(data, "seconds"), number(data, "last_bytes"))


def _plugin_lines(data: Any) -> PluginLines:
    if not isinstance(data, list) or len(data) != 2 or type(data[0]) is not int or not isinstance(data[1], list):
        raise ValueError("a plugin's lines are a number and a list")
    return PluginLines(data[0], tuple(_text(line) for line in data[1]))
