"""The race detector: what it finds in kernels that race, and that it finds nothing in those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.asm_kernels import run_assembly
from support.plugin_runs import plugin_of, triton_results

from rjemu import Machine
from rjemu.plugins.race import Race, RaceDetector

WAVE = """
  v_lshrrev_b32 v9, 6, v0
  v_readfirstlane_b32 s9, v9
  v_and_b32 v8, 63, v0
  v_lshlrev_b32 v1, 2, v8
  s_cmp_eq_u32 s9, 0
"""
"""s9 and SCC: the wave, and whether it is the first; v1: four times the lane."""
ADDRESS = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  s_cmp_eq_u32 s2, 0
"""
"""s[4:5]: the array; v1: four times the work-item; SCC: whether the workgroup is the first."""


@pytest.fixture
def watched() -> Any:
    with Machine("gfx950_mi355x", plugins={"race": {}}) as gpu:
        plugin = plugin_of(gpu)
        assert isinstance(plugin, RaceDetector)
        yield gpu, plugin.races


def mnemonics(race: Race) -> tuple[str, str, str]:
    return race.space, race.first.text.split()[0], race.second.text.split()[0]


def in_lds(watched: Any, body: str, waves: int = 2) -> list[Race]:
    gpu, races = watched
    run_assembly(gpu, WAVE + body + "\ns_endpgm", 1, 64 * waves, lds_bytes=1024)
    return list(races)


def in_global(watched: Any, body: str, block: int = 64) -> list[Race]:
    gpu, races = watched
    run_assembly(gpu, ADDRESS + body + "\ns_endpgm", 2, block, gpu.zeros(1024, np.uint32))
    return list(races)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s_cbranch_scc0 1f\nds_write_b32 v1, v0\ns_endpgm\n1:\nds_read_b32 v3, v1",
         ("lds", "ds_write_b32", "ds_read_b32")),
        ("s_cbranch_scc0 1f\nds_read_b32 v3, v1\ns_endpgm\n1:\nds_write_b32 v1, v0",
         ("lds", "ds_read_b32", "ds_write_b32")),
        ("ds_write_b32 v1, v0", ("lds", "ds_write_b32", "ds_write_b32")),
        ("s_cbranch_scc0 1f\nds_add_u32 v1, v0\ns_endpgm\n1:\nds_read_b32 v3, v1", ("lds", "ds_add_u32", "ds_read_b32")),
        # The barrier comes too late for one of the two.
        ("s_cbranch_scc0 1f\nds_write_b32 v1, v0\ns_barrier\ns_endpgm\n1:\nds_read_b32 v3, v1\ns_barrier",
         ("lds", "ds_write_b32", "ds_read_b32")),
    ],
)  # fmt: skip
def test_races_in_lds(watched: Any, body: str, expected: tuple[str, str, str]) -> None:
    assert [mnemonics(race) for race in in_lds(watched, body)] == [expected]


@pytest.mark.parametrize(
    "body",
    [
        "s_cbranch_scc0 1f\nds_write_b32 v1, v0\n1:\ns_barrier\nds_read_b32 v3, v1",
        "ds_read_b32 v3, v1\ns_barrier\ns_cmp_eq_u32 s9, 1\ns_cbranch_scc0 1f\nds_write_b32 v1, v0\n1:",
        "v_lshlrev_b32 v1, 2, v0\nds_write_b32 v1, v0\nds_read_b32 v3, v1",
        "v_lshl_add_u32 v1, v8, 2, s9\nds_write_b8 v1, v0\nds_read_u8 v3, v1",  # neighbouring bytes
        "ds_write_b32 v1, v8",  # the same bytes by both waves
        "ds_add_u32 v1, v0\nds_max_u32 v1, v0",
        "ds_read_b32 v3, v1",
        # Data handed over by a flag that is an atomic.
        "v_mov_b32 v5, 0\nv_mov_b32 v6, 1\ns_cbranch_scc0 1f\nds_write_b32 v1, v0 offset:256\ns_waitcnt lgkmcnt(0)\n"
        "ds_add_u32 v5, v6\ns_endpgm\n1:\nds_add_rtn_u32 v7, v5, v5\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s10, v7\n"
        "s_cmp_eq_u32 s10, 0\ns_cbranch_scc1 1b\nds_read_b32 v3, v1 offset:256",
    ],
)  # fmt: skip
def test_none_in_lds(watched: Any, body: str) -> None:
    assert in_lds(watched, body) == []


def test_what_is_told_of_a_race(watched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    body = (
        "s_cbranch_scc0 1f\ns_mov_b64 exec, 0xf0\nds_write_b32 v1, v0\ns_endpgm\n"
        "1:\nv_and_b32 v1, 0xf8, v1\ns_mov_b64 exec, 0x3f\nds_read_b64 v[4:5], v1 offset:16"
    )
    [race] = in_lds(watched, body)
    # Lanes 4 to 7 write dwords 4 to 7; lanes 0 to 5 read dwords (lane & ~1) + 4 and the next.
    assert (race.space, race.address) == ("lds", 16)
    assert (race.first.wave, race.first.lanes, race.first.writes) == (0, (4, 5, 6, 7), True)
    assert (race.second.wave, race.second.lanes, race.second.writes) == (1, (0, 1, 2, 3), False)
    text = capsys.readouterr().err
    assert "[race] kernel kernel, LDS address 0x10:\n  workgroup (0, 0, 0), wave 0, lanes 4-7 writes by\n    0x" in text
    assert "ds_read_b64 v[4:5], v1 offset:16\n  and nothing orders the two\n" in text
    assert text.endswith("[race] kernel kernel: 1 pairs of instructions race\n")


def test_lds_of_different_workgroups_is_not_shared(watched: Any) -> None:
    gpu, races = watched
    run_assembly(gpu, WAVE + "v_mov_b32 v0, s2\nds_write_b32 v1, v0\ns_endpgm", 4, 64, lds_bytes=1024)
    assert races == []


SPIN = "s_waitcnt vmcnt(0)\nv_readfirstlane_b32 s10, v7\ns_cmp_eq_u32 s10, 0\ns_cbranch_scc1 1b\n"
HAND_OVER = "s_cbranch_scc0 1f\nglobal_store_dword v1, v0, s[4:5] offset:1024\ns_waitcnt vmcnt(0)\nv_mov_b32 v3, 1\n"
TAKE_OVER = "global_load_dword v4, v1, s[4:5] offset:1024"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("v_mov_b32 v3, s2\nglobal_store_dword v1, v3, s[4:5]", [("global", "global_store_dword", "global_store_dword")]),
        ("s_cbranch_scc0 1f\nglobal_store_dword v1, v0, s[4:5]\ns_endpgm\n1:\ns_load_dword s9, s[4:5], 0x4",
         [("global", "global_store_dword", "s_load_dword")]),
        ("global_atomic_add v1, v0, s[4:5]\nglobal_load_dword v3, v1, s[4:5]",
         [("global", "global_load_dword", "global_atomic_add")]),
        # Neither the flag nor the data.
        (HAND_OVER + "global_store_dword v2, v3, s[4:5]\ns_endpgm\n"
         "1:\nglobal_load_dword v7, v2, s[4:5]\n" + SPIN + TAKE_OVER,
         [("global", "global_store_dword", "global_load_dword")] * 2),
    ],
)  # fmt: skip
def test_races_in_global_memory(watched: Any, body: str, expected: list[tuple[str, str, str]]) -> None:
    assert [mnemonics(race) for race in in_global(watched, body)] == expected


@pytest.mark.parametrize(
    "body",
    [
        "v_lshl_add_u32 v1, s2, 8, v1\nglobal_store_dword v1, v0, s[4:5]\nglobal_load_dword v3, v1, s[4:5]",
        "global_atomic_add v1, v0, s[4:5]\nglobal_atomic_umax v1, v0, s[4:5]",
        "global_load_dword v3, v1, s[4:5]\ns_load_dword s9, s[4:5], 0x0",
        HAND_OVER + "global_atomic_add v2, v3, s[4:5]\ns_endpgm\n"
        "1:\nglobal_atomic_add v7, v2, v2, s[4:5] sc0\n" + SPIN + TAKE_OVER,
        HAND_OVER + "global_store_dword v2, v3, s[4:5] sc1\ns_endpgm\n"
        "1:\nglobal_load_dword v7, v2, s[4:5] sc1\n" + SPIN + TAKE_OVER,
    ],
)  # fmt: skip
def test_none_in_global_memory(watched: Any, body: str) -> None:
    assert in_global(watched, body) == []


def test_a_barrier_passes_on_what_an_atomic_has_taught(watched: Any) -> None:
    """The first wave of the second workgroup waits for the first workgroup; its other wave reads."""
    body = (
        "v_lshrrev_b32 v9, 6, v0\nv_readfirstlane_b32 s9, v9\ns_cmp_eq_u32 s2, 0\ns_cbranch_scc0 2f\n"
        "global_store_dword v1, v0, s[4:5] offset:1024\ns_waitcnt vmcnt(0)\ns_barrier\n"
        "s_cmp_eq_u32 s9, 0\ns_cbranch_scc0 3f\nv_mov_b32 v3, 1\nglobal_atomic_add v2, v3, s[4:5]\n3:\ns_endpgm\n"
        "2:\ns_cmp_eq_u32 s9, 0\ns_cbranch_scc0 4f\n1:\nglobal_atomic_add v7, v2, v2, s[4:5] sc0\n"
        + SPIN
        + "4:\ns_barrier\n"
        + TAKE_OVER
    )
    assert in_global(watched, body, block=128) == []


def test_scratch_of_ended_waves_is_used_again(watched: Any) -> None:
    gpu, races = watched
    body = "v_mov_b32 v1, s2\nscratch_store_dword off, v1, off\nscratch_load_dword v2, off, off\ns_endpgm"
    run_assembly(gpu, body, 8, 64, private_segment_fixed_size=16, enable_private_segment=1)
    assert races == []


def test_compiled_kernels_do_not_race(watched: Any) -> None:
    """And their results are those of the native executor."""
    gpu, races = watched
    with Machine("gfx950_mi355x", workers="inline") as plain:
        assert triton_results(gpu) == triton_results(plain)
    assert races == []
