"""Counting executed instructions: what the native loops' counting variants write down, and what is read from it.

Instructions run in straight lines. A loop writes down where one begins and where it ends, in a number for each record: that
of a line's first record becomes 1 more, that of the record after its last one 1 less. The running sum is then how often each
was executed. This touches memory only at jumps and at the ends of turns. Each process has the numbers for itself and for one
dispatch at a time.
"""

from __future__ import annotations

import ctypes

import numpy as np

from rjemu.exec.ir import Ptr
from rjemu.exec.layout import PROGRAM, RECORD_BYTES, RECORD_HANDLER
from rjemu.exec.program import SENTINELS
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value


class Counters:
    """The numbers of the programs that one process knows, by the programs' indices."""

    def __init__(self) -> None:
        self._programs: dict[int, tuple[int, np.ndarray, np.ndarray]] = {}

    def set_program(self, index: int, records: int, base: int, nbytes: int) -> int:
        """Program `index`: host address of its records, GPU address and bytes of its code, 0 bytes for no program. The host
        address of its numbers, all zero; 0 for no program."""
        self._programs.pop(index, None)
        if not nbytes:
            return 0
        rows = nbytes // 4 + SENTINELS
        memory = (ctypes.c_uint8 * (rows * RECORD_BYTES)).from_address(records)
        handlers = np.ctypeslib.as_array(memory).view(np.uint32).reshape(rows, -1)[:, RECORD_HANDLER // 4]
        changes = np.zeros(rows, np.int64)
        self._programs[index] = base, handlers, changes
        return changes.ctypes.data

    def executed(self) -> dict[int, np.ndarray]:
        """GPU address of each code range of which something has been executed -> int64 [dwords]: how often each instruction
        has been since `clear`."""
        out = {}
        for base, handlers, changes in self._programs.values():
            if changes.any():
                # The dwords of an instruction after its first have no record of their own.
                counts = np.cumsum(changes) * (handlers != 0)
                out[base] = counts[:-SENTINELS]
        return out

    def clear(self) -> None:
        for _, _, changes in self._programs.values():
            changes.fill(0)


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
