"""Counting executed instructions: what the native loops' counting variants write down, and what is read from it.

Instructions run in straight lines. A loop writes down where one begins and where it ends, in a number for each record: that
of a line's first record becomes 1 more, that of the record after its last one 1 less. The running sum is then how often each
was executed. This touches memory only at jumps and at the ends of turns. Each process has the numbers for itself and for one
dispatch at a time.
"""

from __future__ import annotations

import ctypes

import numpy as np

from rjemu.exec.layout import RECORD_BYTES, RECORD_HANDLER, SENTINELS


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
