"""The accesses that later ones may race with, dword by dword of a memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rjemu.plugins.contract import Step
from rjemu.plugins.ordering import Actor


@dataclass(slots=True, eq=False)
class Touch:
    """An access of one lane to one dword. time: of the wave's clock; covered: the dword's bytes, bit b for byte b; value:
    these bytes after a write, in place."""

    actor: Actor
    time: int
    step: Step
    lane: int | None
    covered: int
    writes: bool
    atomic: bool
    value: int = 0


@dataclass(slots=True)
class _Cell:
    """written: writes that no later one has replaced; read: each wave's last read since the last write that it is ordered
    before."""

    written: list[Touch] = field(default_factory=list)
    read: dict[int, Touch] = field(default_factory=dict)


_BYTE_VALUES = [sum(0xFF << 8 * b for b in range(4) if covered >> b & 1) for covered in range(16)]


class Shadow:
    """Memory in which accesses of different waves, or of different workgroups, must be ordered."""

    def __init__(self, *, between_workgroups: bool) -> None:
        self._between_workgroups = between_workgroups
        self._cells: dict[int, _Cell] = {}

    def touch(self, dword: int, new: Touch) -> Iterator[Touch]:
        """Enter an access to dword number `dword`; gives the earlier ones that it races with."""
        cell = self._cells.get(dword)
        if cell is None:
            cell = self._cells[dword] = _Cell()
        for old in cell.written:
            if self._races(old, new):
                yield old
        if not new.writes:
            known = cell.read.get(new.actor.number)
            if known is not None and known.time == new.time:
                new.covered |= known.covered
            cell.read[new.actor.number] = new
            return
        for old in cell.read.values():
            if self._races(old, new):
                yield old
        cell.read = {number: old for number, old in cell.read.items() if old.covered & ~new.covered}
        cell.written = [old for old in cell.written if old.covered & ~new.covered]
        cell.written.append(new)

    def _races(self, old: Touch, new: Touch) -> bool:
        """Not ordered, not both atomic, and not the same bytes written twice."""
        common = old.covered & new.covered
        if not common or (old.atomic and new.atomic) or self._same_party(old.actor, new.actor):
            return False
        if new.actor.is_after(old.actor, old.time):
            return False
        mask = _BYTE_VALUES[common]
        return not (old.writes and new.writes and old.value & mask == new.value & mask)

    def _same_party(self, a: Actor, b: Actor) -> bool:
        return a is b or (self._between_workgroups and a.workgroup == b.workgroup)
