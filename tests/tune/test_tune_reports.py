"""Samples from what `rjemu run --report` and earlier experiments have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rjemu.config import ThreadAllocation
from rjemu.errors import UsageError
from rjemu.examples.gemm.run import Problem, export
from rjemu.jobs import JobOptions, load_job, run_job
from rjemu.tune import record
from rjemu.tune.candidates import Candidate
from rjemu.tune.record import Experiment
from rjemu.tune.reports import read_below, read_report
from rjemu.tune.results import Sample

ONE = Sample(Candidate(1, ThreadAllocation(1, 1)), 2.0, 0.5, "a")
TWO = Sample(Candidate(2, ThreadAllocation(1, 2)), 1.0, 0.25, "b", interrupted=True)


def report(**changes: Any) -> dict[str, Any]:
    """What is read of a report, as TWO."""
    dispatch = {"seconds": 0.5, "stats": {"compile_seconds": 0.125}}
    return {
        "job": "/jobs/job.toml",
        "status": "done",
        "error": None,
        "configuration": {"resolved": {"gpus": 1}},
        "host": {"name": "b"},
        "allocation": {"budget": 2, "engines": 1, "dispatch": 2, "helpers": 0},
        "interruptions": 3,
        "dispatches": [dispatch, dispatch],
        **changes,
    }


def test_parts_in_folders_below_are_read_and_the_last_merge_is_not(tmp_path: Path) -> None:
    for name in ("x", "y/z", "w"):
        (tmp_path / name).mkdir(parents=True)
    record.write(Experiment("/jobs/job.toml", 1, (ONE,)), tmp_path / "x")
    (tmp_path / "y" / "z" / "report.json").write_text(json.dumps(report()))
    (tmp_path / "w" / "report.json").write_text(json.dumps(report(status="interrupted")))
    for _ in range(2):
        experiments, unfinished = read_below(tmp_path)
        assert unfinished == 1
        merged = record.merge(experiments)
        assert merged == Experiment("/jobs/job.toml", 1, (ONE, TWO))
        record.write(merged, tmp_path)


def test_a_report_of_a_real_run(tmp_path: Path) -> None:
    export(Problem.random(128), tmp_path)
    job = load_job(tmp_path / "job.toml").with_changes(cpu_thread_budget=3, num_threads=2, cpu_dispatch_threads=1)
    done = run_job(job, options=JobOptions(report=tmp_path / "report.json"))
    found = read_report(tmp_path / "report.json")
    assert found is not None
    (sample,) = found.samples
    assert (found.job, found.gpus) == (str((tmp_path / "job.toml").resolve()), 1)
    assert sample.candidate == Candidate(3, ThreadAllocation(2, 1, 0))
    assert sample.seconds == done.dispatches[0].seconds > sample.compile_seconds > 0
    assert not sample.interrupted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "mismatch"}, "did not succeed .mismatch: a wrong output"),
        ({"status": "failed", "error": "out of range"}, "did not succeed .failed: out of range"),
        ({"allocation": {"budget": 2, "engines": 0, "dispatch": 0, "helpers": 0}}, "in the launching process alone"),
        ({"allocation": {"budget": 2}}, "is no report of a job"),
        ({"dispatches": None}, "is no report of a job"),
    ],
)
def test_reports_without_a_sample_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report(**changes)))
    with pytest.raises(UsageError, match=message):
        read_report(path)
