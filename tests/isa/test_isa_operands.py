"""Decoded instructions in detail: constants as the instruction sees them, registers, modifiers, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from support.assembler_lines import Assembled, assemble_lines

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.isa.disasm import disassemble, format_instruction
from rjemu.isa.instruction import EXEC, VCC, Instruction


def decode(text: str, target: str = "gfx950") -> Instruction:
    (result,) = assemble_lines([text], target)
    assert isinstance(result, Assembled), result
    return Decoder(target).decode(result.code)


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def bits_of(value: float, dtype: type) -> int:
    return int.from_bytes(np.array(value, dtype).tobytes(), "little")


@pytest.mark.parametrize("value", [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0])
@pytest.mark.parametrize(
    ("line", "role", "dtype"),
    [
        ("v_add_f32_e64 v1, {}, v2", "src0", np.float32),
        ("v_add_f16 v1, {}, v2", "src0", np.float16),
        ("v_add_f64 v[2:3], v[4:5], {}", "src1", np.float64),
        ("v_pk_add_f16 v1, v2, {}", "src1", np.float16),
        ("v_pk_mul_f32 v[2:3], v[4:5], {}", "src1", np.float32),
        ("v_cvt_f32_bf16 v1, {}", "src0", ml_dtypes.bfloat16),
        ("v_and_b32_e64 v1, {}, v2", "src0", np.float32),
        ("s_mov_b32 s1, {}", "src0", np.float32),
        ("s_mov_b64 s[2:3], {}", "src0", np.float64),
        ("v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], {}", "src2", np.float32),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], {}", "src2", np.float64),
        ("v_fma_mix_f32 v1, {}, v2, v3", "src0", np.float32),
        ("v_fma_mix_f32 v1, {}, v2, v3 op_sel_hi:[1,0,0]", "src0", np.float16),
    ],
)
def test_float_constants_have_the_operands_format(line: str, role: str, dtype: type, value: float) -> None:
    operand = decode(line.format(value)).operand(role)
    assert operand.kind == "k"
    assert operand.value == bits_of(value, dtype)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("v_add_f32 v1, 0.15915494, v2", bits_of(1 / (2 * np.pi), np.float32)),
        ("v_add_f16 v1, 0.15915494, v2", bits_of(1 / (2 * np.pi), np.float16)),
        ("v_ceil_f64 v[2:3], 0.15915494309189532", bits_of(0.15915494309189532, np.float64)),
        ("v_add_u32 v1, -16, v2", 0xFFFFFFF0),
        ("v_add_u16 v1, -16, v2", 0xFFF0),
        ("v_add_u16 v1, 64, v2", 64),
        ("s_mov_b64 s[2:3], -1", 0xFFFFFFFFFFFFFFFF),
        ("s_mov_b64 s[2:3], 64", 64),
        ("s_mov_b64 s[2:3], 0xfffffff0", 0xFFFFFFF0),
        ("s_ashr_i64 s[2:3], 0xffffffff80000000, s4", 0xFFFFFFFF80000000),
        ("v_ceil_f64 v[2:3], 0x40000001", 0x4000000100000000),
        ("v_add_f16 v1, 0x3c01, v2", 0x3C01),
        ("v_mov_b32 v1, 0x12345678", 0x12345678),
    ],
)
def test_value_of_a_constant(line: str, expected: int) -> None:
    operand = decode(line).operand("src0")
    assert (operand.kind, operand.value) == ("k", expected)
    assert operand.value < 1 << operand.bits


@pytest.mark.parametrize(
    ("line", "expected"),
    [("v_pk_add_u16 v1, v2, -1", 0xFFFFFFFF), ("v_pk_add_u16 v1, v2, 1", 1), ("v_pk_add_u16 v1, v2, 1.0", 0x3F800000)],
)
def test_packed_16_bit_integers_see_a_32_bit_constant(line: str, expected: int) -> None:
    """LLVM states what the hardware does in AMDGPUBaseInfo.cpp, at getInlineEncodingV216."""
    assert decode(line).operand("src1").value == expected


def test_a_constant_accumulator_is_one_element_of_the_whole_size() -> None:
    operand = decode("v_mfma_i32_32x32x16_i8 v[0:15], v[16:17], v[18:19], -3").operand("src2")
    assert (operand.value, operand.bits) == (0xFFFFFFFD, 512)


@pytest.mark.parametrize(("form", "bits"), [(0, 256), (1, 256), (2, 192), (3, 192), (4, 128)])
def test_f8f6f4_operands_have_the_size_of_their_format(form: int, bits: int) -> None:
    registers = f"v[8:{8 + bits // 32 - 1}]"
    instr = decode(f"v_mfma_f32_16x16x128_f8f6f4 v[0:3], {registers}, v[20:27], v[0:3] cbsz:{form}")
    assert instr.operand("src0").bits == bits
    assert instr.operand("src1").bits == 256


def test_accumulation_registers_count_from_256() -> None:
    instr = decode("v_mfma_f32_32x32x16_f16 a[0:15], a[20:23], v[24:27], a[0:15]")
    assert [op.index for op in instr.operands] == [256, 276, 24, 256]
    assert decode("ds_read_b64 a[2:3], v1").operand("vdst").index == 258
    assert decode("global_store_dword v2, a7, s[4:5]").operand("data").index == 263
    assert decode("buffer_load_dword a9, off, s[4:7], 0").operand("vdata").index == 265
    assert decode("v_accvgpr_read_b32 v1, a2").operand("src0").index == 258
    assert decode("v_accvgpr_write_b32 a5, s2").operand("vdst").index == 261


def test_scaled_mfma_has_its_scales_and_their_byte_selection() -> None:
    operands = "v[0:15], v[16:23], v[24:29], v[0:15], v40, v41"
    instr = decode(f"v_mfma_scale_f32_32x32x64_f8f6f4 {operands} op_sel:[1,0,0] op_sel_hi:[0,1,0] blgp:2")
    assert (instr.encoding, instr.size) == ("VOP3PX2", 16)
    assert [instr.operand(name).index for name in ("scale_src0", "scale_src1")] == [40, 41]
    assert (instr.mod("op_sel"), instr.mod("op_sel_hi"), instr.mod("blgp")) == (0b01, 0b10, 2)


def test_vcc_is_an_operand_in_short_and_long_forms_alike() -> None:
    short, long = decode("v_addc_co_u32 v1, vcc, v2, v3, vcc"), decode("v_addc_co_u32_e64 v1, s[8:9], v2, v3, s[4:5]")
    assert (
        [op.name for op in short.operands] == [op.name for op in long.operands] == ["vdst", "sdst", "src0", "src1", "src2"]
    )
    assert short.operand("sdst").index == short.operand("src2").index == VCC
    assert decode("v_cmp_lt_f32 vcc, v1, v2").operand("sdst").index == VCC


def test_returning_atomics_have_a_result_operand() -> None:
    for line, name in (
        ("buffer_atomic_cmpswap v[2:3], off, s[4:7], s3 sc0", "vdata"),
        ("global_atomic_cmpswap v2, v[4:5], v[6:7], off sc0", "data"),
    ):
        instr = decode(line)
        assert instr.operand("vdst").is_dst
        assert (instr.operand("vdst").bits, instr.operand(name).bits) == (32, 64)
    assert not decode("buffer_atomic_add v2, off, s[4:7], s3").has("vdst")
    assert not decode("flat_atomic_add v[2:3], v4").has("vdst")


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("global_load_dword v1, v[2:3], off", {"addr": ("v", 64), "saddr": ("off", 0)}),
        ("global_load_dword v1, v2, s[4:5]", {"addr": ("v", 32), "saddr": ("s", 64)}),
        ("scratch_load_dword v1, off, off", {"addr": ("off", 0), "saddr": ("off", 0)}),
        ("scratch_load_dword v1, v2, s3", {"addr": ("v", 32), "saddr": ("s", 32)}),
        ("buffer_load_dword v1, off, s[4:7], 5", {"vaddr": ("off", 0), "srsrc": ("s", 128), "soffset": ("k", 32)}),
        ("buffer_load_dword v1, v2, s[4:7], s9 offen", {"vaddr": ("v", 32), "soffset": ("s", 32)}),
        ("buffer_load_dword v1, v[2:3], s[4:7], m0 idxen offen", {"vaddr": ("v", 64)}),
        ("s_load_dwordx4 s[4:7], s[2:3], s9 offset:0x10", {"sdata": ("s", 128), "soffset": ("s", 32)}),
        ("s_load_dword s4, s[2:3], s9", {"soffset": ("s", 32)}),
    ],
)
def test_addresses(line: str, kinds: dict[str, tuple[str, int]]) -> None:
    instr = decode(line)
    assert {name: (instr.operand(name).kind, instr.operand(name).bits) for name in kinds} == kinds


@pytest.mark.parametrize(
    ("line", "imms"),
    [
        ("global_load_dword v1, v[2:3], off offset:-4096", {"offset": -4096}),
        ("flat_load_dword v1, v[2:3] offset:4095", {"offset": 4095}),
        ("s_load_dword s4, s[2:3], -0x8", {"offset": -8}),
        ("s_load_dword s4, s[2:3], s9", {"offset": 0}),
        ("ds_read2_b32 v[2:3], v1 offset0:7 offset1:255", {"offset0": 7, "offset1": 255}),
        ("ds_read_b32 v2, v1 offset:65535", {"offset": 65535}),
        ("s_movk_i32 s1, 0xffff", {"simm16": -1}),
        ("s_cmpk_eq_u32 s1, 0xffff", {"simm16": 0xFFFF}),
        ("s_branch -2", {"simm16": -2}),
        ("s_getreg_b32 s1, hwreg(HW_REG_MODE, 0, 32)", {"simm16": 31 << 11 | 1}),
        ("s_set_gpr_idx_on s1, gpr_idx(SRC0,DST)", {"gpr_idx": 9}),
    ],
)
def test_immediates(line: str, imms: dict[str, int]) -> None:
    assert decode(line).imms == imms


@pytest.mark.parametrize(
    ("line", "mods"),
    [
        ("v_add_f32_e64 v1, -v2, |v3| clamp mul:4", {"neg": 1, "abs": 2, "clamp": 1, "omod": 2}),
        ("v_mad_i16 v1, v2, v3, v4 op_sel:[0,1,0,1]", {"op_sel": 0b1010}),
        (
            "v_pk_add_f16 v1, v2, v3 op_sel:[1,0] neg_lo:[0,1] neg_hi:[1,1]",
            {"op_sel": 1, "op_sel_hi": 3, "neg_lo": 2, "neg_hi": 3},
        ),
        ("v_pk_fma_f16 v1, v2, v3, v4 op_sel_hi:[0,1,1]", {"op_sel_hi": 6}),
        ("v_fma_mix_f32 v1, -v2, |v3|, v4 op_sel_hi:[0,0,1]", {"neg": 1, "abs": 2, "op_sel_hi": 4}),
        ("v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,1,1]", {"op_sel": 0b1100}),
        ("v_cvt_pk_fp8_f32 v1, v2, v3 op_sel:[0,0,1]", {"op_sel": 0b1000}),
        ("v_bitop3_b32 v1, v2, v3, v4 bitop3:0xe6", {"bitop3": 0xE6}),
        (
            "v_mov_b32_dpp v1, v2 row_bcast:31 row_mask:0xc bank_mask:0xf",
            {"dpp_ctrl": 0x143, "row_mask": 12, "bank_mask": 15},
        ),
        (
            "v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0x0 bank_mask:0xf bound_ctrl:1",
            {"dpp_ctrl": 0xB1, "bank_mask": 15, "bound_ctrl": 1},
        ),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7] neg:[1,0,1]", {"neg": 5}),
        ("v_mfma_f32_16x16x1_4b_f32 v[0:15], v20, v21, v[0:15] cbsz:2 abid:3 blgp:5", {"cbsz": 2, "abid": 3, "blgp": 5}),
        ("buffer_load_dword v2, s[4:7], s3 offen sc0 nt sc1 lds", {"offen": 1, "sc0": 1, "nt": 1, "sc1": 1, "lds": 1}),
        ("v_permlane16_swap_b32_e64 v1, v2 bound_ctrl:1 fi:1", {"bound_ctrl": 1, "fi": 1}),
    ],
)
def test_modifiers(line: str, mods: dict[str, int]) -> None:
    assert {name: value for name, value in decode(line).mods.items() if value} == mods


def test_dpp_and_sdwa_always_carry_their_selectors() -> None:
    dpp = decode("v_mov_b32_dpp v1, v2 quad_perm:[0,0,0,0] row_mask:0x0 bank_mask:0x0")
    assert {"dpp_ctrl", "row_mask", "bank_mask"} <= set(dpp.mods)
    sdwa = decode("v_add_f32_sdwa v1, v2, v3 dst_sel:BYTE_0 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_0")
    assert {"dst_sel", "dst_unused", "src0_sel", "src1_sel"} <= set(sdwa.mods)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (words(0xBE820103), "misaligned"),  # s_mov_b64 s[2:3], s[3:4]
        (words(0xBE830102), "misaligned"),  # s_mov_b64 s[3:4], s[2:3]
        (words(0xC00A0881, 0), "misaligned"),  # s_load_dwordx4 s[34:37]
        (words(0xBE82017C), "no register of 64 bits"),  # s_mov_b64 s[2:3], m0
        (words(0xBE820065 | 0x100), "no register"),  # s_mov_b64 s[2:3], s[101:102]
        (words(0xBE82007D), "no register"),  # reserved scalar code 125
        (words(0xBE8200D1), "reserved"),  # operand code 209
        (words(0x7E0202FE), "reserved"),  # lds_direct
        (words(0x7E0202FF), "truncated"),
        (words(0xD1000001), "truncated"),
        (b"\x01\x02", "truncated"),
        (b"", "truncated"),
        (words(0xD2800003, 0x00020902), "even register"),  # v_add_f64 v[3:4]
        (words(0xDC540000, 0xFF000002), "even register"),  # flat_load_dwordx2 v[255:256]
        (words(0xDC5C0000, 0xFE000002), "past the last register"),  # flat_load_dwordx4 v[254:257]
        (words(0xD1000001, 0x00090806), "constant bus"),  # v_cndmask_b32 v1, s6, 4, s[2:3]
        (words(0xD1CB0001, 0x04000602), "constant bus"),  # v_fma_f32 v1, s2, s3, v0
        (words(0xD3AC0000, 0x00020301, 0xD3D40000, 0x04120900), "scale prefix"),
        (words(0xD3AC0000, 0x00020301, 0xBF800000, 0xBF800000), "scale prefix"),
        (words(0x7E0202FA, 0xFF000102 | 0x160 << 8), "dpp_ctrl"),
        (words(0x7C8202FA, 0xFF00E402), "no DPP form"),  # v_cmp with DPP
        (words(0xD8010000, 0x00000201), "in GDS"),
        (words(0xFFFFFFFF, 0xFFFFFFFF), "starts no encoding"),
        (words(0xD3BE0000, 0x04020D04), "opcode 62"),  # v_mfma_f32_16x16x8_xf32, gfx942 only
        (words(0xD3AD0500, 0x04521904), "no data format"),  # f8f6f4 with cbsz:5
        (words(0xD3D50002, 0x0402110C), "overlaps"),  # v_mfma_f32_32x32x16_f16 v[2:17], ..., v[0:15]
    ],
)
def test_what_is_no_instruction_is_a_decode_error(code: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        Decoder("gfx950").decode(code)


def test_targets_differ() -> None:
    xf32 = words(0xD3BE0000, 0x04020D04)
    assert Decoder("gfx942").decode(xf32).name == "v_mfma_f32_16x16x8_xf32"
    with pytest.raises(DecodeError):
        Decoder("gfx942").decode(words(0xD3D40000, 0x04120900))  # v_mfma_f32_16x16x32_f16
    with pytest.raises(KeyError):
        Decoder("gfx000")


def test_branches_name_symbols() -> None:
    instr = decode("s_cbranch_scc0 -3")
    assert format_instruction(instr) == "s_cbranch_scc0 -3"
    assert format_instruction(instr, pc=0x108, symbols={0x100: "loop"}) == "s_cbranch_scc0 loop"
    assert format_instruction(instr, pc=0x10C, symbols={0x100: "loop"}) == "s_cbranch_scc0 -3"


def test_undecodable_dwords_are_data() -> None:
    code = words(0xBF800000, 0xFFFFFFFF, 0xBF810000) + b"\x01\x02"
    assert [(address, text) for address, _, text in disassemble(code, "gfx950", 0x40)] == [
        (0x40, "s_nop 0"),
        (0x44, ".long 0xffffffff"),
        (0x48, "s_endpgm"),
        (0x4C, ".byte 0x01, 0x02"),
    ]


def test_exec_is_a_scalar_operand() -> None:
    operand = decode("s_and_b64 exec, exec, vcc").operand("sdst")
    assert (operand.kind, operand.index, operand.bits, operand.is_dst) == ("s", EXEC, 64, True)
