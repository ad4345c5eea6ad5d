"""One wave's instructions with everything written down that they do to registers and memory."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rjemu.exec.memory import ReferenceMemory
from rjemu.exec.numpy_context import NumpyContext
from rjemu.isa.context import Semantic, Space
from rjemu.isa.instruction import Instruction, Operand
from rjemu.isa.lanes import Value
from rjemu.plugins.contract import MemoryAccess, RegisterAccess, Wave
from rjemu.plugins.footprint import written_bytes, written_lanes

File = Literal["vector", "scalar", "scc"]


class ObservedContext(NumpyContext):
    """A `NumpyContext` that tells in `written` and `accesses` what the last instruction did, in order."""

    def __init__(self, wave: Wave, memory: ReferenceMemory) -> None:
        super().__init__(wave.state, memory, wave.dispatch.target)
        self.wave_info = wave
        self._touched: list[tuple[Space | Literal["scalar"], Any, np.ndarray, np.ndarray, list[np.ndarray]]] = []
        self._writes: dict[tuple[File, int], tuple[int, int]] = {}
        self._preserved: set[tuple[str, int]] = set()

    @property
    def written(self) -> list[RegisterAccess]:
        """The registers written, in the order in which they were first."""
        return [RegisterAccess(file, index, *masks) for (file, index), masks in self._writes.items()]

    @property
    def accesses(self) -> list[MemoryAccess]:
        """The memory accesses, with what memory holds now."""
        return [
            MemoryAccess(space, kind, lanes, addresses, len(views[0]), np.stack(views))
            for space, kind, lanes, addresses, views in self._touched
        ]

    @property
    def moves(self) -> dict[str, int]:
        """Operand name -> registers that VGPR indexing adds, for the instruction that `execute` is about to run."""
        return self._index_moves()

    def execute(self, instr: Instruction, semantic: Semantic) -> None:
        self._touched, self._writes, self._preserved = [], {}, set()
        super().execute(instr, semantic)

    def vgpr(self, op: Operand, k: int = 0) -> Value:
        if op.is_dst:
            self._preserved.add((op.name, k))
        return super().vgpr(op, k)

    def set_vgpr(self, op: Operand, k: int, value: Value, mask: Value | None = None) -> None:
        masked = lane_bits((self.exec_lanes() if mask is None else self.vector(mask)).data)
        lanes = written_lanes(self.instr, masked, self.state)
        super().set_vgpr(op, k, value, mask)
        if lanes:
            covered = written_bytes(self.instr, op, preserves=(op.name, k) in self._preserved)
            self._wrote("vector", self._vector_register(op, k), lanes, covered)

    def set_scalar(self, op: Operand, k: int, value: Value) -> None:
        super().set_scalar(op, k, value)
        self._wrote("scalar", op.index + k)

    def set_fixed_scalar(self, code: int, value: Value) -> None:
        super().set_fixed_scalar(code, value)
        for k in range(value.data.nbytes // 4):
            self._wrote("scalar", code + k)

    def set_scalar_at(self, number: Value, value: Value) -> None:
        super().set_scalar_at(number, value)
        self._wrote("scalar", int(number.data[0]) % len(self.state.scalars))

    def set_scc(self, value: Value) -> None:
        super().set_scc(value)
        self._wrote("scc", 0)

    def _wrote(self, file: File, index: int, lanes: int = 0, covered: int = 0b1111) -> None:
        before = self._writes.get((file, index), (0, 0))
        self._writes[file, index] = before[0] | lanes, before[1] | covered

    def _views(self, space: Space, address: Value, nbytes: int, mask: Value, access: Any) -> Any:
        views = super()._views(space, address, nbytes, mask, access)
        if views:
            places = np.array([place for place, _ in views], np.int64)
            self._touched.append((space, access, places[:, 0], places[:, 1], [view for _, view in views]))
        return views

    def _scalar_view(self, address: Value, dwords: int, limit: Value | None, access: Any) -> np.ndarray:
        view = super()._scalar_view(address, dwords, limit, access)
        if len(view):
            place = np.array([int(address.data[0])], np.int64)
            self._touched.append(("scalar", access, np.zeros(0, np.int64), place, [view]))
        return view


def lane_bits(lanes: np.ndarray) -> int:
    """bool [lanes] as bits, lane 0 lowest."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")
