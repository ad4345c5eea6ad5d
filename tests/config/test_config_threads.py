"""The thread policy, against the tables of the design and its rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.config import ThreadAllocation, load_config, preset_names, resolve_execution_threads
from rjemu.config.threads import MAX_HELPERS, ExecutionTopology, ThreadRequest
from rjemu.errors import ConfigError

# shared/design.md, section 6: budget -> engines/dispatch/helpers.
CDNA34 = {1: (1, 1), 2: (1, 2), 4: (2, 3), 8: (2, 7), 16: (8, 9), 24: (8, 17), 32: (8, 25)}
CDNA5 = {**CDNA34, 4: (1, 4)}
ONE_ENGINE = {1: (1, 1), 2: (1, 2), 4: (1, 4), 8: (1, 8), 16: (1, 16), 24: (1, 16), 32: (1, 32)}
HELPERS = {34: (8, 25, 2), 36: (8, 25, 4), 40: (8, 25, 8), 48: (8, 25, 16)}
TABLES = {
    "gfx950_mi355x": {**CDNA34, **HELPERS},
    "gfx950_mi355x_kmd": {**CDNA34, **HELPERS},
    "gfx942_cdna3": {**CDNA34, 48: (8, 25)},
    "gfx942_cdna3_kmd": {**CDNA34, 48: (8, 25)},
    "gfx1250_mi455x": {**CDNA5, **HELPERS},
    "gfx90a_mi210_kmd": {**ONE_ENGINE, 48: (1, 32)},
    "gfx1100_w7900": {**ONE_ENGINE, 48: (1, 32)},
    "gfx1151": {**ONE_ENGINE, 48: (1, 32)},
    "gfx1201_r9700": {**ONE_ENGINE, 48: (1, 32)},
}
# rocJITsu's configuration.md: dispatch widths of its multi-GPU presets at these budgets, with one engine.
GRANULES = {1: (1, 1), 2: (1, 1), 4: (2, 1), 8: (4, 2), 16: (8, 4), 24: (12, 6), 32: (16, 8)}

ROWS = [(name, budget, row) for name, table in TABLES.items() for budget, row in table.items()]


def resolve(name: str, budget: int, **overrides: int) -> ThreadAllocation:
    config = load_config(name, **overrides)
    return resolve_execution_threads(config.threads, config.execution_topology, budget)


@pytest.mark.parametrize(("name", "budget", "row"), ROWS)
def test_the_designs_tables(name: str, budget: int, row: tuple[int, ...]) -> None:
    chosen = resolve(name, budget)
    assert chosen == ThreadAllocation(*row)
    assert chosen.total(1) <= budget


def test_every_preset_is_in_a_table() -> None:
    assert {name for name in preset_names() if not name.endswith("gpu")} == set(TABLES)


@pytest.mark.parametrize(("budget", "between"), [(3, 2), (5, 4), (12, 8), (23, 16), (31, 24), (33, 32), (47, 40), (500, 48)])
def test_between_entries_the_lower_one(budget: int, between: int) -> None:
    assert resolve("gfx950_mi355x", budget) == resolve("gfx950_mi355x", between)


@pytest.mark.parametrize("budget", GRANULES)
def test_several_gpus(budget: int) -> None:
    for name, socs, column in (("gfx950_mi355x_kmd_2gpu", 2, 0), ("gfx1250_mi455x_kmd_4gpu", 4, 1)):
        assert resolve(name, budget) == ThreadAllocation(1, 1, 0)
        chosen = resolve(name, budget, cpu_dispatch_threads=0)
        assert chosen == ThreadAllocation(1, GRANULES[budget][column], 0)
        assert chosen.total(socs) <= max(budget, 1)


def test_several_gpus_keep_what_is_explicit() -> None:
    assert resolve("gfx950_mi355x_kmd_2gpu", 16, num_threads=4) == ThreadAllocation(4, 1, 0)
    assert resolve("gfx950_mi355x_kmd_2gpu", 16, cpu_dispatch_threads=3) == ThreadAllocation(1, 3, 0)
    assert resolve("gfx950_mi355x_kmd_2gpu", 16, num_threads=4, cpu_dispatch_threads=0) == ThreadAllocation(4, 7, 0)
    assert resolve("gfx950_mi355x_kmd_2gpu", 16, num_threads=99) == ThreadAllocation(16, 1, 0)
    helpers = resolve("gfx950_mi355x_kmd_2gpu", 16, cpu_dispatch_threads=0, async_helper_threads=5)
    assert helpers == ThreadAllocation(1, 6, 5)


def test_several_gpus_with_a_table_pay_for_each_pool() -> None:
    table = (ThreadAllocation(1, 1), ThreadAllocation(1, 3), ThreadAllocation(2, 5))
    topology = ExecutionTopology(2, 8, 32)
    for budget, wanted in ((4, table[0]), (5, table[1]), (9, table[1]), (10, table[2])):
        assert resolve_execution_threads(ThreadRequest(table=table), topology, budget) == wanted
        assert resolve_execution_threads(ThreadRequest(None, 0, None, table), topology, budget) == wanted


TOPOLOGY = ExecutionTopology(1, 8, 32)


def test_later_entries_win_ties() -> None:
    table = (ThreadAllocation(4, 5), ThreadAllocation(8, 1), ThreadAllocation(1, 8), ThreadAllocation(2, 2, 2))
    assert resolve_execution_threads(ThreadRequest(table=table), TOPOLOGY, 8) == ThreadAllocation(1, 8)
    assert resolve_execution_threads(ThreadRequest(table=table[:2]), TOPOLOGY, 8) == ThreadAllocation(8, 1)
    clamped = (ThreadAllocation(8, 2), ThreadAllocation(64, 2))
    assert resolve_execution_threads(ThreadRequest(table=clamped), TOPOLOGY, 9) == ThreadAllocation(8, 2)


@pytest.mark.parametrize(
    ("request_", "budget", "wanted"),
    [
        (ThreadRequest(), 48, (1, 1, 0)),
        (ThreadRequest(0, 0, 0), 48, (1, 1, 0)),
        (ThreadRequest(3), 1, (3, 1, 0)),
        (ThreadRequest(None, 40), 1, (1, 32, 0)),
        (ThreadRequest(100, 100, 100), 1, (8, 32, 100)),
        (ThreadRequest(None, None, 2), 2, (1, 1, 2)),
    ],
)
def test_without_a_table(request_: ThreadRequest, budget: int, wanted: tuple[int, ...]) -> None:
    assert resolve_execution_threads(request_, TOPOLOGY, budget) == ThreadAllocation(*wanted)


@pytest.mark.parametrize(
    ("overrides", "budget", "wanted"),
    [
        # what is given is kept, and the rest fills what it leaves
        ({"num_threads": 4}, 16, (4, 9, 0)),
        ({"num_threads": 1}, 8, (1, 7, 0)),
        ({"num_threads": 8}, 2, (8, 1, 0)),
        ({"cpu_dispatch_threads": 1}, 8, (8, 1, 0)),
        ({"async_helper_threads": 1}, 2, (1, 1, 1)),
        ({"async_helper_threads": 1}, 5, (2, 3, 1)),
        ({"async_helper_threads": 0}, 48, (8, 25, 0)),
        ({"async_helper_threads": 40}, 8, (1, 1, 40)),
        ({"num_threads": 3, "cpu_dispatch_threads": 20, "async_helper_threads": 7}, 1, (3, 20, 7)),
        ({"num_threads": 99}, 48, (8, 25, 16)),
    ],
)
def test_explicit_values(overrides: dict[str, int], budget: int, wanted: tuple[int, ...]) -> None:
    assert resolve("gfx950_mi355x", budget, **overrides) == ThreadAllocation(*wanted)


def test_more_helpers_than_there_can_be() -> None:
    assert resolve("gfx950_mi355x", 1, async_helper_threads=MAX_HELPERS) == ThreadAllocation(1, 1, MAX_HELPERS)
    with pytest.raises(ConfigError, match="async_helper_threads must be at most 128, not 129"):
        resolve("gfx950_mi355x", 1, async_helper_threads=129)
    with pytest.raises(ConfigError, match=r"thread_allocations\[0\]\.async_helper_threads must be at most 128, not 500"):
        load_config("gfx950_mi355x", thread_allocations=[{"async_helper_threads": 500}])


@pytest.mark.parametrize("automatic", [{"async_helper_threads": -1}, {"num_threads": 0}, {"cpu_dispatch_threads": 0}])
def test_automatic_values_are_as_none(automatic: dict[str, int]) -> None:
    for budget in (1, 5, 32, 48):
        assert resolve("gfx950_mi355x", budget, **automatic) == resolve("gfx950_mi355x", budget)


counts = st.integers(1, 40)
allocations = st.builds(ThreadAllocation, counts, counts, st.integers(0, 20))
topologies = st.builds(ExecutionTopology, st.integers(1, 4), st.integers(1, 8), counts)
asked = st.one_of(st.none(), st.integers(0, 40))


@given(st.builds(ThreadRequest, asked, asked, asked, st.lists(allocations, max_size=6)), topologies, st.integers(1, 80))
def test_properties(request_: ThreadRequest, topology: ExecutionTopology, budget: int) -> None:
    chosen = resolve_execution_threads(request_, topology, budget)
    socs = topology.socs
    assert 1 <= chosen.num_threads <= socs * topology.xcds
    assert 1 <= chosen.cpu_dispatch_threads <= topology.cus_per_xcd
    assert chosen.async_helper_threads >= 0
    if request_.num_threads:
        assert chosen.num_threads == min(request_.num_threads, socs * topology.xcds)
    if request_.cpu_dispatch_threads:
        assert chosen.cpu_dispatch_threads == min(request_.cpu_dispatch_threads, topology.cus_per_xcd)
    if request_.async_helper_threads is not None:
        assert chosen.async_helper_threads == request_.async_helper_threads
    explicit = ThreadRequest(request_.num_threads, request_.cpu_dispatch_threads or 1, request_.async_helper_threads)
    least = resolve_execution_threads(explicit, topology, 0)
    assert chosen.total(socs) <= max(budget, least.total(socs))
    assert chosen.total(socs) <= resolve_execution_threads(request_, topology, budget + 1).total(socs)


@given(st.builds(ThreadRequest, asked, asked, asked, st.lists(allocations, max_size=6)), topologies, st.integers(1, 80))
def test_no_entry_that_fits_is_larger_or_later(request_: ThreadRequest, topology: ExecutionTopology, budget: int) -> None:
    """Every entry alone, as a table of one, against the choice from the whole table."""
    socs = topology.socs
    alone = [
        resolve_execution_threads(replace(request_, table=[entry]), topology, 10**6) for entry in request_.table
    ]  # the budget fits: as it is with what is explicit, and clamped
    fitting = [entry for entry in alone if entry.total(socs) <= budget]
    if fitting:
        largest = max(entry.total(socs) for entry in fitting)
        chosen = resolve_execution_threads(request_, topology, budget)
        assert chosen == [entry for entry in fitting if entry.total(socs) == largest][-1]
