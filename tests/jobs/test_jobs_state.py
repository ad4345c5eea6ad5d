"""What a checkpoint holds of a job: the same after reading it back; an error, never a traceback, if it was changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from support.batch_jobs import make_job

import rjemu
from rjemu.checkpoint.info import read_request
from rjemu.checkpoint.restore import restore
from rjemu.cli.main import main
from rjemu.errors import CheckpointError, JobInterrupted
from rjemu.jobs import JobOptions, load_job, run_job
from rjemu.jobs.report import Part
from rjemu.jobs.state import read_state

ODD = [None, True, -1, 1.5, 1 << 63, float("nan"), "text", b"bytes", [], {}, [None], {"a": None}, "rjemu job", [[]]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a job that has done some of everything."""
    folder = tmp_path_factory.mktemp("job")
    job = load_job(make_job(folder)).with_changes(workers="inline", plugins={"throughput": {}})
    limit = 0.2
    while True:
        try:
            run_job(job, checkpoint=folder / "saved", options=JobOptions(every=0.05, time_limit=limit, report=folder / "r"))
        except JobInterrupted:
            data = read_request(folder / "saved")[1]
            if data["launched"] >= 2 and data["under_way"] is not None:
                return folder / "saved"
        limit *= 1.2


@pytest.fixture(scope="module")
def data(saved: Path) -> Any:
    return read_request(saved)[1]


def ended(data: Any) -> Any:
    """The data of the job when all launches and some outputs are done."""
    out = copy.deepcopy(data)
    out["launched"], out["under_way"] = 6, None
    template = next(entry for entry in out["dispatches"] if entry["launch_seconds"])
    for entry, launches in zip(out["dispatches"], (2, 2, 1, 1), strict=True):
        entry |= copy.deepcopy(template) | {"launch_seconds": [0.5] * launches}
    comparison = {"elements": 4, "mismatches": 1, "first_mismatch": [0], "max_absolute": 0.5, "max_relative": 0.25}
    out["outputs"] = [{"file": "/c.npy", "comparison": comparison}, {"file": None, "comparison": comparison}]
    return out


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested lists and dicts; the job file's own contents only at their top."""
    if path:
        yield path
    if path == ("job",):
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    out = copy.deepcopy(data)
    parent = out
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return out


def again(data: Any) -> Any:
    """As a file gives it back."""
    return msgpack.unpackb(msgpack.packb(data), strict_map_key=True)


def test_it_is_the_same_when_it_has_been_read(data: Any, saved: Path) -> None:
    for given in (data, ended(data)):
        state = read_state(given, saved)
        *before, part = state.parts
        state.parts = before
        assert again(state.as_data(part, state.under_way, state.plugins)) == given | {
            "outputs": [
                {**entry, "file": str(output.file)}
                for entry, output in zip(given["outputs"], state.job.outputs, strict=False)
            ]
        }


def test_every_changed_value_is_accepted_or_an_error(data: Any, saved: Path) -> None:
    refused = 0
    for given in (data, ended(data)):
        for path in places(given):
            for value in (*ODD, ...):
                try:
                    state = read_state(changed(given, path, value), saved)
                except CheckpointError as error:
                    refused += 1
                    assert str(error).startswith(str(saved))
                else:
                    json.dumps([report.stats for report in state.dispatch_reports()])
                    msgpack.packb(state.as_data(Part("host", 0.0, 0.0, "lost"), None, state.plugins))
    assert refused > 500


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "the job in it has version 2; this rjemu reads versions 1 to 1"),
        (("file",), "job.toml", "which is no absolute path"),
        (("job", "dispatches"), [], "dispatches is missing"),
        (("launched",), 9, "launched is 9, expected 0 to 6"),
        (("under_way",), None, "1 launches are under way, which is not what the job says"),
        (("arrays", "c"), 4096, "buffer 'c' is not in the machine"),
        (("modules", 0), 4096, "gemm.o' is not in the machine"),
        (("arrays",), {"a": 4096}, "not all buffers and code objects are there"),
        (("dispatches", 0, "launch_seconds"), [], "the times of"),
    ],
)
def test_what_does_not_fit_is_one_line(
    data: Any, saved: Path, path: tuple[Any, ...], value: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way, from a file whose checksums are right."""
    wrong = saved.with_name("wrong")
    with restore(saved, workers="inline") as gpu:
        gpu.save(wrong, data=changed(data, path, value))
    assert main(["resume", str(wrong)]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_a_kernel_that_is_not_the_jobs_is_refused(data: Any, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The launch under way is one of another code object."""
    wrong = saved.with_name("wrong")
    with restore(saved, workers="inline") as gpu:
        assert isinstance(gpu, rjemu.Machine)
        gpu.save(wrong, data={**data, "modules": data["modules"][::-1]})
    assert main(["resume", str(wrong)]) == 2
    assert "is under way where" in capsys.readouterr().err
