"""Which matrix instructions may be given to helpers: one table, which the capability and the policy both read.

Dense instructions with one result matrix of floats, big enough to outweigh a handoff (the choice is rocJITsu's,
docs/async-instructions.md). Not: several blocks, integers, sparse matrices, f32 and f64 inputs, any other target.
"""

from __future__ import annotations

from enum import Enum

from rjemu.isa.instruction import Instruction

_BYTES = [f"{a}_{b}" for a in ("bf8", "fp8") for b in ("bf8", "fp8")]

CANDIDATES: dict[str, frozenset[str]] = {
    "gfx950": frozenset(
        [f"v_mfma_f32_{shape}_{element}" for shape in ("16x16x32", "32x32x16") for element in ("f16", "bf16", *_BYTES)]
        + [f"v_mfma_{s}f32_{shape}_f8f6f4" for shape in ("16x16x128", "32x32x64") for s in ("", "scale_")]
    ),
    "gfx1250": frozenset(
        [f"v_wmma_f32_16x16x32_{element}" for element in ("f16", "bf16")]
        + [f"v_wmma_f32_16x16x{k}_{element}" for k in (64, 128) for element in ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")]
        + [f"v_wmma_{s}_f32_16x16x128_f8f6f4" for s in ("scale", "scale16")]
        + [f"v_wmma_{s}_f32_32x16x128_f4" for s in ("scale", "scale16")]
    ),
}
"""LLVM's mnemonics of the candidates of each target."""

_MATRIX = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")


class Fitness(Enum):
    """What becomes of an instruction."""

    ORDINARY = "no matrix instruction"
    CANDIDATE = "may be given to a helper"
    SCALAR_OPERAND = "has an operand in an SGPR"
    NOT_ELIGIBLE = "is no candidate"


def supports_async(target: str) -> bool:
    """Whether a target has matrix instructions that helpers may run."""
    return bool(CANDIDATES.get(target))


def fitness(instr: Instruction, target: str) -> Fitness:
    """Whether helpers may run an instruction, by what is known before it is executed."""
    if not instr.name.startswith(_MATRIX):
        return Fitness.ORDINARY
    if instr.name not in CANDIDATES.get(target, frozenset()):
        return Fitness.NOT_ELIGIBLE
    if any(op.kind not in ("v", "k") for op in instr.operands):
        return Fitness.SCALAR_OPERAND
    return Fitness.CANDIDATE
