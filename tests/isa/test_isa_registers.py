"""Register footprints of instructions, against what the ISA documents say they touch."""

from __future__ import annotations

import pytest
from support.assembler_lines import Assembled, assemble_lines

from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import EXEC, FLAT_SCRATCH, M0, VCC
from rjemu.isa.registers import RegisterSet, reads, writes
from rjemu.isa.tables import tables

A = 256
"""First AGPR."""

EXEC_MASK, VCC_MASK = range(EXEC, EXEC + 2), range(VCC, VCC + 2)


def footprint(line: str) -> tuple[RegisterSet, RegisterSet]:
    (result,) = assemble_lines([line], "gfx950")
    assert isinstance(result, Assembled), result
    instr = Decoder("gfx950").decode(result.code)
    return reads(instr), writes(instr)


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("v_add_u32 v1, v2, v5", [range(2, 3), range(5, 6)], [range(1, 2)]),
        ("v_add_u32 v1, v2, v3", [range(2, 4)], [range(1, 2)]),
        ("v_fma_f64 v[0:1], v[2:3], v[4:5], v[10:11]", [range(2, 6), range(10, 12)], [range(2)]),
        ("v_fmac_f32 v1, v2, v8", [range(1, 3), range(8, 9)], [range(1, 2)]),
        ("v_swap_b32 v1, v9", [range(1, 2), range(9, 10)], [range(1, 2), range(9, 10)]),
        ("v_writelane_b32 v7, s2, 3", [range(7, 8)], [range(7, 8)]),
        ("v_readlane_b32 s2, v7, 3", [range(7, 8)], []),
        ("v_mfma_f32_32x32x16_f16 a[0:15], v[0:3], a[4:7], a[0:15]", [range(4), range(A, A + 16)], [range(A, A + 16)]),
        ("v_mfma_f32_16x16x32_f16 v[0:3], v[8:11], v[12:15], 0", [range(8, 16)], [range(4)]),
        (
            "v_smfmac_f32_16x16x64_f16 v[0:3], v[8:11], v[16:23], v30",
            [range(4), range(8, 12), range(16, 24), range(30, 31)],
            [range(4)],
        ),
        (
            "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:21], 0 cbsz:4 blgp:2",
            [range(8, 12), range(16, 22)],
            [range(4)],
        ),
        ("ds_read_u16_d16 v1, v2", [range(1, 3)], [range(1, 2)]),
        ("ds_read_b128 a[4:7], v2", [range(2, 3)], [range(A + 4, A + 8)]),
        ("ds_write2_b64 v1, v[2:3], v[6:7]", [range(1, 4), range(6, 8)], []),
        ("global_load_dwordx3 v[4:6], v[0:1], off", [range(2)], [range(4, 7)]),
        ("global_load_lds_dword v[2:3], off", [range(2, 4)], []),
        ("buffer_atomic_cmpswap v[2:3], off, s[4:7], 0 sc0", [range(2, 4)], [range(2, 3)]),
        ("buffer_load_dword v2, s[4:7], 0 offen lds", [range(2, 3)], []),
        ("v_cvt_pk_fp8_f32 v9, v2, v3", [range(2, 4), range(9, 10)], [range(9, 10)]),
        ("v_mad_i16 v9, v2, v3, v4", [range(2, 5), range(9, 10)], [range(9, 10)]),  # the high half is kept
        ("v_add_i16 v9, v2, v3", [range(2, 4)], [range(9, 10)]),
        ("v_add_i16 v9, v2, v3 op_sel:[0,0,1]", [range(2, 4), range(9, 10)], [range(9, 10)]),
        ("v_mad_i16 v9, v2, v3, v4 op_sel:[0,0,0,1]", [range(2, 5), range(9, 10)], [range(9, 10)]),
        (
            "v_mov_b32_sdwa v9, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
            [range(2, 3), range(9, 10)],
            [range(9, 10)],
        ),
        ("v_mov_b32_sdwa v9, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD", [range(2, 3)], [range(9, 10)]),
    ],
)
def test_vector_registers(line: str, read: list[range], written: list[range]) -> None:
    source, destination = footprint(line)
    assert (list(source.vector), list(destination.vector)) == (read, written)


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("s_add_u32 s1, s2, s3", [range(2, 4)], [range(1, 2)]),
        ("s_addk_i32 s9, 5", [range(9, 10)], [range(9, 10)]),
        ("s_and_saveexec_b64 s[2:3], vcc", [VCC_MASK, EXEC_MASK], [range(2, 4), EXEC_MASK]),
        ("s_cbranch_vccz 4", [VCC_MASK], []),
        ("s_cbranch_execnz 4", [EXEC_MASK], []),
        ("s_mov_b32 s1, src_vccz", [VCC_MASK], [range(1, 2)]),
        ("s_load_dwordx8 s[8:15], s[2:3], s20 offset:0x10", [range(2, 4), range(20, 21)], [range(8, 16)]),
        ("s_store_dword s5, s[2:3], 0x10", [range(2, 4), range(5, 6)], []),
        ("s_bitset0_b32 s5, s6", [range(5, 7)], [range(5, 6)]),
        ("s_movrels_b32 s5, s6", [range(102), range(M0, M0 + 1)], [range(5, 6)]),
        ("s_movreld_b32 s5, s6", [range(6, 7), range(M0, M0 + 1)], [range(102)]),
        ("v_cmp_lt_f32 vcc, v1, v2", [EXEC_MASK], [VCC_MASK]),
        ("v_cmpx_lt_f32_e64 s[4:5], v1, v2", [EXEC_MASK], [range(4, 6), EXEC_MASK]),
        ("v_cndmask_b32 v1, v2, v3, vcc", [VCC_MASK, EXEC_MASK], []),
        ("v_addc_co_u32_e64 v1, s[8:9], v2, v3, s[4:5]", [range(4, 6), EXEC_MASK], [range(8, 10)]),
        ("v_div_fmas_f32 v1, v2, v3, v4", [VCC_MASK, EXEC_MASK], []),
        ("v_readfirstlane_b32 s1, v2", [EXEC_MASK], [range(1, 2)]),
        ("v_readlane_b32 s1, v2, s3", [range(3, 4)], [range(1, 2)]),
        ("v_mfma_f32_16x16x32_f16 v[0:3], v[8:11], v[12:15], 0", [], []),
        ("buffer_load_dword v2, s[4:7], s9 offen lds", [range(4, 8), range(9, 10), range(M0, M0 + 1), EXEC_MASK], []),
        ("global_load_lds_dword v[2:3], off", [range(M0, M0 + 1), EXEC_MASK], []),
        ("scratch_load_dword v1, off, s3", [range(3, 4), range(FLAT_SCRATCH, FLAT_SCRATCH + 2), EXEC_MASK], []),
        ("ds_append v1", [range(M0, M0 + 1), EXEC_MASK], []),
        ("s_swappc_b64 s[30:31], s[4:5]", [range(4, 6)], [range(30, 32)]),
    ],
)
def test_scalar_registers(line: str, read: list[range], written: list[range]) -> None:
    source, destination = footprint(line)
    assert (list(source.scalar), list(destination.scalar)) == (read, written)


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("s_add_u32 s1, s2, s3", False, True),
        ("s_addc_u32 s1, s2, s3", True, True),
        ("s_mul_i32 s1, s2, s3", False, False),
        ("s_cselect_b32 s1, s2, s3", True, False),
        ("s_cmp_eq_u64 s[2:3], s[4:5]", False, True),
        ("s_cmpk_lt_i32 s1, 5", False, True),
        ("s_bitcmp1_b64 s[2:3], s4", False, True),
        ("s_cmovk_i32 s1, 5", True, False),
        ("s_cbranch_scc1 4", True, False),
        ("s_bcnt1_i32_b64 s1, s[2:3]", False, True),
        ("s_ff1_i32_b64 s1, s[2:3]", False, False),
        ("s_or_saveexec_b64 s[2:3], s[4:5]", False, True),
        ("v_mov_b32 v1, src_scc", True, False),
        ("s_mov_b64 s[2:3], s[4:5]", False, False),
    ],
)
def test_scc(line: str, read: bool, written: bool) -> None:
    source, destination = footprint(line)
    assert (source.scc, destination.scc) == (read, written)


def test_mode() -> None:
    assert footprint("v_add_f32 v1, v2, v3")[0].mode
    assert not footprint("v_add_u32 v1, v2, v3")[0].mode
    assert footprint("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 3")[1].mode


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_every_vector_instruction_reads_exec_unless_known_not_to(target: str) -> None:
    without = {
        row.name
        for encoding, rows in tables(target).items()
        if encoding.startswith("VOP") or encoding in ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF")
        for row in rows.values()
        if "exec" not in row.reads
    }
    others = {name for name in without if not name.startswith(("v_mfma_", "v_smfmac_", "ds_gws_"))}
    assert others == {"v_nop", "v_clrexcp", "v_readlane_b32", "v_writelane_b32", "ds_nop", "buffer_wbl2", "buffer_inv"}
