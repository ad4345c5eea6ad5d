"""The step executor: the reference executor with hooks around every instruction.

It runs in the launcher, one dispatch at a time, in the same turns (`wave_quantum`), with the same barriers and the same
rotation of resident workgroups as the other executors; results are the same bits. Matrix instructions may go to helpers
(`rjemu.plugins.offload`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.layout import WAVE_BARRIER
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.reference import Progress, ReferenceExecutor, Run, Workgroup
from rjemu.exec.suspended import Pauses, SuspendedDispatch
from rjemu.exec.trace import TraceRow
from rjemu.exec.wave import WaveState
from rjemu.isa.context import Semantic
from rjemu.isa.immediates import MAX_EXPCNT, MAX_LGKMCNT, MAX_VMCNT, waitcnt_fields
from rjemu.isa.instruction import Instruction
from rjemu.isa.skipping import VSKIP, is_skippable
from rjemu.plugins.contract import Step, WaitCounters, Wave
from rjemu.plugins.footprint import matrix_writes, register_reads
from rjemu.plugins.host import PluginHost
from rjemu.plugins.issue import IssueFacts
from rjemu.plugins.observed import ObservedContext
from rjemu.plugins.shared_wave import IssuedWave, SharedWave
from rjemu.shm.vram import Vram

if TYPE_CHECKING:
    from rjemu.exec.native import HelperFactory
    from rjemu.plugins.offload import Offload

_KEEPS_JOBS = (None, "barrier", "sleep", "yield", "mode")
"""What an instruction may leave its turn by without its wave's jobs being waited for."""


class StepExecutor(ReferenceExecutor):
    """Runs dispatches with all hooks of the host's plugins."""

    def __init__(
        self,
        vram: Vram,
        target: str,
        *,
        lds_bytes: int,
        cache_dir: Path | None = None,
        host: PluginHost,
        helpers: HelperFactory | None = None,
    ) -> None:
        """helpers: makes the helpers that run matrix instructions."""
        super().__init__(vram, target, lds_bytes=lds_bytes, cache_dir=cache_dir)
        self._offload: Offload | None = None
        if helpers is not None:
            from rjemu.plugins.offload import Offload

            self._offload = Offload(vram, target, cache_dir, helpers)
        self._host = host
        self._decoded: dict[int, tuple[bytes, Instruction]] = {}
        self._executed: Counter[int] = Counter()

    def start(self) -> None:
        """Start the helpers, if there are to be some; all else runs in the caller's thread."""
        if self._offload is not None:
            self._offload.start()

    def begin_trace(self) -> None:
        super().begin_trace()
        if self._offload is not None:
            try:
                self._offload.begin_trace()
            except BaseException:
                super().end_trace()
                raise

    def end_trace(self) -> list[TraceRow]:
        rows = super().end_trace()
        return rows if self._offload is None else rows + self._offload.end_trace()

    def add_code(self, address: int, nbytes: int) -> None:
        super().add_code(address, nbytes)
        if self._offload is not None:
            self._offload.add_code(address, nbytes)

    def remove_code(self, address: int) -> None:
        super().remove_code(address)
        if self._offload is not None:
            self._offload.remove_code(address)

    def begin(self, spec: DispatchSpec, deadline: float | None) -> Run:
        self._executed = Counter()
        return _StepRun(self, spec, deadline, self._host, self._decoded, self._executed, self._offload)

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        pauses: Pauses | None = None,
        suspended: SuspendedDispatch | None = None,
    ) -> DispatchResult:
        result = super().run(spec, timeout=timeout, progress=progress, suspended=suspended)
        for address, nbytes in self.code_ranges.items():
            rows = {(pc - address) // 4: count for pc, count in self._executed.items() if address <= pc < address + nbytes}
            if rows:
                counts = result.executed[address] = np.zeros(nbytes // 4, np.int64)
                counts[list(rows)] = list(rows.values())
        if self._offload is not None:
            result.stats["allocation"]["helpers"] = self._offload.count
            result.stats["async"] = self._offload.statistics()
        return result

    def close(self) -> None:
        super().close()
        if self._offload is not None:
            self._offload.close()


class _StepRun(Run):
    """One dispatch under way. decoded: instructions met by any dispatch, with the bytes that they were made from."""

    def __init__(
        self,
        executor: StepExecutor,
        spec: DispatchSpec,
        deadline: float | None,
        host: PluginHost,
        decoded: dict[int, tuple[bytes, Instruction]],
        executed: Counter[int],
        offload: Offload | None,
    ) -> None:
        super().__init__(executor, spec, deadline)
        self._offload = offload
        self._host = host
        self._dispatch = host.dispatch_of(spec)
        self._decoded = decoded
        self._executed = executed

    def to_end(self, progress: Progress | None) -> None:
        if self._offload is None:
            super().to_end(progress)
            return
        self._offload.begin(self.spec)
        try:
            super().to_end(progress)
        finally:
            self._offload.leave()

    def new_wave(self, place: int) -> WaveState:
        return super().new_wave(place) if self._offload is None else self._offload.new_wave(place)

    def context(self, workgroup: Workgroup, state: WaveState) -> NumpyContext:
        kind = Wave if self._offload is None else SharedWave
        wave = kind(self._dispatch, workgroup.id, state.word("wave_in_group"), state, workgroup.lds)
        context = ObservedContext(wave, workgroup.memory)
        self._host.call("on_wave_start", wave)
        if isinstance(wave, SharedWave):
            wave.run()
        return context

    def fetch(self, workgroup: Workgroup, wave: NumpyContext, pc: int) -> Instruction:
        code = self.executor.code(pc)
        known = self._decoded.get(pc)
        if known is not None and code == known[0]:
            return known[1]
        if known is not None and self._offload is not None:
            self._offload.refresh()
        instr = super().fetch(workgroup, wave, pc)
        assert code is not None, "fetch raises where there is no code"
        self._decoded[pc] = code, instr
        return instr

    def execute(self, wave: NumpyContext, instr: Instruction, semantic: Semantic) -> None:
        assert isinstance(wave, ObservedContext)
        host, info, state = self._host, wave.wave_info, wave.state
        step = Step(state.long("pc"), instr)
        self._executed[step.pc] += 1
        host.call("before_instruction", info, step)
        skipped = state.word("mode") >> VSKIP & 1 and is_skippable(instr)
        if host.hears("on_register_read") and not skipped:
            wave.instr = instr
            for read in register_reads(instr, state, wave.moves):
                host.call("on_register_read", info, step, read)
        super().execute(wave, instr, semantic)
        if host.hears("on_memory_access"):
            for access in wave.accesses:
                host.call("on_memory_access", info, step, access)
        if host.hears("on_register_write"):
            for write in wave.written:
                host.call("on_register_write", info, step, write)
        if instr.name == "s_waitcnt":
            host.call("on_wait", info, step, wait_counters(instr.imm("simm16")))
        if wave.left == "barrier":
            host.call("on_barrier", info, step)

    def step(self, workgroup: Workgroup, wave: NumpyContext) -> None:
        assert isinstance(wave, ObservedContext)
        pc = wave.state.long("pc")
        if self._offload is not None and self._given_away(workgroup, wave, pc, self._offload):
            return
        super().step(workgroup, wave)
        if self._offload is not None and wave.left not in _KEEPS_JOBS:
            self._offload.drain(wave.state)
            if wave.left == "icache":
                self._offload.refresh()
        if self._host.hears("after_instruction"):
            self._host.call("after_instruction", wave.wave_info, Step(pc, wave.instr))

    def _given_away(self, workgroup: Workgroup, wave: ObservedContext, pc: int, offload: Offload) -> bool:
        """Whether a helper has the instruction at a wave's pc. If so, the wave has gone past it."""
        instr = self.fetch(workgroup, wave, pc)
        state = wave.state
        helper = offload.attend(state, pc)
        if helper is None:
            return False
        self._executed[pc] += 1
        state.set_long("pc", pc + instr.size)
        state.set_long("instructions", state.long("instructions") + 1)
        wave.left = None
        number = state.word("wave_in_group")
        self._tell_registers(workgroup, state, Step(pc, instr))
        self._host.issued(IssueFacts(self._dispatch, workgroup.id, number, pc, helper, instr))
        return True

    def _tell_registers(self, workgroup: Workgroup, state: WaveState, step: Step) -> None:
        """The registers of an instruction that a helper has."""
        wave = IssuedWave(self._dispatch, workgroup.id, state.word("wave_in_group"))
        try:
            if self._host.hears("on_register_read"):
                for read in register_reads(step.instr, state, {}):
                    self._host.call("on_register_read", wave, step, read)
            if self._host.hears("on_register_write"):
                for write in matrix_writes(step.instr, state.wave_size):
                    self._host.call("on_register_write", wave, step, write)
        finally:
            wave.expire()

    def event(self, workgroup: Workgroup, wave: NumpyContext) -> bool:
        assert isinstance(wave, ObservedContext)
        if wave.left in ("end", "halt"):
            if isinstance(wave.wave_info, SharedWave):
                wave.wave_info.rest()
            self._host.call("on_wave_halt", wave.wave_info)
        return super().event(workgroup, wave)

    def release(self, workgroup: Workgroup) -> None:
        waiting = [wave for wave in workgroup.waves if wave.state.word("state") == WAVE_BARRIER]
        super().release(workgroup)
        if waiting:
            waves = tuple(wave.wave_info for wave in waiting if isinstance(wave, ObservedContext))
            self._host.call("on_barrier_release", waves)


def wait_counters(simm16: int) -> WaitCounters:
    """What s_waitcnt waits for; a counter's largest value sets no limit."""
    vmcnt, expcnt, lgkmcnt = waitcnt_fields(simm16)
    return WaitCounters(
        vmcnt=vmcnt if vmcnt < MAX_VMCNT else None,
        lgkmcnt=lgkmcnt if lgkmcnt < MAX_LGKMCNT else None,
        expcnt=expcnt if expcnt < MAX_EXPCNT else None,
    )
