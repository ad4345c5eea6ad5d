"""Runs one instruction of assembly text on a wave by the reference executor, for tests of vector semantics."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from support.assemble import assemble, text_section

import rjemu.isa.semantics  # noqa: F401  (fills the registry)
from rjemu.exec.memory import ReferenceMemory
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.wave import WaveState
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import EXEC, M0, VCC, Instruction
from rjemu.isa.semantics.registry import lookup

LANES = 64
ALL_LANES = (1 << LANES) - 1
DEFAULT_MODE = 0x3F0
"""MODE of a plain compute kernel: nearest even, denormals kept, DX10_CLAMP, IEEE."""

NO_IEEE_NO_DENORMALS = 0x100
"""MODE in which output modifiers have an effect."""

FP16_OVFL = 1 << 23

AGPR = 256


_DECODED: dict[tuple[str, str], Instruction] = {}


def prepare(lines: Iterable[str], target: str) -> None:
    """Assemble and decode many lines at once, for later runs: one run of the assembler in place of many."""
    missing = [line for line in dict.fromkeys(lines) if (line, target) not in _DECODED]
    if not missing:
        return
    code, offset = text_section(assemble("\n".join(missing) + "\n", target)), 0
    for line in missing:
        instr = Decoder(target).decode(code, offset)
        offset += instr.size
        _DECODED[line, target] = instr
    assert offset == len(code)


def decode(text: str, target: str) -> Instruction:
    prepare([text], target)
    return _DECODED[text, target]


def run(
    text: str,
    vgprs: Mapping[int, Sequence[int] | np.ndarray | int],
    *,
    target: str = "gfx950",
    exec_mask: int = ALL_LANES,
    mode: int = DEFAULT_MODE,
    vcc: int = 0,
    m0: int = 0,
    sgprs: Mapping[int, int] | None = None,
    memory: ReferenceMemory | None = None,
) -> WaveState:
    """The wave after the instruction.

    vgprs: register number (256 on: AGPRs) -> a u32 for every lane, or a sequence that is repeated over the lanes.
    """
    instr = decode(text, target)
    state = WaveState.fresh(LANES)
    state.vgpr[:] = filler(state.vgpr.shape[0])
    for register, values in vgprs.items():
        state.vgpr[register] = np.resize(np.asarray(values, dtype=np.uint64).astype(np.uint32), LANES)
    for register, value in (sgprs or {}).items():
        state.scalars[register] = value
    for code, value in ((EXEC, exec_mask), (VCC, vcc)):
        state.scalars[code : code + 2] = np.array([value], np.uint64).view(np.uint32)
    state.scalars[M0] = m0
    state.set_word("mode", mode)
    semantic = lookup(instr.name)
    assert semantic is not None, f"{instr.name} has no semantics"
    NumpyContext(state, memory, target).execute(instr, semantic)  # type: ignore[arg-type]
    return state


@functools.cache
def _filler(registers: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 1 << 32, (registers, LANES), dtype=np.uint32)


def filler(registers: int = 512) -> np.ndarray:
    """uint32 [registers, lanes]: what registers hold that `run` is not given."""
    return _filler(registers).copy()


def mask_of(state: WaveState, code: int) -> int:
    """The 64-bit mask in a pair of scalar registers."""
    return int(state.scalars[code]) | int(state.scalars[code + 1]) << 32


def f32(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Patterns of float32 numbers as uint32."""
    return np.asarray(values, dtype=np.float32).view(np.uint32)


def f16(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Patterns of float16 numbers in the low halves of uint32."""
    return np.asarray(values, dtype=np.float16).view(np.uint16).astype(np.uint32)
