"""The hooks of the step executor on small kernels: their order, and what they say, against facts worked out by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.asm_kernels import run_assembly
from support.plugin_recorder import Recorder

from rjemu import Machine
from rjemu.errors import MemoryFault

NAME = "support.plugin_recorder:Recorder"
ALL = (1 << 64) - 1


def events(body: str, *values: Any, block: int = 64, grid: int = 1, lds_bytes: int = 0) -> list[tuple[Any, ...]]:
    """What the recorder was told of a dispatch."""
    with Machine("gfx950_mi355x", plugins={NAME: {}}, sinks={"types": ["stderr"]}) as gpu:
        recorder = Recorder.made[-1]
        arrays = [gpu.to_device(value) if isinstance(value, np.ndarray) else value for value in values]
        run_assembly(gpu, body, grid, block, *arrays, lds_bytes=lds_bytes)
        return list(recorder.events)


def of(found: list[tuple[Any, ...]], kind: str, name: str) -> list[tuple[Any, ...]]:
    return [event[2:] for event in found if event[:2] == (kind, name)]


def test_order_of_a_whole_dispatch() -> None:
    found = events("v_mov_b32 v1, v0\ns_endpgm", block=64)
    assert [event[0] for event in found] == [
        *("begin", "start", "before", "read", "read", "read", "write", "after", "before", "after", "halt", "end"),
    ]
    assert found[1] == ("start", (0, 0, 0), 0, ALL)
    assert ("read", "v_mov_b32", "v0", ALL, 15) in found
    assert ("write", "v_mov_b32", "v1", ALL, 15) in found


@pytest.mark.parametrize(
    ("line", "reads", "writes"),
    [
        ("v_mov_b32 v2, 7", [], [("v2", 0xFF, 15)]),
        ("v_add_f16 v2, v3, v4", [("v3", 0xFF, 3), ("v4", 0xFF, 3)], [("v2", 0xFF, 15)]),
        ("v_mad_u16 v2, v3, v4, v5 op_sel:[1,0,1,1]",
         [("v3", 0xFF, 12), ("v4", 0xFF, 3), ("v5", 0xFF, 12)], [("v2", 0xFF, 12)]),
        ("v_pk_add_f16 v2, v3, v4 op_sel:[1,0] op_sel_hi:[1,1]", [("v3", 0xFF, 12), ("v4", 0xFF, 15)], [("v2", 0xFF, 15)]),
        ("v_pk_add_f16 v2, v3, v4 op_sel_hi:[0,0]", [("v3", 0xFF, 3), ("v4", 0xFF, 3)], [("v2", 0xFF, 15)]),
        ("v_fmac_f32 v2, v3, v4", [("v3", 0xFF, 15), ("v4", 0xFF, 15), ("v2", 0xFF, 15)], [("v2", 0xFF, 15)]),
        ("v_add_f64 v[2:3], v[4:5], 0", [("v4", 0xFF, 15), ("v5", 0xFF, 15)], [("v2", 0xFF, 15), ("v3", 0xFF, 15)]),
        ("v_mov_b32_sdwa v2, v3 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1",
         [("v3", 0xFF, 2)], [("v2", 0xFF, 4)]),
        ("v_mov_b32_sdwa v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_1",
         [("v3", 0xFF, 12)], [("v2", 0xFF, 15)]),
        ("v_mov_b32_dpp v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf", [("v3", 0x7F, 15)], [("v2", 0xFE, 15)]),
        ("v_mov_b32_dpp v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0", [("v3", 0x7F, 15)], [("v2", 0xFF, 15)]),
        ("v_mov_b32_dpp v2, v3 quad_perm:[0,0,0,0] row_mask:0xf bank_mask:0x1", [("v3", 0x01, 15)], [("v2", 0x0F, 15)]),
        ("v_readlane_b32 s9, v3, 37", [("v3", 1 << 37, 15)], []),
        ("v_readfirstlane_b32 s9, v3", [("v3", 1, 15)], []),
        ("v_writelane_b32 v2, s9, 41", [], [("v2", 1 << 41, 15)]),
        ("v_cvt_pk_fp8_f32 v2, v3, v4 op_sel:[0,0,1]", [("v3", 0xFF, 15), ("v4", 0xFF, 15)], [("v2", 0xFF, 12)]),
        ("v_cvt_sr_fp8_f32 v2, v3, v4 op_sel:[0,0,0,1]", [("v3", 0xFF, 15), ("v4", 0xFF, 15)], [("v2", 0xFF, 4)]),
        ("v_fma_mixhi_f16 v2, v3, v4, v5 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
         [("v3", 0xFF, 12), ("v4", 0xFF, 3), ("v5", 0xFF, 15)], [("v2", 0xFF, 12)]),
        ("v_dot2_f32_f16 v2, v3, v4, v5", [(f"v{k}", 0xFF, 15) for k in (3, 4, 5)], [("v2", 0xFF, 15)]),
        ("v_cvt_f32_ubyte2 v2, v3", [("v3", 0xFF, 4)], [("v2", 0xFF, 15)]),
        ("v_cvt_f32_fp8 v2, v3", [("v3", 0xFF, 1)], [("v2", 0xFF, 15)]),
        ("v_cvt_scalef32_f32_fp8 v2, v3, v4 op_sel:[0,1,0]", [("v3", 0xFF, 4), ("v4", 0xFF, 15)], [("v2", 0xFF, 15)]),
        ("v_cvt_scalef32_pk_f32_fp4 v[4:5], v3, v2 op_sel:[1,0,0]",
         [("v3", 0xFF, 2), ("v2", 0xFF, 15)], [("v4", 0xFF, 15), ("v5", 0xFF, 15)]),
        ("v_permlane32_swap_b32 v2, v3", [], []),  # partners are disabled
        ("v_permlane32_swap_b32 v2, v3 fi:1", [("v2", 0xFF << 32, 15)], [("v3", 0xFF, 15)]),
        ("v_accvgpr_write_b32 a2, v3", [("v3", 0xFF, 15)], [("a2", 0xFF, 15)]),
        ("v_swap_b32 v2, v3", [("v2", 0xFF, 15), ("v3", 0xFF, 15)], [("v2", 0xFF, 15), ("v3", 0xFF, 15)]),
        ("v_mfma_f32_4x4x4_16b_f16 v[4:7], v[8:9], v[10:11], 0",
         [(f"v{k}", ALL, 15) for k in (8, 9, 10, 11)], [(f"v{k}", ALL, 15) for k in (4, 5, 6, 7)]),
        ("ds_read_u8_d16_hi v2, v3", [("v3", 0xFF, 15)], [("v2", 0xFF, 12)]),
        ("ds_write_b16 v6, v3 offset:8", [("v6", 0xFF, 15), ("v3", 0xFF, 3)], []),
        ("ds_write_b8_d16_hi v6, v3 offset:8", [("v6", 0xFF, 15), ("v3", 0xFF, 4)], []),
        ("ds_bpermute_b32 v2, v6, v3", [("v6", 0xFF, 15), ("v3", 0b1, 15)], [("v2", 0xFF, 15)]),
    ],
)  # fmt: skip
def test_lanes_and_bytes(line: str, reads: list[Any], writes: list[Any]) -> None:
    body = f"v_mov_b32 v6, 0\nv_mov_b32 v3, 0\ns_mov_b64 exec, 0xff\n{line}\ns_endpgm"
    found = events(body, lds_bytes=64)
    name = line.split()[0].removesuffix("_dpp").removesuffix("_sdwa")
    mine = found[max(k for k, event in enumerate(found) if event[:2] == ("before", name)) :]
    for kind, expected in (("read", reads), ("write", writes)):
        accesses = [event[2:] for event in mine if event[:2] == (kind, name) and re.match(r"[va]\d", event[2])]
        assert sorted(accesses) == sorted(expected)


def test_scalar_registers() -> None:
    found = events("s_mov_b32 s9, 5\ns_add_u32 s10, s9, s9\nv_cmp_eq_u32 vcc, 0, v0\ns_endpgm")
    assert of(found, "read", "s_add_u32") == [("s9", 0, 15)]
    assert of(found, "write", "s_add_u32") == [("s10", 0, 15), ("scc", 0, 15)]
    assert of(found, "write", "v_cmp_eq_u32") == [("vcc_lo", 0, 15), ("vcc_hi", 0, 15)]


def test_vgpr_indexing_moves_the_registers() -> None:
    found = events("s_mov_b32 s9, 3\ns_set_gpr_idx_on s9, gpr_idx(SRC0,DST)\nv_mov_b32 v2, v4\ns_set_gpr_idx_off\ns_endpgm")
    assert ("v7", ALL, 15) in of(found, "read", "v_mov_b32")
    assert of(found, "write", "v_mov_b32") == [("v5", ALL, 15)]


def test_memory_accesses() -> None:
    data = np.arange(64, dtype=np.uint32)
    found = events(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, 3, v0\ns_waitcnt lgkmcnt(0)\ns_mov_b64 exec, 5\n"
        "global_load_dwordx2 v[2:3], v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_atomic_add v1, v2, s[4:5] offset:4\n"
        "ds_write_b64 v1, v[2:3] offset:16\nds_read_b32 v4, v1 offset:16\ns_endpgm",
        data,
        lds_bytes=1024,
    )  # fmt: skip
    [(space, kind, lanes, places, nbytes)] = of(found, "memory", "s_load_dwordx2")
    assert (space, kind, lanes, len(places), nbytes) == ("scalar", "load", [], 1, 8)
    [(space, kind, lanes, loaded, nbytes)] = of(found, "memory", "global_load_dwordx2")
    assert (space, kind, lanes, nbytes) == ("global", "load", [0, 2], 8)
    assert loaded[1] - loaded[0] == 16
    assert of(found, "memory", "global_atomic_add") == [("global", "atomic", [0, 2], [place + 4 for place in loaded], 4)]
    assert of(found, "memory", "ds_write_b64") == [("lds", "store", [0, 2], [16, 32], 8)]
    assert of(found, "memory", "ds_read_b32") == [("lds", "load", [0, 2], [16, 32], 4)]
    assert [event[1:] for event in found if event[0] == "wait"] == [(None, 0, None), (0, None, None)]


def test_barriers_and_turns() -> None:
    found = events("s_nop 0\ns_barrier\ns_nop 1\ns_endpgm", block=192)
    steps = [event for event in found if event[0] in ("barrier", "release", "halt")]
    assert [event[0] for event in steps] == ["barrier"] * 3 + ["release"] + ["halt"] * 3
    assert steps[3] == ("release", (0, 1, 2))
    starts = [event[2] for event in found if event[:2] == ("before", "s_nop")]
    assert starts == [0, 1, 2, 0, 1, 2]


def test_a_wave_that_ends_releases_the_others() -> None:
    body = "v_readfirstlane_b32 s9, v0\ns_cmp_eq_u32 s9, 0\ns_cbranch_scc1 1f\ns_barrier\n1:\ns_endpgm"
    steps = [event for event in events(body, block=128) if event[0] in ("barrier", "release", "halt")]
    assert sorted(steps[:2]) == [("barrier", 1), ("halt", (0, 0, 0), 0)]
    assert steps[2:] == [("release", (1,)), ("halt", (0, 0, 0), 1)]


def test_a_fault_ends_the_dispatch_with_its_error() -> None:
    with pytest.raises(MemoryFault, match="global_load_dword v4"):
        events("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v4, v[2:3], off\ns_endpgm")
    kinds = [event[0] for event in Recorder.made[-1].events]
    assert kinds[-2:] == ["end", "close"]
    assert Recorder.made[-1].events[-2][2].error.startswith("MemoryFault")
