"""Plans of sites: kept, checked against the code after an invalidation, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from support.assemble import assemble, text_section

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.exec.plans import (
    FIRST_PLAN,
    MAX_PLANS,
    PLAN,
    PLAN_RECORDS,
    SITE_NOT_ELIGIBLE,
    SITE_REJECTED,
    PlanTable,
)
from rjemu.exec.program import Program
from rjemu.mma import plan_cache
from rjemu.mma.plan_cache import PlanCache

BASE = 0x6000_0000_0000
LINES = [f"v_mfma_f32_32x32x16_f16 a[{16 * k}:{16 * k + 15}], v[2:5], v[6:9], a[{16 * k}:{16 * k + 15}]" for k in range(4)]


class World:
    """A program of some lines, and a cache that plans its sites; an instruction costs `cost` nanoseconds."""

    def __init__(self, lines: list[str], cost: float = 10_000.0) -> None:
        self.table = PlanTable()
        self.cache = PlanCache("gfx950", self.table, lambda program, pc: cost)
        code = text_section(assemble("\n".join([*lines, "s_endpgm"]) + "\n", "gfx950"))
        self.code = np.frombuffer(code, np.uint8).copy()
        self.program = Program("gfx950", BASE, self.code, 64, self.cache.registers)
        self.decode()

    def decode(self) -> None:
        self.program.decode(BASE, lambda instr: 5)

    def sites(self) -> list[int]:
        return [self.cache.site(self.program, pc) for pc in sorted(self.program.instructions)]

    def rewrite(self, lines: list[str]) -> None:
        """Other code of the same size, and what an invalidation of the instruction cache does."""
        self.code[:] = np.frombuffer(text_section(assemble("\n".join([*lines, "s_endpgm"]) + "\n", "gfx950")), np.uint8)
        self.invalidate()

    def invalidate(self) -> None:
        if self.program.refresh():
            self.cache.invalidate()
            self.decode()

    def close(self) -> None:
        self.program.close()
        self.table.close()


@pytest.fixture
def world() -> Iterator[Any]:
    worlds = []

    def make(*args: Any) -> World:
        worlds.append(World(*args))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()


def test_groups_get_plans_and_their_last_is_rejected(world: Any) -> None:
    w = world(LINES)
    assert w.sites() == [FIRST_PLAN, FIRST_PLAN + 1, FIRST_PLAN + 2, SITE_REJECTED, 0]
    assert (w.cache.statistics.plans_built, w.cache.statistics.plans_accepted) == (4, 3)


def test_a_plan_holds_what_native_code_needs(world: Any) -> None:
    w = world(LINES)
    w.sites()
    plan = w.table._plans[0]
    words = plan[:PLAN_RECORDS].view(np.uint32)
    assert words[PLAN["count"] // 4] == 4
    assert list(words[PLAN["rows"] // 4 :][:4]) == [0, 2, 4, 6]
    assert list(words[PLAN["results"] // 4 :][:4]) == [(256 + 16 * k) * 256 for k in range(4)]
    assert list(words[PLAN["undo"] // 4 :][:4]) == [4096] * 4
    assert plan[PLAN_RECORDS : PLAN_RECORDS + 64].tobytes() == w.program.record_at(BASE)


def test_only_what_is_read_too_is_saved(world: Any) -> None:
    w = world([LINES[0].rsplit(", ", 1)[0] + ", 0", LINES[1].rsplit(", ", 1)[0] + ", a[48:63]", *LINES[2:3]])
    w.sites()
    words = w.table._plans[0][:PLAN_RECORDS].view(np.uint32)
    assert list(words[PLAN["undo"] // 4 :][:3]) == [0, 0, 4096]


def test_cheap_instructions_and_others_are_not_given_away(world: Any) -> None:
    assert world(LINES, 1.0).sites() == [SITE_REJECTED] * 4 + [0]
    lines = ["v_mfma_f32_4x4x4_16b_f16 a[60:63], v[2:3], v[4:5], a[60:63]", "v_mov_b32 v1, v2"]
    assert world(lines).sites() == [SITE_NOT_ELIGIBLE, 0, 0]


def test_accepted_and_rejected_plans_are_kept(world: Any) -> None:
    w = world(LINES)
    first = w.sites()
    assert w.sites() == first
    assert w.cache.statistics.plans_built == 4
    assert w.cache.statistics.plan_hits == 4


def test_unchanged_code_keeps_its_plans_through_an_invalidation(world: Any) -> None:
    w = world(LINES)
    first = w.sites()
    w.invalidate()  # nothing has changed
    w.cache.invalidate()  # another program has
    assert w.sites() == first
    assert w.cache.statistics.plans_built == 4
    assert w.cache.statistics.plan_revalidations == 4


def test_changed_code_rebuilds_just_the_plans_that_saw_it(world: Any) -> None:
    w = world([*LINES, *["s_nop 0"] * 8, *LINES])
    first = w.sites()
    changed = LINES[1].replace("v[2:5]", "a[0:3]")  # now depends on the first
    w.rewrite([LINES[0], changed, *LINES[2:], *["s_nop 0"] * 8, *LINES])
    second = w.sites()
    assert second[0] == SITE_REJECTED
    assert second[1] >= FIRST_PLAN and second[1] != first[1]
    assert second[12:] == first[12:]
    assert w.cache.statistics.plan_revalidations >= 4


def test_plans_differ_by_register_bound(world: Any) -> None:
    w = world(LINES)
    whole = w.cache.site(w.program, BASE, 512)
    part = w.cache.site(w.program, BASE, 256 + 32)
    assert {whole, part} == {FIRST_PLAN, FIRST_PLAN + 1}
    assert w.cache.site(w.program, BASE, 256 + 16) == SITE_REJECTED


def test_the_cache_is_bounded(world: Any) -> None:
    assert plan_cache.MAX_ENTRIES == MAX_PLANS == 16 << 10
    assert plan_cache.MAX_FOOTPRINTS == 64 << 10
    with mock.patch.object(plan_cache, "MAX_ENTRIES", 2), mock.patch.object(plan_cache, "MAX_FOOTPRINTS", 3):
        w = world(LINES)
        assert w.sites() == [FIRST_PLAN, FIRST_PLAN + 1, SITE_REJECTED, SITE_REJECTED, 0]
        assert len(w.cache._footprints) <= 3
        assert w.sites() == [FIRST_PLAN, FIRST_PLAN + 1, SITE_REJECTED, SITE_REJECTED, 0]


def test_changed_code_clears_the_sites(world: Any) -> None:
    w = world(LINES)
    w.program.notes.sites[:] = 3
    w.code[0] ^= 1
    w.program.refresh()
    assert not w.program.notes.sites.any()
