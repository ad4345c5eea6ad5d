"""waitcheck: no findings where waits are as compilers set them, exact ones where a wait is missing or too weak."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from support.asm_kernels import run_assembly
from support.plugin_runs import plugin_of, triton_results
from support.triton_kernels import softmax
from support.triton_objects import compile_triton

from rjemu import Machine
from rjemu.plugins.waitcheck import Finding, WaitCheck


@pytest.fixture
def checked() -> Any:
    with Machine("gfx950_mi355x", plugins={"waitcheck": {}}) as gpu:
        plugin = plugin_of(gpu)
        assert isinstance(plugin, WaitCheck)
        yield gpu, plugin.findings


PROLOGUE = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v1, 2, v0\n"


def found(checked: Any, body: str) -> list[tuple[str, str, str, str, str]]:
    """Register, access, the mnemonics of both instructions, counters."""
    gpu, findings = checked
    run_assembly(gpu, PROLOGUE + body + "\ns_endpgm", 1, 64, gpu.zeros(1024, np.uint32), lds_bytes=1024)

    def short(finding: Finding) -> tuple[str, str, str, str, str]:
        names = (text.split()[0].removesuffix("_e32") for _, text in (finding.operation, finding.user))
        return finding.register, finding.access, *names, finding.counters

    return [short(finding) for finding in findings]


LOADS = "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5] offset:256\n"


@pytest.mark.parametrize(
    "body",
    [
        LOADS + "s_waitcnt vmcnt(1)\nv_mov_b32 v4, v2\ns_waitcnt vmcnt(0)\nv_mov_b32 v4, v3",
        LOADS + "global_store_dword v1, v0, s[4:5]\ns_waitcnt vmcnt(1)\nv_add_u32 v4, v2, v3",
        LOADS + "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_mov_b32 v4, v2",  # returns in order
        "global_store_dword v1, v0, s[4:5]\nv_mov_b32 v0, 0",  # data is read at issue
        "global_atomic_add v1, v0, s[4:5]\nv_mov_b32 v0, 0",
        "ds_read_b32 v2, v1\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(1)\nv_mov_b32 v4, v2",
        "ds_read_b32 v2, v1\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v4, v2",
        "s_mov_b64 exec, 1\nglobal_load_dword v2, v1, s[4:5]\ns_mov_b64 exec, 2\nv_mov_b32 v4, v2",  # other lanes
        "ds_read_u16_d16 v2, v1\nds_read_u16_d16_hi v2, v1\ns_waitcnt lgkmcnt(1)\nv_add_f16 v4, v2, v2",  # other half
        "ds_bpermute_b32 v2, v1, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v4, v2",
        "v_mov_b32 v2, s4\nv_mov_b32 v3, s5\nflat_load_dword v4, v[2:3]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 v5, v4",
    ],
)
def test_waits_that_suffice(checked: Any, body: str) -> None:
    assert found(checked, body) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (LOADS + "v_mov_b32 v4, v2", ("v2", "read", "global_load_dword", "v_mov_b32", "vmcnt")),
        (LOADS + "s_waitcnt lgkmcnt(0)\nv_mov_b32 v4, v2", ("v2", "read", "global_load_dword", "v_mov_b32", "vmcnt")),
        (LOADS + "s_waitcnt vmcnt(2)\nv_mov_b32 v4, v2", ("v2", "read", "global_load_dword", "v_mov_b32", "vmcnt")),
        (LOADS + "s_waitcnt vmcnt(1)\nv_mov_b32 v4, v3", ("v3", "read", "global_load_dword", "v_mov_b32", "vmcnt")),
        (LOADS + "v_mov_b32 v3, 0", ("v3", "overwritten", "global_load_dword", "v_mov_b32", "vmcnt")),
        ("global_load_dword v2, v1, s[4:5]\nds_read_b32 v2, v1",
         ("v2", "overwritten", "global_load_dword", "ds_read_b32", "vmcnt")),
        ("global_load_dwordx4 v[4:7], v1, s[4:5]\nglobal_store_dword v1, v7, s[4:5]",
         ("v7", "read", "global_load_dwordx4", "global_store_dword", "vmcnt")),
        ("global_atomic_add v2, v1, v0, s[4:5] sc0\nv_mov_b32 v4, v2",
         ("v2", "read", "global_atomic_add", "v_mov_b32", "vmcnt")),
        ("ds_read_b32 v2, v1\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(1)\nv_mov_b32 v4, v3",
         ("v3", "read", "ds_read_b32", "v_mov_b32", "lgkmcnt")),
        ("ds_bpermute_b32 v2, v1, v0\nv_mov_b32 v4, v2", ("v2", "read", "ds_bpermute_b32", "v_mov_b32", "lgkmcnt")),
        # Scalar loads return in any order: only 0 is safe.
        ("s_load_dword s8, s[0:1], 0x0\ns_load_dword s9, s[0:1], 0x4\ns_waitcnt lgkmcnt(1)\ns_mov_b32 s10, s8",
         ("s8", "read", "s_load_dword", "s_mov_b32", "lgkmcnt")),
        # Behind one of them, the LDS operation may be the one that is left.
        ("ds_read_b32 v2, v1\ns_load_dword s8, s[0:1], 0x0\ns_waitcnt lgkmcnt(1)\nv_mov_b32 v4, v2",
         ("v2", "read", "ds_read_b32", "v_mov_b32", "lgkmcnt")),
        ("s_load_dwordx2 s[8:9], s[0:1], 0x0\nv_mov_b32 v4, s9", ("s9", "read", "s_load_dwordx2", "v_mov_b32", "lgkmcnt")),
        ("v_mov_b32 v2, s4\nv_mov_b32 v3, s5\nflat_load_dword v4, v[2:3]\ns_waitcnt vmcnt(0)\nv_mov_b32 v5, v4",
         ("v4", "read", "flat_load_dword", "v_mov_b32", "lgkmcnt")),
        ("buffer_load_dword a2, v1, s[4:7], 0 offen\nv_accvgpr_read_b32 v4, a2",
         ("a2", "read", "buffer_load_dword", "v_accvgpr_read_b32", "vmcnt")),
    ],
)  # fmt: skip
def test_waits_that_do_not(checked: Any, body: str, expected: tuple[str, ...]) -> None:
    assert found(checked, body) == [expected]


def test_a_finding_is_reported_once_and_counted(checked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gpu, findings = checked
    again = "s_add_u32 s9, s9, 1\ns_cmp_lt_u32 s9, 3\ns_cbranch_scc1 1b\ns_endpgm"
    body = f"s_mov_b32 s9, 0\n1:\n{LOADS}v_mov_b32 v4, v2\n{again}"
    run_assembly(gpu, PROLOGUE + body, 2, 128, gpu.zeros(1024, np.uint32))
    text = capsys.readouterr().err
    assert text.count("is read by") == len(findings) == 1
    assert "[waitcheck] kernel kernel, workgroup (0, 0, 0), wave 0: v2 is read by\n" in text
    assert "global_load_dword v2, v1, s[4:5]\n" in text
    assert text.endswith("[waitcheck] kernel kernel: 1 missing waits, met 12 times\n")


def test_compiled_kernels_have_none(checked: Any) -> None:
    """And their results are those of the native executor."""
    gpu, findings = checked
    with Machine("gfx950_mi355x", workers="inline") as plain:
        assert triton_results(gpu) == triton_results(plain)
    assert findings == []


NO_LIMITS = bytes.fromhex("7fcf8cbf")  # s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)
WAIT, BARRIER = bytes.fromhex("8cbf"), bytes.fromhex("00008abf")


def test_weakened_waits_of_a_compiled_kernel(checked: Any) -> None:
    """Each wait for a load, made void, is found between the load and its user; waits for stores before barriers are not."""
    gpu, findings = checked
    compiled = compile_triton(softmax, {"x": "*fp32", "y": "*fp32", "columns": "i32"}, {"BLOCK": 256}, gpu.config.target)
    image = compiled.asm["hsaco"]
    text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
    start = text["sh_offset"] + 256  # the prologue for firmware that does not preload arguments is not executed
    waits = [at for at in range(start, start + text["sh_size"] - 256, 4) if image[at + 2 : at + 4] == WAIT]
    x, y = gpu.to_device(np.ones((2, 200), np.float32)), gpu.zeros((2, 200), np.float32)
    found_at = []
    for wait in waits:
        findings.clear()
        module = gpu.load(image[:wait] + NO_LIMITS + image[wait + 4 :])
        block = compiled.metadata.num_warps * 64
        arguments = [x, y, np.int32(200), 0, 0]
        module[compiled.metadata.name].launch(2, block, args=arguments, lds_bytes=compiled.metadata.shared)
        pc = module.address + wait - text["sh_offset"] + text["sh_addr"]
        assert all(finding.operation[0] < pc < finding.user[0] for finding in findings)
        assert findings or image[wait + 4 : wait + 8] == BARRIER
        found_at += [wait] if findings else []
    assert len(found_at) >= 3
