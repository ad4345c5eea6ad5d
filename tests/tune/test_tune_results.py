"""Medians, the best of each budget, the configuration made of them, and the file that keeps it all."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rjemu.config import ThreadAllocation, load_config, resolve_execution_threads
from rjemu.errors import UsageError
from rjemu.tune import record
from rjemu.tune.candidates import Candidate
from rjemu.tune.record import Experiment
from rjemu.tune.results import Row, Sample, allocation_table, as_configuration, summarise

PRESET = "gfx950_mi355x"

allocations = st.builds(ThreadAllocation, st.integers(1, 8), st.integers(1, 32), st.integers(0, 4))


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Samples of candidates that fit their budgets, with many equal times."""
    found = []
    for allocation in draw(st.lists(allocations, min_size=1, max_size=12)):
        budget = allocation.total(1) + draw(st.integers(0, 6))
        for seconds in draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)):
            found.append(Sample(Candidate(budget, allocation), seconds / 4, 0.0, "here"))
    return draw(st.permutations(found))


def row_of(rows: list[Row], candidate: Candidate) -> Row:
    (row,) = [row for row in rows if row.candidate == candidate]
    return row


@settings(deadline=None)
@given(samples())
def test_a_row_sums_up_the_samples_of_a_candidate(found: list[Sample]) -> None:
    rows = summarise(found, 1)
    assert sum(row.samples for row in rows) == len(found)
    for row in rows:
        seconds = [sample.seconds for sample in found if sample.candidate == row.candidate]
        assert (row.samples, row.low, row.high) == (len(seconds), min(seconds), max(seconds))
        assert row.median == statistics.median(seconds)


@settings(deadline=None)
@given(samples())
def test_one_row_of_each_budget_is_the_best(found: list[Sample]) -> None:
    rows = summarise(found, 1)
    for budget in {row.candidate.budget for row in rows}:
        rivals = [row for row in rows if row.candidate.budget == budget]
        (best,) = [row for row in rivals if row.best]
        assert best.median == min(row.median for row in rivals)
        equal = [row for row in rivals if row.median == best.median]
        assert best.candidate.allocation.total(1) == min(row.candidate.allocation.total(1) for row in equal)


@settings(deadline=None)
@given(samples())
def test_the_policy_resolves_to_the_entries_of_the_table(found: list[Sample]) -> None:
    rows = summarise(found, 1)
    table = allocation_table(rows, 1)
    budgets = sorted({row.candidate.budget for row in rows})
    config = load_config(PRESET, **as_configuration(table))
    resolved = {budget: resolve_execution_threads(config.threads, config.execution_topology, budget) for budget in budgets}
    assert resolved[budgets[0]] == table[0]
    assert row_of(rows, Candidate(budgets[0], table[0])).best
    assert set(resolved.values()) == set(table)
    totals = [entry.total(1) for entry in table]
    assert totals == sorted(set(totals))


def test_an_entry_for_every_budget_where_more_processes_pay() -> None:
    rows = summarise(
        [
            Sample(Candidate(budget, ThreadAllocation(*allocation)), seconds, 0.0, "here")
            for budget, allocation, seconds in [
                (1, (1, 1, 0), 8.0),
                (2, (1, 2, 0), 4.5),
                (2, (2, 1, 0), 5.0),
                (4, (1, 4, 0), 4.6),  # slower than two processes: budget 4 keeps to them
                (4, (1, 2, 0), 4.4),
                (8, (2, 7, 0), 2.0),
                (8, (2, 5, 2), 1.5),
            ]
        ],
        1,
    )
    assert [row.candidate.allocation for row in rows if row.best] == [
        ThreadAllocation(1, 1),
        ThreadAllocation(1, 2),
        ThreadAllocation(1, 2),
        ThreadAllocation(2, 5, 2),
    ]
    table = allocation_table(rows, 1)
    assert table == [ThreadAllocation(1, 1), ThreadAllocation(1, 2), ThreadAllocation(2, 5, 2)]
    assert as_configuration(table[2:]) == {
        "thread_allocations": [{"num_threads": 2, "cpu_dispatch_threads": 5, "async_helper_threads": 2}]
    }
    config = load_config(PRESET, **as_configuration(table))
    resolved = [resolve_execution_threads(config.threads, config.execution_topology, n) for n in (1, 2, 4, 7, 8, 48)]
    assert resolved == [table[0], table[1], table[1], table[1], table[2], table[2]]


def test_an_allocation_that_would_fit_a_smaller_budget_does_not_take_that_over() -> None:
    candidates = {(4, (1, 2)): 5.0, (8, (1, 3)): 2.0, (8, (1, 6)): 3.0}
    rows = summarise(
        [
            Sample(Candidate(budget, ThreadAllocation(*pair)), seconds, 0, "")
            for (budget, pair), seconds in candidates.items()
        ],
        1,
    )
    assert allocation_table(rows, 1) == [ThreadAllocation(1, 2), ThreadAllocation(1, 6)]


@settings(deadline=None)
@given(samples())
def test_the_record_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: list[Sample]) -> None:
    folder = tmp_path_factory.getbasetemp()
    experiment = Experiment("/jobs/job.toml", 1, tuple(found))
    assert record.read(record.write(experiment, folder)) == experiment
    document = json.loads((folder / "tune.json").read_text())
    assert document["thread_allocations"] == as_configuration(experiment.table)["thread_allocations"]
    assert sum(row["samples"] for row in document["rows"]) == len(found)


def test_nothing_and_different_jobs_cannot_be_merged() -> None:
    with pytest.raises(UsageError, match="no samples"):
        record.merge([])
    sample = Sample(Candidate(1, ThreadAllocation(1, 1)), 2.0, 0.5, "a")
    experiment = Experiment("job.toml", 1, (sample,))
    for change in ({"job": "other.toml"}, {"gpus": 2}):
        with pytest.raises(UsageError, match="different jobs"):
            record.merge([experiment, dataclasses.replace(experiment, **change)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[]", "no record of a budget experiment"),
        ('{"version": 9}', "version 9 is not known"),
        ('{"version": 1, "job": "x", "gpus": 1, "samples": [{"budget": 1}]}', "no record of a budget experiment"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tune.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        record.read(path)
