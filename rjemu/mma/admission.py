"""Whether giving matrix instructions to helpers can win, and how many of a group each helper gets. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rjemu.shm.scoreboard import JOB_MMAS

MAX_JOBS = JOB_MMAS
LEAST_GAIN = 0.05
"""The part of a group's time that must be won, or it is not worth the disturbance."""

_COPY_NS_PER_KB = 8.0
"""What a helper needs to copy its results to the registers."""
_HELPER_RESERVE = 1.1
"""A helper that is not through in time for the next group costs more than one that waits."""


@dataclass(frozen=True, slots=True)
class HandoffCost:
    """What a handoff costs on this host, in nanoseconds. round_trip: an empty job, from its publication to its being
    joined; publish: the issuer's part, with the entry in the scoreboard and its removal."""

    round_trip: float
    publish: float

    @classmethod
    def of(cls, round_trip: float) -> HandoffCost:
        """From the measured round trip."""
        return cls(round_trip, round_trip + 50.0)


TYPICAL_HANDOFF = HandoffCost.of(300.0)
"""Assumed until it has been measured."""


@dataclass(frozen=True, slots=True)
class MmaCost:
    """nanoseconds: of one execution on this host; result_bytes: of its result."""

    nanoseconds: float
    result_bytes: int

    @property
    def on_helper(self) -> float:
        return self.nanoseconds + self.result_bytes / 1024 * _COPY_NS_PER_KB


def shares(costs: Sequence[MmaCost], handoff: HandoffCost) -> list[tuple[int, ...]]:
    """How many of a group's instructions, from the first on, each of 1, 2, ... helpers gets; the issuer keeps the rest, and
    always the last. Ends where a further helper gains nothing; empty if even one does not win enough."""
    best = sum(cost.nanoseconds for cost in costs)
    limit = best * (1 - LEAST_GAIN)
    out: list[tuple[int, ...]] = []
    for helpers in range(1, min(MAX_JOBS, len(costs) - 1) + 1):
        time, split = min(
            (_time(costs, split, handoff), split)
            for split in (_split(given, helpers) for given in range(helpers, len(costs)))
            if max(split) <= JOB_MMAS
        )
        if time > limit:
            break
        out.append(split)
        limit = time * (1 - LEAST_GAIN)
    return out


def _split(given: int, helpers: int) -> tuple[int, ...]:
    """So many instructions for so many helpers, those that start first getting more."""
    whole, rest = divmod(given, helpers)
    return tuple(whole + (k < rest) for k in range(helpers))


def _time(costs: Sequence[MmaCost], split: Sequence[int], handoff: HandoffCost) -> float:
    """When the last of all is through, in nanoseconds: helpers start one after another as their jobs are published."""
    ends = []
    first = 0
    for job, count in enumerate(split):
        started = job * handoff.publish + handoff.round_trip
        ends.append(_HELPER_RESERVE * (started + sum(cost.on_helper for cost in costs[first : first + count])))
        first += count
    return max(*ends, len(split) * handoff.publish + sum(cost.nanoseconds for cost in costs[first:]))
