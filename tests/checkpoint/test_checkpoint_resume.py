"""Launches that are interrupted at random moments end bit-identical to launches that nothing interrupts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.asm_kernels import kernarg, load_assembly
from support.interrupted import SHORT_SLICES, WORKS, resumed, save_after, uninterrupted

import rjemu
from rjemu.errors import LaunchSuspended
from rjemu.exec import cache
from rjemu.exec.compiler import this_host

WORKERS = ["inline", (1, 1), (1, 3), (2, 2)]
LONGEST = 0.25
"""Seconds that the kernels take on a fast host."""

_expected: dict[str, np.ndarray] = {}


def expected(name: str) -> np.ndarray:
    """What the launch gives when nothing interrupts it."""
    if name not in _expected:
        _expected[name] = uninterrupted(WORKS[name], **SHORT_SLICES)
    return _expected[name]


def check(path: Path, name: str, seconds: float, saved: Any, restored: Any) -> None:
    result = save_after(WORKS[name], seconds, path, workers=saved, **SHORT_SLICES)
    if result is not None:
        assert result.tobytes() == expected(name).tobytes()
    assert resumed(path, workers=restored)[1].tobytes() == expected(name).tobytes()


moments = given(
    name=st.sampled_from(sorted(WORKS)),
    seconds=st.floats(0, LONGEST),
    saved=st.sampled_from(WORKERS),
    restored=st.sampled_from(WORKERS),
)


@moments
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bits_are_those_of_a_run_without_interruption(
    tmp_path: Path, name: str, seconds: float, saved: Any, restored: Any
) -> None:
    check(tmp_path / "machine", name, seconds, saved, restored)


@pytest.mark.long
@moments
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bits_are_those_of_a_run_without_interruption_long(
    tmp_path: Path, name: str, seconds: float, saved: Any, restored: Any
) -> None:
    check(tmp_path / "machine", name, seconds, saved, restored)


@pytest.mark.parametrize("workers", ["inline", (2, 2)])
@pytest.mark.parametrize("name", sorted(WORKS))
def test_saved_again_and_again_by_its_own_progress_callback(tmp_path: Path, name: str, workers: Any) -> None:
    """What has been saved goes on in the same machine, and the last checkpoint goes on in another, where it is saved too."""
    path = tmp_path / "machine"
    saves = []
    with rjemu.Machine(workers=workers, **SHORT_SLICES) as gpu:
        out, kernel, launch = WORKS[name].start(gpu)

        def save(done: int, total: int) -> None:
            if done < total and len(saves) < 3:
                gpu.save(path, data={"out": out.address})
                saves.append(done)

        kernel.launch(**launch, progress=save, timeout=300)
        assert out.to_host().tobytes() == expected(name).tobytes()
    if saves:
        with rjemu.restore(path) as gpu:
            gpu.resume(timeout=300, progress=lambda done, total: gpu.save(path, data=gpu.data))
            assert gpu.arrays[gpu.data["out"]].to_host().tobytes() == expected(name).tobytes()
        assert resumed(path)[1].tobytes() == expected(name).tobytes()


def test_many_workgroups_are_resident(tmp_path: Path) -> None:
    """The other tests mean something: what is saved is in the middle of things."""
    assert save_after(WORKS["barriers"], 0.03, tmp_path / "machine", workers="inline", **SHORT_SLICES) is None
    resident, result = resumed(tmp_path / "machine", workers=(2, 2))
    assert resident == 12
    assert result.tobytes() == expected("barriers").tobytes()


def test_saved_before_it_is_gone_on_with(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    save_after(WORKS["flags"], 0.03, first, workers=(1, 2), **SHORT_SLICES)
    with rjemu.restore(first, workers="inline") as gpu:
        gpu.save(second, data=gpu.data)
    assert resumed(second, workers=(2, 2))[1].tobytes() == expected("flags").tobytes()


def test_a_host_without_avx512_goes_on(tmp_path: Path) -> None:
    save_after(WORKS["gemm"], 0.05, tmp_path / "machine", workers="inline", **SHORT_SLICES)
    lesser = this_host().without("avx512", "avx10", "amx", "evex512")
    with mock.patch.object(cache, "this_host", lambda: lesser):
        assert resumed(tmp_path / "machine", workers="inline")[1].tobytes() == expected("gemm").tobytes()


def test_several_launches_are_saved_and_go_on(tmp_path: Path) -> None:
    names = ["atomics", "barriers", "flags"]
    with rjemu.Machine(workers=(2, 1), **SHORT_SLICES) as gpu:
        streams = [gpu.stream() for _ in names]
        outs, futures = {}, []
        for name, stream in zip(names, streams, strict=True):
            out, kernel, launch = WORKS[name].start(gpu)
            futures.append(stream.launch(kernel, **launch, timeout=300))
            outs[name] = out
        threading.Event().wait(0.05)
        gpu.save(tmp_path / "machine", stop=True, data={name: out.address for name, out in outs.items()})
        ended = [future.exception() is None for future in futures]
        assert all(isinstance(future.exception(), LaunchSuspended | None) for future in futures)
    with rjemu.restore(tmp_path / "machine", workers=(1, 2)) as gpu:
        assert len(gpu.pending) == ended.count(False)
        assert len(gpu.streams) == 3
        results = gpu.resume(timeout=300)
        assert len(results) == ended.count(False)
        for name in names:
            assert gpu.arrays[gpu.data[name]].to_host().tobytes() == expected(name).tobytes()


def test_a_suspended_launch_counts_all_its_instructions(tmp_path: Path) -> None:
    with rjemu.Machine(workers="inline", **SHORT_SLICES) as gpu:
        _, kernel, launch = WORKS["barriers"].start(gpu)
        whole = kernel.launch(**launch).wave_instructions
    save_after(WORKS["barriers"], 0.03, tmp_path / "machine", workers=(1, 2), **SHORT_SLICES)
    with rjemu.restore(tmp_path / "machine", workers="inline") as gpu:
        assert [result.wave_instructions for result in gpu.resume()] == [whole]


@pytest.mark.parametrize("workers", ["inline", (1, 1)])
def test_a_fault_after_the_pause_is_the_launchs(tmp_path: Path, workers: Any) -> None:
    fault = """
      s_load_dwordx2 s[4:5], s[0:1], 0x0
      s_mov_b32 s6, 0x800000
    loop:
      s_sub_u32 s6, s6, 1
      s_cmp_lg_u32 s6, 0
      s_cbranch_scc1 loop
      v_mov_b32 v1, 0
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v1, s[4:5] offset:64
      s_endpgm
    """
    saves = []
    with rjemu.Machine(workers=workers, **SHORT_SLICES) as gpu:
        array = gpu.zeros(1, np.uint32)
        kernel = load_assembly(gpu, fault)

        def save(done: int, total: int) -> None:
            # The last one may find that the launch has failed, and leave it out.
            gpu.save(tmp_path / f"machine{len(saves)}")
            saves.append(done)

        with pytest.raises(rjemu.errors.MemoryFault):
            kernel.launch(4, 64, kernarg=kernarg(array), progress=save, timeout=300)
    assert saves
    with rjemu.restore(tmp_path / "machine0") as gpu:
        with pytest.raises(rjemu.errors.MemoryFault):
            gpu.resume(timeout=300)
        assert gpu.memory_used < 1 << 20
