"""The native run time of one process: its context structure, its handler table and the compiled scheduler."""

from __future__ import annotations

import ctypes

import numpy as np

from rjemu.exec.compiler import Loader
from rjemu.exec.counting import Counters
from rjemu.exec.handler_table import HandlerTable
from rjemu.exec.handoff_calls import HandoffCalls
from rjemu.exec.issue_log import IssueLog
from rjemu.exec.layout import (
    ASYNC_COUNTERS,
    ASYNC_FUNCTIONS,
    CHECK_FUNCTION,
    CTX,
    FAULT_ACCESSES,
    FAULT_SPACES,
    MAX_PROGRAMS,
    PROGRAM,
    RUNTIME_FUNCTIONS,
    WHOLE_WAVE,
)
from rjemu.exec.memory import AccessError
from rjemu.exec.trace import TraceRing
from rjemu.shm.vram import GPU_BASE

_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_uint64, ctypes.c_void_p)
CLOCK = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
"""The address of clock_gettime in this process."""

_NEVER = (1 << 32) - 1


class Runtime:
    """The compiled scheduler, loaded into this process. undecoded: address of the handler for what has no code yet."""

    def __init__(self, code: bytes, *, asynchronous: bool = False, counting: bool = False, notifying: bool = False) -> None:
        """code: as `runtime_code.runtime_object` gives it for these variants."""
        self.counting = counting
        self.notifying = notifying
        # The loader owns the code: it lives as long as this object.
        self._loader = Loader()
        addresses = self._loader.load(code, [*RUNTIME_FUNCTIONS, *(ASYNC_FUNCTIONS if asynchronous else ())])
        self.handoff = HandoffCalls(addresses) if asynchronous else None
        self.run, self.run_traced = addresses["run"], addresses["run_traced"]
        self.undecoded, self.check_lanes = addresses["undecoded"], addresses[CHECK_FUNCTION]
        self._exchange = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)(addresses["exchange"])
        self._increment = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses["increment"])

    def exchange(self, address: int, value: int) -> int:
        """Atomically write a u32 at a host address, sequentially consistent; gives the old value."""
        return int(self._exchange(address, value))

    def increment(self, address: int) -> None:
        """Atomically add 1 to a u32 at a host address, sequentially consistent."""
        self._increment(address)


class Engine:
    """Runs a dispatch in this process. vram_host: host address of GPU_BASE here; allocations: that of the table; bell: that
    of a u32 whose change makes a run pause, None for never."""

    def __init__(
        self, runtime: Runtime, table: HandlerTable, vram_host: int, allocations: int, bell: int | None = None
    ) -> None:
        self._runtime = runtime
        self._counters = Counters() if runtime.counting else None
        self._issue_log = IssueLog() if runtime.notifying else None
        self._silent = np.zeros(1, np.uint32)
        self.table = table
        self.context = aligned_bytes(-(-CTX["end"] // 8) * 8)
        self._words, self._longs = self.context.view(np.uint32), self.context.view(np.uint64)
        self.state = np.zeros(3, np.uint64)
        self._context_address, self._state_address = self.context.ctypes.data, self.state.ctypes.data
        self._programs = np.zeros((MAX_PROGRAMS, PROGRAM["end"] // 8), np.uint64)
        self._plain, self._traced = _RUN(runtime.run), _RUN(runtime.run_traced)
        self._run = self._plain
        longs = {
            "tables": table.table_addresses.ctypes.data,
            "class_map": table.class_map.ctypes.data,
            "programs": self._programs.ctypes.data,
            "vram_delta": (vram_host - GPU_BASE) & 0xFFFFFFFFFFFFFFFF,
            "allocations": allocations,
            "check_lanes": runtime.check_lanes,
            "bell": bell or self._silent.ctypes.data,
            "clock": CLOCK,
            "issue_log": 0 if self._issue_log is None else self._issue_log.address,
        }
        for name, value in longs.items():
            self._longs[CTX[name] // 8] = value

    def set_program(self, index: int, records: int, base: int, nbytes: int, notes: tuple[int, int] = (0, 0)) -> None:
        """Program `index`: host address of its records, GPU address and bytes of its code, host addresses of its sites and
        notes (`exec.plans`) if it has any; all 0 for no program."""
        counters = 0 if self._counters is None else self._counters.set_program(index, records, base, nbytes)
        self._programs[index] = records, base, nbytes, *notes, counters

    def executed(self) -> dict[int, np.ndarray]:
        """How often instructions have been executed in this dispatch (`Counters.executed`); empty if nothing counts."""
        return {} if self._counters is None else self._counters.executed()

    def connect(self, scoreboard: int, plans: int, owner: int, window: int) -> None:
        """Give matrix instructions to helpers (`shm.scoreboard`): host addresses; this process's number from 1 on; the limit
        of instructions past the oldest job, 0 for none."""
        self._set_long("scoreboard", scoreboard)
        self._set_long("plans", plans)
        self._set_word("owner", owner)
        self._set_word("window_limit", window)

    def set_waves(self, segment: int, base: int) -> None:
        """Say to helpers where the waves lie: the number of their segment, and its host address here."""
        self._set_word("wave_segment", segment)
        self._set_long("wave_base", base)

    def helpers_started(self) -> None:
        """Candidates need not ask for helpers any more."""
        self._set_word("helpers_started", 1)

    def drain(self, slots: int, stride: int, waves_offset: int) -> None:
        """Wait for the jobs of every wave of the dispatch that the engine is in. slots: host address; see `Slots`."""
        if self._runtime.handoff is not None:
            self._runtime.handoff.drain_slots(self._context_address, slots, stride, waves_offset, self.opened)

    def attend(self, wave: int, row: int, site: int, note: int) -> int:
        """What becomes of a wave's next instruction, for those that execute it by other means than `run`
        (`exec.async_turn.attend`). wave, note: host addresses."""
        assert self._runtime.handoff is not None, "the run time gives nothing to helpers"
        return self._runtime.handoff.attend(self._context_address, wave, row, site, note)

    def drain_wave(self, wave: int) -> None:
        """Wait for the jobs of one wave, at a host address."""
        assert self._runtime.handoff is not None, "the run time gives nothing to helpers"
        self._runtime.handoff.drain(self._context_address, wave)

    @property
    def asynchronous(self) -> bool:
        """Whether matrix instructions may be given to helpers."""
        return self._runtime.handoff is not None

    def keep_matrices(self) -> None:
        """Give no further matrix instructions away until `begin`, or `share_matrices`."""
        self._set_word("pause", _NEVER)

    def share_matrices(self) -> None:
        """End `keep_matrices`."""
        self._set_word("pause", 0)

    def async_counters(self) -> dict[str, int]:
        """What the asynchronous loop has counted in this dispatch (`layout.ASYNC_COUNTERS`)."""
        return {name: self.long(name) for name in ASYNC_COUNTERS}

    def take_issues(self) -> np.ndarray | None:
        """What helpers have been given since the last time (`IssueLog.take`); None if nothing has been, or nobody asks."""
        issues = None if self._issue_log is None else self._issue_log.take()
        return issues if issues is not None and len(issues) else None

    def begin(self, own_xcds: int, own_xcd: int, first_slot: int, opened: int = 1) -> None:
        """Before a dispatch: forget allocations seen, and say whose XCDs' workgroups to take first, how many slots
        other processes have before this one's, and how many of its own may hold workgroups already."""
        if self._counters is not None:
            self._counters.clear()
        self.take_issues()
        self.context[CTX["workgroups_done"] : CTX["end"]] = 0
        words = {"own_xcds": own_xcds, "own_xcd": own_xcd, "xcd_turn": own_xcd, "first_slot": first_slot}
        for name, value in words.items():
            self._set_word(name, value)
        self.state[:] = opened, 0, 0
        self.share_matrices()

    def trace(self, ring: TraceRing | None, launch: int = 0) -> None:
        """Record the turns of a launch's workgroups in a ring from now on, or nothing."""
        self._run = self._plain if ring is None else self._traced
        self._longs[CTX["trace"] // 8] = 0 if ring is None else ring.address
        self._set_word("launch", launch)

    def heard(self, bell: int) -> None:
        """The bell's value that is no news: a run pauses at any other."""
        self._set_word("bell_seen", bell)

    def _set_long(self, name: str, value: int) -> None:
        self._longs[CTX[name] // 8] = value

    def _set_word(self, name: str, value: int) -> None:
        self._words[CTX[name] // 4] = value

    def run(self, dispatch: int, slots: int, count: int, budget: int) -> int:
        """Run until the grid is exhausted, an event, the budget (wave instructions) is used up or the bell rings: RUN_DONE,
        RUN_EVENT, RUN_PAUSED or RUN_DEADLOCK. dispatch, slots: host addresses; count: slots there are."""
        self.state[2] = budget
        return int(self._run(self._context_address, dispatch, slots, count, self._state_address))

    @property
    def budget_left(self) -> int:
        """What the last run left of its budget, below 0 if it is used up."""
        left = int(self.state[2])
        return left - (left >> 63 << 64)

    @property
    def opened(self) -> int:
        """Slots that this dispatch has opened so far."""
        return int(self.state[0])

    @property
    def turn_slot(self) -> int:
        """The slot whose workgroup ran last."""
        return int(self.state[1])

    def word(self, name: str) -> int:
        """A u32 field of the context."""
        return int(self._words[CTX[name] // 4])

    def long(self, name: str) -> int:
        """A u64 field of the context."""
        return int(self._longs[CTX[name] // 8])

    def access_error(self, *, misaligned: bool) -> AccessError:
        """The stray or misaligned access that the context describes."""
        lane = self.word("fault_lane")
        return AccessError(
            FAULT_SPACES[self.word("fault_space")],
            FAULT_ACCESSES[self.word("fault_access")],
            self.long("fault_address"),
            None if lane == WHOLE_WAVE else lane,
            self.word("fault_bytes"),
            misaligned=misaligned,
        )


def aligned_bytes(nbytes: int) -> np.ndarray:
    """uint8 zeros at a cache line's start."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
