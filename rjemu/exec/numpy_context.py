"""`Context` on a wave in memory: executes one instruction at once with numpy. The reference executor's other half."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rjemu.exec.fenv import rounding
from rjemu.exec.layout import CLOCK_STEP, EVENTS, SCALAR_COUNT
from rjemu.exec.memory import AccessError, ReferenceMemory
from rjemu.exec.numpy_lanes import NumpyLanes
from rjemu.exec.reference_atomics import combine
from rjemu.exec.wave import WaveState
from rjemu.isa.atomics import atomic_mode
from rjemu.isa.context import AtomicOp, Context, Event, Semantic, Space
from rjemu.isa.gpr_index import FILE_SIZE, GPR_IDX_EN, index_bit
from rjemu.isa.instruction import M0, Instruction, Operand
from rjemu.isa.lanes import BOOL, TYPES, FpMode, Value
from rjemu.isa.skipping import VSKIP, is_skippable


class NumpyContext(NumpyLanes, Context):
    """Executes instructions on `state`, with `memory` behind the global and LDS accesses.

    `execute` leaves in `next_pc` where the wave goes on, and in `left` the event that took it out of the loop
    (None for none) with its payload in `left_value`. Memory errors are raised as `AccessError`.
    """

    def __init__(self, state: WaveState, memory: ReferenceMemory, target: str) -> None:
        super().__init__(state.wave_size)
        self.state = state
        self.memory = memory
        self.target = target
        self.next_pc = 0
        self.left: Event | None = None
        self.left_value = 0
        self._moves: dict[str, int] = {}

    def execute(self, instr: Instruction, semantic: Semantic) -> None:
        """One instruction at the wave's pc. Does not move the wave's pc: see `next_pc`."""
        self.instr = instr
        self.fp = FpMode.from_register(self.state.word("mode"))
        self.rounding = self.fp.rounding_of(instr.name)
        self.next_pc = self.state.long("pc") + instr.size
        self.left = None
        if self.state.word("mode") >> VSKIP & 1 and is_skippable(instr):
            return
        self._moves = self._index_moves()
        if self._leaves_its_file(instr):
            self.event("illegal")
            return
        with rounding(self.rounding):
            semantic(self)

    def _index_moves(self) -> dict[str, int]:
        """Operand -> how many registers VGPR indexing moves it."""
        if not self.state.word("mode") >> GPR_IDX_EN & 1:
            return {}
        m0 = int(self.state.scalars[M0])
        bits = {op.name: index_bit(self.instr, op) for op in self.instr.operands}
        return {name: m0 & 0xFF for name, bit in bits.items() if bit is not None and m0 >> bit & 1}

    def _leaves_its_file(self, instr: Instruction) -> bool:
        """Whether indexing moves an operand out of its register file."""
        moved = [(op, op.index % FILE_SIZE + self._moves[op.name]) for op in instr.operands if op.name in self._moves]
        return any(first + op.dwords > FILE_SIZE for op, first in moved)

    def _u32(self, data: np.ndarray) -> Value:
        return self.make(TYPES["u32"], data)

    def vgpr(self, op: Operand, k: int = 0) -> Value:
        return self._u32(self.state.vgpr[self._vector_register(op, k)].copy())

    def set_vgpr(self, op: Operand, k: int, value: Value, mask: Value | None = None) -> None:
        lanes = (self.exec_lanes() if mask is None else self.vector(mask)).data
        np.copyto(
            self.state.vgpr[self._vector_register(op, k)], self.vector(self.coerce(value, TYPES["u32"])).data, where=lanes
        )

    def _vector_register(self, op: Operand, k: int) -> int:
        assert op.kind == "v" and k < op.dwords, f"{op.name}: register {k} of {op.dwords}"
        return op.index + k + self._moves.get(op.name, 0)

    def scalar(self, op: Operand, k: int = 0) -> Value:
        assert op.kind == "s" and k < op.dwords, f"{op.name}: register {k} of {op.dwords}"
        return self._u32(self.state.scalars[op.index + k : op.index + k + 1].copy())

    def set_scalar(self, op: Operand, k: int, value: Value) -> None:
        assert op.kind == "s" and k < op.dwords, f"{op.name}: register {k} of {op.dwords}"
        self.state.scalars[op.index + k] = self.coerce(value, TYPES["u32"]).data[0]

    def constant(self, op: Operand, bits: int) -> Value:
        return self._const(TYPES[f"u{bits}"], op.value & ((1 << bits) - 1))

    def fixed_scalar(self, code: int, bits: int) -> Value:
        words = self.state.scalars[code : code + bits // 32].copy()
        return self.make(TYPES[f"u{bits}"], words.view(f"uint{bits}"))

    def set_fixed_scalar(self, code: int, value: Value) -> None:
        words = value.data.view(np.uint32)
        self.state.scalars[code : code + len(words)] = words

    def scalar_number(self, op: Operand) -> Value:
        return self.const("u32", op.index)

    def scalar_at(self, number: Value) -> Value:
        index = int(number.data[0]) % SCALAR_COUNT
        return self._u32(self.state.scalars[index : index + 1].copy())

    def set_scalar_at(self, number: Value, value: Value) -> None:
        self.state.scalars[int(number.data[0]) % SCALAR_COUNT] = value.data[0]

    def scc(self) -> Value:
        return self.make(BOOL, np.array([self.state.word("scc") != 0]))

    def set_scc(self, value: Value) -> None:
        assert value.type is BOOL and value.lanes == 1
        self.state.set_word("scc", int(value.data[0]))

    def hardware(self, name: str) -> Value:
        return self.const("u32", self.state.word(name))

    def set_hardware(self, name: str, value: Value) -> None:
        self.state.set_word(name, int(value.data[0]))

    def imm(self, name: str) -> Value:
        return self.const("i32", self.instr.imm(name))

    def pc(self) -> Value:
        return self.const("u64", self.state.long("pc"))

    def branch(self, condition: Value | None) -> None:
        if condition is None or condition.data[0]:
            self.next_pc = self.state.long("pc") + 4 + 4 * self.instr.imm("simm16")

    def jump(self, target: Value) -> None:
        self.next_pc = int(target.data[0])

    def event(self, kind: Event, value: Value | None = None) -> None:
        assert kind in EVENTS
        self.left = kind
        self.left_value = 0 if value is None else int(value.data[0])

    def clock(self) -> Value:
        self.state.set_long("clock", self.state.long("clock") + CLOCK_STEP)
        return self.const("u64", self.state.long("clock"))

    def when(self, condition: Value, effects: Callable[[], None]) -> None:
        if condition.data.any():
            effects()

    # --- memory ---

    def _lanes(self, address: Value, mask: Value) -> list[tuple[int, int]]:
        """(lane, address) of the active lanes."""
        active = np.flatnonzero(self.vector(mask).data)
        addresses = self.vector(address).data
        return [(int(lane), int(addresses[lane])) for lane in active]

    def load(self, space: Space, address: Value, nbytes: int, mask: Value) -> list[Value]:
        out = np.zeros((self.wave, max(nbytes, 4)), np.uint8)
        for (lane, _), view in self._views(space, address, nbytes, mask, "load"):
            out[lane, :nbytes] = view
        words = out.view(np.uint32)
        return [self._u32(words[:, k].copy()) for k in range(words.shape[1])]

    def _views(
        self, space: Space, address: Value, nbytes: int, mask: Value, access: str
    ) -> list[tuple[tuple[int, int], np.ndarray]]:
        """The active lanes with the bytes they address, all checked before any is touched."""
        out = []
        for lane, start in self._lanes(address, mask):
            try:
                out.append(((lane, start), self.memory.view(space, start, nbytes)))
            except AccessError as error:
                raise AccessError(error.space, access, start, lane, nbytes) from None
        return out

    def load_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        for k, value in enumerate(self.load(space, address, nbytes, mask)):
            self.set_vgpr(op, first + k, value, mask)

    def store(self, space: Space, address: Value, values: Sequence[Value], nbytes: int, mask: Value) -> None:
        words = np.stack([self.vector(v).data for v in values], axis=1)
        raw = np.ascontiguousarray(words).view(np.uint8)
        for (lane, _), view in self._views(space, address, nbytes, mask, "store"):
            view[:] = raw[lane, :nbytes]

    def store_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        self.store(space, address, [self.vgpr(op, first + k) for k in range(nbytes // 4)], nbytes, mask)

    def atomic(
        self,
        op: AtomicOp,
        space: Space,
        type_name: str,
        address: Value,
        data: Value,
        mask: Value,
        compare: Value | None = None,
    ) -> Value:
        dtype = np.dtype(f"uint{data.type.bits}")
        bits = self.vector(data).data.view(dtype)
        other = bits if compare is None else self.vector(compare).data.view(dtype)
        old = np.zeros(self.wave, dtype)
        fp = atomic_mode(self.fp, space)
        views = self._views(space, address, dtype.itemsize, mask, "atomic")
        for (lane, start), _ in views:
            if start % dtype.itemsize:
                raise AccessError(space, "atomic", start, lane, dtype.itemsize, misaligned=True)
        for (lane, _), view in views:
            cell = view.view(dtype)
            old[lane] = cell[0]
            cell[0] = combine(op, type_name, int(cell[0]), int(bits[lane]), int(other[lane]), fp)
        return self.make(data.type, old.view(data.data.dtype))

    def _scalar_view(self, address: Value, dwords: int, limit: Value | None, access: str) -> np.ndarray:
        """The bytes of the first `limit` dwords."""
        start = int(address.data[0])
        nbytes = 4 * (dwords if limit is None else int(limit.data[0]))
        try:
            return self.memory.view("global", start, nbytes) if nbytes else np.zeros(0, np.uint8)
        except AccessError as error:
            raise AccessError("scalar", access, start, None, error.nbytes) from None

    def scalar_load(self, address: Value, dwords: int, limit: Value | None = None) -> list[Value]:
        inside = self._scalar_view(address, dwords, limit, "load").view(np.uint32)
        words = np.zeros(dwords, np.uint32)
        words[: len(inside)] = inside
        return [self._u32(words[k : k + 1]) for k in range(dwords)]

    def scalar_store(self, address: Value, values: Sequence[Value], limit: Value | None = None) -> None:
        view = self._scalar_view(address, len(values), limit, "store")
        view[:] = np.concatenate([v.data for v in values]).view(np.uint8)[: len(view)]

    def scratch_base(self) -> Value:
        return self.const("u64", self.state.long("scratch_base"))

    def scratch_size(self) -> Value:
        return self.const("u32", self.state.word("scratch_size"))
