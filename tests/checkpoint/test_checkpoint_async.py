"""Checkpoints while helpers have matrix instructions: these come to their end first, and none is done twice."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from support.asm_kernels import kernarg
from support.async_runs import OUT_WORDS, always_admitted, frame, fresh_helpers, load

import rjemu
from rjemu.exec.runner import Runner

GROUP = [
    f"v_mfma_f32_16x16x32_bf16 v[{12 + 4 * k}:{15 + 4 * k}], v[4:7], v[8:11], v[{12 + 4 * k}:{15 + 4 * k}]" for k in range(6)
]
LOOP = [
    "s_mov_b32 s12, 0",
    "s_mov_b32 s13, 0x4000",
    "loop:",
    *GROUP,
    "s_add_u32 s12, s12, 1",
    "s_cmp_lt_u32 s12, s13",
    "s_cbranch_scc1 loop",
]
"""A group of independent matrix instructions, 16384 times: a wave that has given some away is mostly in its middle."""


QUICK_TURNS = {"wave_quantum": 1, "time_slice": 63}


@pytest.fixture(scope="module")
def expected() -> bytes:
    with rjemu.Machine(workers="inline", async_helper_threads=0) as gpu:
        out = gpu.zeros(OUT_WORDS, np.uint32)
        load(
            gpu,
            frame("\n".join(LOOP)),
        ).launch(1, 64, kernarg=kernarg(out), timeout=300)
        return out.to_host().tobytes()


def check(paths: list[Path], expected: bytes) -> None:
    """All that has been saved ends as it should, with and without helpers."""
    for path in paths:
        for helpers in (0, 1):
            with rjemu.restore(path, workers="inline", async_helper_threads=helpers) as gpu:
                gpu.resume(timeout=300)
                assert gpu.arrays[gpu.data["out"]].to_host().tobytes() == expected


def test_a_wave_in_the_middle_of_a_group(tmp_path: Path, expected: bytes) -> None:
    """What helpers have done before its turn is not done again."""
    runners: list[Runner] = []
    step = Runner.step

    def short_step(runner: Runner, seconds: float = 0.0) -> bool:
        runners[:] = [runner]
        return step(runner, 0.0005)

    paths: list[Path] = []
    with (
        always_admitted(),
        mock.patch.object(Runner, "step", short_step),
        rjemu.Machine(workers="inline", async_helper_threads=2, **QUICK_TURNS) as gpu,
    ):
        out = gpu.zeros(OUT_WORDS, np.uint32)
        kernel = load(gpu, frame("\n".join(LOOP)))
        gpu.start()

        def save(done: int, total: int) -> None:
            fresh_helpers(gpu)
            if len(paths) < 3 and runners[0]._slots.ahead(runners[0]._engine.opened):
                paths.append(tmp_path / f"machine{len(paths)}")
                gpu.save(paths[-1], data={"out": out.address})

        kernel.launch(1, 64, kernarg=kernarg(out), progress=save, timeout=300)
        assert out.to_host().tobytes() == expected
    assert paths, "no wave was in the middle of a group"
    check(paths, expected)


def test_a_worker_with_helpers(tmp_path: Path, expected: bytes) -> None:
    paths: list[Path] = []
    with always_admitted(), rjemu.Machine(workers=(1, 1), async_helper_threads=2, **QUICK_TURNS) as gpu:
        out = gpu.zeros(OUT_WORDS, np.uint32)
        kernel = load(gpu, frame("\n".join(LOOP)))
        gpu.start()

        def save(done: int, total: int) -> None:
            fresh_helpers(gpu)
            if len(paths) < 3 and done < total:
                paths.append(tmp_path / f"machine{len(paths)}")
                gpu.save(paths[-1], data={"out": out.address})

        kernel.launch(1, 64, kernarg=kernarg(out), progress=save, timeout=300)
        assert out.to_host().tobytes() == expected
    check(paths, expected)
