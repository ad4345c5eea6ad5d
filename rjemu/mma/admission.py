"""Whether giving matrix instructions to helpers can win, and how many of a group each helper gets. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rjemu.shm.scoreboard import JOB_MMAS

MAX_JOBS = JOB_MMAS
NEIGHBOURHOOD = 4096
"""Hosts fetch what lies near, up to a page of memory: results of one such block are best computed in one place."""
LEAST_GAIN = 0.15
"""The part of a group's time that must be won, or it is not worth the disturbance."""

_ISSUER_NS = 120.0
"""What a job costs its issuer beside the handoff itself: scoreboard, plan, and caches that helpers read from."""
_COPY_NS_PER_KB = 8.0
"""What a helper needs to copy its results to the registers."""
_SPARE_TIME = 0.6
"""What counts of a helper's time: more often than not, its results are needed only some time after the issuer is through
with the group."""


@dataclass(frozen=True, slots=True)
class HandoffCost:
    """What a handoff costs on this host, in nanoseconds. round_trip: an empty job, from its publication to its being
    joined; publish: the issuer's part, with the entry in the scoreboard and its removal."""

    round_trip: float
    publish: float

    @classmethod
    def of(cls, round_trip: float) -> HandoffCost:
        """From the measured round trip."""
        return cls(round_trip, round_trip + _ISSUER_NS)


TYPICAL_HANDOFF = HandoffCost.of(300.0)
"""Assumed until it has been measured."""


@dataclass(frozen=True, slots=True)
class MmaCost:
    """nanoseconds: of one execution on this host; result_bytes: of its result, which lies `place` bytes into the wave."""

    nanoseconds: float
    result_bytes: int
    place: int

    @property
    def on_helper(self) -> float:
        return self.nanoseconds + self.result_bytes / 1024 * _COPY_NS_PER_KB


def shares(costs: Sequence[MmaCost], handoff: HandoffCost) -> list[tuple[int, ...]]:
    """How many of a group's instructions, from the first on, each of 1, 2, ... helpers gets; the issuer keeps the rest, and
    always the last. Ends where a further helper gains nothing; empty if even one does not win enough."""
    blocks = [cost.place // NEIGHBOURHOOD for cost in costs]
    cuts = [k for k in range(1, len(costs)) if blocks[k] != blocks[k - 1]]
    # Even where all results are needed at once, nothing may take longer than it would without helpers.
    limit = longest = sum(cost.nanoseconds for cost in costs) * (1 - LEAST_GAIN)
    out: list[tuple[int, ...]] = []
    for helpers in range(1, min(MAX_JOBS, len(cuts)) + 1):
        splits = {split for given in cuts if (split := _split(given, helpers, cuts)) and max(split) <= JOB_MMAS}
        times = ((*_times(costs, split, handoff), split) for split in splits)
        winning = [(max(own, _SPARE_TIME * others), split) for own, others, split in times if max(own, others) <= longest]
        timed = min(winning, default=None)
        if timed is None or timed[0] > limit:
            break
        out.append(timed[1])
        limit = timed[0] * (1 - LEAST_GAIN)
    return out


def _split(given: int, helpers: int, cuts: Sequence[int]) -> tuple[int, ...]:
    """So many instructions for so many helpers, about as many each, cut where that is allowed; empty if it cannot be."""
    ends = [min((k for k in cuts if k <= given), key=lambda k: abs(k - given * j / helpers)) for j in range(1, helpers + 1)]
    counts = tuple(end - start for start, end in zip([0, *ends], ends, strict=False))
    return counts if min(counts) > 0 else ()


def _times(costs: Sequence[MmaCost], split: Sequence[int], handoff: HandoffCost) -> tuple[float, float]:
    """When the issuer, and when the last helper is through, in nanoseconds: helpers start one after another as their jobs
    are published."""
    ends = []
    first = 0
    for job, count in enumerate(split):
        started = job * handoff.publish + handoff.round_trip
        ends.append(started + sum(cost.on_helper for cost in costs[first : first + count]))
        first += count
    return len(split) * handoff.publish + sum(cost.nanoseconds for cost in costs[first:]), max(ends)
