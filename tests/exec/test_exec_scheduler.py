"""Turns, barriers, residency, code changes: how dispatches are carried out, on both executors."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from support.assemble import build, kernel_text

import rjemu
from rjemu.errors import BarrierDeadlock, JumpFault, LaunchInterrupted, LaunchTimeout

KERNARG = {"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 0}


@pytest.fixture(params=["native", "reference"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", executor=request.param, time_slice=1024) as machine:
        yield machine


def load(gpu: rjemu.Machine, body: str, **directives: int) -> rjemu.vm.module.LoadedKernel:
    return gpu.load(build(kernel_text(body, directives={**KERNARG, **directives}), "gfx950"))["kernel"]


def pointer(*arrays: rjemu.vm.array.DeviceArray) -> bytes:
    return np.array([array.address for array in arrays], np.uint64).tobytes()


STORE_V2 = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""


def test_waves_take_turns_without_a_barrier(gpu: rjemu.Machine) -> None:
    """Wave 0 spins on an LDS flag that wave 1 sets: it can only end if wave 1 runs meanwhile."""
    kernel = load(
        gpu,
        """
  v_readfirstlane_b32 s6, v0
  v_mov_b32 v3, 0
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 set
spin:
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
  v_readfirstlane_b32 s7, v4
  s_cmp_eq_u32 s7, 0
  s_cbranch_scc1 spin
  v_mov_b32 v2, v4
  s_branch store
set:
  v_mov_b32 v2, 7
  ds_write_b32 v3, v2
store:
"""
        + STORE_V2,
        group_segment_fixed_size=64,
    )
    out = gpu.zeros(128, np.uint32)
    kernel.launch(1, 128, kernarg=pointer(out), timeout=30)
    assert (out.to_host() == 7).all()


def test_a_turn_is_at_most_sixteen_instructions(gpu: rjemu.Machine) -> None:
    """Each wave counts in LDS how often it ran between the other's counts: with turns of 16 both count alternately."""
    count = "\n".join("  ds_add_rtn_u32 v4, v3, v5\n  v_max_u32 v2, v2, v4" for _ in range(40))
    kernel = load(
        gpu,
        f"""
  v_mov_b32 v3, 0
  v_mov_b32 v2, 0
  v_mov_b32 v5, 1
  s_mov_b64 exec, 1
{count}
  s_mov_b64 exec, -1
"""
        + STORE_V2,
        group_segment_fixed_size=64,
    )
    out = gpu.zeros(128, np.uint32)
    kernel.launch(1, 128, kernarg=pointer(out))
    last = out.to_host()[[0, 64]]
    assert sorted(last)[1] == 79  # the last of all
    assert 79 - min(last) <= 9  # the wave that ended first did so within a turn of the other


def test_barrier_counts_arrivals_at_different_places(gpu: rjemu.Machine) -> None:
    kernel = load(
        gpu,
        """
  v_readfirstlane_b32 s6, v0
  v_lshlrev_b32 v3, 2, v0
  v_add_u32 v4, 100, v0
  ds_write_b32 v3, v4
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 other
  s_barrier
  s_branch together
other:
  s_nop 3
  s_barrier
together:
  v_xor_b32 v3, 0x100, v3
  ds_read_b32 v2, v3
  s_waitcnt lgkmcnt(0)
"""
        + STORE_V2,
        group_segment_fixed_size=512,
    )
    out = gpu.zeros(128, np.uint32)
    kernel.launch(1, 128, kernarg=pointer(out))
    assert np.array_equal(out.to_host(), 100 + (np.arange(128) ^ 64))


def test_ended_waves_are_not_waited_for(gpu: rjemu.Machine) -> None:
    kernel = load(
        gpu,
        """
  v_readfirstlane_b32 s6, v0
  v_mov_b32 v2, 5
  s_cmp_eq_u32 s6, 64
  s_cbranch_scc1 leave
  s_barrier
"""
        + STORE_V2
        + "leave:\n  s_endpgm\n",
    )
    out = gpu.zeros(192, np.uint32)
    kernel.launch(1, 192, kernarg=pointer(out))
    assert np.array_equal(out.to_host(), np.repeat([5, 0, 5], 64))


def test_a_halted_partner_is_a_deadlock(gpu: rjemu.Machine) -> None:
    kernel = load(
        gpu,
        """
  v_readfirstlane_b32 s6, v0
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc1 wait
  s_sethalt 1
wait:
  s_barrier
  s_endpgm
""",
    )
    with pytest.raises(BarrierDeadlock, match=r"workgroup \(0, 0, 0\) wave 0 at pc"):
        kernel.launch(1, 128, kernarg=b"", timeout=30)


def test_workgroups_that_wait_for_later_ones_end(gpu: rjemu.Machine) -> None:
    """Workgroup k waits for the flag of workgroup k + 1: all must be resident together."""
    kernel = load(
        gpu,
        """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_lshl_b32 s6, s2, 2
  v_mov_b32 v1, s6
  v_mov_b32 v2, 1
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s2, 5
  s_cbranch_scc1 set
spin:
  global_load_dword v3, v1, s[4:5] offset:4 sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s7, v3
  s_cmp_eq_u32 s7, 0
  s_cbranch_scc1 spin
  v_add_u32 v2, 1, v3
set:
  global_store_dword v1, v2, s[4:5] sc1
  s_endpgm
""",
    )
    out = gpu.zeros(6, np.uint32)
    kernel.launch(6, 64, kernarg=pointer(out), timeout=120)
    assert out.to_host().tolist() == [6, 5, 4, 3, 2, 1]


def test_changed_code_is_decoded_again(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, "  v_mov_b32 v2, 1\n" + STORE_V2)
    out = gpu.zeros(64, np.uint32)
    kernel.launch(1, 64, kernarg=pointer(out))
    assert out.to_host()[0] == 1
    entry = kernel.module.address + kernel.kernel.entry_offset
    gpu.vram.view(entry, 4)[:] = np.frombuffer(np.uint32(0x7E040202 - 2 + 0x83).tobytes(), np.uint8)  # v_mov_b32 v2, 3
    kernel.launch(1, 64, kernarg=pointer(out))
    assert out.to_host()[0] == 3


def test_modes_change_in_mid_kernel(gpu: rjemu.Machine) -> None:
    """1 + 2^-24 rounds to 1 to nearest and to the next float upwards; denormals can be flushed."""
    kernel = load(
        gpu,
        """
  v_mov_b32 v3, 0x33800000
  v_add_f32 v4, 1.0, v3
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
  v_add_f32 v5, 1.0, v3
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
  v_add_f32 v6, 0, 1
  v_cmp_eq_f32 vcc, 0, v6
  v_cndmask_b32 v6, 0, 1, vcc
  v_sub_u32 v2, v5, v4
  v_lshl_or_b32 v2, v6, 4, v2
"""
        + STORE_V2,
    )
    out = gpu.zeros(64, np.uint32)
    kernel.launch(1, 64, kernarg=pointer(out))
    assert (out.to_host() == 0x11).all()


def test_jump_to_another_modules_code(gpu: rjemu.Machine) -> None:
    callee = load(gpu, "  v_mov_b32 v2, 42\n  s_setpc_b64 s[30:31]\n")
    caller = load(
        gpu,
        """
  s_load_dwordx2 s[8:9], s[0:1], 0x8
  s_waitcnt lgkmcnt(0)
  s_swappc_b64 s[30:31], s[8:9]
"""
        + STORE_V2,
    )
    out = gpu.zeros(64, np.uint32)
    function = callee.module.address + callee.kernel.entry_offset
    caller.launch(1, 64, kernarg=pointer(out) + np.uint64(function).tobytes())
    assert (out.to_host() == 42).all()


@pytest.mark.parametrize("body", ["s_nop 0\n  s_branch 0x4000\n  s_endpgm", "s_branch 0x8000\n  s_endpgm", "s_nop 0"])
def test_falling_off_the_code(gpu: rjemu.Machine, body: str) -> None:
    with pytest.raises(JumpFault, match="holds no code"):
        load(gpu, f"  {body}\n").launch(1, 64, kernarg=b"")


def test_endless_loop_times_out_and_the_machine_goes_on(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, "loop:\n  s_branch loop\n")
    started = time.perf_counter()
    with pytest.raises(LaunchTimeout, match="0 of 3 workgroups"):
        kernel.launch(3, 64, kernarg=b"", timeout=0.3)
    assert time.perf_counter() - started < 5
    out = gpu.zeros(64, np.uint32)
    load(gpu, "  v_mov_b32 v2, 9\n" + STORE_V2).launch(1, 64, kernarg=pointer(out))
    assert (out.to_host() == 9).all()


def test_ctrl_c_ends_a_launch_within_a_second(gpu: rjemu.Machine) -> None:
    kernel = load(gpu, "loop:\n  s_branch loop\n")
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.perf_counter()
    with pytest.raises(LaunchInterrupted, match="interrupted"):
        kernel.launch(3, 64, kernarg=b"", timeout=60)
    timer.join()
    assert time.perf_counter() - started < 1.3
    out = gpu.zeros(64, np.uint32)
    load(gpu, "  v_mov_b32 v2, 9\n" + STORE_V2).launch(1, 64, kernarg=pointer(out))
    assert (out.to_host() == 9).all()


def test_instructions_are_counted_the_same(gpu: rjemu.Machine) -> None:
    kernel = load(
        gpu, "  s_mov_b32 s6, 20\nloop:\n  s_sub_u32 s6, s6, 1\n  s_cmp_lg_u32 s6, 0\n  s_cbranch_scc1 loop\n  s_endpgm\n"
    )
    result = kernel.launch(7, 192, kernarg=b"")
    assert result.wave_instructions == 7 * 3 * (1 + 20 * 3 + 1)
