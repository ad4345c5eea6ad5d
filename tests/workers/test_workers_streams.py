"""Streams: in order within one, beside each other between several, and kernels that wait for another stream's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from support.assemble import build, kernel_text

import rjemu
from rjemu.errors import LaunchError, LaunchInterrupted, MachineClosed, MemoryFault

POINTER = {"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8}

WAIT_FOR_FLAG = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v0, 0
  s_waitcnt lgkmcnt(0)
spin:
  global_load_dword v1, v0, s[4:5] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s6, v1
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc1 spin
  v_mov_b32 v2, 1
  s_mov_b64 exec, 1
  global_atomic_add v0, v2, s[4:5] offset:4
  s_endpgm
""",
    directives=POINTER,
)
"""Every workgroup waits until the first word is set, then counts in the second."""

SET_FLAG = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v0, 0
  v_mov_b32 v1, 1
  s_waitcnt lgkmcnt(0)
  global_store_dword v0, v1, s[4:5] sc1
  s_endpgm
""",
    directives=POINTER,
)

TRIPLE_AND_ADD_ONE = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v0, 0
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
  global_load_dword v1, v0, s[4:5]
  s_waitcnt vmcnt(0)
  v_mad_u32_u24 v1, v1, 3, 1
  global_store_dword v0, v1, s[4:5]
  s_endpgm
""",
    directives=POINTER,
)
"""Launches of it give a value that tells whether they ran one after another."""

ENDLESS = kernel_text("loop:\n  s_branch loop\n")
STRAY = kernel_text("  v_mov_b32 v0, 0\n  v_mov_b32 v1, 0\n  global_load_dword v2, v[0:1], off\n  s_endpgm\n")


@pytest.fixture(scope="module", params=[(1, 1), (1, 2)], ids=str)
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", workers=request.param) as machine:
        yield machine


def pointer(array: rjemu.DeviceArray) -> bytes:
    return np.uint64(array.address).tobytes()


@pytest.mark.parametrize("workgroups", [1, 40])
def test_a_kernel_may_wait_for_another_streams_kernel(gpu: rjemu.Machine, workgroups: int) -> None:
    """Even on one worker: it takes turns among the dispatches that it is in."""
    wait, flag = (gpu.load(build(text, "gfx950"))["kernel"] for text in (WAIT_FOR_FLAG, SET_FLAG))
    words = gpu.zeros(2, np.uint32)
    with gpu.stream() as one, gpu.stream() as other:
        waiting = one.launch(wait, workgroups, 64, kernarg=pointer(words), timeout=60)
        time.sleep(0.1)
        assert not waiting.done()
        other.launch(flag, 1, 64, kernarg=pointer(words), timeout=60).result()
        waiting.result()
    assert words.to_host().tolist() == [1, workgroups]


def test_launches_of_a_stream_run_in_order(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(TRIPLE_AND_ADD_ONE, "gfx950"))["kernel"]
    values = [gpu.zeros(1, np.uint32) for _ in range(3)]
    copies: list[int] = []
    streams = [gpu.stream() for _ in values]
    for _ in range(10):
        for stream, value in zip(streams, values, strict=True):
            stream.launch(kernel, 1, 64, kernarg=pointer(value))
    streams[0].submit(lambda: copies.append(int(values[0].to_host()[0])))
    streams[0].submit(values[0].copy_from, np.zeros(1, np.uint32))
    for stream in streams:
        stream.synchronize()
        stream.close()
    expected = (3**10 - 1) // 2
    assert copies == [expected]
    assert [int(value.to_host()[0]) for value in values] == [0, expected, expected]


def test_a_failure_stops_its_stream_only(gpu: rjemu.Machine) -> None:
    kernel, stray = (gpu.load(build(text, "gfx950"))["kernel"] for text in (TRIPLE_AND_ADD_ONE, STRAY))
    value = gpu.zeros(1, np.uint32)
    stream, other = gpu.stream(), gpu.stream()
    bad = stream.launch(stray, 1, 64, kernarg=b"")
    after = stream.launch(kernel, 1, 64, kernarg=pointer(value))
    other.launch(kernel, 1, 64, kernarg=pointer(value))
    with pytest.raises(MemoryFault):
        bad.result()
    with pytest.raises(LaunchError, match="the stream has failed before"):
        after.result()
    with pytest.raises(MemoryFault):
        stream.synchronize()
    other.close()
    stream.launch(kernel, 1, 64, kernarg=pointer(value)).result()
    stream.close()
    assert value.to_host().tolist() == [4]


def test_cancel_stops_what_runs_and_what_waits(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
    stream = gpu.stream()
    running, waiting = (stream.launch(kernel, 4, 64, kernarg=b"") for _ in range(2))
    time.sleep(0.1)
    started = time.monotonic()
    stream.cancel()
    assert time.monotonic() - started < 2
    assert waiting.cancelled()
    with pytest.raises(LaunchInterrupted, match="stream was closed"):
        running.result()
    with pytest.raises(MachineClosed):
        stream.launch(kernel, 1, 64, kernarg=b"")
    stream.close()


def test_a_small_launch_does_not_wait_for_a_long_one(gpu: rjemu.Machine) -> None:
    endless, kernel = (gpu.load(build(text, "gfx950"))["kernel"] for text in (ENDLESS, TRIPLE_AND_ADD_ONE))
    value = gpu.zeros(1, np.uint32)
    stream = gpu.stream()
    running = stream.launch(endless, 64, 64, kernarg=b"")
    for _ in range(5):
        kernel.launch(1, 64, kernarg=pointer(value), timeout=5)
    assert not running.done()
    stream.cancel()
    assert int(value.to_host()[0]) == (3**5 - 1) // 2


def test_closing_the_machine_ends_streams() -> None:
    before = threading.active_count()
    machine = rjemu.Machine("gfx950_mi355x", workers=(1, 1))
    kernel = machine.load(build(ENDLESS, "gfx950"))["kernel"]
    stream = machine.stream()
    future = stream.launch(kernel, 1, 64, kernarg=b"")
    time.sleep(0.2)
    machine.close()
    assert isinstance(future.exception(timeout=5), LaunchInterrupted)
    stream.close()
    with pytest.raises(MachineClosed):
        machine.stream()
    assert threading.active_count() == before


def test_streams_without_processes_take_turns_by_launch() -> None:
    with rjemu.Machine("gfx950_mi355x", workers="inline") as machine, machine.stream() as stream:
        kernel = machine.load(build(TRIPLE_AND_ADD_ONE, "gfx950"))["kernel"]
        value = machine.zeros(1, np.uint32)
        futures = [stream.launch(kernel, 1, 64, kernarg=pointer(value)) for _ in range(3)]
        stream.synchronize()
        assert all(future.result().wave_instructions == 9 for future in futures)
        assert value.to_host().tolist() == [13]
