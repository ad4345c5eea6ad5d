"""Native code against the reference executor: every instruction, random states, every bit of state equal."""

from __future__ import annotations

import numpy as np
import pytest
from support.diff_samples import sample_instructions
from support.harness import Lab

from rjemu.exec.compiler import Host, this_host

SHARDS = 8
"""Tests per target and mode, so that they spread over the test processes."""

MODES = {
    "default": 0x3F0,
    "flushed": 0x300,
    "upwards": 0x3F5,
    "to-zero-no-ieee": 0x0FF,
}
"""MODE registers: rounding, denormals, DX10_CLAMP and IEEE."""


def check_samples(target: str, mode: int, shard: int, *, every: int, states: int, host: Host | None = None) -> None:
    lab = Lab(target, mode, host)
    chosen = sample_instructions(target)[shard::SHARDS][::every]
    lab.prepare([instr for _, instr in chosen])
    failures = []
    for number, (text, instr) in enumerate(chosen):
        try:
            lab.check(instr, np.random.default_rng([shard, number]), states)
        except AssertionError as error:
            failures.append(f"{text}: {error}")
    assert not failures, f"{len(failures)} of {len(chosen)} differ:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("target", ["gfx950", "gfx942"])
def test_executors_agree(target: str, shard: int) -> None:
    check_samples(target, MODES["default"], shard, every=3 if target == "gfx950" else 6, states=3)


@pytest.mark.parametrize("mode", [name for name in MODES if name != "default"])
def test_executors_agree_in_other_modes(mode: str) -> None:
    """Floating-point modes specialise handlers: a thinner sample of everything in each."""
    check_samples("gfx950", MODES[mode], 3, every=5, states=2)


@pytest.mark.skipif("avx512f" not in this_host().features, reason="this host has no AVX-512 to leave out")
def test_executors_agree_without_avx512() -> None:
    """The code that a lesser x86-64 host gets."""
    check_samples(
        "gfx950", MODES["default"], 5, every=7, states=2, host=this_host().without("avx512", "avx10", "amx", "evex512")
    )


@pytest.mark.long
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("target", ["gfx950", "gfx942"])
def test_executors_agree_at_length(target: str, shard: int, mode: str) -> None:
    check_samples(target, MODES[mode], shard, every=1, states=200)
