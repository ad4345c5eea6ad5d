"""Runs one memory instruction of assembly text on a wave, by the reference context or by its native handler."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from support.vector_runs import ALL_LANES, DEFAULT_MODE, LANES, decode, filler

from rjemu.exec.allocation_check import write_check_function
from rjemu.exec.compiler import Loader, compile_object, host_features
from rjemu.exec.handlers import write_handler
from rjemu.exec.ir import Module
from rjemu.exec.layout import (
    CHECK_FUNCTION,
    CTX,
    EVENTS,
    FAULT_ACCESSES,
    FAULT_SPACES,
    RECORD_BYTES,
    WAVE_BYTES,
    WHOLE_WAVE,
    class_key,
)
from rjemu.exec.memory import AccessError
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.records import encode_record, handler_key
from rjemu.exec.reference import DeviceMemory
from rjemu.exec.wave import WaveState
from rjemu.isa.instruction import EXEC, M0, Instruction
from rjemu.isa.semantics.registry import lookup
from rjemu.shm.vram import GPU_BASE, Vram

EXECUTORS = ("reference", "native")
LDS_BYTES = 8192


@dataclass(frozen=True)
class Fault:
    """A refused access, as both executors report it."""

    space: str
    access: str
    address: int
    lane: int | None
    nbytes: int
    misaligned: bool


@dataclass(frozen=True)
class Run:
    """The wave after an instruction, and what it was refused, if anything."""

    state: WaveState
    fault: Fault | None = None

    @property
    def vgpr(self) -> np.ndarray:
        """uint32 [512, lanes]."""
        assert self.fault is None, self.fault
        return self.state.vgpr


class MemoryRig:
    """Device memory, an LDS, and both ways to execute an instruction on them."""

    def __init__(self) -> None:
        self.vram = Vram(8 << 20)
        self.lds = _aligned(LDS_BYTES)
        self._context = _aligned(CTX["end"])
        self._record = _aligned(RECORD_BYTES)
        self._loader = Loader()
        self._handlers: dict[str, int] = {}
        module = Module(host_features())
        write_check_function(module)
        check = self._loader.load(compile_object(module.text(), optimise=True), [CHECK_FUNCTION])[CHECK_FUNCTION]
        self._set("check_lanes", check)
        self._set("vram_delta", (self.vram.host_base - GPU_BASE) & (1 << 64) - 1)
        self._set("allocations", self.vram.table_address)
        self._set("lds", self.lds.ctypes.data)
        self._set("lds_size", LDS_BYTES, 4)

    def buffer(self, data: np.ndarray) -> int:
        """The GPU address of a new allocation that holds the array's bytes."""
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        address = self.vram.allocate(len(raw))
        self.vram.view(address, len(raw))[:] = raw
        return address

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        """uint8 view of device memory."""
        return self.vram.view(address, nbytes)

    def forget_hits(self) -> None:
        """Empty the native cache of allocations, as executors do when allocations change."""
        self._context[CTX["access_cache"] :] = 0

    def run(
        self,
        executor: str,
        text: str,
        vgprs: Mapping[int, Sequence[int] | np.ndarray | int] | None = None,
        *,
        sgprs: Mapping[int, int] | None = None,
        m0: int = 0,
        exec_mask: int = ALL_LANES,
        mode: int = DEFAULT_MODE,
        scratch: tuple[int, int] = (0, 0),
        target: str = "gfx950",
    ) -> Run:
        """Execute one instruction. scratch: the wave's scratch address and bytes per lane. The rest as `vector_runs.run`."""
        instr = decode(text, target)
        state = WaveState(_aligned(WAVE_BYTES), LANES)
        state.vgpr[:] = filler(state.vgpr.shape[0])
        for register, values in (vgprs or {}).items():
            state.vgpr[register] = np.resize(np.asarray(values, dtype=np.uint64).astype(np.uint32), LANES)
        for register, value in (sgprs or {}).items():
            state.scalars[register] = value
        state.scalars[EXEC : EXEC + 2] = np.array([exec_mask], np.uint64).view(np.uint32)
        state.scalars[M0] = m0
        state.set_word("mode", mode)
        state.set_long("scratch_base", scratch[0])
        state.set_word("scratch_size", scratch[1])
        if executor == "native":
            return Run(state, self._run_native(instr, state, target, mode))
        return Run(state, self._run_reference(instr, state, target))

    def _run_reference(self, instr: Instruction, state: WaveState, target: str) -> Fault | None:
        semantic = lookup(instr.name)
        assert semantic is not None, f"{instr.name} has no semantics"
        memory = DeviceMemory(self.vram, self.lds)
        try:
            NumpyContext(state, memory, target).execute(instr, semantic)  # type: ignore[abstract]
        except AccessError as error:
            return Fault(error.space, error.access, error.address, error.lane, error.nbytes, error.misaligned)
        return None

    def _run_native(self, instr: Instruction, state: WaveState, target: str, mode: int) -> Fault | None:
        key = handler_key(instr, target, LANES, class_key(mode))
        if key.symbol not in self._handlers:
            module = Module(host_features())
            write_handler(module, instr, key, key.symbol)
            self._handlers.update(self._loader.load(compile_object(module.text()), [key.symbol]))
        self._record[:] = np.frombuffer(encode_record(instr, 1, LANES), np.uint8)
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 3)(self._handlers[key.symbol])
        following = handler(self._context.ctypes.data, state.memory.ctypes.data, self._record.ctypes.data)
        if following is not None:
            assert following == self._record.ctypes.data + instr.size // 4 * RECORD_BYTES
            return None
        event, lane = self._get("event", 4), self._get("fault_lane", 4)
        if event == EVENTS["yield"]:
            return None
        assert event in (EVENTS["memory"], EVENTS["misaligned"])
        return Fault(
            FAULT_SPACES[self._get("fault_space", 4)],
            FAULT_ACCESSES[self._get("fault_access", 4)],
            self._get("fault_address"),
            None if lane == WHOLE_WAVE else lane,
            self._get("fault_bytes", 4),
            event == EVENTS["misaligned"],
        )

    def _set(self, name: str, value: int, nbytes: int = 8) -> None:
        self._context[CTX[name] : CTX[name] + nbytes] = np.frombuffer(value.to_bytes(nbytes, "little"), np.uint8)

    def _get(self, name: str, nbytes: int = 8) -> int:
        return int.from_bytes(self._context[CTX[name] : CTX[name] + nbytes].tobytes(), "little")

    def close(self) -> None:
        self.vram.close()


@contextmanager
def memory_rig() -> Iterator[MemoryRig]:
    """A rig that is closed at the end."""
    rig = MemoryRig()
    try:
        yield rig
    finally:
        rig.close()


def _aligned(nbytes: int) -> np.ndarray:
    """uint8 [nbytes], zero, at a multiple of 64."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def lanes_of(mask: int) -> list[int]:
    """The set bits' numbers."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


def pair(address: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) uint32 arrays of 64-bit addresses, one per lane or the same for all."""
    wide = np.broadcast_to(np.asarray(address, np.uint64), LANES)
    return (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
