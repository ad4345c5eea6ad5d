"""Which budgets and allocations a budget experiment tries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rjemu.config import ThreadAllocation, load_config, preset_names, resolve_execution_threads
from rjemu.config.threads import ExecutionTopology, ThreadRequest
from rjemu.errors import UsageError
from rjemu.tune.candidates import (
    allocation_name,
    default_allocations,
    default_budgets,
    parse_allocation,
    parse_budget,
    plan,
)

topologies = st.builds(ExecutionTopology, st.integers(1, 8), st.integers(1, 8), st.integers(1, 128))
allocations = st.builds(ThreadAllocation, st.integers(1, 16), st.integers(1, 40), st.integers(0, 16))
requests = st.builds(
    ThreadRequest,
    st.none() | st.integers(0, 80),
    st.none() | st.integers(0, 200),
    st.none() | st.integers(0, 128),
    st.lists(allocations, max_size=6),
)


@settings(deadline=None)
@given(requests, topologies, st.integers(1, 1000), st.booleans())
def test_default_allocations_are_few_fit_and_hold_the_policys(
    request: ThreadRequest, topology: ExecutionTopology, budget: int, helpers: bool
) -> None:
    found = default_allocations(request, topology, budget, helpers=helpers)
    assert 1 <= len(found) <= 6
    assert len(set(found)) == len(found)
    policy = resolve_execution_threads(request, topology, budget)
    assert (policy in found) == (policy.total(topology.socs) <= budget)
    for allocation in found:
        assert allocation.total(topology.socs) <= budget
        assert 1 <= allocation.num_threads <= topology.socs * topology.xcds
        assert 1 <= allocation.cpu_dispatch_threads <= topology.cus_per_xcd
        assert 0 <= allocation.async_helper_threads <= (128 if helpers or allocation == policy else 0)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1, "1/1/0"),
        (2, "1/2/0 2/1/0 1/1/1"),
        (4, "2/3/0 1/4/0 4/1/0 2/2/1 2/1/2"),
        (8, "2/7/0 1/8/0 8/1/0 2/5/2 2/3/4"),
        (16, "8/9/0 1/16/0 8/5/4 8/1/8"),
    ],
)
def test_default_allocations_of_the_mi355x(budget: int, expected: str) -> None:
    config = load_config("gfx950_mi355x")
    found = default_allocations(config.threads, config.execution_topology, budget, helpers=True)
    assert " ".join(map(allocation_name, found)) == expected


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_plan(preset: str) -> None:
    config = load_config(preset)
    candidates = plan([16, 1, 4, 4], [], config.threads, config.execution_topology, helpers=False)
    assert sorted({candidate.budget for candidate in candidates}) == [1, 4, 16]
    assert [candidate.budget for candidate in candidates] == sorted(candidate.budget for candidate in candidates)


@settings(deadline=None)
@given(st.integers(1, 10_000))
def test_default_budgets(cpus: int) -> None:
    budgets = default_budgets(cpus)
    assert budgets[0] == 1
    assert budgets[-1] == cpus
    assert all(2 * low >= high > low for low, high in pairwise(budgets))


MI355X = load_config("gfx950_mi355x")


def planned(budgets: list[int], given_allocations: str, *, helpers: bool = True) -> list[str]:
    allocations = [parse_allocation(text) for text in given_allocations.split()]
    candidates = plan(budgets, allocations, MI355X.threads, MI355X.execution_topology, helpers=helpers)
    return [f"{candidate.budget}:{allocation_name(candidate.allocation)}" for candidate in candidates]


def test_given_allocations_run_in_every_budget_that_they_fit() -> None:
    assert planned([4, 1], "1/1 1/2/2 4/1 1/1/0") == ["1:1/1/0", "4:1/1/0", "4:1/2/2", "4:4/1/0"]


@pytest.mark.parametrize(
    ("budgets", "given_allocations", "helpers", "message"),
    [
        ([2, 4], "2/2", True, "fits a budget of 2 CPUs"),
        ([2], "1/1 2/2", True, "allocation 2/2/0 has 3 processes, more than any budget given"),
        ([16], "9/1", True, "at most as many engines"),
        ([64], "1/33", True, "the largest dispatch width"),
        ([4], "1/1/1", False, "helpers have nothing to do"),
    ],
)
def test_what_cannot_be_run_as_given_is_refused(
    budgets: list[int], given_allocations: str, helpers: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        planned(budgets, given_allocations, helpers=helpers)


@settings(deadline=None)
@given(allocations)
def test_names_are_read_back(allocation: ThreadAllocation) -> None:
    assert parse_allocation(allocation_name(allocation)) == allocation


@pytest.mark.parametrize("text", ["", "1", "1/2/3/4", "0/1", "1/0", "1/1/129", "-1/1", "1/x", "1/²", " 1/1"])
def test_texts_that_are_no_allocation(text: str) -> None:
    with pytest.raises(UsageError, match="is no allocation"):
        parse_allocation(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "²"])
def test_texts_that_are_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="is no budget"):
        parse_budget(text)
