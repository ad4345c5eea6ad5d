"""Plans for matrix instructions in shared memory: what the asynchronous loop needs of a site without entering Python.

Each program has a word per row (dword of code), its *site*, and a *note*, the registers that the instruction reads and
writes. A site is 0 for all but matrix instructions, for which it is one of SITE_* or FIRST_PLAN + the number of a plan in
the table that all programs of a machine share. A plan does not change once its number stands in a site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rjemu.exec.layout import RECORD_BYTES, SET_BYTES, fields
from rjemu.shm.scoreboard import JOB_MMAS
from rjemu.shm.segment import Segment

MAX_PLANS: Final = 16 << 10
GROUP_MMAS: Final = JOB_MMAS + 1
"""Matrix instructions of a group: those that may be given away, and the last one, which the issuer keeps."""
GROUP_ROWS: Final = 64
"""Rows of code in which all instructions of a group begin: a wave has a bit for each."""
MAX_SHARES: Final = JOB_MMAS

SITE_KEPT, SITE_SCALAR_OPERAND, SITE_NOT_ELIGIBLE, SITE_REJECTED, FIRST_PLAN = 0, 1, 2, 3, 16
"""In this order the counters of `layout.ASYNC_COUNTERS` follow one another from mmas_kept on."""
PLAN: Final = fields(
    0,
    ("count", 4),  # matrix instructions in the group
    ("max_jobs", 4),
    ("shares", 8),  # u8 [MAX_SHARES][MAX_SHARES]: with j + 1 helpers, what each of them gets
    ("_shares", MAX_SHARES * MAX_SHARES - 8),
    ("rows", 4),  # u32 [GROUP_MMAS]: where each instruction lies, in rows from the first
    ("_rows", 4 * GROUP_MMAS - 4),
    ("results", 4),  # u32 [GROUP_MMAS]: byte offset of each result in the wave
    ("_results", 4 * GROUP_MMAS - 4),
    ("undo", 4),  # u32 [GROUP_MMAS]: bytes of each result if the instruction reads them, too, else 0
    ("_undo", 4 * GROUP_MMAS - 4),
)
PLAN_RECORDS: Final = 256
"""The instructions' records, [GROUP_MMAS], from here on; then the sets that they read, then those that they write."""
PLAN_READS: Final = PLAN_RECORDS + GROUP_MMAS * RECORD_BYTES
PLAN_WRITES: Final = PLAN_READS + GROUP_MMAS * SET_BYTES
PLAN_BYTES: Final = 2048

_BLOCK: Final = 1 << 16
"""Bytes of shared memory that are taken at once."""


@dataclass(frozen=True, slots=True)
class PlannedMma:
    """One instruction of a group. row: dwords from the first; result, size: byte offset in the wave and bytes of what it
    writes; reads, writes: sets of vector registers, bit n for register n."""

    record: bytes
    row: int
    result: int
    size: int
    reads: int
    writes: int


class PlanTable:
    """The plans of a machine, uint8 [MAX_PLANS, PLAN_BYTES] in a segment of its own."""

    def __init__(self) -> None:
        self._segment = Segment.create("plans", MAX_PLANS * PLAN_BYTES)
        self._plans = self._segment.array(np.uint8, (MAX_PLANS, PLAN_BYTES))
        self._reserve = Reservation(self._segment, "plans of matrix instructions")
        self._used = 0

    @property
    def segment_name(self) -> str:
        return self._segment.name

    @property
    def address(self) -> int:
        return self._segment.address

    def add(self, members: Sequence[PlannedMma], shares: Sequence[Sequence[int]]) -> int | None:
        """Enter a plan; gives its number, None if the table is full. shares[j]: how many instructions each of j + 1 helpers
        gets, from the group's first on."""
        if self._used == MAX_PLANS:
            return None
        self._reserve(self._used * PLAN_BYTES, PLAN_BYTES)
        plan = self._plans[self._used]
        words = plan[:PLAN_RECORDS].view(np.uint32)
        words[PLAN["count"] // 4] = len(members)
        words[PLAN["max_jobs"] // 4] = len(shares)
        table = plan[PLAN["shares"] :][: MAX_SHARES * MAX_SHARES].reshape(MAX_SHARES, MAX_SHARES)
        for j, counts in enumerate(shares):
            table[j, : len(counts)] = counts
        for k, member in enumerate(members):
            assert member.row < GROUP_ROWS, f"a group's instruction {member.row} rows on"
            words[PLAN["rows"] // 4 + k] = member.row
            words[PLAN["results"] // 4 + k] = member.result
            words[PLAN["undo"] // 4 + k] = member.size if member.reads & member.writes else 0
            plan[PLAN_RECORDS + k * RECORD_BYTES :][:RECORD_BYTES] = np.frombuffer(member.record, np.uint8)
            plan[PLAN_READS + k * SET_BYTES :][:SET_BYTES] = set_bytes(member.reads)
            plan[PLAN_WRITES + k * SET_BYTES :][:SET_BYTES] = set_bytes(member.writes)
        self._used += 1
        return self._used - 1

    def close(self) -> None:
        self._plans = np.empty((0, PLAN_BYTES), np.uint8)
        self._segment.close()


class ProgramNotes:
    """The sites, uint32 [rows], and notes, uint8 [rows, 2, SET_BYTES] (read and written), of a program."""

    def __init__(self, rows: int) -> None:
        offset = _notes_offset(rows)
        self._segment = Segment.create("notes", offset + rows * 2 * SET_BYTES)
        self._reserve = Reservation(self._segment, "decoded code")
        self._reserve(0, offset)
        self.sites = self._segment.array(np.uint32, rows)
        self.notes = self._segment.array(np.uint8, (rows, 2, SET_BYTES), offset)

    @property
    def segment_name(self) -> str:
        return self._segment.name

    @property
    def addresses(self) -> tuple[int, int]:
        """Host addresses of the sites and of the notes."""
        return note_addresses(self._segment, len(self.sites))

    def note(self, row: int, reads: int, writes: int) -> None:
        """Say what the instruction at a row reads and writes, before its record is written. OutOfMemory if there is no
        shared memory left."""
        self._reserve(_notes_offset(len(self.sites)) + row * 2 * SET_BYTES, 2 * SET_BYTES)
        self.notes[row, 0] = set_bytes(reads)
        self.notes[row, 1] = set_bytes(writes)

    def clear(self) -> None:
        """Forget everything that was decoded."""
        self.sites[:] = 0

    def close(self) -> None:
        del self.sites, self.notes
        self._segment.close()


class Reservation:
    """Takes a segment's memory in blocks as it comes to be used, so that writing to it cannot fail."""

    def __init__(self, segment: Segment, what: str) -> None:
        """what: for error messages."""
        self._segment = segment
        self._what = what
        self._taken: set[int] = set()

    def __call__(self, offset: int, nbytes: int) -> None:
        """OutOfMemory if there is no shared memory left for a range."""
        for block in range(offset // _BLOCK, -(-(offset + nbytes) // _BLOCK)):
            if block not in self._taken:
                size = min(_BLOCK, self._segment.size - block * _BLOCK)
                self._segment.reserve(block * _BLOCK, size, self._what)
                self._taken.add(block)


def note_addresses(segment: Segment, rows: int) -> tuple[int, int]:
    """Host addresses of the sites and the notes in the segment of a program of so many rows."""
    return segment.address, segment.address + _notes_offset(rows)


def _notes_offset(rows: int) -> int:
    return -(-4 * rows // SET_BYTES) * SET_BYTES


def set_bytes(registers: int) -> np.ndarray:
    """A set of vector registers as uint8 [SET_BYTES]."""
    return np.frombuffer(registers.to_bytes(SET_BYTES, "little"), np.uint8)
