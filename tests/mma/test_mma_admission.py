"""Whether giving matrix instructions away can win."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rjemu.mma.admission import LEAST_GAIN, MAX_JOBS, HandoffCost, MmaCost, shares

CHEAP, DEAR = HandoffCost.of(100.0), HandoffCost.of(3000.0)


def group(nanoseconds: list[float], nbytes: int = 4096) -> list[MmaCost]:
    """Instructions with results of one size."""
    return [MmaCost(cost, nbytes) for cost in nanoseconds]


def test_one_instruction_is_never_given_away() -> None:
    assert shares(group([1e6]), CHEAP) == []


def test_long_instructions_are_shared_evenly() -> None:
    split = shares(group([100_000.0] * 8), CHEAP)
    assert split[0] == (5,)
    assert split[1] == (3, 3)
    assert sum(split[-1]) <= 7


def test_short_instructions_are_kept() -> None:
    assert shares(group([20.0] * 3), CHEAP) == []


def test_dear_handoffs_reject_what_cheap_ones_admit() -> None:
    costs = group([250.0] * 6)
    assert shares(costs, CHEAP)
    assert shares(costs, DEAR) == []


def test_more_is_given_away_where_the_issuer_goes_on() -> None:
    costs = group([200.0] * 9)
    (alone,), (going_on,) = shares(costs, CHEAP)[:1], shares(costs, CHEAP, following=1400.0)[:1]
    assert alone < going_on


def test_operands_that_are_always_new_cost_more_than_those_that_stay() -> None:
    stay = group([400.0] * 4)
    new = [MmaCost(400.0, 4096, 0xFFFF << 16 * k) for k in range(4)]
    assert shares(stay, CHEAP)
    assert shares(new, CHEAP) == []
    shared = [MmaCost(400.0, 4096, 0xF) for _ in range(4)]  # read once for all
    assert shares(shared, CHEAP)
    assert shares([MmaCost(5000.0, 4096, 0xFFFF << 16 * k) for k in range(4)], CHEAP)


COSTS = st.lists(st.floats(20, 5000), min_size=1, max_size=9).map(group)


@given(COSTS, st.floats(50, 5000))
def test_shares_are_prefixes_that_leave_the_last_to_the_issuer(costs: list[MmaCost], round_trip: float) -> None:
    found = shares(costs, HandoffCost.of(round_trip))
    assert len(found) <= MAX_JOBS
    for helpers, split in enumerate(found, 1):
        assert len(split) == helpers
        assert min(split) >= 1
        assert sum(split) < len(costs)


@given(COSTS, st.floats(50, 5000))
def test_an_admitted_group_wins_by_the_model(costs: list[MmaCost], round_trip: float) -> None:
    handoff = HandoffCost.of(round_trip)
    total = sum(cost.nanoseconds for cost in costs)
    for split in shares(costs, handoff)[:1]:
        (given_,) = split
        helper = round_trip + sum(cost.nanoseconds for cost in costs[:given_])
        issuer = handoff.publish + sum(cost.nanoseconds for cost in costs[given_:])
        assert max(helper, issuer) <= total * (1 - LEAST_GAIN)
