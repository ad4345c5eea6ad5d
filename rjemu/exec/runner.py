"""Carrying out a dispatch on one engine: runs natively, cures what native code cannot, raises what the kernel did wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from rjemu.errors import BarrierDeadlock, DecodeError, FaultPlace, KernelFault
from rjemu.exec import faults
from rjemu.exec.engine import Engine
from rjemu.exec.layout import EVENTS, RUN_DEADLOCK, RUN_DONE, RUN_EVENT, class_key
from rjemu.exec.slots import Size3, Slots
from rjemu.exec.trace import DECODE, MODE, TraceRing
from rjemu.exec.wave import WaveState
from rjemu.isa.instruction import Instruction

PAUSE_SECONDS = 0.05
"""How long a native run should last at most: Ctrl-C, timeouts and progress are looked at in between."""

_SETTLE_SECONDS = 0.001

_FIRST_SPEED = 2_000_000.0
"""Wave instructions per second that a native run is expected to make at first."""

_WATCHED = ("start", "end", "halt")
_NAMES = {number: name for name, number in EVENTS.items()}


class Code(Protocol):
    """What a runner needs of the machine's code: `Codebook`, or its stand-in in a worker."""

    def program_of(self, pc: int) -> int | None: ...
    def mode_class(self, mode_key: int) -> int: ...
    def decode(self, pc: int, mode_class: int) -> bool: ...
    def instruction(self, pc: int) -> Instruction: ...
    def text(self, pc: int) -> str: ...
    def nearest(self, address: int) -> str: ...
    def refresh(self) -> None: ...
    def start_helpers(self) -> None: ...


class Watcher(Protocol):
    """Is told of waves: the workgroup's place in the grid, and its LDS. For run times that watch (`exec.engine`)."""

    def started(self, workgroup: Size3, state: WaveState, lds: np.ndarray) -> None: ...
    def halted(self, workgroup: Size3, state: WaveState, lds: np.ndarray) -> None: ...


class Runner:
    """One dispatch on one engine. kernel: its name, and lds_bytes a workgroup's LDS, for messages; dispatch: host address
    of its DISPATCH block; trace: the ring to record its events in, and the launch's number; issued: for run times that
    notify, gets what helpers have been given (`IssueLog.take`) after every native run in which they were."""

    def __init__(
        self,
        engine: Engine,
        code: Code,
        kernel: str,
        lds_bytes: int,
        dispatch: int,
        slots: Slots,
        trace: tuple[TraceRing, int] | None = None,
        watcher: Watcher | None = None,
        issued: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self._lds_bytes = lds_bytes
        self._engine = engine
        self._code = code
        self._kernel = kernel
        self._dispatch = dispatch
        self._slots = slots
        self._speed = _FIRST_SPEED
        self._trace = trace
        self._watcher = watcher
        self._issued = issued
        engine.trace(*(trace or (None, 0)))

    def step(self, seconds: float = PAUSE_SECONDS) -> bool:
        """Run for about so long, or until the engine's bell rings; whether no workgroup is left to run. KernelFaults."""
        started = time.perf_counter()
        while True:
            budget = int(self._speed * seconds) + 1
            status = self._engine.run(self._dispatch, self._slots.address, self._slots.count, budget)
            self._tell_of_issues()
            if status == RUN_DONE:
                return True
            if status == RUN_DEADLOCK:
                waiting = ", ".join(self._slots.waiting(self._engine.opened)[:16])
                raise BarrierDeadlock(f"kernel {self._kernel}: no wave can go on; waiting: {waiting}")
            if status != RUN_EVENT:
                if self._engine.budget_left < 0:
                    self._speed *= min(max(seconds / (time.perf_counter() - started), 0.25), 4.0)
                return False
            self._event()
            if time.perf_counter() - started > seconds:
                return False

    def settle(self) -> bool:
        """Go on for a moment, and give no matrix instruction away, while a wave has some that were carried out before their
        turn; whether all waves are at an instruction boundary now, and nothing is pending."""
        self._engine.keep_matrices()
        self.drain()
        if self._engine.asynchronous and self._slots.ahead(self._engine.opened):
            self.step(_SETTLE_SECONDS)
            self.drain()
            return not self._slots.ahead(self._engine.opened)
        return True

    def drain(self) -> None:
        """Wait for the matrix instructions that helpers have of this dispatch, before it is left unfinished."""
        self._engine.drain(self._slots.address, self._slots.stride, self._slots.waves_offset)

    def _event(self) -> None:
        """Cure what took a wave out of the loop, or raise."""
        slot = self._engine.turn_slot
        number = self._slots.word(slot, "next_wave")
        name = _NAMES[self._engine.word("event")]
        if name == "issues":  # they have been told
            return
        if name in _WATCHED:
            self._tell(name, slot, number)
            return
        wave = self._slots.wave(slot, number)
        pc = wave.long("pc")
        began = time.monotonic_ns()
        if name == "undecoded":
            self._decode(slot, number, wave, pc)
            self._record(DECODE, pc, began)
        elif name == "mode":
            wave.set_word("fp_class", self._code.mode_class(class_key(wave.word("mode"))))
            self._record(MODE, pc, began)
        elif name == "icache":
            self._code.refresh()
        elif name == "helpers":
            self._code.start_helpers()
            self._engine.helpers_started()
        elif name == "outside":
            target = self._engine.long("fault_address")
            index = self._code.program_of(target)
            if index is None or target % 4:
                raise faults.jump_fault(target, self._place(slot, number, None, pc))
            wave.set_word("program", index)
            wave.set_long("pc", target)
        else:
            raise self._fault(name, slot, number, pc)

    def _tell_of_issues(self) -> None:
        issues = self._engine.take_issues()
        if issues is not None:
            assert self._issued is not None, "only run times that notify have issues"
            self._issued(issues)

    def _tell(self, name: str, slot: int, next_wave: int) -> None:
        """Tell the watcher of a workgroup's start, or of the end of the wave before the next one."""
        assert self._watcher is not None, "only run times that watch give these events"
        place, lds = self._slots.workgroup(slot), self._slots.lds(slot, self._lds_bytes)
        if name == "start":
            for number in range(self._slots.word(slot, "waves")):
                self._watcher.started(place, self._slots.wave(slot, number), lds)
        else:
            self._watcher.halted(place, self._slots.wave(slot, next_wave - 1), lds)

    def _record(self, kind: int, detail: int, began: int) -> None:
        if self._trace is not None:
            ring, launch = self._trace
            ring.append(kind, launch, detail, began, time.monotonic_ns())

    def _fault(self, name: str, slot: int, number: int, pc: int) -> KernelFault:
        if name in ("memory", "misaligned"):
            error = self._engine.access_error(misaligned=name == "misaligned")
            place = self._place(slot, number, error.lane, pc)
            return faults.memory_fault(error, place, self._code.nearest(error.address), self._lds_bytes)
        place = self._place(slot, number, None, pc)
        return faults.trap(self._engine.word("event_value"), place) if name == "trap" else faults.event_fault(name, place)

    def _decode(self, slot: int, number: int, wave: WaveState, pc: int) -> None:
        if self._code.program_of(pc) is None:
            raise faults.jump_fault(pc, self._place(slot, number, None, pc))
        try:
            executable = self._code.decode(pc, wave.word("fp_class"))
        except DecodeError as error:
            raise faults.code_fault(error, self._place(slot, number, None, pc)) from None
        if not executable:
            raise faults.unsupported(self._code.instruction(pc), self._place(slot, number, None, pc))

    def _place(self, slot: int, wave: int, lane: int | None, pc: int) -> FaultPlace:
        return FaultPlace(self._kernel, self._slots.workgroup(slot), wave, lane, pc, self._code.text(pc))
