"""What helpers need of a machine's handlers: the code of the instructions that they may run."""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.journal import Entry, NewBindings, NewClass, NewObject
from rjemu.mma.candidates import Fitness, fitness


class HelperCode:
    """The part of a library's journal that concerns candidates. All helpers are sent the same, in the journal's order;
    objects that only later entries refer to come with these."""

    def __init__(self, library: HandlerLibrary, target: str) -> None:
        self._library = library
        self._target = target
        self._sent: dict[int, Entry] = {}
        self._looked_at = 0

    @property
    def sent(self) -> list[Entry]:
        """What helpers have been sent so far: for a new one."""
        return list(self._sent.values())

    def news(self) -> list[Entry]:
        """What is to be sent now to all that have what has been sent so far."""
        journal = list(self._library.journal)
        if len(journal) == self._looked_at:
            return []
        self._looked_at = len(journal)
        new = {number: entry for number, entry in self._relevant(journal).items() if number not in self._sent}
        self._sent.update(new)
        return list(new.values())

    def _relevant(self, journal: Sequence[Entry]) -> dict[int, Entry]:
        """What of the journal concerns candidates, by place."""
        numbers = {
            number for number, instr in self._library.examples.items() if fitness(instr, self._target) is Fitness.CANDIDATE
        }
        bindings = {
            place: NewBindings(entry.mode_class, {n: symbol for n, symbol in entry.symbols.items() if n in numbers})
            for place, entry in enumerate(journal)
            if isinstance(entry, NewBindings) and numbers.intersection(entry.symbols)
        }
        symbols = {symbol for entry in bindings.values() for symbol in entry.symbols.values()}
        others = {
            place: entry
            for place, entry in enumerate(journal)
            if isinstance(entry, NewClass) or (isinstance(entry, NewObject) and symbols.intersection(entry.names))
        }
        return dict(sorted((bindings | others).items()))
