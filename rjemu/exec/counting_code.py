"""The counting variants of the native loops: what they add to write executed instructions down (`exec.counting`)."""

from __future__ import annotations

from rjemu.exec.ir import Ptr
from rjemu.exec.layout import PROGRAM
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value


class CountingCode:
    """Writes the counting of one turn into a loop. In loops that do not count (`enabled` False) it writes nothing.

    Records are named by their host addresses (u64).
    """

    def __init__(self, b: Native, program: Ptr, first: Value, *, enabled: bool) -> None:
        """first: the record that the turn begins with."""
        self._enabled = enabled
        if not enabled:
            return
        self._b = b
        # A record's address divided by eight and this make its number's: records are 64 bytes long and aligned.
        records, counters = (b.get(program, PROGRAM, name, "u64") for name in ("records", "counters"))
        self._bias = counters - (records >> 3)
        self._begun = b.variable("u64", first)

    def goes_on(self, end: Value, following: Value) -> None:
        """An instruction has been executed: the record after it, and the one to execute next."""
        if self._enabled:
            with self._b.if_(end != following, rarely=True):
                self.ends(end)
                self._begun.set(following)

    def ends(self, end: Value) -> None:
        """The turn is over: the first record that has not been executed."""
        if self._enabled:
            self._add(self._begun.get(), 1)
            self._add(end, (1 << 64) - 1)

    def _add(self, record: Value, amount: int) -> None:
        place = self._b.address((record >> 3) + self._bias)
        self._b.store_value(place, self._b.load_value(place, "u64") + amount)
