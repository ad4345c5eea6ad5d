"""What a job file says, checked, before anything runs. Paths are relative to the job file's folder."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from rjemu.config import preset_names
from rjemu.errors import UsageError
from rjemu.jobs.arguments import Argument, parse_arguments
from rjemu.jobs.buffers import Buffer, parse_buffer
from rjemu.jobs.files import ArrayFile
from rjemu.jobs.table import Table
from rjemu.vm.executor import Workers

MAX_FILE_BYTES = 16 << 20
DEFAULT_RTOL, DEFAULT_ATOL = 1e-5, 1e-8
EXECUTORS = ("native", "reference")
JOB_KEYS = ("code", "config", "executor", "workers", "repeat", "buffers", "dispatches", "outputs", "output_dir")
"""The keys at the top of a job file that are no fields of a configuration."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch, so many times in a row. code: the code object that the kernel is in. `kernarg` lists the segment's values,
    for objects without metadata; else `args`. timeout: seconds of each."""

    kernel: str
    code: Path
    grid: Sequence[int] | None
    global_size: Sequence[int] | None
    block: Sequence[int] | None
    lds_bytes: int
    args: tuple[Argument, ...] | None
    kernarg: tuple[Argument, ...] | None
    timeout: float | None
    repeat: int


@dataclass(frozen=True, slots=True)
class Output:
    """What to do with a buffer in the end: save it to `file`, compare it with what `expect` holds."""

    buffer: str
    file: Path | None
    expect: ArrayFile | None
    rtol: float
    atol: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A whole job. config and overrides are `rjemu.config.load_config`'s, executor and workers `Machine`'s. The dispatches
    are run in order, all of them `repeat` times. data: the file's contents, with changes."""

    file: Path
    config: str | Path | Mapping[str, Any]
    overrides: Mapping[str, Any]
    executor: str
    workers: Workers
    buffers: tuple[Buffer, ...]
    dispatches: tuple[Dispatch, ...]
    outputs: tuple[Output, ...]
    repeat: int
    data: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def codes(self) -> list[Path]:
        """The code objects, in the order in which they are needed."""
        return list(dict.fromkeys(dispatch.code for dispatch in self.dispatches))

    @property
    def launches(self) -> int:
        """How many launches there are, with all repetitions."""
        return self.repeat * sum(dispatch.repeat for dispatch in self.dispatches)

    def dispatch_of(self, launch: int) -> int:
        """The index of the dispatch that a launch, numbered from 0 on, belongs to."""
        ends = list(accumulate(dispatch.repeat for dispatch in self.dispatches))
        return bisect_right(ends, launch % ends[-1])

    def with_changes(self, **changes: Any) -> Job:
        """The job with other values of keys at the top level of its file: `config`, `workers`, `repeat`, or fields of a
        configuration."""
        return parse_job(self.file, {**self.data, **changes})


def load_job(path: Path) -> Job:
    """Reads a job file; UsageError says which key of it is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)  # it may be a pipe, but not one without end
        if len(content) > MAX_FILE_BYTES:
            raise UsageError(f"{path}: more than {MAX_FILE_BYTES} bytes are no job file")
        data = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: its tables are nested too deeply") from error
    except ValueError as error:  # no TOML, no UTF-8, a number of more digits than Python converts
        raise UsageError(f"{path}: {error}") from error
    return parse_job(path, data)


def parse_job(file: Path, data: Mapping[str, Any]) -> Job:
    """The job that a file with these contents says. UsageError as `load_job`."""
    table = Table(file, "", data)
    code = table.path("code")
    config = _config(table)
    executor = table.take("executor", str, default=EXECUTORS[0])
    if executor not in EXECUTORS:
        table.fail(f"executor must be {' or '.join(map(repr, EXECUTORS))}, not {executor!r}")
    workers = _workers(table)
    repeat = _repeat(table)
    buffers = tuple(parse_buffer(entry) for entry in table.tables("buffers"))
    names = {buffer.name for buffer in buffers}
    if len(names) != len(buffers):
        table.fail("two buffers have the same name")
    dispatches = tuple(_dispatch(entry, code, names) for entry in table.tables("dispatches"))
    if not dispatches:
        table.fail("dispatches is missing")
    folder = table.path("output_dir") or file.parent
    outputs = tuple(_output(entry, names, folder) for entry in table.tables("outputs"))
    overrides = _with_sinks_in(file.parent, table.rest())
    return Job(file, config, overrides, executor, workers, buffers, dispatches, outputs, repeat, data)


def _with_sinks_in(folder: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The fields of the configuration, where plugins' files lie in the job file's folder like all others."""
    sinks = overrides.get("sinks")
    if not isinstance(sinks, Mapping) or not isinstance(sinks.get("dir"), str):
        return overrides
    return {**overrides, "sinks": {**sinks, "dir": str((folder / sinks["dir"]).absolute())}}


def _config(table: Table) -> str | Path | Mapping[str, Any]:
    value = table.take("config", str, dict, default="gfx950_mi355x")
    if isinstance(value, str) and value not in preset_names() and (table.file.parent / value).exists():
        return table.file.parent / value
    return value


def _workers(table: Table) -> Workers:
    """ "auto", "inline", "1/2" or [1, 2]."""
    value = table.take("workers", str, list, default="auto")
    if value in ("auto", "inline"):
        return None if value == "auto" else value
    parts = value.split("/") if isinstance(value, str) else value
    try:
        engines, dispatch = (int(part) for part in parts)
    except (ValueError, TypeError):
        table.fail(f"workers must be 'auto', 'inline' or two numbers, as in '1/2', not {value!r}")
    if min(engines, dispatch) < 1:
        table.fail(f"workers must be at least '1/1', not {value!r}")
    return engines, dispatch


def _repeat(table: Table) -> int:
    repeat: int = table.take("repeat", int, default=1)
    if repeat < 1:
        table.fail(f"repeat must be at least 1, not {repeat}")
    return repeat


def _dispatch(table: Table, code: Path | None, buffers: set[str]) -> Dispatch:
    kernel = table.require("kernel", str)
    table.place = f"{table.place} ({kernel})"
    own_code = table.path("code") or code
    if own_code is None:
        table.fail("code is missing, here and at the top of the file")
    dispatch = Dispatch(
        kernel=kernel,
        code=own_code,
        grid=table.extent("grid"),
        global_size=table.extent("global_size"),
        block=table.extent("block"),
        lds_bytes=table.take("lds_bytes", int, default=0),
        args=parse_arguments(table, "args", buffers),
        kernarg=parse_arguments(table, "kernarg", buffers),
        timeout=table.take("timeout", int, float),
        repeat=_repeat(table),
    )
    table.finish()
    return dispatch


def _output(table: Table, buffers: set[str], folder: Path) -> Output:
    buffer = table.require("buffer", str)
    table.place = f"{table.place} ({buffer})"
    if buffer not in buffers:
        table.fail(f"there is no buffer {buffer!r}")
    file = table.take("file", str)
    output = Output(
        buffer=buffer,
        file=None if file is None else folder / file,
        expect=_expect(table),
        rtol=table.take("rtol", int, float, default=DEFAULT_RTOL),
        atol=table.take("atol", int, float, default=DEFAULT_ATOL),
        exact=table.take("exact", bool, default=False),
    )
    table.finish()
    if output.file is None and output.expect is None:
        table.fail("needs a file to write, or an expect to compare with")
    return output


def _expect(table: Table) -> ArrayFile | None:
    path, key = table.path("expect"), table.take("expect_key", str)
    if path is None:
        if key is not None:
            table.fail("expect_key names an array of an .npz file: expect is missing")
        return None
    expect = ArrayFile(path, key=key)
    if key is not None and not expect.is_npz:
        table.fail("expect_key names an array of an .npz file")
    return expect
