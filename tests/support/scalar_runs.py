"""Runs one scalar instruction of assembly text on a wave by the reference executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from support.vector_runs import ALL_LANES, DEFAULT_MODE, LANES, decode, mask_of

from rjemu.exec.memory import FlatMemory
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.wave import WaveState
from rjemu.isa.instruction import EXEC, M0, VCC
from rjemu.isa.semantics.registry import lookup

PC = 0x7F00_0000_1000
"""Where the instruction lies."""

SCALAR_REGISTERS = 102


@dataclass(frozen=True)
class Outcome:
    """The wave after the instruction, where it goes on, and the event that took it out of the loop, with its payload."""

    state: WaveState
    next_pc: int
    event: str | None
    payload: int

    @property
    def scc(self) -> int:
        return self.state.word("scc")

    @property
    def exec(self) -> int:
        return mask_of(self.state, EXEC)

    def s(self, register: int) -> int:
        return int(self.state.scalars[register])

    def s64(self, register: int) -> int:
        return mask_of(self.state, register)


def filler() -> np.ndarray:
    """uint32 [SCALAR_REGISTERS]: what SGPRs hold that `run` is not given."""
    return np.random.default_rng(11).integers(0, 1 << 32, SCALAR_REGISTERS, dtype=np.uint32)


def run(
    text: str,
    sgprs: Mapping[int, int] | None = None,
    *,
    target: str = "gfx950",
    wide: Mapping[int, int] | None = None,
    scc: int = 0,
    exec_mask: int = ALL_LANES,
    vcc: int = 0,
    m0: int = 0,
    mode: int = DEFAULT_MODE,
    hardware: Mapping[str, int] | None = None,
    memory: FlatMemory | None = None,
) -> Outcome:
    """sgprs: register -> u32; wide: register -> u64 in a pair; hardware: name in the wave's layout -> u32."""
    instr = decode(text, target)
    state = WaveState.fresh(LANES)
    state.scalars[:SCALAR_REGISTERS] = filler()
    for register, value in (sgprs or {}).items():
        state.scalars[register] = value
    for register, value in {EXEC: exec_mask, VCC: vcc, **(wide or {})}.items():
        state.scalars[register : register + 2] = np.array([value], np.uint64).view(np.uint32)
    state.scalars[M0] = m0
    for name, value in {"scc": scc, "mode": mode, **(hardware or {})}.items():
        state.set_word(name, value)
    state.set_long("pc", PC)
    context = NumpyContext(state, memory or FlatMemory({}, np.zeros(0, np.uint8)), target)
    semantic = lookup(instr.name)
    assert semantic is not None, f"{instr.name} has no semantics"
    context.execute(instr, semantic)
    return Outcome(state, context.next_pc, context.left, context.left_value)
