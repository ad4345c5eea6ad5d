"""What the CDNA facts file lacks or names differently from LLVM, and what no facts file states: register side effects.

Read by generate_isa_tables.py only. Sources: LLVM's assembler (proved by the generator) and AMD's CDNA3/CDNA4 ISA documents.
"""

from __future__ import annotations

RENAMED = {
    "V_MAD_MIX_F32": "v_fma_mix_f32",
    "V_MAD_MIXLO_F16": "v_fma_mixlo_f16",
    "V_MAD_MIXHI_F16": "v_fma_mixhi_f16",
    "V_ACCVGPR_READ": "v_accvgpr_read_b32",
    "V_ACCVGPR_WRITE": "v_accvgpr_write_b32",
}

OMITTED = {
    "S_SET_VALU_COEXEC_MODE": "LLVM's assembler does not know it",
    "V_ACCVGPR_MOV_B32_E64": "LLVM's assembler has no e64 form",
    "V_READFIRSTLANE_B32_E64": "LLVM's assembler has no e64 form",
    "V_SWAP_B32_E64": "LLVM's assembler has no e64 form",
    "V_MFMA_LD_SCALE_B32": "the first half of a VOP3PX2, nothing by itself",
}

_GWS = {"addr": ["NUM_B32", 32, "VGPR_EVEN"]}
_XF32_16 = {"src0": ["NUM_PK2_XF32", 64, "SRC_VGPR_OR_ACCVGPR"], "src1": ["NUM_PK2_XF32", 64, "SRC_VGPR_OR_ACCVGPR"]}


def _accumulate(fmt: str, bits: int) -> dict[str, list[object]]:
    return {"src2": [fmt, bits, "SRC_VGPR_OR_ACCVGPR_OR_CONST"], "vdst": [fmt, bits, "VGPR_OR_ACCVGPR"]}


OPERANDS: dict[tuple[str, str], dict[str, list[object]]] = {
    ("DSOp", "DS_GWS_SEMA_P"): {},
    ("DSOp", "DS_GWS_SEMA_V"): {},
    ("DSOp", "DS_GWS_SEMA_RELEASE_ALL"): {},
    ("SOPKOp", "S_SETREG_IMM32_B32"): {"simm16": ["NUM_B16", 16, "HWREG"], "simm32": ["NUM_B32", 32, "LITERAL"]},
    ("SOPCOp", "S_SET_GPR_IDX_ON"): {"ssrc0": ["NUM_B32", 32, "SSRC"], "gpr_idx": ["NUM_B16", 16, "GPR_IDX"]},
    ("SOPPOp", "S_SET_GPR_IDX_MODE"): {"simm16": ["NUM_B16", 16, "GPR_IDX"]},
    ("VOP3POp", "V_MFMA_F32_16X16X8_XF32"): _XF32_16 | _accumulate("NUM_PK4_F32", 128),
    ("VOP3POp", "V_MFMA_F32_32X32X4_XF32"): _XF32_16 | _accumulate("NUM_PK16_F32", 512),
}
"""Operands that the facts file lacks or describes otherwise than the assembler, in the facts file's own terms."""

ADDED: dict[str, dict[str, tuple[int, dict[str, list[object]]]]] = {
    "DSOp": {
        "DS_GWS_INIT": (153, _GWS),
        "DS_GWS_SEMA_BR": (155, _GWS),
        "DS_GWS_BARRIER": (157, _GWS),
    }
}
"""Instructions that the facts file lacks: enumeration -> name -> (opcode, operands)."""

SCALE_OPERANDS = "SRC_VGPR"
"""The scales of VOP3PX2: the ISA document says any source, LLVM's assembler takes VGPRs only."""


def _names(text: str) -> list[str]:
    return text.split()


def _by_name(registers: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Register -> mnemonics, turned into mnemonic -> registers."""
    result: dict[str, tuple[str, ...]] = {}
    for register, mnemonics in registers.items():
        for name in _names(mnemonics):
            result[name] = (*result.get(name, ()), register)
    return result


READS = _by_name(
    {
        "scc": """
            s_addc_u32 s_subb_u32 s_cselect_b32 s_cselect_b64 s_cmov_b32 s_cmov_b64 s_cmovk_i32
            s_cbranch_scc0 s_cbranch_scc1
        """,
        "vcc": "s_cbranch_vccz s_cbranch_vccnz v_div_fmas_f32 v_div_fmas_f64",
        "exec": "s_cbranch_execz s_cbranch_execnz s_cbranch_g_fork s_cbranch_i_fork s_cbranch_join",
        "pc": "s_cbranch_g_fork s_cbranch_i_fork s_call_b64 s_getpc_b64 s_swappc_b64 s_trap",
        "m0": """
            s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64 s_set_gpr_idx_on s_set_gpr_idx_idx s_set_gpr_idx_mode
            s_sendmsg s_sendmsghalt s_ttracedata ds_read_addtid_b32 ds_write_addtid_b32 ds_append ds_consume
            ds_gws_init ds_gws_sema_v ds_gws_sema_br ds_gws_sema_p ds_gws_sema_release_all ds_gws_barrier
        """,
        "mode": "s_getreg_b32 s_setreg_b32 s_setreg_imm32_b32",
    }
)
"""Implicit reads beyond what the encoding says (EXEC of vector instructions, MODE of float ones, pc of branches)."""

WRITES = _by_name(
    {
        # The other scalar instructions leave SCC alone: multiplications, moves, packs, masks, bit searches, selections.
        "scc": """
            s_add_u32 s_sub_u32 s_add_i32 s_sub_i32 s_addc_u32 s_subb_u32 s_min_i32 s_min_u32 s_max_i32 s_max_u32 s_addk_i32
            s_and_b32 s_and_b64 s_or_b32 s_or_b64 s_xor_b32 s_xor_b64 s_andn2_b32 s_andn2_b64 s_orn2_b32 s_orn2_b64
            s_nand_b32 s_nand_b64 s_nor_b32 s_nor_b64 s_xnor_b32 s_xnor_b64 s_not_b32 s_not_b64
            s_lshl_b32 s_lshl_b64 s_lshr_b32 s_lshr_b64 s_ashr_i32 s_ashr_i64 s_bfe_u32 s_bfe_i32 s_bfe_u64 s_bfe_i64
            s_absdiff_i32 s_abs_i32 s_lshl1_add_u32 s_lshl2_add_u32 s_lshl3_add_u32 s_lshl4_add_u32
            s_wqm_b32 s_wqm_b64 s_quadmask_b32 s_quadmask_b64
            s_bcnt0_i32_b32 s_bcnt0_i32_b64 s_bcnt1_i32_b32 s_bcnt1_i32_b64
            s_and_saveexec_b64 s_or_saveexec_b64 s_xor_saveexec_b64 s_andn2_saveexec_b64 s_orn2_saveexec_b64
            s_nand_saveexec_b64 s_nor_saveexec_b64 s_xnor_saveexec_b64 s_andn1_saveexec_b64 s_orn1_saveexec_b64
            s_andn1_wrexec_b64 s_andn2_wrexec_b64
        """,
        "exec": "s_cbranch_g_fork s_cbranch_i_fork s_cbranch_join",
        "pc": """
            s_cbranch_g_fork s_cbranch_i_fork s_cbranch_join
            s_setpc_b64 s_swappc_b64 s_call_b64 s_rfe_b64 s_rfe_restore_b64 s_trap
        """,
        "m0": "s_set_gpr_idx_on s_set_gpr_idx_idx s_set_gpr_idx_mode",
        "mode": "s_set_gpr_idx_on s_set_gpr_idx_off s_setreg_b32 s_setreg_imm32_b32 s_setvskip",
    }
)
"""Implicit writes beyond SCC of comparisons, EXEC of saveexec and v_cmpx, and pc of branches."""

NO_EXEC = {"v_nop", "v_clrexcp", "v_readlane_b32", "v_writelane_b32", "ds_nop", "buffer_wbl2", "buffer_inv"}
"""Vector instructions that act whatever EXEC says. Matrix instructions (MFMA, SMFMAC) are the others."""

TIED = {
    *_names("s_addk_i32 s_mulk_i32 s_cmov_b32 s_cmov_b64 s_cmovk_i32"),
    *_names("s_bitset0_b32 s_bitset0_b64 s_bitset1_b32 s_bitset1_b64"),
    *_names("v_writelane_b32 v_swap_b32 v_permlane16_swap_b32 v_permlane32_swap_b32 v_fma_mixlo_f16 v_fma_mixhi_f16"),
    *_names("v_cvt_pk_fp8_f32 v_cvt_pk_bf8_f32 v_cvt_sr_fp8_f32 v_cvt_sr_bf8_f32 v_cvt_sr_f16_f32 v_cvt_sr_bf16_f32"),
    *_names("v_fma_f16 v_mad_f16 v_mad_u16 v_mad_i16 v_div_fixup_f16 v_min3_f16 v_max3_f16 v_med3_f16"),
    *_names("v_ashr_pk_i8_i32 v_ashr_pk_u8_i32"),
    *_names("v_cvt_scalef32_f16_fp8 v_cvt_scalef32_f16_bf8 v_cvt_pkaccum_u8_f32"),
}
"""Instructions whose result depends on the destination's old value, beyond those that the names below give away."""

TIED_PATTERN = (
    r"_(d16|d16_hi|d16_hi_x)$|_load_format_d16_(x|xyz)$"
    r"|^v_(pk_)?(fmac|mac)_|^v_dot\d+c_|^v_smfmac_|^v_cvt_scalef32_(sr_)?(pk_)?(fp8|bf8|fp4)_"
)

SWAPS = {"v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32"}
"""src0 is written as well."""
