"""The reference executor: the same dispatches, one instruction at a time with numpy. The oracle for the native executor,
and the fallback where llvmlite is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rjemu.errors import (
    BarrierDeadlock,
    DecodeError,
    FaultPlace,
    LaunchInterrupted,
    LaunchTimeout,
    UsageError,
)
from rjemu.exec import faults
from rjemu.exec.dispatch import DispatchResult, DispatchSpec, launch_stats, worker_stats
from rjemu.exec.layout import (
    TEMPLATE,
    WAVE_BARRIER,
    WAVE_ENDED,
    WAVE_HALTED,
    WAVE_RUNNING,
)
from rjemu.exec.memory import AccessError
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.prepare import partial_dimensions, system_sgpr_flags, wave_templates
from rjemu.exec.suspended import Pauses, SuspendedDispatch
from rjemu.exec.trace import LocalTracing
from rjemu.exec.wave import WaveState
from rjemu.isa.context import Semantic
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import EXEC, FLAT_SCRATCH, Instruction
from rjemu.isa.semantics.registry import semantic_of
from rjemu.shm.vram import Vram

Progress = Callable[[int, int], None]


class DeviceMemory:
    """`ReferenceMemory` over the device's live allocations and one workgroup's LDS."""

    def __init__(self, vram: Vram, lds: np.ndarray) -> None:
        self._vram = vram
        self._lds = lds

    def view(self, space: str, address: int, nbytes: int) -> np.ndarray:
        if space == "lds":
            if address + nbytes > len(self._lds):
                raise AccessError(space, "access", address, None, nbytes)
            return self._lds[address : address + nbytes]
        allocation = self._vram.find(address)
        if allocation is None or address + nbytes > allocation.end:
            raise AccessError(space, "access", address, None, nbytes)
        return self._vram.view(address, nbytes)


class ReferenceExecutor(LocalTracing):
    """Runs dispatches in this process. See `vm.machine.Executor` for the interface."""

    wave_size = 64
    concurrent_launches = 1

    def __init__(self, vram: Vram, target: str, *, lds_bytes: int, cache_dir: Path | None = None) -> None:
        self.vram = vram
        self.target = target
        self.decoder = Decoder(target)
        self.code_ranges: dict[int, int] = {}

    def start(self) -> None:
        """Nothing to start: everything runs in the caller's thread."""

    def add_code(self, address: int, nbytes: int) -> None:
        self.code_ranges[address] = nbytes

    def remove_code(self, address: int) -> None:
        self.code_ranges.pop(address, None)

    def code(self, pc: int) -> bytes | None:
        """The bytes from pc to the end of its code range, at most one instruction's worth; None outside every range."""
        for start, nbytes in self.code_ranges.items():
            if start <= pc < start + nbytes and pc % 4 == 0:
                return self.vram.view(pc, min(24, start + nbytes - pc)).tobytes()
        return None

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        pauses: Pauses | None = None,
        suspended: SuspendedDispatch | None = None,
    ) -> DispatchResult:
        """Run a dispatch to its end; raises as `NativeExecutor.run`. It cannot be made to wait, nor go on with what another
        executor has left: UsageError."""
        if suspended is not None:
            raise UsageError("the reference executor runs dispatches from their beginning: go on with executor='native'")
        started = time.perf_counter()
        run = self.begin(spec, started + timeout if timeout is not None else None)
        try:
            with self.traced(spec.kernel):
                run.to_end(progress)
        except KeyboardInterrupt:
            raise LaunchInterrupted(f"kernel {spec.kernel} was interrupted: {run.progress_text()}") from None
        seconds = time.perf_counter() - started
        worker = worker_stats("reference", None, spec.workgroups, run.wave_instructions, seconds, seconds)
        return DispatchResult(run.wave_instructions, seconds, launch_stats([worker]))

    def begin(self, spec: DispatchSpec, deadline: float | None) -> Run:
        """The dispatch, with nothing of it done. deadline: of `time.perf_counter`."""
        return Run(self, spec, deadline)

    def close(self) -> None:
        self.code_ranges.clear()


class Workgroup:
    """A resident workgroup."""

    def __init__(self, run: Run, number: int, slot: int) -> None:
        spec = run.spec
        x, y, _ = spec.grid
        self.slot = slot
        self.id = (number % x, number // x % y, number // (x * y))
        self.lds = np.zeros(spec.lds_bytes, np.uint8)
        self.memory = DeviceMemory(run.executor.vram, self.lds)
        partial = partial_dimensions(spec)
        shape = sum(1 << i for i in range(3) if partial >> i & 1 and self.id[i] == spec.grid[i] - 1)
        self.waves = [self._start(run, shape, wave) for wave in range(run.counts[shape])]

    def _start(self, run: Run, shape: int, number: int) -> NumpyContext:
        spec = run.spec
        state = run.new_wave(self.slot * spec.waves_per_workgroup + number)
        words = list(spec.user_sgprs)
        scratch = (self.slot * spec.waves_per_workgroup + number) * spec.scratch_stride
        info = (1 << 31 if number == 0 else 0) | spec.waves_per_workgroup
        flags = system_sgpr_flags(spec)
        words += [value for bit, value in enumerate((*self.id, info, scratch)) if flags >> bit & 1]
        state.scalars[: len(words)] = words
        base = spec.scratch_base + scratch
        state.scalars[FLAT_SCRATCH : FLAT_SCRATCH + 2] = base & 0xFFFFFFFF, base >> 32
        template = run.templates[shape, number]
        state.scalars[EXEC : EXEC + 2] = template[TEMPLATE["exec"] : TEMPLATE["exec"] + 8].view(np.uint32)
        rows = 1 if spec.packed_workitem_ids else spec.vgpr_workitem_ids
        ids = template[TEMPLATE["vgprs"] : TEMPLATE["vgprs"] + 4 * rows * spec.wave_size].view(np.uint32)
        state.vgpr[:rows] = ids.reshape(rows, spec.wave_size)
        state.set_long("pc", spec.entry)
        state.set_long("scratch_base", base)
        state.set_word("scratch_size", spec.scratch_bytes)
        state.set_word("mode", spec.mode)
        state.set_word("wave_in_group", number)
        return run.context(self, state)


class Run:
    """One dispatch under way."""

    def __init__(self, executor: ReferenceExecutor, spec: DispatchSpec, deadline: float | None) -> None:
        self.executor = executor
        self.spec = spec
        self.templates, self.counts = wave_templates(spec)
        self.wave_instructions = 0
        self._deadline = deadline
        self._completed = 0
        self._resident: list[Workgroup] = []

    def new_wave(self, place: int) -> WaveState:
        """A zeroed wave. place: its number among those of the workgroups that may be resident."""
        return WaveState.fresh(self.spec.wave_size)

    def context(self, workgroup: Workgroup, state: WaveState) -> NumpyContext:
        """What executes a new wave's instructions."""
        return NumpyContext(state, workgroup.memory, self.spec.target)

    def to_end(self, progress: Progress | None) -> None:
        total = self.spec.workgroups
        started = 0
        open_slots = 1
        while self._completed < total:
            while started < total and len(self._resident) < open_slots:
                free = next(k for k in range(open_slots) if all(w.slot != k for w in self._resident))
                self._resident.append(Workgroup(self, started, free))
                started += 1
            for workgroup in list(self._resident):
                if self._slice(workgroup):
                    self._resident.remove(workgroup)
                    self._completed += 1
                else:
                    open_slots = min(open_slots + 1, self.spec.max_resident)
            if progress is not None:
                progress(self._completed, total)

    def _slice(self, workgroup: Workgroup) -> bool:
        """Turns of a workgroup's waves; whether it has ended (False: its time slice is used up)."""
        left = self.spec.time_slice
        while True:
            ran = 0
            for wave in workgroup.waves:
                if wave.state.word("state") == WAVE_RUNNING:
                    ran += self._turn(workgroup, wave)
            states = [wave.state.word("state") for wave in workgroup.waves]
            if all(state == WAVE_ENDED for state in states):
                return True
            if not ran:
                raise BarrierDeadlock(
                    f"kernel {self.spec.kernel}: no wave can go on; waiting: {', '.join(self._waiting(workgroup))}"
                )
            left -= ran
            if left <= 0:
                return False
            if self._deadline is not None and time.perf_counter() > self._deadline:
                raise LaunchTimeout(f"kernel {self.spec.kernel} ran out of time: {self.progress_text()}")

    def _turn(self, workgroup: Workgroup, wave: NumpyContext) -> int:
        """At most `wave_quantum` instructions of one wave; how many were executed."""
        for done in range(1, self.spec.wave_quantum + 1):
            self.step(workgroup, wave)
            self.wave_instructions += 1
            if wave.left is not None and self.event(workgroup, wave):
                return done
        return self.spec.wave_quantum

    def step(self, workgroup: Workgroup, wave: NumpyContext) -> None:
        """One instruction."""
        pc = wave.state.long("pc")
        instr = self.fetch(workgroup, wave, pc)
        semantic = semantic_of(instr)
        if semantic is None:
            raise faults.unsupported(instr, self._place(workgroup, wave, None, pc, instr))
        try:
            self.execute(wave, instr, semantic)
        except AccessError as error:
            place = self._place(workgroup, wave, error.lane, pc, instr)
            nearest = self.executor.vram.nearest(error.address)
            raise faults.memory_fault(error, place, nearest, self.spec.lds_bytes) from None
        if wave.left in ("illegal", "unsupported"):
            raise faults.event_fault(wave.left, self._place(workgroup, wave, None, pc, instr))
        if wave.left == "trap":
            raise faults.trap(wave.left_value, self._place(workgroup, wave, None, pc, instr))
        wave.state.set_long("pc", wave.next_pc)
        wave.state.set_long("instructions", wave.state.long("instructions") + 1)

    def execute(self, wave: NumpyContext, instr: Instruction, semantic: Semantic) -> None:
        """The effects of the instruction at the wave's pc."""
        wave.execute(instr, semantic)

    def fetch(self, workgroup: Workgroup, wave: NumpyContext, pc: int) -> Instruction:
        """The instruction at a wave's pc."""
        code = self.executor.code(pc)
        if code is None:
            raise faults.jump_fault(pc, self._place(workgroup, wave, None, pc, None))
        try:
            return self.executor.decoder.decode(code)
        except DecodeError as error:
            raise faults.code_fault(error, self._place(workgroup, wave, None, pc, None)) from None

    def event(self, workgroup: Workgroup, wave: NumpyContext) -> bool:
        """What took the wave out of the loop; whether its turn is over."""
        if wave.left == "end":
            wave.state.set_word("state", WAVE_ENDED)
        elif wave.left == "barrier":
            wave.state.set_word("state", WAVE_BARRIER)
        elif wave.left == "halt":
            wave.state.set_word("state", WAVE_HALTED)
        else:
            return wave.left in ("sleep", "yield")
        states = [other.state.word("state") for other in workgroup.waves]
        if all(state in (WAVE_BARRIER, WAVE_ENDED) for state in states):
            self.release(workgroup)
        return True

    def release(self, workgroup: Workgroup) -> None:
        """Every wave at the barrier goes on."""
        for wave in workgroup.waves:
            if wave.state.word("state") == WAVE_BARRIER:
                wave.state.set_word("state", WAVE_RUNNING)

    def _place(
        self, workgroup: Workgroup, wave: NumpyContext, lane: int | None, pc: int, instr: Instruction | None
    ) -> FaultPlace:
        text = "no code" if instr is None else faults.instruction_text(instr, pc)
        return FaultPlace(self.spec.kernel, workgroup.id, wave.state.word("wave_in_group"), lane, pc, text)

    def _waiting(self, workgroup: Workgroup) -> list[str]:
        return [
            f"workgroup {workgroup.id} wave {wave.state.word('wave_in_group')} at pc {wave.state.long('pc'):#x}"
            for wave in workgroup.waves
            if wave.state.word("state") in (WAVE_BARRIER, WAVE_HALTED)
        ]

    def progress_text(self) -> str:
        """Where the dispatch stands, for messages."""
        text = f"{self._completed} of {self.spec.workgroups} workgroups had ended"
        waiting = [name for workgroup in self._resident for name in self._waiting(workgroup)]
        return f"{text}; waiting at a barrier: {', '.join(waiting[:8])}" if waiting else text
