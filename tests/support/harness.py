"""One instruction at a time on both executors, from the same random state: the differential tests' engine.

lab = Lab("gfx950")
for instr in lab.instructions("v_add_f32 v1, v2, v3"):
    lab.check(instr, rng)            # AssertionError if any bit of the wave, the memory or the LDS differs
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from support.assemble import assemble, text_section

import rjemu.isa.semantics
import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.exec.allocation_check import write_check_function
from rjemu.exec.cache import HandlerCache
from rjemu.exec.compiler import Host, Loader, compile_object, this_host
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.ir import Module
from rjemu.exec.layout import CHECK_FUNCTION, CTX, EVENTS, RECORD_BYTES, WAVE, WAVE_BYTES, class_key
from rjemu.exec.memory import AccessError, FlatMemory
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.records import encode_record
from rjemu.exec.scheduler import scheduler_text
from rjemu.exec.wave import WaveState
from rjemu.isa.apertures import LDS_APERTURE, SCRATCH_APERTURE
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import EXEC, M0, Instruction, Operand
from rjemu.isa.semantics.registry import semantic_of
from rjemu.shm.vram import TABLE_ROWS

MEMORY_BASE = 0x6000_0001_0000
MEMORY_BYTES = 1 << 16
LDS_BYTES = 1 << 14
CODE_BASE = 0x6000_1000_0000
SCRATCH_OFFSET, SCRATCH_LANE_BYTES = 1 << 15, 256
NAMES = {number: name for name, number in EVENTS.items()}

F16 = [0x0000, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0xFD01, 0x7C01, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x4200]
F32 = [
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC01234, 0x7F800001,
    0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x4B000001, 0x3F000000, 0xC0490FDB, 0x42FE0000, 0xC3020000,
    0x7FFFFFFF, 0xFFFFFFFF, 0x0000FFFF, 0x4F000000, 0xCF000000, 0x4F800000,
]  # fmt: skip
U32 = [0, 1, 2, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE]
F64 = [
    0x0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
    0x7FF0000000000001, 0x1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0x4330000000000001,
    0x41E0000000000000, 0xC1E0000000200000, 0x3FE0000000000000, 0x36A0000000000000, 0x47EFFFFFE0000000,
]  # fmt: skip


@dataclass
class State:
    """Everything one instruction may touch. memory: uint8 [MEMORY_BYTES] at MEMORY_BASE; lds: uint8 [LDS_BYTES]."""

    wave: WaveState
    memory: np.ndarray
    lds: np.ndarray

    def copy(self) -> State:
        return State(
            WaveState(_aligned_copy(self.wave.memory), self.wave.wave_size),
            _aligned_copy(self.memory),
            _aligned_copy(self.lds),
        )


@dataclass
class Outcome:
    """Where the wave went: the next pc, and the event that took it out of the loop ("none"), or the fault."""

    event: str
    next_pc: int | None
    fault: tuple[str, str, int, int | None] | None = None


def _aligned_copy(data: np.ndarray) -> np.ndarray:
    raw = np.zeros(len(data) + 64, np.uint8)
    out = raw[-raw.ctypes.data % 64 :][: len(data)]
    out[:] = data
    return out


class Lab:
    """Both executors for one target. mode: the MODE register that random states have. host: the CPU that native code is
    compiled for."""

    def __init__(self, target: str, mode: int = 0x3F0, host: Host | None = None) -> None:
        self.target = target
        self.mode = mode
        self.wave_size = 64
        loader = Loader()
        host = host or this_host()
        module = Module(host.features)
        write_check_function(module)
        code = compile_object(scheduler_text(module, self.wave_size), opt=2, optimise=True, host=host)
        addresses = loader.load(code, ["undecoded", CHECK_FUNCTION])
        self._loader = loader
        self._library = HandlerLibrary(target, self.wave_size, HandlerCache(host=host), addresses["undecoded"])
        self._context = _aligned_copy(np.zeros(CTX["end"], np.uint8))
        self._records = _aligned_copy(np.zeros(RECORD_BYTES * 64, np.uint8))
        self._table = _aligned_copy(np.zeros(TABLE_ROWS + 16, np.uint8))
        self._put("records", self._records.ctypes.data)
        self._put("code_base", CODE_BASE)
        self._put("code_bytes", 64 * 4)
        self._put("allocations", self._table.ctypes.data)
        self._put("check_lanes", addresses[CHECK_FUNCTION])
        self._table.view(np.uint64)[0] = 1
        self._table[TABLE_ROWS:].view(np.uint64)[:] = MEMORY_BASE, MEMORY_BASE + MEMORY_BYTES

    def _put(self, name: str, value: int) -> None:
        self._context[CTX[name] : CTX[name] + 8].view(np.uint64)[0] = value & 0xFFFFFFFFFFFFFFFF

    def _word(self, name: str) -> int:
        return int(self._context[CTX[name] : CTX[name] + 4].view(np.uint32)[0])

    def instructions(self, text: str) -> list[Instruction]:
        """Assemble lines and decode them."""
        return list(self.decode(text_section(assemble(text + "\n", self.target))))

    def decode(self, code: bytes) -> Iterator[Instruction]:
        decoder, offset = Decoder(self.target), 0
        while offset < len(code):
            instr = decoder.decode(code, offset)
            yield instr
            offset += instr.size

    def prepare(self, instructions: list[Instruction]) -> None:
        """Compile the handlers of many instructions together."""
        mode_class = self._library.mode_class(class_key(self.mode))
        self._library.provide([self._library.number(instr) for instr in instructions], mode_class)

    # --- states -------------------------------------------------------------------------------------------------------

    def random_state(self, rng: np.random.Generator, instr: Instruction | None = None) -> State:
        """Registers full of edge cases and noise, some lanes off; addresses of memory instructions point to live memory."""
        wave = WaveState(_aligned_copy(np.zeros(WAVE_BYTES, np.uint8)), self.wave_size)
        wave.vgpr[:] = rng.integers(0, 1 << 32, wave.vgpr.shape, dtype=np.uint32)
        wave.scalars[:] = rng.integers(0, 1 << 32, wave.scalars.shape, dtype=np.uint32)
        exec_mask = [(1 << 64) - 1, int(rng.integers(0, 1 << 64, dtype=np.uint64)), 0, 1 << int(rng.integers(64))][
            int(rng.choice(4, p=[0.45, 0.4, 0.05, 0.1]))
        ]
        wave.scalars[EXEC : EXEC + 2] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
        wave.set_word("mode", self.mode)
        wave.set_word("scc", int(rng.integers(2)))
        wave.set_word("wave_in_group", int(rng.integers(16)))
        wave.set_long("pc", CODE_BASE + 16)
        wave.set_long("scratch_base", MEMORY_BASE + SCRATCH_OFFSET)
        wave.set_word("scratch_size", SCRATCH_LANE_BYTES)
        state = State(wave, _aligned_copy(random_bytes(rng, MEMORY_BYTES)), _aligned_copy(random_bytes(rng, LDS_BYTES)))
        if instr is not None:
            self._fit(rng, instr, state)
        return state

    def _fit(self, rng: np.random.Generator, instr: Instruction, state: State) -> None:
        """Operand values that suit the instruction: edge cases by format, and addresses that hit."""
        for op in instr.operands:
            if op.kind == "v":
                for k in range(op.dwords):
                    if op.index + k < 512:
                        state.wave.vgpr[op.index + k] = _values(rng, op, k, self.wave_size)
            elif op.kind == "s" and op.index not in (EXEC, EXEC + 1):
                for k in range(op.dwords):
                    state.wave.scalars[op.index + k] = _values(rng, op, k, 1)[0]
        fit = _ADDRESSES.get(instr.encoding)
        if fit is not None:
            fit(rng, instr, state)

    # --- execution ----------------------------------------------------------------------------------------------------

    def run_reference(self, instr: Instruction, state: State) -> Outcome:
        """Execute on `state` with numpy."""
        context = NumpyContext(state.wave, FlatMemory({MEMORY_BASE: state.memory}, state.lds), self.target)
        semantic = semantic_of(instr)
        assert semantic is not None, f"{instr.name} has no semantics"
        try:
            context.execute(instr, semantic)
        except AccessError as error:
            kind = "misaligned" if error.misaligned else "memory"
            return Outcome(kind, None, (error.space, error.access, error.address, error.lane))
        if context.left is not None:
            return Outcome(context.left, None)
        return Outcome("none", context.next_pc)

    def run_native(self, instr: Instruction, state: State) -> Outcome:
        """Execute on `state` with the compiled handler."""
        mode = state.wave.word("mode")
        mode_class = self._library.mode_class(class_key(mode))
        number = self._library.number(instr)
        self._library.provide([number], mode_class)
        position = (state.wave.long("pc") - CODE_BASE) // 4 * RECORD_BYTES
        self._records[position : position + RECORD_BYTES] = np.frombuffer(
            encode_record(instr, number, self.wave_size), np.uint8
        )
        self._put("vram_delta", state.memory.ctypes.data - MEMORY_BASE)
        self._put("lds", state.lds.ctypes.data)
        self._context[CTX["lds_size"] : CTX["lds_size"] + 4].view(np.uint32)[0] = LDS_BYTES
        self._context[CTX["access_cache"] : CTX["end"]] = 0
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 3)(self._library.address(number, mode_class))
        start = self._records.ctypes.data
        following = handler(self._context.ctypes.data, state.wave.memory.ctypes.data, start + position)
        if following:
            return Outcome("none", CODE_BASE + (following - start) // RECORD_BYTES * 4)
        name = NAMES[self._word("event")]
        if name in ("memory", "misaligned"):
            lane = self._word("fault_lane")
            space = ("global", "lds", "scalar")[self._word("fault_space")]
            access = ("load", "store", "atomic")[self._word("fault_access")]
            address = int(self._context[CTX["fault_address"] :][:8].view(np.uint64)[0])
            return Outcome(name, None, (space, access, address, None if lane == 0xFFFFFFFF else lane))
        if name == "mode":
            return Outcome("none", state.wave.long("pc") + instr.size)
        return Outcome(name, None)

    def check(self, instr: Instruction, rng: np.random.Generator, states: int = 4) -> None:
        """Both executors from the same random states: every bit of every register and of memory must agree."""
        for _ in range(states):
            before = self.random_state(rng, instr)
            self.compare(instr, before)

    def compare(self, instr: Instruction, before: State) -> None:
        reference, native = before.copy(), before.copy()
        expected, got = self.run_reference(instr, reference), self.run_native(instr, native)
        if expected.event == "outside" or got.event == "outside":
            expected.next_pc = got.next_pc = None
            expected.event = got.event
        text = f"{instr.name} {dict(instr.mods)} {dict(instr.imms)}"
        assert (got.event, got.fault) == (expected.event, expected.fault), f"{text}: {got} != {expected}"
        in_program = expected.next_pc is not None and CODE_BASE <= expected.next_pc < CODE_BASE + 64 * 4
        if in_program:
            assert got.next_pc == expected.next_pc, f"{text}: pc {got.next_pc:#x} != {expected.next_pc:#x}"
        _same(f"{text}: vector registers", native.wave.vgpr, reference.wave.vgpr, before.wave.vgpr)
        _same(f"{text}: scalar registers", native.wave.scalars, reference.wave.scalars, before.wave.scalars)
        rest = slice(WAVE["clock"], WAVE["end"])
        _same(f"{text}: wave state", native.wave.memory[rest], reference.wave.memory[rest], before.wave.memory[rest])
        _same(f"{text}: memory", native.memory, reference.memory, before.memory)
        _same(f"{text}: LDS", native.lds, reference.lds, before.lds)


def _same(what: str, native: np.ndarray, reference: np.ndarray, before: np.ndarray) -> None:
    if np.array_equal(native, reference):
        return
    where = tuple(int(k) for k in np.argwhere(native != reference)[0])
    count = int((native != reference).sum())
    raise AssertionError(
        f"{what} differ in {count} places, first {list(where)}: native {int(native[where]):#x}, "
        f"reference {int(reference[where]):#x}, before {int(before[where]):#x}"
    )


def random_bytes(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 256, count, dtype=np.uint8)


def _values(rng: np.random.Generator, op: Operand, k: int, lanes: int) -> np.ndarray:
    """uint32 [lanes] for dword k of an operand: edge cases of its format mixed with noise of several magnitudes."""
    noise = rng.integers(0, 1 << 32, lanes, dtype=np.uint32)
    fmt = op.fmt
    if "f16" in fmt and "bf16" not in fmt:
        edges = np.array(F16, np.uint32)
        edge = rng.choice(edges, lanes) | rng.choice(edges, lanes) << np.uint32(16)
        plain = rng.normal(size=2 * lanes).astype(np.float16).view(np.uint32)
    elif fmt.endswith("f64"):
        edge = (rng.choice(np.array(F64, np.uint64), lanes) >> np.uint64(32 * (k % 2))).astype(np.uint32)
        plain = (rng.normal(size=lanes).view(np.uint64) >> np.uint64(32 * (k % 2))).astype(np.uint32)
    elif "f" in fmt:
        edge = rng.choice(np.array(F32, np.uint32), lanes)
        plain = (rng.normal(size=lanes) * np.exp2(rng.integers(-8, 8))).astype(np.float32).view(np.uint32)
    else:
        edge = rng.choice(np.array(U32, np.uint32), lanes)
        plain = rng.integers(0, 1000, lanes, dtype=np.uint32)
    kind = rng.choice(3, lanes, p=[0.4, 0.3, 0.3])
    return np.where(kind == 0, edge, np.where(kind == 1, plain, noise)).astype(np.uint32)


# --- addresses --------------------------------------------------------------------------------------------------------


def _store64(target: np.ndarray, index: int, values: np.ndarray) -> None:
    target[index] = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    target[index + 1] = (values >> np.uint64(32)).astype(np.uint32)


def _offsets(rng: np.random.Generator, limit: int) -> np.ndarray:
    """u64 [64]: aligned offsets, sometimes consecutive, sometimes all alike."""
    step = 16
    style = int(rng.integers(3))
    if style == 0:
        return np.arange(64, dtype=np.uint64) * np.uint64(step) + np.uint64(1024)
    if style == 1:
        return np.full(64, 2048, np.uint64)
    return rng.integers(64, (limit - 512) // step, 64).astype(np.uint64) * np.uint64(step)


def _fit_ds(rng: np.random.Generator, instr: Instruction, state: State) -> None:
    state.wave.scalars[M0] = (
        int(rng.integers(0, 64)) * 16 if "append" in instr.name or "consume" in instr.name else 0xFFFFFFFF
    )
    if "addtid" in instr.name:
        state.wave.scalars[M0] = int(rng.integers(0, 64)) * 16
    span = max(abs(value) for value in (*instr.imms.values(), 0))
    scale = 64 * 8 if "st64" in instr.name else 8 if "2" in instr.name else 1
    limit = LDS_BYTES - 1024
    if instr.has("addr"):
        offsets = _offsets(rng, LDS_BYTES)
        offsets = np.where(offsets + np.uint64(span * scale) < limit, offsets, np.uint64(0))
        state.wave.vgpr[instr.operand("addr").index] = offsets.astype(np.uint32)


def _fit_flat(rng: np.random.Generator, instr: Instruction, state: State) -> None:
    offset = instr.imm("offset")
    state.wave.scalars[M0] = int(rng.integers(0, 64)) * 16
    offsets = _offsets(rng, SCRATCH_OFFSET - 8192) + np.uint64(8192)
    base = np.uint64((MEMORY_BASE - offset) & 0xFFFFFFFFFFFFFFFF)
    addr, saddr = (instr.operand(name) if instr.has(name) else None for name in ("addr", "saddr"))
    if saddr is not None and saddr.kind == "s":
        _store64(state.wave.scalars, saddr.index, base)
        if addr is not None and addr.kind == "v":
            state.wave.vgpr[addr.index] = offsets.astype(np.uint32)
        return
    if addr is not None and addr.kind == "v":
        addresses = base + offsets
        if instr.encoding == "FLAT":
            lds = np.uint64(LDS_APERTURE - min(offset, 512)) + offsets % np.uint64(4096)
            private = np.uint64(SCRATCH_APERTURE) + offsets % np.uint64(64)
            kind = rng.choice(3, 64, p=[0.6, 0.25, 0.15])
            addresses = np.where(kind == 0, addresses, np.where(kind == 1, lds, private))
        _store64(state.wave.vgpr, addr.index, addresses)


def _fit_scratch(rng: np.random.Generator, instr: Instruction, state: State) -> None:
    start = max(-instr.imm("offset"), 0) + int(rng.integers(0, 4)) * 16
    state.wave.scalars[M0] = int(rng.integers(0, 64)) * 16
    for name in ("addr", "saddr"):
        if instr.has(name):
            op = instr.operand(name)
            if op.kind == "v":
                state.wave.vgpr[op.index] = start
            elif op.kind == "s":
                state.wave.scalars[op.index] = start


def _fit_buffer(rng: np.random.Generator, instr: Instruction, state: State) -> None:
    if not instr.has("srsrc"):
        return
    resource = instr.operand("srsrc").index
    stride = int(rng.choice([0, 4, 16]))
    base = MEMORY_BASE + 4096
    swizzle = int(rng.integers(2)) if stride else 0
    state.wave.scalars[resource] = base & 0xFFFFFFFF
    state.wave.scalars[resource + 1] = base >> 32 | stride << 16 | swizzle << 31
    state.wave.scalars[resource + 2] = int(rng.choice([0, 64, 1024, 16384])) // (stride or 1)
    formats = int(rng.integers(1, 15)) << 15 | int(rng.integers(0, 8)) << 12
    state.wave.scalars[resource + 3] = 0xFAC | formats | int(rng.integers(0, 4)) << 19 | int(rng.integers(0, 4)) << 21
    state.wave.scalars[M0] = int(rng.integers(0, 64)) * 16
    if instr.has("soffset") and instr.operand("soffset").kind == "s":
        state.wave.scalars[instr.operand("soffset").index] = int(rng.integers(0, 16)) * 16
    if instr.has("vaddr") and instr.operand("vaddr").kind == "v":
        for k in range(instr.operand("vaddr").dwords):
            offsets = rng.integers(0, 256, 64).astype(np.uint32) * 16
            state.wave.vgpr[instr.operand("vaddr").index + k] = np.where(rng.random(64) < 0.1, 0x80000000, offsets)


def _fit_smem(rng: np.random.Generator, instr: Instruction, state: State) -> None:
    if not instr.has("sbase"):
        return
    base = instr.operand("sbase").index
    address = MEMORY_BASE + 16384 + int(rng.integers(0, 64)) * 4
    if instr.has("soffset") and instr.operand("soffset").kind == "s":
        state.wave.scalars[instr.operand("soffset").index] = int(rng.integers(0, 256)) * 4
    if "buffer" in instr.name:
        state.wave.scalars[base : base + 4] = address & 0xFFFFFFFF, address >> 32, int(rng.choice([64, 4096])), 0
        return
    address -= instr.imm("offset") if abs(instr.imm("offset")) > 16000 else 0
    state.wave.scalars[base : base + 2] = address & 0xFFFFFFFF, address >> 32


_ADDRESSES = {
    "DS": _fit_ds,
    "FLAT": _fit_flat,
    "GLOBAL": _fit_flat,
    "SCRATCH": _fit_scratch,
    "MUBUF": _fit_buffer,
    "MTBUF": _fit_buffer,
    "SMEM": _fit_smem,
}
