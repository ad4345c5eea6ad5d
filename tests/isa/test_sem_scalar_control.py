"""Branches, calls, divergent branches, and what takes a wave out of the loop."""

from __future__ import annotations

import itertools

import pytest
from support.scalar_runs import PC, run
from support.vector_runs import ALL_LANES

COND_DBG_USER, COND_DBG_SYS = 1 << 20, 1 << 21
TAKEN, NOT_TAKEN = PC + 4 + 4 * 10, PC + 4


@pytest.mark.parametrize(
    ("name", "state", "taken"),
    [
        ("scc0", {"scc": 0}, True),
        ("scc0", {"scc": 1}, False),
        ("scc1", {"scc": 0}, False),
        ("scc1", {"scc": 1}, True),
        ("vccz", {"vcc": 0}, True),
        ("vccz", {"vcc": 1 << 63}, False),
        ("vccnz", {"vcc": 0}, False),
        ("vccnz", {"vcc": 1}, True),
        ("execz", {"exec_mask": 0}, True),
        ("execz", {"exec_mask": 1 << 32}, False),
        ("execnz", {"exec_mask": 0}, False),
        ("execnz", {"exec_mask": 2}, True),
        *(
            (name, {"hardware": {"status": user | system}}, condition(bool(user), bool(system)))
            for user, system in itertools.product((0, COND_DBG_USER), (0, COND_DBG_SYS))
            for name, condition in (
                ("cdbguser", lambda u, s: u),
                ("cdbgsys", lambda u, s: s),
                ("cdbgsys_or_user", lambda u, s: u or s),
                ("cdbgsys_and_user", lambda u, s: u and s),
            )
        ),
    ],
)
def test_conditional_branches(name: str, state: dict, taken: bool) -> None:
    assert run(f"s_cbranch_{name} 10", **state).next_pc == (TAKEN if taken else NOT_TAKEN)


def test_branch_distances() -> None:
    assert run("s_branch 10").next_pc == TAKEN
    assert run("s_branch 65535").next_pc == PC
    assert run("s_branch 0x8000").next_pc == PC + 4 - 4 * 0x8000


def test_program_counter() -> None:
    target = 0x7F00_0001_2340
    out = run("s_getpc_b64 s[10:11]")
    assert (out.s64(10), out.next_pc) == (PC + 4, PC + 4)
    assert run("s_setpc_b64 s[20:21]", wide={20: target}).next_pc == target
    out = run("s_swappc_b64 s[10:11], s[20:21]", wide={20: target})
    assert (out.s64(10), out.next_pc) == (PC + 4, target)
    out = run("s_swappc_b64 s[20:21], s[20:21]", wide={20: target})
    assert (out.s64(20), out.next_pc) == (PC + 4, target)
    out = run("s_call_b64 s[10:11], 10")
    assert (out.s64(10), out.next_pc) == (PC + 4, TAKEN)


@pytest.mark.parametrize(
    ("text", "event", "payload"),
    [
        ("s_endpgm", "end", 0),
        ("s_endpgm_saved", "end", 0),
        ("s_barrier", "barrier", 0),
        ("s_sleep 5", "sleep", 5),
        ("s_trap 2", "trap", 2),
        ("s_sethalt 1", "halt", 0),
        ("s_sethalt 0", None, 0),
        ("s_setkill 1", "end", 0),
        ("s_setkill 0", None, 0),
        ("s_sendmsghalt sendmsg(MSG_INTERRUPT)", "halt", 0),
        ("s_icache_inv", "icache", 0),
        ("s_waitcnt vmcnt(0) lgkmcnt(0)", "yield", 0),
        ("s_rfe_b64 s[20:21]", "illegal", 0),
        ("s_rfe_restore_b64 s[20:21], s22", "illegal", 0),
    ],
)
def test_events(text: str, event: str | None, payload: int) -> None:
    out = run(text)
    assert (out.event, out.payload, out.next_pc) == (event, payload, PC + 4)


@pytest.mark.parametrize(
    "text",
    [
        "s_nop 3",
        "s_wakeup",
        "s_setprio 3",
        "s_sendmsg sendmsg(MSG_INTERRUPT)",
        "s_incperflevel 1",
        "s_decperflevel 1",
        "s_ttracedata",
    ],
)
def test_instructions_without_effect(text: str) -> None:
    before, after = run("s_nop 0"), run(text)
    assert (after.event, after.next_pc) == (None, PC + 4)
    assert (before.state.memory == after.state.memory).all()


def depth(mode: int) -> int:
    return mode >> 29


class TestForks:
    """s_cbranch_*_fork push the larger half of a divergent branch and go on with the smaller one; join pops it."""

    TARGET = 0x7F00_0000_8000

    def fork(self, mask: int, exec_mask: int):
        return run(
            "s_cbranch_g_fork s[20:21], s[30:31]", wide={20: mask, 30: self.TARGET}, exec_mask=exec_mask, mode=1 << 29
        )

    def test_all_lanes_agree(self) -> None:
        out = self.fork(ALL_LANES, 0xFF)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (self.TARGET, 0xFF, 1)
        out = self.fork(0xFF00, 0xFF)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (PC + 4, 0xFF, 1)

    def test_fewer_lanes_fail(self) -> None:
        out = self.fork(0x3F, 0xFF)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (PC + 4, 0xC0, 2)
        assert (out.s64(4), out.s64(6)) == (0x3F, self.TARGET)

    def test_fewer_lanes_pass(self) -> None:
        out = self.fork(0x03, 0xFF)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (self.TARGET, 0x03, 2)
        assert (out.s64(4), out.s64(6)) == (0xFC, PC + 4)

    def test_fork_to_a_label(self) -> None:
        out = run("s_cbranch_i_fork s[20:21], 10", wide={20: 1}, exec_mask=7, mode=0)
        assert (out.next_pc, out.exec, out.s64(0), out.s64(2)) == (TAKEN, 1, 6, PC + 4)

    def test_join_takes_the_pending_path(self) -> None:
        out = run("s_cbranch_join s20", {20: 1}, wide={4: 0xF0, 6: self.TARGET}, exec_mask=0x0F, mode=2 << 29)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (self.TARGET, 0xF0, 1)

    def test_join_goes_on_at_the_saved_depth(self) -> None:
        out = run("s_cbranch_join s20", {20: 1}, exec_mask=0x0F, mode=1 << 29)
        assert (out.next_pc, out.exec, depth(out.state.word("mode"))) == (PC + 4, 0x0F, 1)
