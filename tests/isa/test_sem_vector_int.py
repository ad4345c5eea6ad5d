"""Integer vector arithmetic, shifts, logic and counts, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from support.integer_ops import Operation, check
from support.scalar_runs import run as run_wave
from support.vector_runs import ALL_LANES, LANES, f32, mask_of, prepare, run

M32 = (1 << 32) - 1


def low24(x: int) -> int:
    """The number in the low 24 bits, with the sign of an i32 operand's."""
    x &= 0xFF_FFFF
    return x - (1 << 24) if x >> 23 else x


def sign_run(x: int) -> int:
    text = format(x & M32, "032b")
    length = 32 - len(text.lstrip(text[0]))
    return -1 if length == 32 else length


def median(*numbers: int) -> int:
    return sorted(numbers)[1]


CLAMPED = [
    *(Operation(f"v_add_{t}", f"{t} = {t} {t}", lambda x, y: x + y) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_sub_{t}", f"{t} = {t} {t}", lambda x, y: x - y) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_subrev_{t}", f"{t} = {t} {t}", lambda x, y: y - x) for t in ("u16", "u32")),
    Operation("v_mul_lo_u16", "u16 = u16 u16", lambda x, y: x * y),
    Operation("v_mul_i32_i24", "i32 = i32 i32", lambda x, y: low24(x) * low24(y)),
    Operation("v_mul_u32_u24", "u32 = u32 u32", lambda x, y: (x & 0xFF_FFFF) * (y & 0xFF_FFFF)),
    Operation("v_mad_i32_i24", "i32 = i32 i32 i32", lambda x, y, z: low24(x) * low24(y) + z),
    Operation("v_mad_u32_u24", "u32 = u32 u32 u32", lambda x, y, z: (x & 0xFF_FFFF) * (y & 0xFF_FFFF) + z),
    Operation("v_mad_i32_i16", "i32 = i16 i16 i32", lambda x, y, z: x * y + z),
    Operation("v_mad_u32_u16", "u32 = u16 u16 u32", lambda x, y, z: x * y + z),
    Operation("v_mad_u16", "u16 = u16 u16 u16", lambda x, y, z: x * y + z, keeps_high=True),
    Operation("v_mad_i16", "i16 = i16 i16 i16", lambda x, y, z: x * y + z, keeps_high=True),
    Operation("v_mad_legacy_u16", "u16 = u16 u16 u16", lambda x, y, z: x * y + z),
    Operation("v_mad_legacy_i16", "i16 = i16 i16 i16", lambda x, y, z: x * y + z),
    Operation("v_add_co_u32_e64", "u32 mask = u32 u32", lambda x, y: (x + y, x + y > M32)),
    Operation("v_sub_co_u32_e64", "u32 mask = u32 u32", lambda x, y: (x - y, y > x)),
    Operation("v_subrev_co_u32_e64", "u32 mask = u32 u32", lambda x, y: (y - x, x > y)),
    Operation("v_addc_co_u32_e64", "u32 mask = u32 u32 mask", lambda x, y, c: (x + y + c, x + y + c > M32)),
    Operation("v_subb_co_u32_e64", "u32 mask = u32 u32 mask", lambda x, y, c: (x - y - c, y + c > x)),
    Operation("v_subbrev_co_u32_e64", "u32 mask = u32 u32 mask", lambda x, y, c: (y - x - c, x + c > y)),
    Operation("v_mad_u64_u32", "u64 mask = u32 u32 u64", lambda x, y, z: (x * y + z, x * y + z >> 64 != 0)),
    Operation("v_mad_i64_i32", "i64 mask = i32 i32 i64", lambda x, y, z: (x * y + z, x * y + z < 0)),
]
"""Instructions that take clamp."""

PLAIN = [
    *(Operation(f"v_min_{t}", f"{t} = {t} {t}", min) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_max_{t}", f"{t} = {t} {t}", max) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_min3_{t}", f"{t} = {t} {t} {t}", min) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_max3_{t}", f"{t} = {t} {t} {t}", max) for t in ("u16", "i16", "u32", "i32")),
    *(Operation(f"v_med3_{t}", f"{t} = {t} {t} {t}", median) for t in ("u16", "i16", "u32", "i32")),
    Operation("v_mul_lo_u32", "u32 = u32 u32", lambda x, y: x * y),
    Operation("v_mul_hi_u32", "u32 = u32 u32", lambda x, y: x * y >> 32),
    Operation("v_mul_hi_i32", "i32 = i32 i32", lambda x, y: x * y >> 32),
    Operation("v_mul_hi_i32_i24", "i32 = i32 i32", lambda x, y: low24(x) * low24(y) >> 32),
    Operation("v_mul_hi_u32_u24", "u32 = u32 u32", lambda x, y: (x & 0xFF_FFFF) * (y & 0xFF_FFFF) >> 32),
    Operation("v_add3_u32", "u32 = u32 u32 u32", lambda x, y, z: x + y + z),
    Operation("v_xad_u32", "u32 = u32 u32 u32", lambda x, y, z: (x ^ y) + z),
    Operation("v_lshlrev_b16", "u16 = u16 u16", lambda n, x: x << n % 16),
    Operation("v_lshrrev_b16", "u16 = u16 u16", lambda n, x: x >> n % 16),
    Operation("v_ashrrev_i16", "i16 = u16 i16", lambda n, x: x >> n % 16),
    Operation("v_lshlrev_b32", "u32 = u32 u32", lambda n, x: x << n % 32),
    Operation("v_lshrrev_b32", "u32 = u32 u32", lambda n, x: x >> n % 32),
    Operation("v_ashrrev_i32", "i32 = u32 i32", lambda n, x: x >> n % 32),
    Operation("v_lshlrev_b64", "u64 = u32 u64", lambda n, x: x << n % 64),
    Operation("v_lshrrev_b64", "u64 = u32 u64", lambda n, x: x >> n % 64),
    Operation("v_ashrrev_i64", "i64 = u32 i64", lambda n, x: x >> n % 64),
    Operation("v_lshl_add_u32", "u32 = u32 u32 u32", lambda x, n, z: (x << n % 32) + z),
    Operation("v_add_lshl_u32", "u32 = u32 u32 u32", lambda x, y, n: x + y << n % 32),
    Operation("v_lshl_or_b32", "u32 = u32 u32 u32", lambda x, n, z: x << n % 32 | z),
    Operation("v_lshl_add_u64", "u64 = u64 u32 u64", lambda x, n, z: (x << (n % 8 if n % 8 <= 4 else 0)) + z),
    Operation("v_and_b32", "u32 = u32 u32", lambda x, y: x & y),
    Operation("v_or_b32", "u32 = u32 u32", lambda x, y: x | y),
    Operation("v_xor_b32", "u32 = u32 u32", lambda x, y: x ^ y),
    Operation("v_xnor_b32", "u32 = u32 u32", lambda x, y: ~(x ^ y)),
    Operation("v_not_b32", "u32 = u32", lambda x: ~x),
    Operation("v_or3_b32", "u32 = u32 u32 u32", lambda x, y, z: x | y | z),
    Operation("v_and_or_b32", "u32 = u32 u32 u32", lambda x, y, z: x & y | z),
    Operation("v_mov_b32", "u32 = u32", lambda x: x),
    Operation("v_mov_b64", "u64 = u64", lambda x: x),
    Operation("v_bfrev_b32", "u32 = u32", lambda x: int(format(x, "032b")[::-1], 2)),
    Operation("v_ffbh_u32", "i32 = u32", lambda x: 32 - x.bit_length() if x else -1),
    Operation("v_ffbl_b32", "i32 = u32", lambda x: (x & -x).bit_length() - 1),
    Operation("v_ffbh_i32", "i32 = i32", sign_run),
    Operation("v_bcnt_u32_b32", "u32 = u32 u32", lambda x, y: x.bit_count() + y),
]


@pytest.fixture(scope="module", autouse=True)
def _assembled() -> None:
    prepare([op.line() for op in CLAMPED + PLAIN] + [op.line("clamp") for op in CLAMPED], "gfx950")


@pytest.mark.parametrize("operation", CLAMPED + PLAIN, ids=lambda op: op.name)
def test_against_python(operation: Operation) -> None:
    check(operation)


@pytest.mark.parametrize("operation", CLAMPED, ids=lambda op: op.name)
def test_clamp_saturates(operation: Operation) -> None:
    check(operation, clamp=True)


def test_carries_through_vcc() -> None:
    """The VOP2 forms read and write VCC; inactive lanes' bits become 0."""
    active = 0xFF
    state = run("v_add_co_u32_e32 v0, vcc, v1, v2", {1: M32, 2: [0, 1]}, exec_mask=active, vcc=ALL_LANES)
    assert (mask_of(state, 106), state.vgpr[0, 1], state.vgpr[0, 2]) == (0xAA, 0, M32)
    state = run("v_addc_co_u32_e32 v0, vcc, v1, v2, vcc", {1: M32, 2: 0}, exec_mask=active, vcc=0x0F)
    assert (mask_of(state, 106), list(state.vgpr[0, :8])) == (0x0F, [0] * 4 + [M32] * 4)
    state = run("v_subb_co_u32_e32 v0, vcc, v1, v2, vcc", {1: 5, 2: 5}, exec_mask=active, vcc=0x01)
    assert (mask_of(state, 106), list(state.vgpr[0, :2])) == (1, [M32, 0])


def test_conditional_mask() -> None:
    signalling = 0x7F80_0001
    state = run("v_cndmask_b32_e32 v0, v1, v2, vcc", {1: 1, 2: signalling}, vcc=0b10)
    assert list(state.vgpr[0, :3]) == [1, signalling, 1]
    state = run("v_cndmask_b32_e64 v0, v1, v2, s[4:5]", {1: 1, 2: 2}, sgprs={4: 0b100, 5: 1})
    assert (list(state.vgpr[0, :3]), state.vgpr[0, 32]) == ([1, 1, 2], 2)


def test_conditional_mask_with_float_modifiers() -> None:
    values = {1: f32([1.5] * LANES), 2: f32([-2.5] * LANES)}
    state = run("v_cndmask_b32_e64 v0, -v1, |v2|, vcc", values, vcc=0b10)
    assert list(state.vgpr[0, :2].view(np.float32)) == [-1.5, 2.5]


def test_swap() -> None:
    state = run("v_swap_b32 v1, v2", {1: np.arange(64), 2: np.arange(100, 164)}, exec_mask=0b101)
    assert list(state.vgpr[1, :3]) == [100, 1, 102]
    assert list(state.vgpr[2, :3]) == [0, 101, 2]


def test_no_effect() -> None:
    assert (run_wave("v_nop").state.memory == run_wave("s_nop 0").state.memory).all()


def test_exceptions_are_cleared() -> None:
    assert run_wave("v_clrexcp", hardware={"trapsts": 0xFFFF}).state.word("trapsts") == 0xFE00


def test_half_selection() -> None:
    """op_sel names the halves that 16-bit operands of VOP3 come from, and the one that the result goes to."""
    lanes = {0: 0xAAAA_BBBB, 1: 0x0003_0005, 2: 0x0007_000B, 3: 0x000D_0011}
    assert run("v_mad_u16 v0, v1, v2, v3 op_sel:[1,0,1,0]", lanes).vgpr[0, 0] == 0xAAAA_0000 | 3 * 11 + 13
    assert run("v_mad_u16 v0, v1, v2, v3 op_sel:[0,1,0,1]", lanes).vgpr[0, 0] == (5 * 7 + 17) << 16 | 0xBBBB
    assert run("v_mad_u32_u16 v0, v1, v2, v3 op_sel:[1,1,0,0]", lanes).vgpr[0, 0] == 3 * 7 + 0x000D_0011
    assert run("v_add_i16 v0, v1, v2 op_sel:[1,1,1]", lanes).vgpr[0, 0] == 10 << 16 | 0xBBBB
    assert run("v_min3_u16 v0, v1, v2, v3 op_sel:[1,1,1,0]", lanes).vgpr[0, 0] == 3


def test_scalar_and_constant_operands() -> None:
    state = run("v_mad_u32_u24 v0, v1, s4, -1", {1: 3}, sgprs={4: 0xFF00_0005})
    assert (state.vgpr[0] == 14).all()
    assert (run("v_add_u32 v0, 0xdeadbeef, v1", {1: 1}).vgpr[0] == 0xDEAD_BEF0).all()
    assert (run("v_ashrrev_i64 v[0:1], 4, -16", {}).vgpr[0:2] == [[M32] * 64, [M32] * 64]).all()
    assert (run("v_mov_b64 v[0:1], s[4:5]", {}, sgprs={4: 7, 5: 9}).vgpr[0:2] == [[7] * 64, [9] * 64]).all()


def test_sub_dword_operands() -> None:
    """SDWA selections with sign extension around integer operations."""
    word = 0x80FF_7F01
    state = run("v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD src0_sel:BYTE_3 src1_sel:WORD_0", {1: word, 2: word})
    assert (state.vgpr[0] == (0xFFFF_FF80 + 0x7F01) & M32).all()
    state = run(
        "v_mul_u32_u24_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:BYTE_2",
        {0: 0x1111_2222, 1: word, 2: word},
    )
    assert (state.vgpr[0] == 0x7F * 0xFF << 16 | 0x2222).all()


def test_lane_movement() -> None:
    lanes = np.arange(LANES)
    state = run("v_add_u32_dpp v0, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", {0: 999, 1: lanes, 2: 100})
    assert list(state.vgpr[0, 15:18]) == [114, 999, 116]
    state = run("v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:3 row_mask:0xf bank_mask:0xf", {2: lanes, 3: lanes + 1})
    assert list(state.vgpr[0, [0, 20, 63]]) == [3, 19, 51]
    assert list(state.vgpr[1, [0, 20, 63]]) == [4, 20, 52]
