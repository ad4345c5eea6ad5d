"""The registers that an instruction reports (`isa.registers`) are those that its execution reads and writes.

Executed twice: once from a random state, once with everything scrambled that it does not report as read. What it reports
as written must come out the same, and nothing else may change.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.diff_samples import sample_instructions
from support.harness import Lab, State

from rjemu.exec.layout import VGPR_COUNT
from rjemu.isa.instruction import EXEC, Instruction
from rjemu.isa.registers import RegisterSet, reads, writes

SHARDS = 4

SOME_LANES = ("v_cmpx",)
"""Instructions that change EXEC first, so that they do not write every lane."""

ANY_REGISTER = ("s_movrel", "v_movrel", "s_cbranch_g_fork", "s_cbranch_join")
"""Instructions that find their register through M0 or a stack of their own: their report is a bound."""


def vector_numbers(registers: RegisterSet) -> np.ndarray:
    """bool [512]."""
    out = np.zeros(VGPR_COUNT, bool)
    for part in registers.vector:
        out[part.start : part.stop] = True
    return out


def scalar_numbers(registers: RegisterSet) -> np.ndarray:
    """bool [128]."""
    out = np.zeros(128, bool)
    for part in registers.scalar:
        out[part.start : part.stop] = True
    return out


def scramble(rng: np.random.Generator, state: State, instr: Instruction, *, destinations: bool) -> State:
    """A copy with other values in every register that the instruction does not report as read; those that it reports
    as written only keep theirs unless `destinations`."""
    out = state.copy()
    used = reads(instr)
    vectors, scalars = vector_numbers(used), scalar_numbers(used)
    if not destinations:
        vectors, scalars = vectors | vector_numbers(writes(instr)), scalars | scalar_numbers(writes(instr))
    out.wave.vgpr[~vectors] = rng.integers(0, 1 << 32, (int((~vectors).sum()), 64), dtype=np.uint32)
    out.wave.scalars[~scalars] = rng.integers(0, 1 << 32, int((~scalars).sum()), dtype=np.uint32)
    if not used.scc and (destinations or not writes(instr).scc):
        out.wave.set_word("scc", 1 - state.wave.word("scc"))
    return out


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("target", ["gfx950", "gfx942"])
def test_reported_registers_are_the_ones_used(target: str, shard: int) -> None:
    check(target, shard, destinations=False)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_old_destinations_do_not_matter_unless_reported(shard: int) -> None:
    """With all lanes on, a destination that is not reported as read comes out the same whatever it was."""
    check("gfx950", shard, destinations=True)


def check(target: str, shard: int, *, destinations: bool) -> None:
    lab = Lab(target)
    failures = []
    samples = sample_instructions(target)[shard::SHARDS][:: 4 if target == "gfx950" else 12]
    for number, (text, instr) in enumerate(samples):
        if instr.name.startswith(ANY_REGISTER) or (destinations and instr.name.startswith(SOME_LANES)):
            continue
        if destinations and "dpp_ctrl" in instr.mods:
            continue
        rng = np.random.default_rng([shard, number])
        before = lab.random_state(rng, instr)
        if destinations:
            before.wave.scalars[EXEC : EXEC + 2] = 0xFFFFFFFF
        problem = difference(lab, instr, before, scramble(rng, before, instr, destinations=destinations))
        if problem:
            failures.append(f"{text}: {problem}")
    assert not failures, f"{len(failures)} of {len(samples)}:\n" + "\n".join(failures[:20])


def difference(lab: Lab, instr: Instruction, before: State, other: State) -> str | None:
    """What contradicts the report, or None."""
    first, second = before.copy(), other.copy()
    outcome, same = lab.run_reference(instr, first), lab.run_reference(instr, second)
    if (outcome.event, outcome.fault) != (same.event, same.fault):
        return f"{outcome} against {same}: it reads more than it reports"
    if outcome.fault is not None:
        return None
    written = writes(instr)
    vectors, scalars = vector_numbers(written), scalar_numbers(written)
    if (first.wave.vgpr[~vectors] != before.wave.vgpr[~vectors]).any():
        return "it writes vector registers that it does not report"
    if (first.wave.scalars[~scalars] != before.wave.scalars[~scalars]).any():
        changed = np.flatnonzero((first.wave.scalars != before.wave.scalars) & ~scalars)
        return f"it writes scalar registers that it does not report: {changed.tolist()}"
    if not written.scc and first.wave.word("scc") != before.wave.word("scc"):
        return "it writes SCC and does not report it"
    if (first.wave.vgpr[vectors] != second.wave.vgpr[vectors]).any() or (
        first.wave.scalars[scalars] != second.wave.scalars[scalars]
    ).any():
        return "its results depend on registers that it does not report as read"
    if (first.memory != second.memory).any() or (first.lds != second.lds).any():
        return "what it stores depends on registers that it does not report as read"
    return None
