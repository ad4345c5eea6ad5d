"""A wave's state in (shared) memory, seen from Python through numpy views of the layout in `exec.layout`."""

from __future__ import annotations

import numpy as np

from rjemu.exec.layout import HARDWARE_STATE, SCALAR_COUNT, VGPR_COUNT, WAVE, WAVE_BYTES


class WaveState:
    """Views of one wave. vgpr: uint32 [512, wave]; scalars: uint32 [128] by hardware code.

    memory: uint8 [WAVE_BYTES], which stays the owner of the bytes.
    """

    def __init__(self, memory: np.ndarray, wave_size: int) -> None:
        assert memory.dtype == np.uint8 and len(memory) == WAVE_BYTES
        self.memory = memory
        self.wave_size = wave_size
        self.vgpr = memory[: VGPR_COUNT * wave_size * 4].view(np.uint32).reshape(VGPR_COUNT, wave_size)
        self.scalars = memory[WAVE["scalars"] : WAVE["scalars"] + 4 * SCALAR_COUNT].view(np.uint32)
        self._words = memory[WAVE["scalars"] :].view(np.uint32)
        self._longs = memory[WAVE["scalars"] :].view(np.uint64)

    @staticmethod
    def fresh(wave_size: int) -> WaveState:
        """A zeroed wave in private memory."""
        return WaveState(np.zeros(WAVE_BYTES, np.uint8), wave_size)

    def word(self, name: str) -> int:
        """A u32 field of the hardware state, by its name in `layout.WAVE`."""
        return int(self._words[(WAVE[name] - WAVE["scalars"]) // 4])

    def set_word(self, name: str, value: int) -> None:
        self._words[(WAVE[name] - WAVE["scalars"]) // 4] = value & 0xFFFFFFFF

    def long(self, name: str) -> int:
        """A u64 field."""
        return int(self._longs[(WAVE[name] - WAVE["scalars"]) // 8])

    def set_long(self, name: str, value: int) -> None:
        self._longs[(WAVE[name] - WAVE["scalars"]) // 8] = value & 0xFFFFFFFFFFFFFFFF

    def hardware_words(self) -> dict[str, int]:
        return {name: self.word(name) for name in HARDWARE_STATE}
