"""The runs of a budget experiment: their order, their CPUs, and what of the job they leave alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rjemu.config import ThreadAllocation
from rjemu.errors import RjemuError, UsageError
from rjemu.examples.gemm.run import Problem, export
from rjemu.jobs import Job, load_job
from rjemu.tune import measure as measure_module
from rjemu.tune.candidates import Candidate
from rjemu.tune.measure import WrongOutput, check_budgets, host_cpus, measure, run_once
from rjemu.workers.affinity import available_cpus, placement

ONE, TWO = Candidate(1, ThreadAllocation(1, 1)), Candidate(2, ThreadAllocation(1, 2))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("gemm")
    export(Problem.random(256), folder)
    return load_job(folder / "job.toml")


def faked(run: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch, *, mismatches: int = 0) -> None:
    """Runs no job, but `run`; reports two dispatches on the allocation that the job asks for."""

    def run_job(job: Job) -> Any:
        run(job)
        names = ("num_threads", "cpu_dispatch_threads", "async_helper_threads")
        allocation = dict(zip(("engines", "dispatch", "helpers"), (job.overrides[name] for name in names), strict=True))
        dispatch = SimpleNamespace(seconds=1.5, stats={"allocation": allocation, "compile_seconds": 0.25})
        comparison = SimpleNamespace(matches=not mismatches, mismatches=mismatches, elements=9, first_mismatch=(3,))
        output = SimpleNamespace(buffer="c", file=None, comparison=comparison)
        return SimpleNamespace(dispatches=(dispatch, dispatch), outputs=(output,))

    monkeypatch.setattr(measure_module, "run_job", run_job)


def test_rounds_take_turns_and_the_first_is_left_out(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = []
    faked(lambda given: budgets.append(given.overrides["cpu_thread_budget"]), monkeypatch)
    begun = []
    rounds = list(measure(job, [ONE, TWO], 3, lambda number, candidate: begun.append((number, candidate))))
    assert budgets == [1, 2] * 4
    assert begun == [(number, candidate) for number in range(4) for candidate in (ONE, TWO)]
    assert [[sample.candidate for sample in samples] for samples in rounds] == [[ONE, TWO]] * 3
    assert {(sample.seconds, sample.compile_seconds) for samples in rounds for sample in samples} == {(3.0, 0.5)}


def test_a_run_has_the_cpus_of_its_budget_and_writes_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    before, order = os.sched_getaffinity(0), placement(available_cpus())
    seen = []

    def run(given: Job) -> None:
        seen.append((os.sched_getaffinity(0), [output.file for output in given.outputs]))

    faked(run, monkeypatch)
    for candidate in (ONE, TWO):
        run_once(job, candidate, order)
    assert seen == [(set(order[:1]), [None]), (set(order[:2]), [None])]
    assert os.sched_getaffinity(0) == before


def test_a_run_that_fails_gives_its_cpus_back(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)

    def run(given: Job) -> None:
        raise RjemuError("out of luck")

    faked(run, monkeypatch)
    with pytest.raises(RjemuError, match="out of luck"):
        run_once(job, ONE, placement(available_cpus()))
    assert os.sched_getaffinity(0) == before


def test_a_wrong_output_ends_the_experiment(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(lambda given: None, monkeypatch, mismatches=2)
    with pytest.raises(WrongOutput, match=r"output c is wrong on 1/2/0 with 2 CPUs: 2 of 9 elements differ, first at \[3\]"):
        list(measure(job, [TWO], 1, lambda number, candidate: None))


def test_the_workers_of_a_real_run_are_confined(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    run_job = measure_module.run_job

    def kept(given: Job) -> Any:
        reports.append(run_job(given))
        return reports[-1]

    monkeypatch.setattr(measure_module, "run_job", kept)
    order = placement(available_cpus())
    sample = run_once(job, Candidate(1, ThreadAllocation(1, 2)), order)
    workers = reports[0].dispatches[0].stats["workers"]
    assert {worker["cpu"] for worker in workers} == {order[0]}
    assert [worker["worker"] for worker in workers] == ["engine 0", "dispatch 1"]
    assert sample.seconds > sample.compile_seconds > 0
    assert not [output.file for output in job.outputs if output.file is not None and output.file.exists()]


def with_plugin(name: str, folder: Path) -> Job:
    """A job whose plugin writes to a file that is there."""
    export(Problem.random(128), folder)
    file = folder / "job.toml"
    sinks = f'{{ types = ["file", "stdout"], dir = "{folder}" }}'
    file.write_text(f"plugins = {{ {name} = {{}} }}\nsinks = {sinks}\n" + file.read_text())
    (folder / f"{name}.log").write_text("precious\n")
    return load_job(file)


def test_a_job_that_keeps_to_one_process_is_refused(tmp_path: Path) -> None:
    job = with_plugin("race", tmp_path)
    with pytest.raises(UsageError, match="the job runs on 0/0/0 in place of 1/2/0"):
        run_once(job, TWO, placement(available_cpus()))


def test_what_plugins_write_disturbs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_once(with_plugin("throughput", tmp_path), ONE, placement(available_cpus()))
    assert (tmp_path / "throughput.log").read_text() == "precious\n"
    assert capsys.readouterr().out == ""


def test_budgets_beyond_the_cpus_are_refused() -> None:
    check_budgets([1, 4, 2], 4)
    with pytest.raises(UsageError, match="a budget of 8 CPUs cannot be measured on the 4"):
        check_budgets([1, 8], 4)


def test_the_hosts_cpus_are_in_the_affinity_mask() -> None:
    assert 1 <= host_cpus() <= len(os.sched_getaffinity(0))
