"""Rules of the CDNA4 ISA document that emulators are known to miss, each with the document's own numbers."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from support.assemble import assemble, text_section
from support.harness import Lab, State

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import EXEC

ALL = (1 << 64) - 1


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab("gfx950")


def run(lab: Lab, text: str, scalars: dict[int, int], vectors: dict[int, np.ndarray | int], active: int = ALL) -> State:
    """The state after the instruction, the same from both executors."""
    (instr,) = lab.instructions(text)
    state = lab.random_state(np.random.default_rng(0), instr)
    for register, value in scalars.items():
        state.wave.scalars[register] = value
    for register, lanes in vectors.items():
        state.wave.vgpr[register] = lanes
    state.wave.scalars[EXEC : EXEC + 2] = active & 0xFFFFFFFF, active >> 32
    lab.compare(instr, state)
    lab.run_reference(instr, state)
    return state


def floats(value: float) -> np.ndarray:
    return np.full(64, value, np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("text", "first", "second", "result", "scc"),
    [
        ("s_max_i32 s2, s3, s4", 5, 5, 5, 1),  # inclusive: S0 >= S1
        ("s_max_u32 s2, s3, s4", 5, 5, 5, 1),
        ("s_max_i32 s2, s3, s4", 0xFFFFFFFF, 0, 0, 0),
        ("s_absdiff_i32 s2, s3, s4", 0x80000000, 0, 0x80000000, 1),  # a 32-bit difference, negated
        ("s_absdiff_i32 s2, s3, s4", 0x80000000, 1, 0x7FFFFFFF, 1),
        ("s_absdiff_i32 s2, s3, s4", 2, 5, 3, 1),
    ],
)
def test_scalar(lab: Lab, text: str, first: int, second: int, result: int, scc: int) -> None:
    state = run(lab, text, {3: first, 4: second}, {})
    assert (int(state.wave.scalars[2]), state.wave.word("scc")) == (result, scc)


@pytest.mark.parametrize(
    "text", ["ds_write2_b32 v1, v2, v3 offset0:4 offset1:4", "ds_write2st64_b32 v1, v2, v3 offset0:4 offset1:4"]
)
def test_equal_offsets_write_once(lab: Lab, text: str) -> None:
    address = 4 * 4 * (64 if "st64" in text else 1)
    state = run(lab, text, {}, {1: np.arange(64, dtype=np.uint32) * 4, 2: 111, 3: 222})
    assert (state.lds[address : address + 256].view(np.uint32) == 111).all()


@pytest.mark.parametrize(
    ("modifier", "expected"), [("", 12), ("neg_lo:[0,0,1]", 12), ("neg_lo:[1,0,0]", 10), ("neg_hi:[1,0,0]", 10)]
)
def test_dot2_bf16_leaves_its_addend_alone(lab: Lab, modifier: str, expected: float) -> None:
    ones = np.full(64, 0x3F803F80, np.uint32)
    state = run(lab, f"v_dot2_f32_bf16 v1, v2, v3, v4 {modifier}", {}, {2: ones, 3: ones, 4: floats(10)})
    assert (state.wave.vgpr[1].view(np.float32) == expected).all()


def test_lane_selectors_and_empty_exec(lab: Lab) -> None:
    lanes = np.arange(64, dtype=np.uint32) + 7
    assert run(lab, "v_readlane_b32 s2, v3, s4", {4: 70}, {3: lanes}).wave.scalars[2] == 13  # six bits of the selector
    assert run(lab, "v_readfirstlane_b32 s2, v3", {}, {3: lanes}, active=0).wave.scalars[2] == 7  # lane 0
    assert run(lab, "v_writelane_b32 v3, s4, 0", {4: 99}, {3: lanes}, active=0).wave.vgpr[3, 0] == 99


def test_swizzle_reads_zero_from_inactive_lanes(lab: Lab) -> None:
    text = "ds_swizzle_b32 v1, v2 offset:swizzle(BROADCAST,32,1)"
    state = run(lab, text, {}, {2: np.arange(64, dtype=np.uint32) + 5}, active=ALL & ~2)
    assert state.wave.vgpr[1, 0] == 0
    assert state.wave.vgpr[1, 32] == 38


@pytest.mark.parametrize(
    ("text", "source", "result"),
    [
        ("v_fract_f32 v1, v2", floats(-1e-9)[0], 0x3F7FFFFF),  # never 1
        ("v_bcnt_u32_b32 v1, v2, 10", 0xFF, 18),
        ("v_prng_b32 v1, v2", 0x80000001, 2 ^ 197),
        ("v_prng_b32 v1, v2", 0x40000001, 0x80000002),
    ],
)
def test_vector(lab: Lab, text: str, source: int, result: int) -> None:
    assert (run(lab, text, {}, {2: source}).wave.vgpr[1] == result).all()


def test_inline_constant_of_the_circle(lab: Lab) -> None:
    state = run(lab, "v_add_f64 v[2:3], 0, 0.15915494309189532", {}, {})
    assert (int(state.wave.vgpr[3, 0]), int(state.wave.vgpr[2, 0])) == (0x3FC45F30, 0x6DC9C882)


def test_packed_normalized_conversion_of_halves(lab: Lab) -> None:
    values = np.array([0, 1, -1, 0.5, -0.25, 2, -3, np.inf, -np.inf, 6e-8, 0.99951172, -0.33325195], np.float16)
    x, y = np.resize(values, 64), np.resize(values[::-1], 64)
    lanes = {2: x.view(np.uint16).astype(np.uint32), 3: y.view(np.uint16).astype(np.uint32)}
    for kind, least, most, dtype in (("i16", -1, 32767, np.int16), ("u16", 0, 65535, np.uint16)):
        result = run(lab, f"v_cvt_pknorm_{kind}_f16 v1, v2, v3", {}, lanes).wave.vgpr[1].view(dtype).reshape(64, 2)
        for column, source in enumerate((x, y)):
            np.testing.assert_array_equal(result[:, column], np.rint(np.clip(source.astype(float), least, 1) * most))


@pytest.mark.parametrize("flag", ["cdbgsys", "cdbguser", "cdbgsys_or_user", "cdbgsys_and_user"])
def test_debug_branches_fall_through_without_a_debugger(lab: Lab, flag: str) -> None:
    (instr,) = lab.instructions(f"s_cbranch_{flag} 100")
    state = lab.random_state(np.random.default_rng(0), instr)
    lab.compare(instr, state)
    assert lab.run_reference(instr, state).next_pc == state.wave.long("pc") + 4


def words(text: str) -> tuple[int, ...]:
    code = text_section(assemble(text + "\n", "gfx950"))
    return struct.unpack(f"<{len(code) // 4}I", code)


def decode(*code: int) -> tuple[str, int]:
    instr = Decoder("gfx950").decode(struct.pack(f"<{len(code)}I", *code))
    return instr.name, instr.size


def test_the_enables_of_register_indexing_are_no_literal() -> None:
    (word,) = words("s_set_gpr_idx_on s0, gpr_idx(SRC0)")
    instr = Decoder("gfx950").decode(struct.pack("<2I", word | 0xFF00, 0x12345678))
    assert (instr.size, instr.imm("gpr_idx")) == (4, 15)


def test_program_counter_instructions_take_no_literal() -> None:
    (word,) = words("s_getpc_b64 s[4:5]")
    assert decode(word | 0xFF, 5) == ("s_getpc_b64", 4)
    for text in ("s_setpc_b64 s[4:5]", "s_swappc_b64 s[2:3], s[4:5]"):
        (word,) = words(text)
        with pytest.raises(DecodeError):
            decode(word | 0xFF, 5)


@pytest.mark.parametrize("shift", [0, 16])
def test_64_bit_scalars_start_at_even_registers(shift: int) -> None:
    (word,) = words("s_mov_b64 s[2:3], s[4:5]")
    with pytest.raises(DecodeError, match="misaligned"):
        decode(word | 1 << shift)


SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21 op_sel_hi:[0,0,0]"


@pytest.mark.parametrize(
    "text",
    [
        "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]",  # lacks ABID's lowest bit
        "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[12:15], v[0:3]",
        "v_pk_add_f32 v[0:1], v[2:3], v[4:5]",
        "v_add3_u32 v0, v1, v2, v3",
        "global_load_dword v0, v1, s[2:3]",
    ],
)
def test_a_scale_prefix_before_anything_else_is_illegal(text: str) -> None:
    prefix = words(SCALED)[:2]
    assert decode(*words(SCALED)) == (SCALED.split()[0], 16)
    with pytest.raises(DecodeError, match="without its matrix instruction"):
        decode(*prefix, *words(text))
