"""Dispatches on worker processes: the same results whatever the split, concurrent launches, faults that travel."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.worker_kernels import CHAIN, SQUARES, pointer

import rjemu
from rjemu.errors import IllegalInstruction, LaunchTimeout, MemoryFault

KERNARG = {"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 0}


@pytest.fixture(scope="module", params=[(1, 1), (1, 2), (2, 3), (4, 8)], ids=str)
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", workers=request.param, time_slice=4096) as machine:
        yield machine


def test_every_workgroup_runs_once(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(SQUARES, "gfx950"))["kernel"]
    out = gpu.zeros(1 + 1000 * 64, np.uint32)
    result = kernel.launch(1000, 64, kernarg=pointer(out.address + 4))
    values = out.to_host()
    numbers = np.arange(64000, dtype=np.uint32)
    assert np.array_equal(values[1:], numbers * numbers)
    assert values[0] == 64000
    assert sum(worker["workgroups"] for worker in result.stats["workers"]) == 1000
    assert sum(worker["wave_instructions"] for worker in result.stats["workers"]) == result.wave_instructions == 11000


def test_workgroups_that_wait_for_others_end(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(CHAIN, "gfx950"))["kernel"]
    out = gpu.zeros(24, np.uint32)
    kernel.launch(24, 64, kernarg=pointer(out.address), timeout=100)
    assert out.to_host().tolist() == list(range(24, 0, -1))


def test_threads_launch_at_the_same_time(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(SQUARES, "gfx950"))["kernel"]
    outs = [gpu.zeros(1 + 64 * 64, np.uint32) for _ in range(8)]

    def launch(k: int) -> None:
        for _ in range(5):
            kernel.launch(64, 64, kernarg=pointer(outs[k].address + 4))

    threads = [threading.Thread(target=launch, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(out.to_host()[0]) for out in outs] == [5 * 64 * 64] * 8


def test_faults_name_the_place_and_the_machine_goes_on(gpu: rjemu.Machine) -> None:
    kernel = gpu.load(build(SQUARES, "gfx950"))["kernel"]
    out = gpu.zeros(1 + 64 * 64, np.uint32)
    with pytest.raises(MemoryFault) as caught:
        kernel.launch(1000, 64, kernarg=pointer(out.address + 4))
    place = caught.value.place
    assert place is not None and place.kernel == "kernel" and place.instruction.startswith("global_store_dword v1, v3")
    assert place.workgroup[0] >= 64
    assert "past the end" in str(caught.value)
    kernel.launch(64, 64, kernarg=pointer(out.address + 4))
    assert out.to_host()[2] == 1


def test_code_met_late_is_compiled_by_the_launcher(gpu: rjemu.Machine) -> None:
    """A computed jump: what it reaches is decoded only when it is taken."""
    text = kernel_text(
        """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_getpc_b64 s[8:9]
after:
  s_add_u32 s8, s8, target-after
  s_addc_u32 s9, s9, 0
  s_setpc_b64 s[8:9]
  .long 0xffffffff
target:
  v_mov_b32 v2, 77
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
        directives=KERNARG,
    )
    kernel = gpu.load(build(text, "gfx950"))["kernel"]
    out = gpu.zeros(64, np.uint32)
    kernel.launch(16, 64, kernarg=pointer(out.address))
    assert (out.to_host() == 77).all()


def test_illegal_code_and_endless_loops(gpu: rjemu.Machine) -> None:
    bad = gpu.load(build(kernel_text("  s_nop 0\n  .long 0xffffffff\n  s_endpgm"), "gfx950"))["kernel"]
    with pytest.raises(IllegalInstruction):
        bad.launch(5, 64, kernarg=b"")
    endless = gpu.load(build(kernel_text("loop:\n  s_branch loop\n"), "gfx950"))["kernel"]
    with pytest.raises(LaunchTimeout, match="0 of 40 workgroups"):
        endless.launch(40, 64, kernarg=b"", timeout=0.3)
    out = gpu.zeros(1 + 64 * 64, np.uint32)
    gpu.load(build(SQUARES, "gfx950"))["kernel"].launch(64, 64, kernarg=pointer(out.address + 4))
    assert out.to_host()[0] == 4096


def test_loading_and_unloading_reaches_the_workers(gpu: rjemu.Machine) -> None:
    for _ in range(5):
        module = gpu.load(build(SQUARES, "gfx950"))
        out = gpu.zeros(1 + 64, np.uint32)
        module["kernel"].launch(1, 64, kernarg=pointer(out.address + 4))
        assert out.to_host()[0] == 64
        module.unload()
