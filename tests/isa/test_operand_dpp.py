"""DPP operands against the ISA document's wording of each control, lane by lane, with partial EXEC, masks and bound_ctrl."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vector_runs import ALL_LANES, f32, filler, mask_of, prepare, run

from rjemu.isa.dpp import dpp_sources
from rjemu.isa.instruction import VCC

MASKS = [ALL_LANES, 0x00000000FFFFFFFF, 0x5555555555555555, 0x8000000000000001, 0xF0F0F0F00F0F0F0F, 0]
CONTROLS = [
    *("quad_perm:[0,1,2,3]", "quad_perm:[3,1,0,2]", "quad_perm:[1,1,1,1]", "row_shl:1", "row_shl:5", "row_shl:15"),
    *("row_shr:1", "row_shr:8", "row_shr:15", "row_ror:1", "row_ror:7", "row_ror:15", "wave_shl:1", "wave_rol:1"),
    *("wave_shr:1", "wave_ror:1", "row_mirror", "row_half_mirror", "row_bcast:15", "row_bcast:31"),
    *("row_newbcast:0", "row_newbcast:9", "row_newbcast:15"),
]


def expected_source(control: str, lane: int) -> int | None:
    """The lane that `lane` reads, from the names of the movements; None where there is none."""
    name, numbers = control.split(":")[0], [int(n) for n in re.findall(r"\d+", control)]
    first = lane // 16 * 16
    if name == "quad_perm":
        return lane // 4 * 4 + numbers[lane % 4]
    if name in ("row_shl", "row_shr"):
        source = lane + (numbers[0] if name == "row_shl" else -numbers[0])
        return source if source // 16 == lane // 16 else None
    if name == "row_ror":
        return first + (lane - numbers[0]) % 16
    if name in ("wave_shl", "wave_shr"):
        source = lane + (1 if name == "wave_shl" else -1)
        return source if 0 <= source < 64 else None
    if name in ("wave_rol", "wave_ror"):
        return (lane + (1 if name == "wave_rol" else -1)) % 64
    if name == "row_mirror":
        return first + 15 - lane % 16
    if name == "row_half_mirror":
        return lane // 8 * 8 + 7 - lane % 8
    if name == "row_newbcast":
        return first + numbers[0]
    if numbers == [15]:
        return {0: None, 1: 15, 2: 31, 3: 47}[lane // 16]
    return 31 if lane >= 32 else None


def expected_lanes(
    control: str, exec_mask: int, row_mask: int, bank_mask: int, bound_ctrl: bool
) -> list[tuple[bool, int | None]]:
    """(written, source lane or None for 0) of every lane."""
    lanes = []
    for lane in range(64):
        source = expected_source(control, lane)
        if source is not None and not exec_mask >> source & 1:
            source = None
        written = bool(exec_mask >> lane & 1 and row_mask >> lane // 16 & 1 and bank_mask >> lane % 16 // 4 & 1)
        lanes.append((written and (source is not None or bound_ctrl), source))
    return lanes


def suffix(control: str, row_mask: int, bank_mask: int, bound_ctrl: bool) -> str:
    return f"{control} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}" + (" bound_ctrl:1" if bound_ctrl else "")


@pytest.mark.parametrize("bound_ctrl", [False, True])
def test_every_control(bound_ctrl: bool) -> None:
    lines = {c: f"v_mov_b32_dpp v1, v2 {suffix(c, 0xF, 0xF, bound_ctrl)}" for c in CONTROLS}
    prepare(lines.values(), "gfx950")
    old, data = filler()[1], filler()[2]
    for control, line in lines.items():
        for exec_mask in MASKS:
            got = run(line, {}, exec_mask=exec_mask).vgpr[1]
            plan = expected_lanes(control, exec_mask, 0xF, 0xF, bound_ctrl)
            for lane, (written, source) in enumerate(plan):
                moved = 0 if source is None else data[source]
                assert got[lane] == (moved if written else old[lane]), (control, hex(exec_mask), lane)


@settings(max_examples=60, deadline=None)
@given(
    control=st.sampled_from(CONTROLS),
    exec_mask=st.one_of(st.sampled_from(MASKS), st.integers(0, ALL_LANES)),
    row_mask=st.integers(0, 15),
    bank_mask=st.integers(0, 15),
    bound_ctrl=st.booleans(),
)
def test_masks(control: str, exec_mask: int, row_mask: int, bank_mask: int, bound_ctrl: bool) -> None:
    """The masks choose among the destination lanes only; a masked-off lane still is a source."""
    line = f"v_add_u32_dpp v1, v2, v3 {suffix(control, row_mask, bank_mask, bound_ctrl)}"
    old, data, addend = filler()[1], filler()[2], filler()[3]
    got = run(line, {}, exec_mask=exec_mask).vgpr[1]
    for lane, (written, source) in enumerate(expected_lanes(control, exec_mask, row_mask, bank_mask, bound_ctrl)):
        moved = 0 if source is None else int(data[source])
        assert got[lane] == ((moved + int(addend[lane])) & 0xFFFFFFFF if written else old[lane])


def test_in_place() -> None:
    """All lanes are read before any is written."""
    data = filler()[2]
    for control in CONTROLS:
        got = run(f"v_mov_b32_dpp v2, v2 {suffix(control, 0xF, 0xF, True)}", {}).vgpr[2]
        sources = [expected_source(control, lane) for lane in range(64)]
        assert got.tolist() == [0 if s is None else int(data[s]) for s in sources]


def test_source_modifiers() -> None:
    """abs and neg act on the moved value, also on the 0 of a missing source."""
    x, y = np.arange(64, dtype=np.float32) - 20, np.full(64, 3, np.float32)
    got = run(f"v_add_f32_dpp v1, -|v2|, -v3 {suffix('row_shr:1', 0xF, 0xF, True)}", {2: f32(x), 3: f32(y)}).vgpr[1]
    moved = np.where(np.arange(64) % 16 == 0, 0, np.roll(x, 1))
    assert (got.view(np.float32) == -np.abs(moved) - y).all()
    got = run(f"v_mul_f32_dpp v1, -v2, v3 {suffix('row_shl:15', 0xF, 0xF, True)}", {2: f32(x), 3: f32(y)}).vgpr[1]
    assert got[1] == 0x80000000


def test_half_operand() -> None:
    got = run(
        f"v_add_f16_dpp v1, v2, v3 {suffix('row_mirror', 0xF, 0xF, False)}", {2: np.arange(64) * 0x10000 + 0x3C00, 3: 0}
    )
    assert (got.vgpr[1] == 0x3C00).all()


def test_64_bits() -> None:
    state = run(f"v_mov_b64_dpp v[4:5], v[2:3] {suffix('row_newbcast:9', 0xF, 0xF, False)}", {})
    for k in (0, 1):
        assert state.vgpr[4 + k].tolist() == [int(filler()[2 + k][lane // 16 * 16 + 9]) for lane in range(64)]


def test_carry_of_lanes_that_are_not_written() -> None:
    line = f"v_add_co_u32_dpp v1, vcc, v2, v3 {suffix('row_shr:1', 0x3, 0xF, False)}"
    state = run(line, {2: 0xFFFFFFFF, 3: 1}, vcc=ALL_LANES)
    assert mask_of(state, VCC) == 0xFFFEFFFE


def test_tied_destination() -> None:
    """v_fmac reads its own lane of the destination, not a moved one."""
    x = np.arange(64, dtype=np.float32)
    line = f"v_fmac_f32_dpp v1, v2, v3 {suffix('quad_perm:[1,0,3,2]', 0xF, 0xF, False)}"
    got = run(line, {1: f32(x * 100), 2: f32(x), 3: f32(np.full(64, 2.0))}).vgpr[1].view(np.float32)
    assert (got == x * 100 + (x.astype(int) ^ 1) * 2).all()


@pytest.mark.parametrize("control", [0x100, 0x110, 0x120, 0x131, 0x13D, 0x144, 0x160, 0x1FF])
def test_reserved_controls(control: int) -> None:
    with pytest.raises(ValueError, match="reserved DPP control"):
        dpp_sources(control, 64)
