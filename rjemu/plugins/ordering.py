"""What happens before what between waves, by vector clocks: barriers and atomics order, nothing else does.

Each wave counts its own synchronisations. Its clock holds, for every wave that it is ordered after, up to which of that
wave's; a wave not in it comes nowhere before. An atomic both publishes what its wave has done and learns what those
before it at the same place have published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rjemu.plugins.contract import Size3

Clock = dict[int, int]


@dataclass(slots=True, eq=False)
class Actor:
    """A wave. number: of the dispatch; clock: by waves' numbers."""

    number: int
    workgroup: Size3
    wave: int
    clock: Clock = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock[self.number] = 1

    @property
    def time(self) -> int:
        return self.clock[self.number]

    def is_after(self, other: Actor, time: int) -> bool:
        """Whether all that the other wave had done by its `time` happens before what this one does now."""
        return self.clock.get(other.number, 0) >= time

    def learn(self, clock: Clock) -> None:
        for number, time in clock.items():
            if self.clock.get(number, 0) < time:
                self.clock[number] = time

    def advance(self) -> None:
        """What the wave does from now on is not published yet."""
        self.clock[self.number] += 1


def meet(actors: Iterable[Actor]) -> None:
    """A barrier: what each has done happens before what all do from now on."""
    together = list(actors)
    common: Clock = {}
    for actor in together:
        for number, time in actor.clock.items():
            if common.get(number, 0) < time:
                common[number] = time
    for actor in together:
        actor.clock = dict(common)
        actor.advance()


class Publications:
    """What atomics have published, by place."""

    def __init__(self) -> None:
        self._clocks: dict[int, Clock] = {}

    def synchronise(self, actor: Actor, places: Iterable[int], *, learns: bool, publishes: bool) -> None:
        """One instruction's atomics at some places."""
        touched = list(places)
        if learns:
            for clock in {id(clock): clock for place in touched if (clock := self._clocks.get(place))}.values():
                actor.learn(clock)
        if publishes:
            snapshot = dict(actor.clock)
            for place in touched:
                earlier = self._clocks.get(place)
                if learns or earlier is None:
                    self._clocks[place] = snapshot
                else:  # a store does not undo what others have published there
                    self._clocks[place] = {n: max(earlier.get(n, 0), snapshot.get(n, 0)) for n in earlier | snapshot}
            actor.advance()
