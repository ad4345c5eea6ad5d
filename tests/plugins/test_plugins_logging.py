"""The logging plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.asm_kernels import run_assembly

from rjemu import Machine
from rjemu.errors import MemoryFault


def logged(folder: Path, body: str) -> list[str]:
    with Machine(plugins={"logging": {}}, sinks={"types": ["file"], "dir": str(folder)}, workers="inline") as gpu:
        run_assembly(gpu, body, 2, 128, lds_bytes=256, next_free_vgpr=80, accum_offset=64)
    return (folder / "logging.log").read_text().splitlines()


def test_what_a_dispatch_is(tmp_path: Path) -> None:
    first, last = logged(tmp_path, "s_endpgm")
    assert first.startswith("[logging] dispatch 0: kernel kernel at 0x")
    assert "grid (2, 1, 1), block (128, 1, 1), 64 VGPRs, 16 AGPRs" in first
    assert "256 bytes of LDS, 0 bytes of scratch" in first
    assert last.startswith("[logging] dispatch 0: ended after 0.")


def test_the_first_matrix_instruction_is_the_one_in_address_order(tmp_path: Path) -> None:
    body = (
        "s_branch 2f\n1:\nv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0\ns_endpgm\n"
        "2:\nv_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0\ns_branch 1b"
    )
    lines = logged(tmp_path, body)
    assert len(lines) == 3
    assert lines[1].endswith("v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0")


def test_a_failed_dispatch(tmp_path: Path) -> None:
    with pytest.raises(MemoryFault):
        logged(tmp_path, "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v4, v[2:3], off\ns_endpgm")
    assert ": failed: MemoryFault: load of 4 bytes" in (tmp_path / "logging.log").read_text()
