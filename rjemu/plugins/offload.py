"""The step executor's matrix instructions on helpers: the decisions of the native loop, taken one instruction at a time.

The waves lie in shared memory then, and before each instruction of one `exec.async_turn.attend` is asked what becomes of it.
All else is executed as ever; native code is made only for what helpers may run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rjemu.exec.async_turn import SKIP, START_HELPERS, WAIT
from rjemu.exec.cache import HandlerCache
from rjemu.exec.codebook import Codebook
from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.engine import Engine, Runtime
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.layout import GPR_IDX_EN, HOLDER_BYTES, SET_BYTES, VSKIP, WAVE, WAVE_BYTES, class_key
from rjemu.exec.native import HelperFactory
from rjemu.exec.program import Program
from rjemu.exec.runtime_code import runtime_object
from rjemu.exec.trace import TraceRow
from rjemu.exec.wave import WaveState
from rjemu.isa.instruction import Instruction
from rjemu.mma.candidates import Fitness, fitness
from rjemu.shm.segment import Segment
from rjemu.shm.vram import Vram

WAVE_SIZE = 64
LOOK_SECONDS = 0.05
"""How often dead helpers are looked for."""


class Offload:
    """Helpers for the waves of one dispatch at a time. Calls come from one thread."""

    def __init__(self, vram: Vram, target: str, cache_dir: Path | None, helpers: HelperFactory) -> None:
        """helpers: makes the helpers."""

        def is_candidate(instr: Instruction) -> bool:
            return fitness(instr, target) is Fitness.CANDIDATE

        cache = HandlerCache(cache_dir)
        code = runtime_object(cache, WAVE_SIZE, asynchronous=True)
        runtime = Runtime(code, asynchronous=True)
        self._library = HandlerLibrary(target, WAVE_SIZE, cache, runtime.undecoded)
        self._helpers: Any = helpers(target, cache, code, runtime, self._library, 1)
        self._codebook = Codebook(vram, target, self._library, self._helpers, is_candidate)
        self._engine = Engine(runtime, self._library.table, vram.host_base, vram.table_address)
        self._helpers.connect(self._engine, owner=1)
        self._segment: Segment | None = None
        self._waves: dict[int, WaveState] = {}
        self._ready: dict[tuple[int, int], int] = {}
        self._looked = time.monotonic()

    def start(self) -> None:
        """Start the helpers now, and wait until they take jobs."""
        self._helpers.wait_until_ready()

    def begin_trace(self) -> None:
        self._helpers.begin_trace()

    def end_trace(self) -> list[TraceRow]:
        """The helpers' rows."""
        rows: list[TraceRow] = self._helpers.end_trace()
        return rows

    def add_code(self, address: int, nbytes: int) -> None:
        self._codebook.add(address, nbytes)

    def remove_code(self, address: int) -> None:
        self._codebook.remove(address)
        self._ready.clear()

    # --- a dispatch ----------------------------------------------------------------------------------------------------

    def begin(self, spec: DispatchSpec) -> None:
        """Before the first wave of a dispatch. OutOfMemory if its waves have no place."""
        self.refresh()
        self._engine.begin(1, 0, 0)
        nbytes = min(spec.max_resident, spec.workgroups) * spec.waves_per_workgroup * WAVE_BYTES
        if self._segment is None or self._segment.size < nbytes:
            if self._segment is not None:
                self._segment.close()
            self._segment = Segment.create("waves", nbytes)
            self._engine.set_waves(self._helpers.add_waves(self._segment.name), self._segment.address)

    def new_wave(self, place: int) -> WaveState:
        """A zeroed wave in shared memory. place: its number among those that may be resident; the one that was there before
        has ended. OutOfMemory if there is no memory left."""
        assert self._segment is not None, "a wave starts in a dispatch"
        self._segment.reserve(place * WAVE_BYTES, WAVE_BYTES, "a wave")
        memory = self._segment.bytes[place * WAVE_BYTES : (place + 1) * WAVE_BYTES]
        memory[:] = 0
        wave = self._waves[place] = WaveState(memory, WAVE_SIZE)
        return wave

    def attend(self, wave: WaveState, pc: int) -> int | None:
        """Before a wave's instruction at pc, which has been fetched: wait for the jobs that it depends on. The number of the
        helper that has been given the instruction; None if it is to be executed now."""
        self._look_at_helpers()
        mode = wave.word("mode")
        program = None if mode & (GPR_IDX_EN | VSKIP) else self._program(wave, pc, mode)
        if program is None or program.notes is None:
            self.drain(wave)
            return None
        row = program.row(pc)
        site = int(program.notes.sites[row])
        if not site and not wave.word("pending"):
            return None
        note = program.notes_addresses[1] + row * 2 * SET_BYTES
        while True:
            answer = self._engine.attend(wave.memory.ctypes.data, row, site, note)
            if answer == START_HELPERS:
                self._helpers.start()
                self._engine.helpers_started()
            elif answer != WAIT:
                break
        return self._holder(wave, program.instructions[pc]) if answer == SKIP else None

    def _program(self, wave: WaveState, pc: int, mode: int) -> Program | None:
        """The program at pc, with what helpers may run of it decoded and compiled for a MODE setting; None where the
        instruction has no semantics."""
        index = self._codebook.program_of(pc)
        program = None if index is None else self._codebook.programs[index]
        if index is None or program is None:
            return None
        mode_class = self._library.mode_class(class_key(mode))
        wave.set_word("fp_class", mode_class)
        if pc not in program.instructions:
            self.drain(wave)
            self._codebook.decode(pc, mode_class)
        if self._ready.get((index, mode_class)) != len(program.instructions) and pc in program.instructions:
            # What has been decoded for one setting lacks its code for others.
            self._codebook.decode(pc, mode_class)
            self._ready[index, mode_class] = len(program.instructions)
        return program if pc in program.instructions else None

    def _holder(self, wave: WaveState, instr: Instruction) -> int:
        """The helper that computes an instruction's result."""
        result = instr.operand("vdst").index * 4 * WAVE_SIZE
        return int(wave.memory[WAVE["holders"] + result // HOLDER_BYTES]) - 1

    def _look_at_helpers(self) -> None:
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._looked = now
            self._helpers.update()

    def drain(self, wave: WaveState) -> None:
        """Wait for all of a wave's jobs."""
        if wave.word("pending"):
            self._engine.drain_wave(wave.memory.ctypes.data)

    def refresh(self) -> None:
        """Wait for all jobs, and decode anew what has changed since."""
        self.finish()
        self._codebook.refresh()
        self._ready.clear()

    def finish(self) -> None:
        """Wait for all jobs."""
        for wave in self._waves.values():
            self.drain(wave)

    def leave(self) -> None:
        """The dispatch is over, or is not gone on with."""
        self.finish()
        self._waves.clear()

    @property
    def count(self) -> int:
        """The helpers that there may be."""
        return int(self._helpers.board.helpers)

    def statistics(self) -> dict[str, Any]:
        """What `launch_stats` says of asynchronous work in the dispatch."""
        statistics: dict[str, Any] = self._helpers.statistics(self._engine.async_counters())
        return statistics

    def close(self) -> None:
        self._helpers.close()
        self._codebook.close()
        if self._segment is not None:
            self._segment.close()
            self._segment = None
