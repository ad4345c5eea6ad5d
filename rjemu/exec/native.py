"""The native executor: runs dispatches as threaded code compiled by LLVM (design: docs/architecture.md).

It enters Python only at the ends of native runs: to decode and compile what is reached for the first time, to look at
the clock, and to turn faults into exceptions.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rjemu.errors import BarrierDeadlock, DecodeError, FaultPlace, KernelFault, LaunchInterrupted, LaunchTimeout
from rjemu.exec import faults
from rjemu.exec.allocation_check import CHECK_FUNCTION, write_check_function
from rjemu.exec.cache import HandlerCache
from rjemu.exec.compiler import Host, Loader, compile_object
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.ir import Module
from rjemu.exec.layout import (
    CTX,
    DISPATCH,
    EVENTS,
    FAULT_ACCESSES,
    FAULT_SPACES,
    MAX_PROGRAMS,
    PROGRAM,
    RUN_DEADLOCK,
    RUN_DONE,
    RUN_EVENT,
    SLOT,
    SLOT_FREE,
    SLOT_RUNNING,
    WAVE_BARRIER,
    WAVE_BYTES,
    WAVE_HALTED,
    class_key,
)
from rjemu.exec.memory import AccessError
from rjemu.exec.prepare import DispatchBlock, slot_layout, wave_templates
from rjemu.exec.program import Program
from rjemu.exec.scheduler import scheduler_text
from rjemu.exec.wave import WaveState
from rjemu.shm.segment import Segment
from rjemu.shm.vram import GPU_BASE, Vram

Progress = Callable[[int, int], None]

PAUSE_SECONDS = 0.05
"""How long a native run should last at most: Ctrl-C, timeouts and progress are looked at in between."""

_FIRST_BUDGET = 100_000
_NAMES = {number: name for name, number in EVENTS.items()}
_CODE_EVENTS = frozenset({"illegal", "unsupported"})
_WHOLE_WAVE = 0xFFFFFFFF


class NativeExecutor:
    """Runs dispatches in this process. See `vm.machine.Executor` for the interface."""

    wave_size = 64

    def __init__(
        self, vram: Vram, target: str, *, lds_bytes: int, cache_dir: Path | None = None, host: Host | None = None
    ) -> None:
        """host: the CPU to compile for, by default this one; cache_dir: see `HandlerCache`."""
        self._vram = vram
        self._target = target
        self._cache = HandlerCache(cache_dir, host)
        self._loader = Loader()
        self._runtime = self._load_runtime()
        self._library = HandlerLibrary(target, self.wave_size, self._cache, self._runtime["undecoded"])
        self._programs: list[Program | None] = []
        self._program_table = np.zeros((MAX_PROGRAMS, PROGRAM["end"] // 8), np.uint64)
        self._context = _aligned(CTX["end"])
        self._block = DispatchBlock(_aligned(DISPATCH["end"]))
        self._state = np.zeros(3, np.uint64)
        self._slots: Segment | None = None
        self._run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_uint64, ctypes.c_void_p)(
            self._runtime["run"]
        )
        self._fill_context()

    def _load_runtime(self) -> dict[str, int]:
        names = ["run", "undecoded", CHECK_FUNCTION]
        symbol = f"runtime{self.wave_size}"
        pack = self._cache.find(symbol)
        if pack is not None:
            code = self._cache.read(pack)[0]
        else:
            module = Module(self._cache.host.features)
            write_check_function(module)
            code = compile_object(scheduler_text(module, self.wave_size), opt=2, optimise=True, host=self._cache.host)
            self._cache.write(code, [symbol])
        return self._loader.load(code, names)

    def _fill_context(self) -> None:
        self._set_long("tables", self._library.table_addresses.ctypes.data)
        self._set_long("class_map", self._library.class_map.ctypes.data)
        self._set_long("programs", self._program_table.ctypes.data)
        self._set_long("vram_delta", (self._vram.host_base - GPU_BASE) & 0xFFFFFFFFFFFFFFFF)
        self._set_long("allocations", self._vram.table_address)
        self._set_long("check_lanes", self._runtime[CHECK_FUNCTION])

    def _set_long(self, name: str, value: int) -> None:
        self._context[CTX[name] : CTX[name] + 8].view(np.uint64)[0] = value

    def _word(self, name: str) -> int:
        return int(self._context[CTX[name] : CTX[name] + 4].view(np.uint32)[0])

    def _long(self, name: str) -> int:
        return int(self._context[CTX[name] : CTX[name] + 8].view(np.uint64)[0])

    # --- code --------------------------------------------------------------------------------------------------------

    def add_code(self, address: int, nbytes: int) -> None:
        """Register an executable range of device memory."""
        index = self._programs.index(None) if None in self._programs else len(self._programs)
        if index == MAX_PROGRAMS:
            raise KernelFault(f"more than {MAX_PROGRAMS} code ranges are loaded")
        program = Program(self._target, address, self._vram.view(address, nbytes), self.wave_size)
        self._programs[index : index + 1] = [program]
        self._program_table[index, :3] = program.address, program.base, program.nbytes

    def remove_code(self, address: int) -> None:
        """Forget a range; nothing may run in it."""
        for index, program in enumerate(self._programs):
            if program is not None and program.base == address:
                self._programs[index] = None
                self._program_table[index] = 0
                program.close()

    def _program_of(self, pc: int) -> int | None:
        for index, program in enumerate(self._programs):
            if program is not None and program.contains(pc):
                return index
        return None

    # --- dispatch ------------------------------------------------------------------------------------------------------

    def run(self, spec: DispatchSpec, *, timeout: float | None = None, progress: Progress | None = None) -> DispatchResult:
        """Run a dispatch to its end.

        Raises a KernelFault for what the kernel does wrong, LaunchTimeout after `timeout` seconds, LaunchInterrupted on
        Ctrl-C; memory keeps what had been written, and the executor can be used again.
        """
        started = time.perf_counter()
        program = self._program_of(spec.entry)
        if program is None:
            raise KernelFault(f"kernel {spec.kernel} starts at {spec.entry:#x}, which holds no code")
        for loaded in self._programs:
            if loaded is not None:
                loaded.refresh()
        run = _Run(self, spec, program)
        try:
            run.to_end(started + timeout if timeout is not None else None, progress)
        except KeyboardInterrupt:
            raise LaunchInterrupted(f"kernel {spec.kernel} was interrupted: {run.progress_text()}") from None
        return DispatchResult(run.wave_instructions, time.perf_counter() - started, run.statistics())

    def slots(self, nbytes: int) -> Segment:
        """Shared memory for the resident workgroups, zeroed state fields included."""
        if self._slots is None or self._slots.size < nbytes:
            if self._slots is not None:
                self._slots.close()
            self._slots = Segment.create("waves", nbytes)
        return self._slots

    def close(self) -> None:
        """Release shared memory and programs."""
        for program in self._programs:
            if program is not None:
                program.close()
        self._programs.clear()
        if self._slots is not None:
            self._slots.close()
            self._slots = None


class _Run:
    """One dispatch under way."""

    def __init__(self, executor: NativeExecutor, spec: DispatchSpec, program: int) -> None:
        self.e = executor
        self.spec = spec
        self.wave_instructions = 0
        self._began = executor._library.compiled
        self._waves_offset, self._stride = slot_layout(spec)
        self._count = min(spec.max_resident, spec.workgroups)
        self._segment = executor.slots(self._stride * self._count)
        self._memory = self._segment.bytes
        for slot in range(self._count):
            self._set_slot_state(slot, SLOT_FREE)
        self._templates, counts = wave_templates(spec)
        mode_class = executor._library.mode_class(class_key(spec.mode))
        executor._block.fill(spec, self._templates, counts, mode_class, program)
        executor._context[CTX["access_cache"] : CTX["end"]] = 0
        executor._context[CTX["own_xcds"] : CTX["own_xcds"] + 4].view(np.uint32)[0] = 1
        executor._state[:] = 1, 0, 0

    def to_end(self, deadline: float | None, progress: Progress | None) -> None:
        e = self.e
        budget = _FIRST_BUDGET
        while True:
            e._state[2] = budget
            before = time.perf_counter()
            status = e._run(
                e._context.ctypes.data, e._block.address, self._segment.address, self._count, e._state.ctypes.data
            )
            now = time.perf_counter()
            if status == RUN_DONE:
                break
            if status == RUN_EVENT:
                self._event()
            elif status == RUN_DEADLOCK:
                raise self._deadlock()
            else:
                budget = _next_budget(budget, now - before)
            if progress is not None:
                progress(e._block.long("completed"), self.spec.workgroups)
            if deadline is not None and now > deadline:
                raise LaunchTimeout(f"kernel {self.spec.kernel} ran out of time: {self.progress_text()}")
        self.wave_instructions = e._block.long("instructions")
        if progress is not None:
            progress(self.spec.workgroups, self.spec.workgroups)

    def statistics(self) -> dict[str, float]:
        return {"handlers_compiled": float(self.e._library.compiled - self._began)}

    # --- slots ---------------------------------------------------------------------------------------------------------

    def _slot_word(self, slot: int, name: str) -> int:
        at = slot * self._stride + SLOT[name]
        return int(self._memory[at : at + 4].view(np.uint32)[0])

    def _set_slot_state(self, slot: int, state: int) -> None:
        at = slot * self._stride + SLOT["state"]
        self._memory[at : at + 4].view(np.uint32)[0] = state

    def _wave(self, slot: int, wave: int) -> WaveState:
        at = slot * self._stride + self._waves_offset + wave * WAVE_BYTES
        return WaveState(self._memory[at : at + WAVE_BYTES], self.e.wave_size)

    def _workgroup(self, slot: int) -> tuple[int, int, int]:
        return self._slot_word(slot, "id_x"), self._slot_word(slot, "id_y"), self._slot_word(slot, "id_z")

    def progress_text(self) -> str:
        """Where the dispatch stands, for messages: workgroups done, and what waits at barriers."""
        text = f"{self.e._block.long('completed')} of {self.spec.workgroups} workgroups had ended"
        waiting = self._waiting()
        return f"{text}; waiting at a barrier: {', '.join(waiting[:8])}" if waiting else text

    def _waiting(self) -> list[str]:
        out = []
        for slot in range(self._count):
            if self._slot_word(slot, "state") != SLOT_RUNNING:
                continue
            for number in range(self._slot_word(slot, "waves")):
                wave = self._wave(slot, number)
                state = wave.word("state")
                if state in (WAVE_BARRIER, WAVE_HALTED):
                    what = "" if state == WAVE_BARRIER else " (halted)"
                    out.append(f"workgroup {self._workgroup(slot)} wave {number} at pc {wave.long('pc'):#x}{what}")
        return out

    def _deadlock(self) -> BarrierDeadlock:
        return BarrierDeadlock(f"kernel {self.spec.kernel}: no wave can go on; waiting: {', '.join(self._waiting()[:16])}")

    # --- events --------------------------------------------------------------------------------------------------------

    def _event(self) -> None:
        """Cure what took the wave out of the loop, or raise."""
        e = self.e
        slot = int(e._state[1])
        number = self._slot_word(slot, "next_wave")
        wave = self._wave(slot, number)
        pc = wave.long("pc")
        name = _NAMES[e._word("event")]
        if name == "undecoded":
            self._decode(slot, number, wave)
        elif name == "mode":
            wave.set_word("fp_class", e._library.mode_class(class_key(wave.word("mode"))))
        elif name == "icache":
            for program in e._programs:
                if program is not None:
                    program.refresh()
        elif name == "outside":
            target = e._long("fault_address")
            index = e._program_of(target)
            if index is None or target % 4:
                raise faults.jump_fault(target, self._place(slot, number, None, pc))
            wave.set_word("program", index)
            wave.set_long("pc", target)
        elif name in ("memory", "misaligned"):
            lane = e._word("fault_lane")
            error = AccessError(
                FAULT_SPACES[e._word("fault_space")],
                FAULT_ACCESSES[e._word("fault_access")],
                e._long("fault_address"),
                None if lane == _WHOLE_WAVE else lane,
                e._word("fault_bytes"),
                misaligned=name == "misaligned",
            )
            raise faults.memory_fault(error, self._place(slot, number, error.lane, pc), e._vram, self.spec.lds_bytes)
        elif name == "trap":
            raise faults.trap(e._word("event_value"), self._place(slot, number, None, pc))
        else:
            raise faults.event_fault(name, self._place(slot, number, None, pc))

    def _decode(self, slot: int, number: int, wave: WaveState) -> None:
        """Decode at the wave's pc, or compile what is decoded there for the wave's MODE."""
        e = self.e
        pc = wave.long("pc")
        program = e._programs[wave.word("program")]
        assert program is not None
        if not program.contains(pc):
            raise faults.jump_fault(pc, self._place(slot, number, None, pc))
        if program.handler_at(pc):
            numbers = program.handlers()
        else:
            try:
                numbers = program.decode(pc, e._library.number)
            except DecodeError as error:
                raise faults.code_fault(error, self._place(slot, number, None, pc)) from None
            if not numbers:
                raise faults.unsupported(program.instruction(pc), self._place(slot, number, None, pc))
        e._library.provide(numbers, wave.word("fp_class"))

    def _place(self, slot: int, wave: int, lane: int | None, pc: int) -> FaultPlace:
        program = self.e._program_of(pc)
        text = "no code"
        if program is not None:
            loaded = self.e._programs[program]
            assert loaded is not None
            try:
                text = faults.instruction_text(loaded.instruction(pc), pc)
            except DecodeError as error:
                text = str(error)
        return FaultPlace(self.spec.kernel, self._workgroup(slot), wave, lane, pc, text)


def _next_budget(budget: int, seconds: float) -> int:
    """The budget that should last PAUSE_SECONDS, changed by at most a factor of 4 at once."""
    scale = PAUSE_SECONDS / max(seconds, 1e-6)
    return int(budget * min(max(scale, 0.25), 4.0)) + 1


def _aligned(nbytes: int) -> np.ndarray:
    """uint8 zeros at a cache line's start."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
