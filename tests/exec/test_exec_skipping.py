"""VSKIP: vector instructions of every unit are skipped, scalar ones are not, on both executors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.asm_kernels import run_assembly

import rjemu

KERNEL = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 7
    v_mov_b32 v3, 11
    v_mov_b32 v4, 0
    ds_write_b32 v1, v3
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s8, 0x10
    s_setvskip s8, 4
    v_mov_b32 v2, 100
    v_add_u32_e64 v2, v2, v2
    v_add_f32_sdwa v2, v2, v2 dst_sel:DWORD src0_sel:BYTE_0 src1_sel:DWORD
    v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf
    v_cmpx_eq_u32 vcc, 1, v1
    v_readfirstlane_b32 s9, v1
    v_mfma_f32_4x4x1_16b_f32 v[8:11], v1, v1, v[8:11]
    v_pk_add_f32 v[2:3], v[2:3], v[2:3]
    ds_write_b32 v1, v0
    ds_read_b32 v3, v1
    buffer_load_dword v3, v1, s[20:23], 0 offen
    flat_load_dword v3, v[30:31]
    global_store_dword v1, v0, s[4:5]
    scratch_load_dword v3, v1, off
    s_mov_b32 s9, 5
    s_add_u32 s10, s9, 3
    s_cmp_eq_u32 s10, 8
    s_cselect_b32 s11, 1, 0
    s_waitcnt vmcnt(0)
    s_barrier
    s_setvskip s8, 3
    ds_read_b32 v4, v1
    v_mov_b32 v5, s10
    s_waitcnt lgkmcnt(0)
    v_mad_u32_u24 v2, v2, s11, v3
    v_add_u32 v2, v2, v4
    v_add_u32 v2, v2, v5
    global_store_dword v1, v2, s[6:7]
    s_endpgm
"""
"""What the skipped part would change: EXEC and VCC, v2, v3, LDS, memory; some of it would fault."""


@pytest.fixture(params=["native", "reference"])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest, executor: str) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, executor=executor, workers="inline", local_mem_size=1 << 26) as machine:
        yield machine


def test_only_scalar_instructions_are_executed(gpu: rjemu.Machine) -> None:
    untouched, out = gpu.zeros(128, np.uint32), gpu.zeros(128, np.uint32)
    run_assembly(gpu, KERNEL, 1, 128, untouched, out, lds_bytes=512)
    np.testing.assert_array_equal(out.to_host(), 7 + 11 + 11 + 8)
    np.testing.assert_array_equal(untouched.to_host(), 0)


SKIPPED_BY_BRANCH = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 0
    s_mov_b32 s8, 0
    next:
    s_setvskip s8, 0
    v_add_u32 v2, 1, v2
    s_setvskip 0, 0
    v_add_u32 v2, 0x100, v2
    s_add_u32 s8, s8, 1
    s_cmp_lt_u32 s8, 6
    s_cbranch_scc1 next
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_endpgm
"""
"""The counter's lowest bit skips the first addition in every other turn of the loop."""


def test_the_same_code_runs_with_and_without_it(gpu: rjemu.Machine) -> None:
    out = gpu.zeros(64, np.uint32)
    run_assembly(gpu, SKIPPED_BY_BRANCH, 1, 64, out)
    np.testing.assert_array_equal(out.to_host(), 0x603)
