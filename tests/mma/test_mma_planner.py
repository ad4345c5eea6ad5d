"""Groups of independent matrix instructions."""

from __future__ import annotations

import random

import pytest
from support.assemble import assemble, text_section

from rjemu.exec.plans import GROUP_ROWS
from rjemu.isa.decoder import Decoder
from rjemu.mma.candidates import Fitness
from rjemu.mma.planner import GROUP_LIMIT, LOOKAHEAD, PAGE, Footprint, Group, Loops, collect_group, footprint

BASE = 0x6000_0000_0000


def mma(k: int, *, a: str = "v[2:5]", b: str = "v[6:9]", c: str | None = None) -> str:
    d = f"a[{4 * k}:{4 * k + 3}]"
    return f"v_mfma_f32_16x16x32_f16 {d}, {a}, {b}, {c or d}"


def group(*lines: str, base: int = BASE, bound: int = 512) -> Group:
    """The group that the first of those lines begins."""
    code = text_section(assemble("\n".join(lines) + "\n", "gfx950"))
    decoder, decoded, at = Decoder("gfx950"), {}, 0
    while at < len(code):
        instr = decoder.decode(code, at)
        decoded[base + at] = footprint(instr, "gfx950"), instr.size
        at += instr.size
    return collect_group(base, decoded.get, bound)


def offsets(*lines: str) -> tuple[int, ...]:
    return group(*lines).offsets


def test_independent_instructions_form_a_group() -> None:
    assert offsets(*(mma(k) for k in range(4))) == (0, 8, 16, 24)


def test_the_lookahead_is_bounded() -> None:
    found = group(*(mma(k) for k in range(14)))
    assert len(found.offsets) == GROUP_LIMIT
    assert offsets(mma(0), *["s_nop 0"] * (LOOKAHEAD - 1), mma(1)) == (0, 8 + (LOOKAHEAD - 1) * 4)
    assert offsets(mma(0), *["s_nop 0"] * LOOKAHEAD, mma(1)) == (0,)


def test_a_group_fits_the_rows_that_waves_remember() -> None:
    scaled = "v_mfma_scale_f32_16x16x128_f8f6f4 v[{0}:{1}], v[200:207], v[208:215], v[{0}:{1}], v216, v217"
    long = ["v_add3_u32 v220, v220, v221, v222"] * (LOOKAHEAD + 1 - GROUP_LIMIT)
    found = group(scaled.format(0, 3), *long, *(scaled.format(4 * k, 4 * k + 3) for k in range(1, GROUP_LIMIT)))
    assert len(found.offsets) == GROUP_LIMIT
    assert found.offsets[-1] < 4 * GROUP_ROWS


def test_what_follows_a_group_is_found_up_to_what_needs_it() -> None:
    found = group(*(mma(k) for k in range(GROUP_LIMIT + 3)), "s_nop 0", mma(0), mma(20))
    assert len(found.offsets) == GROUP_LIMIT
    assert found.following == tuple(8 * k for k in range(GROUP_LIMIT, GROUP_LIMIT + 3))
    assert group(mma(0), mma(1), mma(1), mma(2)).following == ()
    ending = group(*(mma(k) for k in range(GROUP_LIMIT + 1)), "s_cbranch_scc1 0", mma(11))
    assert ending.following == (8 * GROUP_LIMIT,)


@pytest.mark.parametrize(
    "second",
    {
        "RAW on the accumulator": mma(1, c="a[0:3]"),
        "RAW on an operand": mma(1, a="a[0:3]"),
        "partial RAW": mma(1, b="a[2:5]"),
        "WAW": mma(0),
        "WAR": "v_mfma_f32_16x16x32_f16 v[4:7], v[12:15], v[16:19], v[4:7]",
    }.items(),
    ids=lambda item: item[0],
)
def test_dependent_instructions_end_the_group(second: tuple[str, str]) -> None:
    assert offsets(mma(0), second[1], mma(3)) == (0,)


def test_a_scale_is_read() -> None:
    scaled = "v_mfma_scale_f32_16x16x128_f8f6f4 a[8:11], v[12:19], v[20:27], a[8:11], v28, v29"
    first = "v_mfma_f32_16x16x32_f16 v[{}:{}], v[2:5], v[6:9], 0"
    assert offsets(first.format(28, 31), scaled) == (0,)
    assert len(offsets(first.format(32, 35), scaled)) == 2


def test_shared_operands_are_no_dependency() -> None:
    assert len(offsets(mma(0, a="v[2:5]", b="v[2:5]"), mma(1, a="v[2:5]", b="v[2:5]"))) == 2


@pytest.mark.parametrize(
    ("between", "goes_on"),
    [
        ("v_add_u32 v20, v2, v6", True),
        ("v_accvgpr_read_b32 v20, a40", True),
        ("global_load_dwordx4 v[20:23], v[24:25], off", True),
        ("ds_read_b128 v[20:23], v24", True),
        ("s_waitcnt vmcnt(0)", True),
        ("s_add_u32 s4, s4, s5", True),
        ("v_accvgpr_read_b32 v20, a1", False),  # reads the first one's result
        ("v_mov_b32 v3, v20", False),  # overwrites what it reads
        ("v_accvgpr_write_b32 a2, v20", False),
        ("s_mov_b64 exec, s[4:5]", False),
        ("v_cmpx_eq_u32 v20, v21", False),
        ("s_and_saveexec_b64 s[4:5], vcc", False),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1", False),
        ("s_branch 0", False),
        ("s_cbranch_scc1 0", False),
        ("s_barrier", False),
        ("s_endpgm", False),
        ("s_icache_inv", False),
        ("s_set_gpr_idx_on s4, 1", False),
        ("v_mfma_f32_4x4x4_16b_f16 a[60:63], v[2:3], v[4:5], a[60:63]", False),
    ],
)
def test_what_lies_between(between: str, goes_on: bool) -> None:
    assert (len(offsets(mma(0), between, mma(1))) == 2) is goes_on


def test_what_lies_between_must_not_feed_the_later_ones() -> None:
    assert offsets(mma(0), "v_mov_b32 v12, v20", mma(1, a="v[12:15]")) == (0,)
    assert offsets(mma(0), "v_accvgpr_read_b32 v20, a5", mma(1)) == (0,)
    assert len(offsets(mma(0), "v_add_u32 v20, v12, v13", mma(1, a="v[12:15]"))) == 2


def test_a_group_stays_in_its_page_of_code() -> None:
    lines = [mma(k) for k in range(6)]
    assert group(*lines, base=BASE + PAGE - 24).offsets == (0, 8, 16)
    assert group(*lines, base=BASE + PAGE - 20).offsets == (0, 8)


def test_registers_beyond_the_bound_end_the_group() -> None:
    lines = [mma(0), mma(1), "v_mfma_f32_16x16x32_f16 v[60:63], v[2:5], v[6:9], v[60:63]"]
    assert len(group(*lines).offsets) == 3
    assert len(group(*lines, bound=260).offsets) == 1
    assert len(group(*lines, bound=264).offsets) == 3


@pytest.mark.parametrize("seed", range(200))
def test_every_member_could_be_executed_first(seed: int) -> None:
    """Against the definition: nothing before a member, in the group or not, touches its registers in conflict."""
    rng = random.Random(seed)
    steps = [
        Footprint(
            rng.choice([Fitness.CANDIDATE, Fitness.CANDIDATE, Fitness.ORDINARY]),
            sum(1 << rng.randrange(24) for _ in range(2)),
            1 << rng.randrange(24),
            rng.random() < 0.03,
        )
        for _ in range(14)
    ]
    steps[0] = Footprint(Fitness.CANDIDATE, steps[0].reads, steps[0].writes, False)
    found = collect_group(BASE, lambda at: (steps[(at - BASE) // 8], 8) if at - BASE < 14 * 8 else None)
    members = [offset // 8 for offset in found.offsets]
    assert members[0] == 0
    for member in members:
        assert steps[member].fitness is Fitness.CANDIDATE
        for earlier in range(member):
            assert not steps[member].writes & (steps[earlier].reads | steps[earlier].writes)
            assert not steps[member].reads & steps[earlier].writes
            assert not steps[earlier].boundary


def test_what_a_loop_writes_is_new_each_time() -> None:
    def steps(written: dict[int, int]) -> dict[int, Footprint]:
        return {at: Footprint(Fitness.ORDINARY, 0, 1 << register, False) for at, register in written.items()}

    loops = Loops([(40, 16), (60, 8)], steps({4: 1, 8: 2, 16: 3, 24: 4, 48: 5, 64: 6}))
    assert loops.written_around(20) == 1 << 3 | 1 << 4  # the inner one
    assert loops.written_around(40) == loops.written_around(16)
    assert loops.written_around(44) == 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5
    assert loops.written_around(64) == (1 << 512) - 1  # in none: nothing has stayed from before
