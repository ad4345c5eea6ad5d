"""Counted instructions: throughput and instruction_mix, on every executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from support.asm_kernels import run_assembly
from support.triton_kernels import matmul
from support.triton_objects import run_triton

from rjemu import Machine
from rjemu.errors import MemoryFault

LOOP = """
  s_mov_b32 s9, 0
1:
  v_add_u32 v1, v1, v0
  v_mfma_f32_4x4x4_16b_f16 v[4:7], v[8:9], v[10:11], v[4:7]
  s_add_u32 s9, s9, 1
  s_cmp_lt_u32 s9, 10
  s_cbranch_scc1 1b
  s_mov_b32 m0, -1
  ds_write_b32 v12, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_nop 0
  s_endpgm
"""
WAVES = 6
LOOP_FAMILIES = {
    "scalar": WAVES * (1 + 10 + 10 + 1),
    "vector": WAVES * 10,
    "matrix": WAVES * 10,
    "lds": WAVES,
    "global": 0,
    "control": WAVES * (10 + 1 + 1 + 1),
    "other": WAVES,
}
RUNS: list[Any] = [
    pytest.param({"workers": "inline"}, id="inline"),
    pytest.param({"workers": (1, 2)}, id="workers"),
    pytest.param({"executor": "reference"}, id="reference"),
    pytest.param({"workers": (1, 1), "async_helper_threads": 1}, id="helpers"),
]


def read(folder: Path, plugin: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{plugin}.log").read_text().splitlines()]


def machine(folder: Path, plugins: dict[str, Any], **options: Any) -> Machine:
    return Machine("gfx950_mi355x", plugins=plugins, sinks={"types": ["file"], "dir": str(folder)}, **options)


@pytest.mark.parametrize("options", RUNS)
def test_families_of_a_loop(options: dict[str, Any], tmp_path: Path) -> None:
    with machine(tmp_path, {"throughput": {}}, **options) as gpu:
        results = [run_assembly(gpu, LOOP, 3, 128, lds_bytes=512) for _ in range(2)]
    first, second = read(tmp_path, "throughput")
    assert (first["dispatch"], second["dispatch"]) == (0, 1)
    for record, result in zip((first, second), results, strict=True):
        assert record["families"] == LOOP_FAMILIES
        assert record["wave_instructions"] == sum(LOOP_FAMILIES.values()) == result.wave_instructions
        assert record["dispatch_wall_seconds"] > 0
        assert record["execution_timing_valid"]
        assert record["execution_mips"] == pytest.approx(record["wave_instructions"] / record["execution_seconds"] / 1e6)


@pytest.mark.parametrize("options", RUNS)
def test_counts_of_a_whole_kernel(options: dict[str, Any], tmp_path: Path) -> None:
    with machine(tmp_path, {"instruction_mix": {"format": "json"}, "throughput": {}}, **options) as gpu:
        a, b = (gpu.to_device(np.ones((32, 32), np.float16)) for _ in range(2))
        c = gpu.empty((32, 32), np.float32)
        arguments = {"a": a, "b": b, "c": c, "M": 32, "N": 32, "K": 32, "stride_am": 32, "stride_ak": 1, "stride_bk": 32,
                     "stride_bn": 1}  # fmt: skip
        constants = {"BM": 16, "BN": 16, "BK": 16, "ACCUMULATOR": tl.float32, "PRECISION": "ieee"}
        result = run_triton(gpu, matmul, (2, 2), arguments, constants, num_warps=1)
        assert (c.to_host() == 32).all()
    [[kernel]] = [record["kernels"] for record in read(tmp_path, "instruction_mix")]
    assert kernel["wave_instructions"] == result.wave_instructions == sum(kernel["mnemonics"].values())
    assert kernel["mnemonics"]["s_endpgm"] == 4
    [record] = read(tmp_path, "throughput")
    matrix = sum(count for name, count in kernel["mnemonics"].items() if "mfma" in name)
    assert record["families"]["matrix"] == matrix > 0


def test_the_table(tmp_path: Path) -> None:
    with machine(tmp_path, {"instruction_mix": {"most": 2}}, workers="inline") as gpu:
        for _ in range(2):
            run_assembly(gpu, "s_nop 0\ns_nop 0\ns_nop 0\nv_mov_b32 v1, 0\nv_mov_b32 v1, 0\ns_endpgm", 1, 64)
    assert (tmp_path / "instruction_mix.log").read_text().splitlines() == [
        "kernel: 12 wave instructions in 2 dispatches",
        "             6  50.00%  s_nop",
        "             4  33.33%  v_mov_b32",
        "             2  16.67%  1 others",
    ]


def test_instructions_that_ran_natively_after_being_decoded_count_once(tmp_path: Path) -> None:
    """Records that are met undecoded, and MODE changes, leave the loop and come back."""
    add = "v_add_f32 v1, v1, v0"
    body = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5\n{add}\ns_branch 1f\ns_nop 0\n1:\n{add}\ns_endpgm"
    with machine(tmp_path, {"instruction_mix": {"format": "json"}}, workers="inline") as gpu:
        run_assembly(gpu, body, 1, 64)
    [[kernel]] = [record["kernels"] for record in read(tmp_path, "instruction_mix")]
    assert kernel["mnemonics"] == {"v_add_f32": 2, "s_branch": 1, "s_endpgm": 1, "s_setreg_imm32_b32": 1}


def test_a_failed_dispatch_has_no_timing(tmp_path: Path) -> None:
    body = "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v4, v[2:3], off\ns_endpgm"
    with machine(tmp_path, {"throughput": {}}, workers="inline") as gpu, pytest.raises(MemoryFault):
        run_assembly(gpu, body, 1, 64)
    [record] = read(tmp_path, "throughput")
    assert record["error"].startswith("MemoryFault")
    assert (record["execution_timing_valid"], record["execution_seconds"], record["execution_mips"]) == (False, None, None)


def test_offloaded_matrix_instructions_make_the_timing_invalid(tmp_path: Path) -> None:
    """Counts and wall time stay as they are."""
    body = "\n".join(
        ["s_mov_b32 s9, 0", "1:"]
        + [f"v_mfma_f32_32x32x16_f16 a[{16 * k}:{16 * k + 15}], v[0:3], v[4:7], a[{16 * k}:{16 * k + 15}]" for k in range(8)]
        + ["s_add_u32 s9, s9, 1", "s_cmp_lt_u32 s9, 200", "s_cbranch_scc1 1b", "s_endpgm"]
    )
    with machine(tmp_path, {"throughput": {}}, workers=(1, 1), async_helper_threads=1) as gpu:
        gpu.start()
        results = [run_assembly(gpu, body, 1, 64, next_free_vgpr=192, accum_offset=64) for _ in range(2)]
    for record, result in zip(read(tmp_path, "throughput"), results, strict=True):
        jobs = result.stats["async"]["jobs"]
        assert record["families"]["matrix"] == 1600
        assert record["wave_instructions"] == result.wave_instructions
        assert record["execution_timing_valid"] == (jobs == 0)
        assert (record["execution_seconds"] is None) == (record["execution_mips"] is None) == (jobs > 0)


def test_counts_of_long_code_come_through_from_workers(tmp_path: Path) -> None:
    """They are more than a connection holds."""
    with machine(tmp_path, {"throughput": {}}, workers=(1, 1)) as gpu:
        run_assembly(gpu, ".fill 60000, 4, 0xbf800000\ns_endpgm", 2, 64)
    [record] = read(tmp_path, "throughput")
    assert record["families"]["other"] == 120_000


def test_a_plugin_that_does_not_opt_in_leaves_no_helpers(tmp_path: Path) -> None:
    name = "support.plugin_recorder:DispatchRecorder"
    with machine(tmp_path, {name: {}}, workers=(1, 1), async_helper_threads=1) as gpu:
        assert run_assembly(gpu, LOOP, 1, 64, lds_bytes=512).stats["async"] is None
