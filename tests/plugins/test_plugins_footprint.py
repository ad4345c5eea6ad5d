"""What the hooks say of registers, for every instruction, against what it does to random states: bytes that it is not said
to read have no influence, and bytes that it is not said to write keep their value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from support.diff_samples import sample_instructions
from support.harness import LDS_BYTES, MEMORY_BASE, Lab, State

from rjemu.exec.memory import AccessError, FlatMemory
from rjemu.isa.instruction import EXEC, Instruction
from rjemu.isa.semantics.registry import semantic_of
from rjemu.plugins.contract import Dispatch, RegisterAccess, Wave
from rjemu.plugins.footprint import register_reads
from rjemu.plugins.observed import ObservedContext

SHARDS = 4
STACKED = ("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_movrels_b32", "s_movrels_b64")
"""Read SGPRs that MODE or M0 name; random states name registers that are none."""

BYTE_MASKS = [sum(0xFF << 8 * b for b in range(4) if covered >> b & 1) for covered in range(16)]


class Registers:
    """The union of accesses. vector: bits, uint32 [512, 64]; scalar: bool [128]."""

    def __init__(self, accesses: Iterable[RegisterAccess]) -> None:
        self.vector = np.zeros((512, 64), np.uint32)
        self.scalar = np.zeros(128, bool)
        for access in accesses:
            if access.file == "vector":
                lanes = np.unpackbits(np.frombuffer(access.lanes.to_bytes(8, "little"), np.uint8), bitorder="little")
                self.vector[access.index] |= lanes.astype(np.uint32) * np.uint32(BYTE_MASKS[access.bytes])
            elif access.file == "scalar":
                self.scalar[access.index] = True


class Observation:
    """An instruction executed on a state, with what the hooks would say of it."""

    def __init__(self, target: str, instr: Instruction, state: State) -> None:
        one = (1, 1, 1)
        dispatch = Dispatch(0, "kernel", target, 0, 0, 64, one, one, 1, 1, 256, 256, 102, LDS_BYTES, 256, list)
        memory = FlatMemory({MEMORY_BASE: state.memory}, state.lds)
        context = ObservedContext(Wave(dispatch, (0, 0, 0), 0, state.wave, state.lds), memory)
        semantic = semantic_of(instr)
        assert semantic is not None
        context.instr = instr
        self.reads = Registers(register_reads(instr, state.wave, context.moves))
        self.faulted = False
        try:
            context.execute(instr, semantic)
        except AccessError:
            self.faulted = True
        self.left = context.left
        self.writes = Registers(context.written)


def unsaid(target: str, instr: Instruction, lab: Lab, rng: np.random.Generator) -> str | None:
    """What one random state shows that the hooks do not say."""
    before = lab.random_state(rng, instr)
    plain, noisy = before.copy(), before.copy()
    seen = Observation(target, instr, plain)
    if seen.faulted:
        return None
    if ((plain.wave.vgpr ^ before.wave.vgpr) & ~seen.writes.vector).any():
        return "changes vector registers"
    if ((plain.wave.scalars != before.wave.scalars) & ~seen.writes.scalar).any():
        return "changes scalar registers"

    noise = rng.integers(0, 1 << 32, before.wave.vgpr.shape, dtype=np.uint32)
    noisy.wave.vgpr[:] = before.wave.vgpr & seen.reads.vector | noise & ~seen.reads.vector
    kept = seen.reads.scalar.copy()
    kept[EXEC : EXEC + 2] = True  # it decides which lanes are meant
    noisy.wave.scalars[:] = np.where(kept, before.wave.scalars, rng.integers(0, 1 << 32, 128, dtype=np.uint32))
    again = Observation(target, instr, noisy)
    if again.faulted or again.left != seen.left:
        return "goes another way for other registers"
    if ((plain.wave.vgpr ^ noisy.wave.vgpr) & seen.writes.vector).any():
        return "writes vector registers that depend on others"
    if ((plain.wave.scalars != noisy.wave.scalars) & seen.writes.scalar).any():
        return "writes scalar registers that depend on others"
    if not (np.array_equal(plain.memory, noisy.memory) and np.array_equal(plain.lds, noisy.lds)):
        return "writes memory that depends on other registers"
    return None


def check(target: str, samples: list[tuple[str, Instruction]], states: int) -> None:
    lab = Lab(target)
    found = []
    for number, (text, instr) in enumerate(samples):
        rng = np.random.default_rng(number)
        if instr.name not in STACKED:
            found += [f"{text}: {fault}" for _ in range(states) if (fault := unsaid(target, instr, lab, rng))]
    assert not found, f"{len(found)} differ:\n" + "\n".join(found[:20])


def test_nothing_goes_unsaid() -> None:
    """One sample of each instruction in each encoding."""
    first: dict[tuple[str, str], tuple[str, Instruction]] = {}
    for text, instr in sample_instructions("gfx950"):
        first.setdefault((instr.name, instr.encoding), (text, instr))
    check("gfx950", list(first.values()), states=1)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("target", ["gfx950", "gfx942"])
def test_nothing_goes_unsaid_at_length(target: str, shard: int) -> None:
    check(target, sample_instructions(target)[shard::SHARDS], states=4)
