"""Whole assembly kernels: scratch, calls, jump tables, LDS and barriers, workgroups that wait for each other, 64-bit and
double arithmetic, MODE changes, register indexing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.asm_kernels import run_assembly
from support.assemble import build

import rjemu


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


STORE_V2 = """
    s_mul_i32 s3, s2, {block}
    v_add_u32 v1, s3, v0
    v_lshlrev_b32 v1, 2, v1
    s_waitcnt vmcnt(0) lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_endpgm
"""
"""Ends a kernel: stores v2 at the work-item's place of the array in s[4:5]."""


def test_scratch_array_indexed_by_lane_and_seen_through_flat(gpu: rjemu.Machine) -> None:
    """Each lane fills array[i] = 3 i + lane by scratch stores and sums it, backwards, by flat loads."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_mov_b64 s[10:11], src_private_base
    v_mov_b32 v5, v0
    v_mov_b32 v3, 16
    s_mov_b32 s6, 0
    fill:
    scratch_store_dword v3, v5, off
    v_add_u32 v5, 3, v5
    v_add_u32 v3, 4, v3
    s_add_i32 s6, s6, 1
    s_cmp_lt_u32 s6, 20
    s_cbranch_scc1 fill
    v_mov_b32 v2, 0
    v_mov_b32 v7, s11
    add_up:
    v_add_u32 v3, -4, v3
    v_mov_b32 v6, v3
    flat_load_dword v8, v[6:7]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_lshlrev_b32 v2, 1, v2
    v_add_u32 v2, v2, v8
    s_sub_i32 s6, s6, 1
    s_cmp_lg_u32 s6, 0
    s_cbranch_scc1 add_up
    """ + STORE_V2.format(block=128)
    out = gpu.zeros(384, np.uint32)
    run_assembly(gpu, body, 3, 128, out, private_segment_fixed_size=128, enable_private_segment=1)
    lane = np.tile(np.arange(128, dtype=np.uint64), 3)
    expected = sum((3 * i + lane) << i for i in range(20)) & 0xFFFFFFFF
    assert np.array_equal(out.to_host(), expected)


def test_recursive_calls_with_return_addresses_in_lanes(gpu: rjemu.Machine) -> None:
    """Fibonacci by recursion; return addresses and locals spill to lanes of a VGPR (v_writelane with M0 as index)."""
    body = (
        """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_mov_b32 m0, 0
    s_add_i32 s20, s2, 1
    s_getpc_b64 s[30:31]
    s_add_u32 s30, s30, fibonacci@rel32@lo+4
    s_addc_u32 s31, s31, fibonacci@rel32@hi+12
    s_swappc_b64 s[28:29], s[30:31]
    v_mov_b32 v2, s21
    """
        + STORE_V2.format(block=64)
        + """
    fibonacci:                            // s21 = fibonacci(s20), return to s[28:29]
    s_mov_b32 s21, s20
    s_cmp_lt_u32 s20, 2
    s_cbranch_scc1 leave
    v_writelane_b32 v10, s28, m0
    v_writelane_b32 v11, s29, m0
    v_writelane_b32 v12, s20, m0
    s_add_i32 m0, m0, 1
    s_sub_i32 s20, s20, 1
    s_swappc_b64 s[28:29], s[30:31]
    s_sub_i32 m0, m0, 1
    s_nop 4
    v_readlane_b32 s20, v12, m0
    v_writelane_b32 v12, s21, m0
    s_add_i32 m0, m0, 1
    s_sub_i32 s20, s20, 2
    s_swappc_b64 s[28:29], s[30:31]
    s_sub_i32 m0, m0, 1
    s_nop 4
    v_readlane_b32 s22, v12, m0
    v_readlane_b32 s28, v10, m0
    v_readlane_b32 s29, v11, m0
    s_add_i32 s21, s21, s22
    leave:
    s_setpc_b64 s[28:29]
    """
    )
    out = gpu.zeros(12 * 64, np.uint32)
    run_assembly(gpu, body, 12, 64, out)
    numbers = [1, 1]
    while len(numbers) < 12:
        numbers.append(numbers[-1] + numbers[-2])
    assert np.array_equal(out.to_host().reshape(12, 64), np.repeat(numbers, 64).reshape(12, 64))


def test_jump_table_of_relocated_addresses_in_data(gpu: rjemu.Machine) -> None:
    """A table of absolute addresses (dynamic relocations) selects the arm by workgroup."""
    text = (
        """
    .text
    .globl kernel
    .p2align 8
    .type kernel,@function
    kernel:
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_getpc_b64 s[6:7]
    s_add_u32 s6, s6, table@rel32@lo+4
    s_addc_u32 s7, s7, table@rel32@hi+12
    s_and_b32 s8, s2, 3
    s_lshl_b32 s8, s8, 3
    s_add_u32 s6, s6, s8
    s_addc_u32 s7, s7, 0
    s_load_dwordx2 s[8:9], s[6:7], 0x0
    s_waitcnt lgkmcnt(0)
    s_setpc_b64 s[8:9]
    arm0: v_mov_b32 v2, 10
    s_branch join
    arm1: v_mov_b32 v2, v0
    s_branch join
    arm2: v_not_b32 v2, v0
    s_branch join
    arm3: v_mul_u32_u24 v2, v0, v0
    join:
    """
        + STORE_V2.format(block=64)
        + """
    .Lend:
    .size kernel, .Lend-kernel
    .section .data.rel.ro,"aw"
    .p2align 3
    table:
    .quad arm0, arm1, arm2, arm3
    .rodata
    .p2align 6
    .amdhsa_kernel kernel
      .amdhsa_next_free_vgpr 16
      .amdhsa_next_free_sgpr 16
      .amdhsa_accum_offset 16
      .amdhsa_user_sgpr_kernarg_segment_ptr 1
      .amdhsa_kernarg_size 8
    .end_amdhsa_kernel
    """
    )
    kernel = gpu.load(build(text, gpu.config.target))["kernel"]
    out = gpu.zeros(8 * 64, np.uint32)
    kernel.launch(8, 64, kernarg=out.address.to_bytes(8, "little"), timeout=60)
    lane = np.arange(64, dtype=np.uint32)
    arms = [np.full(64, 10, np.uint32), lane, ~lane, lane * lane]
    assert np.array_equal(out.to_host().reshape(8, 64), np.stack([*arms, *arms]))


def test_lds_sum_over_the_waves_of_a_workgroup(gpu: rjemu.Machine) -> None:
    """A tree over 512 work-items with a barrier at each level, and results handed back to every work-item."""
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_lshl_b32 s3, s2, 9
    v_add_u32 v1, s3, v0
    v_lshlrev_b32 v1, 2, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[6:7]
    v_lshlrev_b32 v3, 2, v0
    s_waitcnt vmcnt(0)
    ds_write_b32 v3, v2
    s_movk_i32 s8, 256
    level:
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_cmp_gt_u32 vcc, s8, v0
    s_and_saveexec_b64 s[10:11], vcc
    s_cbranch_execz joined
    s_lshl_b32 s9, s8, 2
    v_add_u32 v4, s9, v3
    ds_read_b32 v5, v4
    ds_read_b32 v6, v3
    s_waitcnt lgkmcnt(0)
    v_add_u32 v5, v5, v6
    ds_write_b32 v3, v5
    joined:
    s_mov_b64 exec, s[10:11]
    s_lshr_b32 s8, s8, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 level
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_mov_b32 v4, 0
    ds_read_b32 v2, v4
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    x = np.random.default_rng(1).integers(0, 1 << 32, (5, 512), np.uint32)
    out = gpu.zeros((5, 512), np.uint32)
    run_assembly(gpu, body, 5, 512, out, gpu.to_device(x), group_segment_fixed_size=2048)
    assert np.array_equal(out.to_host(), np.repeat(x.sum(1, dtype=np.uint32), 512).reshape(5, 512))


@pytest.mark.parametrize("backwards", [False, True])
def test_workgroups_wait_for_each_others_flags(gpu: rjemu.Machine, backwards: bool) -> None:
    """A chain through all workgroups: each waits for its neighbour's sum and adds its own number. Backwards, the first
    workgroup waits for the last, so all of them must be resident."""
    count = 8
    body = """
    s_load_dwordx8 s[4:11], s[0:1], 0x0
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s12, s2, s8
    s_add_i32 s12, s12, s10
    s_lshl_b32 s13, s12, 2
    s_add_u32 s6, s6, s13
    s_addc_u32 s7, s7, 0
    s_cmp_eq_u32 s12, 0
    s_cselect_b32 s14, 1, 0
    v_mov_b32 v3, 0
    s_cbranch_scc1 first
    wait:
    s_sleep 2
    global_load_dword v2, v1, s[6:7] offset:-4 sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s15, v2
    s_cmp_eq_u32 s15, 0
    s_cbranch_scc1 wait
    v_mov_b32 v3, v2
    first:
    s_add_i32 s12, s12, 1
    v_add_u32 v2, s12, v3
    global_store_dword v1, v2, s[6:7] sc1
    """ + STORE_V2.format(block=64)
    flags, out = gpu.zeros(count, np.uint32), gpu.zeros(64 * count, np.uint32)
    step, start = (-1, count - 1) if backwards else (1, 0)
    run_assembly(gpu, body, count, 64, out, flags, step, start)
    sums = np.cumsum(np.arange(1, count + 1))
    assert np.array_equal(flags.to_host(), sums)
    assert np.array_equal(out.to_host()[::64], sums[::step])


def test_workgroups_exchange_through_memory_round_by_round(gpu: rjemu.Machine) -> None:
    """A barrier across workgroups, made of an atomic counter, 10 times over: persistent kernels do this."""
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_mov_b32 s8, 0
    s_waitcnt lgkmcnt(0)
    round:
    s_add_i32 s8, s8, 6
    s_mov_b64 s[12:13], exec
    s_mov_b64 exec, 1
    global_atomic_add v1, v2, s[6:7] sc1
    arrive:
    global_load_dword v3, v1, s[6:7] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s9, v3
    s_cmp_lt_u32 s9, s8
    s_cbranch_scc1 arrive
    s_mov_b64 exec, s[12:13]
    s_barrier
    s_cmp_lt_u32 s8, 60
    s_cbranch_scc1 round
    v_mov_b32 v2, s9
    """ + STORE_V2.format(block=64)
    counter, out = gpu.zeros(1, np.uint32), gpu.zeros(6 * 64, np.uint32)
    run_assembly(gpu, body, 6, 64, out, counter)
    assert counter.to_host()[0] == 60
    assert np.all(out.to_host() == 60)


def test_128_bit_product_by_64_bit_instructions(gpu: rjemu.Machine) -> None:
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 4, v0
    s_waitcnt lgkmcnt(0)
    global_load_dwordx4 v[4:7], v1, s[6:7]
    s_waitcnt vmcnt(0)
    v_mad_u64_u32 v[8:9], vcc, v4, v6, 0
    v_mov_b32 v10, v9
    v_mov_b32 v11, 0
    v_mad_u64_u32 v[12:13], vcc, v5, v6, v[10:11]
    v_mov_b32 v10, v12
    v_mad_u64_u32 v[14:15], vcc, v4, v7, v[10:11]
    v_mov_b32 v9, v14
    v_mov_b32 v10, v13
    v_mad_u64_u32 v[16:17], vcc, v5, v7, v[10:11]
    v_mov_b32 v10, v15
    v_lshl_add_u64 v[10:11], v[16:17], 0, v[10:11]
    global_store_dwordx4 v1, v[8:11], s[4:5]
    s_endpgm
    """
    x = np.random.default_rng(2).integers(0, (1 << 64) - 1, (64, 2), np.uint64, endpoint=True)
    x[0] = (1 << 64) - 1
    out = gpu.zeros((64, 2), np.uint64)
    run_assembly(gpu, body, 1, 64, out, gpu.to_device(x))
    found = [int(low) | int(high) << 64 for low, high in out.to_host()]
    assert found == [int(a) * int(b) for a, b in x]


def test_double_polynomial_and_division(gpu: rjemu.Machine) -> None:
    """Horner's scheme with v_fma_f64, and the division sequence (scale, Newton steps, fmas, fixup)."""
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 4, v0
    s_waitcnt lgkmcnt(0)
    global_load_dwordx4 v[4:7], v1, s[6:7]
    v_mov_b32 v8, 0
    v_mov_b32 v9, 0x40080000
    s_waitcnt vmcnt(0)
    v_fma_f64 v[10:11], v[8:9], v[4:5], -2.0
    v_fma_f64 v[10:11], v[10:11], v[4:5], 0.5
    v_fma_f64 v[10:11], v[10:11], v[4:5], 1.0
    v_div_scale_f64 v[12:13], s[10:11], v[6:7], v[6:7], v[4:5]
    v_rcp_f64 v[14:15], v[12:13]
    v_fma_f64 v[16:17], -v[12:13], v[14:15], 1.0
    v_fma_f64 v[14:15], v[14:15], v[16:17], v[14:15]
    v_fma_f64 v[16:17], -v[12:13], v[14:15], 1.0
    v_fma_f64 v[14:15], v[14:15], v[16:17], v[14:15]
    v_div_scale_f64 v[18:19], vcc, v[4:5], v[6:7], v[4:5]
    v_mul_f64 v[20:21], v[18:19], v[14:15]
    v_fma_f64 v[12:13], -v[12:13], v[20:21], v[18:19]
    v_div_fmas_f64 v[12:13], v[12:13], v[14:15], v[20:21]
    v_div_fixup_f64 v[12:13], v[12:13], v[6:7], v[4:5]
    global_store_dwordx4 v1, v[10:13], s[4:5]
    s_endpgm
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(64, 2)) * 2.0 ** rng.integers(-300, 300, (64, 2))
    x[:20] = rng.normal(size=(20, 2))
    x[20] = 5e-324, 3.0
    x[21] = 1.7e308, 1e-300
    x[22] = 1.0, 0.0
    out = gpu.zeros((64, 2), np.float64)
    run_assembly(gpu, body, 1, 64, out, gpu.to_device(x))
    found = out.to_host()
    with np.errstate(all="ignore"):
        assert np.array_equal(found[:, 1], x[:, 0] / x[:, 1])
        a = x[:20, 0].astype(np.longdouble)
        wide = ((3 * a - 2) * a + np.longdouble(0.5)) * a + 1
        scale = ((3 * np.abs(a) + 2) * np.abs(a) + np.longdouble(0.5)) * np.abs(a) + 1
    assert np.all(np.abs(found[:20, 0] - wide) <= 4 * 2.0**-53 * scale)


def test_mode_changes_in_mid_kernel(gpu: rjemu.Machine) -> None:
    """One sum in the four rounding modes, and a denormal product kept and flushed."""
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 3, v0
    v_mul_u32_u24 v10, 24, v0
    s_waitcnt lgkmcnt(0)
    global_load_dwordx2 v[4:5], v1, s[6:7]
    s_waitcnt vmcnt(0)
    v_add_f32 v12, v4, v5
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
    v_add_f32 v13, v4, v5
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 2
    v_add_f32 v14, v4, v5
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3
    v_add_f32 v15, v4, v5
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0
    v_mov_b32 v6, 0x00400000
    v_mul_f32 v16, 0.5, v6
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
    v_mul_f32 v17, 0.5, v6
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
    global_store_dwordx4 v10, v[12:15], s[4:5]
    global_store_dwordx2 v10, v[16:17], s[4:5] offset:16
    s_endpgm
    """
    x = np.random.default_rng(4).normal(size=(64, 2)).astype(np.float32)
    out = gpu.zeros((64, 6), np.float32)
    run_assembly(gpu, body, 1, 64, out, gpu.to_device(x), float_denorm_mode_32=3)
    exact = x.astype(np.float64).sum(1)
    nearest = exact.astype(np.float32)
    up = np.where(nearest < exact, np.nextafter(nearest, np.float32(np.inf)), nearest)
    down = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    denormal = np.uint32(0x00200000).view(np.float32)
    zero = np.where(exact < 0, up, down)
    expected = np.stack([nearest, up, down, zero, np.full(64, denormal), np.zeros(64, np.float32)], 1)
    assert np.array_equal(out.to_host(), expected)


def test_registers_indexed_by_a_scalar(gpu: rjemu.Machine) -> None:
    """s_set_gpr_idx: an array in VGPRs, written and read at an index that runs."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_mov_b32 s6, 0
    fill:
    v_mov_b32 v3, s6
    v_mul_lo_u32 v3, v3, v3
    v_add_u32 v3, v3, v0
    s_set_gpr_idx_on s6, gpr_idx(DST)
    v_mov_b32 v20, v3
    s_set_gpr_idx_off
    s_add_i32 s6, s6, 1
    s_cmp_lt_u32 s6, 16
    s_cbranch_scc1 fill
    v_mov_b32 v2, 0
    add_up:
    s_sub_i32 s6, s6, 1
    s_set_gpr_idx_on s6, gpr_idx(SRC0)
    v_mov_b32 v4, v20
    s_set_gpr_idx_off
    v_mad_u32_u24 v2, v2, 3, v4
    s_cmp_lg_u32 s6, 0
    s_cbranch_scc1 add_up
    """ + STORE_V2.format(block=64)
    out = gpu.zeros(64, np.uint32)
    run_assembly(gpu, body, 1, 64, out)
    lane = np.arange(64, dtype=np.uint64)
    expected = np.zeros(64, np.uint64)
    for i in reversed(range(16)):
        expected = (expected & 0xFFFFFF) * np.uint64(3) + np.uint64(i * i) + lane
    assert np.array_equal(out.to_host(), expected & 0xFFFFFFFF)


def test_divergent_loops_end_lane_by_lane(gpu: rjemu.Machine) -> None:
    """Steps of the Collatz sequence: each lane leaves the loop by itself."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_mul_i32 s3, s2, 96
    v_add_u32 v3, s3, v0
    v_add_u32 v3, 1, v3
    v_mov_b32 v2, 0
    s_mov_b64 s[8:9], exec
    again:
    v_cmp_ne_u32 vcc, 1, v3
    s_and_b64 exec, exec, vcc
    s_cbranch_execz done
    v_and_b32 v4, 1, v3
    v_lshrrev_b32 v5, 1, v3
    v_mul_lo_u32 v6, v3, 3
    v_add_u32 v6, 1, v6
    v_cmp_eq_u32 vcc, 1, v4
    v_cndmask_b32 v3, v5, v6, vcc
    v_add_u32 v2, 1, v2
    s_branch again
    done:
    s_mov_b64 exec, s[8:9]
    """ + STORE_V2.format(block=96)
    out = gpu.zeros(960, np.uint32)
    run_assembly(gpu, body, 10, 96, out)

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        return count

    assert out.to_host().tolist() == [steps(n) for n in range(1, 961)]


def test_workgroup_of_1024_counts_through_lds_atomics(gpu: rjemu.Machine) -> None:
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_mov_b32 v3, 0
    v_mov_b32 v4, 0
    v_mov_b32 v5, 1
    ds_write_b32 v3, v4
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_add_rtn_u32 v2, v3, v5
    """ + STORE_V2.format(block=1024)
    out = gpu.zeros((3, 1024), np.uint32)
    run_assembly(gpu, body, 3, 1024, out, lds_bytes=64)
    assert np.array_equal(np.sort(out.to_host(), 1), np.tile(np.arange(1024), (3, 1)))
