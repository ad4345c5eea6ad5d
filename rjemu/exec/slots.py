"""The resident workgroups of one process, in shared memory: what Python reads of them."""

from __future__ import annotations

import numpy as np

from rjemu.exec.layout import SLOT, SLOT_FREE, SLOT_HEADER_BYTES, SLOT_RUNNING, WAVE_BARRIER, WAVE_BYTES, WAVE_HALTED
from rjemu.exec.wave import WaveState

Size3 = tuple[int, int, int]


class Slots:
    """`count` workgroup slots of a dispatch. memory: uint8 [count * stride] of the layout in `exec.layout`."""

    def __init__(self, memory: np.ndarray, layout: tuple[int, int], count: int, wave_size: int) -> None:
        """layout: as `prepare.slot_layout`."""
        self.waves_offset, self.stride = layout
        self.memory = memory
        self.address = memory.ctypes.data
        self.count = count
        self._wave_size = wave_size

    def clear(self) -> None:
        """Free the first slot; the native run frees the others as it opens them."""
        self.set_word(0, "state", SLOT_FREE)

    def word(self, slot: int, name: str) -> int:
        """A u32 field of a slot's header."""
        at = slot * self.stride + SLOT[name]
        return int(self.memory[at : at + 4].view(np.uint32)[0])

    def set_word(self, slot: int, name: str, value: int) -> None:
        at = slot * self.stride + SLOT[name]
        self.memory[at : at + 4].view(np.uint32)[0] = value

    def long(self, slot: int, name: str) -> int:
        """A u64 field of a slot's header."""
        at = slot * self.stride + SLOT[name]
        return int(self.memory[at : at + 8].view(np.uint64)[0])

    def set_long(self, slot: int, name: str, value: int) -> None:
        at = slot * self.stride + SLOT[name]
        self.memory[at : at + 8].view(np.uint64)[0] = value

    def lds(self, slot: int, nbytes: int) -> np.ndarray:
        """uint8 [nbytes], not a copy."""
        at = slot * self.stride + SLOT_HEADER_BYTES
        return self.memory[at : at + nbytes]

    def wave(self, slot: int, number: int) -> WaveState:
        at = slot * self.stride + self.waves_offset + number * WAVE_BYTES
        return WaveState(self.memory[at : at + WAVE_BYTES], self._wave_size)

    def workgroup(self, slot: int) -> Size3:
        """The workgroup's place in the grid."""
        return self.word(slot, "id_x"), self.word(slot, "id_y"), self.word(slot, "id_z")

    def ahead(self, opened: int) -> bool:
        """Whether a wave has matrix instructions that were carried out before their turn (`exec.async_turn`)."""
        return any(
            self.wave(slot, number).long("hoisted")
            for slot in range(opened)
            if self.word(slot, "state") == SLOT_RUNNING
            for number in range(self.word(slot, "waves"))
        )

    def waiting(self, opened: int) -> list[str]:
        """Every wave that waits at a barrier or is halted, in words. opened: slots that have been in use."""
        out = []
        for slot in range(opened):
            if self.word(slot, "state") != SLOT_RUNNING:
                continue
            for number in range(self.word(slot, "waves")):
                wave = self.wave(slot, number)
                state = wave.word("state")
                if state in (WAVE_BARRIER, WAVE_HALTED):
                    what = "" if state == WAVE_BARRIER else " (halted)"
                    out.append(f"workgroup {self.workgroup(slot)} wave {number} at pc {wave.long('pc'):#x}{what}")
        return out
