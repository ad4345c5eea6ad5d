"""Turns of a workgroup's waves: hand-overs through LDS that no barrier covers and that hardware's timing makes right.

Both kinds are found in AITER's hand-written MLA decoding for gfx942 and gfx950. The order of waves must not matter beyond
what the waves wait for, so each kernel runs with short and with long turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.asm_kernels import run_assembly

import rjemu

WAVES = 4
BLOCK = WAVES * 64


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1, 16, 100])
def quantum(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["native", "reference"])
def gpu(request: pytest.FixtureRequest, target: str, quantum: int) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(
        target, executor=request.param, workers="inline", local_mem_size=1 << 26, wave_quantum=quantum
    ) as machine:
        yield machine


OVERWRITE = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_sub_u32 v2, {last}, v1
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_read_b32 v3, v2
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v4, -1
    ds_write_b32 v1, v4
    global_store_dword v1, v3, s[4:5]
    s_endpgm
"""
"""Every lane writes its number and reads its mirror image's after a barrier; then it overwrites its own."""


def test_a_wave_that_waits_lets_the_others_read_before_it_overwrites(gpu: rjemu.Machine) -> None:
    out = gpu.zeros(BLOCK, np.uint32)
    body = OVERWRITE.format(last=4 * (BLOCK - 1))
    run_assembly(gpu, body, 1, BLOCK, out, lds_bytes=4 * BLOCK)
    np.testing.assert_array_equal(out.to_host(), np.arange(BLOCK)[::-1])


OVERLAP = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshrrev_b32 v1, 6, v0
    v_readfirstlane_b32 s12, v1
    v_lshlrev_b32 v1, 2, v0
    s_lshl_b32 m0, s12, 8
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s10, 2048
    s_mov_b32 s11, 0x00020000
    s_mov_b32 s8, s4
    s_mov_b32 s9, s5
    buffer_load_dword v1, s[8:11], 0 offen lds
    s_add_u32 m0, m0, 960
    v_add_u32 v2, 1024, v1
    buffer_load_dword v2, s[8:11], 0 offen lds
    s_waitcnt vmcnt(0)
    s_barrier
    ds_read_b32 v3, v1
    ds_read_b32 v4, v1 offset:960
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v3, s[6:7]
    global_store_dword v1, v4, s[6:7] offset:960
    s_endpgm
"""
"""Each wave loads 256 bytes into LDS, and then 256 bytes more. The last 64 bytes of the last wave's first load lie where the
first wave's second load goes."""


def test_loads_straight_to_lds_land_in_step(gpu: rjemu.Machine) -> None:
    source = np.arange(1, 513, dtype=np.uint32)
    out = gpu.zeros(496, np.uint32)
    run_assembly(gpu, OVERLAP, 1, BLOCK, gpu.to_device(source), out, lds_bytes=2048)
    np.testing.assert_array_equal(out.to_host(), np.concatenate([source[:240], source[256:]]))
