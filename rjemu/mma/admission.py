"""Whether giving matrix instructions to helpers can win, and how many of a group each helper gets. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_

from rjemu.shm.scoreboard import JOB_MMAS

MAX_JOBS = JOB_MMAS
LEAST_GAIN = 0.15
"""The part of a group's time that must be won, or it is not worth the disturbance."""

_ISSUER_NS = 120.0
"""What a job costs its issuer beside the handoff itself: scoreboard and plan."""
_OPERAND_TRIPS = 0.18
"""What it costs the issuer, in round trips of a handoff, that a helper reads a vector register which it has just written and
will write again: four cache lines there, and back."""
_COPY_NS_PER_KB = 8.0
"""What a helper needs to save what the registers held."""
_SPARE_TIME = 0.6
"""What counts of a helper's time where it is not known what follows: more often than not, its results are needed only some
time after the issuer is through with the group."""


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
    """nanoseconds: of one execution on this host; result_bytes: of its result; operands: the vector registers that it reads
    and that are written anew before each execution, as a set."""

    nanoseconds: float
    result_bytes: int
    operands: int = 0

    @property
    def on_helper(self) -> float:
        return self.nanoseconds + self.result_bytes / 1024 * _COPY_NS_PER_KB


def shares(costs: Sequence[MmaCost], handoff: HandoffCost, following: float = 0.0) -> list[tuple[int, ...]]:
    """How many of a group's instructions, from the first on, each of 1, 2, ... helpers gets; the issuer keeps the rest, and
    always the last. Ends where a further helper gains nothing; empty if even one does not win enough. following: the
    nanoseconds that the issuer then goes on with other matrix instructions, whatever it has given away."""
    limit = longest = sum(cost.nanoseconds for cost in costs) * (1 - LEAST_GAIN) + following
    out: list[tuple[int, ...]] = []
    for helpers in range(1, min(MAX_JOBS, len(costs) - 1) + 1):
        splits = [_split(given, helpers) for given in range(helpers, len(costs))]
        timed = []
        for split in splits:
            own, others = _times(costs, split, handoff)
            if following:
                others += handoff.publish / 2  # until it has been joined, and the next job is there
            # Even where all results are needed at once, nothing may take longer than it would without helpers.
            if max(split) <= JOB_MMAS and max(own + following, others) <= longest:
                timed.append((max(own + following, others if following else _SPARE_TIME * others), split))
        best = min(timed, default=None)
        if best is None or best[0] > limit:
            break
        out.append(best[1])
        limit = (best[0] - following) * (1 - LEAST_GAIN) + following
    return out


def _split(given: int, helpers: int) -> tuple[int, ...]:
    """So many instructions for so many helpers, about as many each."""
    ends = [given * job // helpers for job in range(helpers + 1)]
    return tuple(end - start for start, end in pairwise(ends))


def _times(costs: Sequence[MmaCost], split: Sequence[int], handoff: HandoffCost) -> tuple[float, float]:
    """When the issuer, and when the last helper is through, in nanoseconds: helpers start one after another as their jobs
    are published."""
    ends = []
    first = 0
    own = 0.0
    for count in split:
        given = costs[first : first + count]
        operands = reduce(or_, (cost.operands for cost in given)).bit_count() * _OPERAND_TRIPS * handoff.round_trip
        ends.append(own + handoff.round_trip + operands / 2 + sum(cost.on_helper for cost in given))
        own += handoff.publish + operands
        first += count
    return own + sum(cost.nanoseconds for cost in costs[first:]), max(ends)
