"""The scoreboard of a machine in shared memory: which helpers are free, and the job that each of them holds.

A helper has one job at a time. Its state word says whose turn it is; both sides sleep on that word (futex).

    free bit     set: nobody has the helper. An issuer takes the bit, publishes a job, joins it, and gives the bit back.
    POSTED       the helper owns the job; without it, the issuer that holds the bit does
    *_SLEEPS     that side sleeps, or is about to: only then does the other one make a system call
    BELL         the launcher has something for the helper, which leaves its native loop
    REFUSED      the helper could not run the job (it lacks the code or the memory of it): the issuer must

Native code changes these words (`rjemu.exec.handoff`); everything is sequentially consistent.
"""

from __future__ import annotations

import numpy as np

from rjemu.shm.segment import Segment

MAX_HELPERS = 128
JOB_MMAS = 8
"""Matrix instructions that one job carries at most."""
RESULT_BYTES = 4096
"""The largest result of a matrix instruction: 32 by 32 words."""

POSTED, HELPER_SLEEPS, ISSUER_SLEEPS, BELL, REFUSED = 1, 2, 4, 8, 16

HEADER_BYTES = 4096
HEADER = {"free": 0, "free_high": 64, "helpers": 128}
"""Two u64 words of free bits, each in its own cache line: helpers 0-63 and 64-127. helpers: u32, how many there are."""

HELPER = {
    # The job is in one cache line with the state, so that publishing it moves one line.
    "state": 0,  # u32
    "count": 4,  # u32: matrix instructions; none in an empty job
    "first": 8,  # u32: the first one's number in the plan
    "plan": 12,  # u32
    "place": 16,  # u64: the wave's offset in its segment
    "segment": 24,  # u32: number of the wave's segment
    "fp_class": 28,  # u32
    "fp_control": 32,  # u64: the issuer's host floating-point control register
    "sequence": 40,  # u32: counts the helper's jobs
    # What only issuers use, and what only the helper writes, lie apart: hosts fetch cache lines in pairs.
    "owner": 256,  # u32: number of the process that holds the helper, 0 if free
    "credit": 264,  # i64: ticks that issuers may still lose by waiting for it or waking it
    "credited": 272,  # u64: the tick up to which credit has grown with time
    "pid": 516,  # u32
    "cpu": 520,  # u32
    "ready": 524,  # u32: it has announced itself
    "lost": 528,  # u32: it has died, and nobody holds a job of it any more
    "jobs": 536,  # u64
    "mmas": 544,  # u64
    "busy_ticks": 552,  # u64
    "wakeups": 560,  # u64: how often it has slept and been woken
    "progress": 640,  # u64: how far it is with which job (see PROGRESS_SHIFT)
    "undo": 4096,  # RESULT_BYTES: what the registers held that the instruction begun last overwrites
}
HELPER_BYTES = 4096 + RESULT_BYTES
PROGRESS_SHIFT = 32
"""A helper's progress has the number of its job from this bit on; below, twice the instructions done, + 1 while the
next one may have changed its registers."""


class Scoreboard:
    """Views of a scoreboard segment."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.address = segment.address
        self._words = segment.array(np.uint32, segment.size // 4)
        self._longs = segment.array(np.uint64, segment.size // 8)

    @classmethod
    def create(cls, helpers: int) -> Scoreboard:
        """A scoreboard with no helper free yet: each announces itself."""
        if not 1 <= helpers <= MAX_HELPERS:
            raise ValueError(f"{helpers} helpers: expected 1 to {MAX_HELPERS}")
        board = cls(Segment.create("scoreboard", HEADER_BYTES + helpers * HELPER_BYTES, reserve=True))
        board._words[HEADER["helpers"] // 4] = helpers
        return board

    @classmethod
    def attach(cls, name: str) -> Scoreboard:
        return cls(Segment.attach(name))

    @property
    def helpers(self) -> int:
        return int(self._words[HEADER["helpers"] // 4])

    @property
    def free(self) -> int:
        """The free bits of all helpers."""
        return int(self._longs[HEADER["free"] // 8]) | int(self._longs[HEADER["free_high"] // 8]) << 64

    def helper_address(self, helper: int) -> int:
        """Host address of a helper's record."""
        return self.address + HEADER_BYTES + helper * HELPER_BYTES

    def word(self, helper: int, name: str) -> int:
        """A u32 field of a helper."""
        return int(self._words[(HEADER_BYTES + helper * HELPER_BYTES + HELPER[name]) // 4])

    def set_word(self, helper: int, name: str, value: int) -> None:
        self._words[(HEADER_BYTES + helper * HELPER_BYTES + HELPER[name]) // 4] = value

    def long(self, helper: int, name: str) -> int:
        """A u64 field of a helper."""
        return int(self._longs[(HEADER_BYTES + helper * HELPER_BYTES + HELPER[name]) // 8])

    def set_long(self, helper: int, name: str, value: int) -> None:
        self._longs[(HEADER_BYTES + helper * HELPER_BYTES + HELPER[name]) // 8] = value

    def close(self) -> None:
        self._words = self._longs = np.empty(0, np.uint32)
        self.segment.close()
