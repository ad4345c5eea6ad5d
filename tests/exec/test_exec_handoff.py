"""The scoreboard's protocol alone: jobs handed to helpers in other processes and joined, under stress."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from support.handoffs import child, handoff_text, issue, native, serve, serve_all, wake_all

from rjemu.exec.handoff import JOIN_LOST, JOINED, NOBODY
from rjemu.shm.scoreboard import HELPER_SLEEPS, POSTED, Scoreboard

PATIENCE_SECONDS = 20.0


@contextmanager
def board_of(helpers: int) -> Iterator[Scoreboard]:
    board = Scoreboard.create(helpers)
    try:
        yield board
    finally:
        board.close()


def wait_for_free(board: Scoreboard, count: int) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while board.free.bit_count() < count:
        assert time.monotonic() < limit, f"only {board.free.bit_count()} of {count} helpers are free"
        time.sleep(0.001)


def run_issuers(board: Scoreboard, issuers: int, jobs: int) -> int:
    """Issuers in processes of their own; gives the jobs that were run."""
    results = multiprocessing.get_context("fork").SimpleQueue()

    def body(seed: int) -> None:
        results.put(issue(Scoreboard.attach(board.segment.name), jobs, seed))

    with ExitStack() as children:
        for seed in range(issuers):
            children.enter_context(child(lambda seed=seed: body(seed)))
        return sum(results.get() for _ in range(issuers))


def stress(helpers: int, issuers: int, jobs: int, *, delay_mask: int, refuse: int = 0, spurious: bool = False) -> None:
    """No job is lost or run twice, every answer is right, and all helpers are free in the end."""
    native()
    with board_of(helpers) as board, ExitStack() as children:
        name = board.segment.name
        for half in (range(0, helpers, 2), range(1, helpers, 2)):
            children.enter_context(child(lambda half=half: serve_all(name, half, delay_mask, refuse)))
        if spurious:
            children.enter_context(child(lambda: wake_all(name)))
        wait_for_free(board, helpers)
        ran = run_issuers(board, issuers, jobs)
        wait_for_free(board, helpers)
        assert board.free == (1 << helpers) - 1
        assert sum(board.long(helper, "mmas") for helper in range(helpers)) == ran
        assert not any(board.word(helper, "state") & POSTED for helper in range(helpers))
        assert ran > 0


@pytest.mark.parametrize("helpers", [1, 64, 65, 128])
def test_pools_of_every_size(helpers: int) -> None:
    stress(helpers, issuers=2, jobs=8_000, delay_mask=0x3F)


def test_spurious_wakeups_and_refusals() -> None:
    stress(3, issuers=2, jobs=8_000, delay_mask=0x1FF, refuse=7, spurious=True)


def test_long_jobs_let_both_sides_sleep() -> None:
    stress(2, issuers=1, jobs=300, delay_mask=0x3FFF)


@pytest.mark.long
@pytest.mark.parametrize("helpers", [1, 2, 64, 65, 128])
@pytest.mark.parametrize("delay_mask", [0, 0x3F, 0x7FF])
def test_a_million_handoffs(helpers: int, delay_mask: int) -> None:
    stress(helpers, issuers=3, jobs=350_000, delay_mask=delay_mask, refuse=101, spurious=True)


@pytest.mark.parametrize("helpers", [1, 64, 65, 128])
def test_each_helper_is_taken_once(helpers: int) -> None:
    functions, _, _ = native()
    with board_of(helpers) as board:
        for helper in range(helpers):
            functions["give_back"](board.address, helper)
        taken = [functions["reserve"](board.address, 0, 37) for _ in range(helpers)]
        assert sorted(taken) == list(range(helpers))
        assert taken[0] == 0
        assert functions["reserve"](board.address, 5, 3) == NOBODY
        functions["give_back"](board.address, helpers - 1)
        assert functions["reserve"](board.address, 0, 0) == helpers - 1


def test_the_wished_helper_is_preferred() -> None:
    functions, _, _ = native()
    with board_of(128) as board:
        for helper in range(128):
            functions["give_back"](board.address, helper)
        assert [functions["reserve"](board.address, wish, 0) for wish in (77, 3, 77, 127)] == [77, 3, 64, 127]


def test_the_choice_rotates() -> None:
    functions, _, _ = native()
    with board_of(8) as board:
        for helper in range(1, 8):
            functions["give_back"](board.address, helper)
        assert [functions["reserve"](board.address, 0, turn) for turn in (5, 5, 7, 63)] == [5, 6, 7, 1]


def test_a_reservation_has_bounded_attempts() -> None:
    """Two compare-and-swaps for each word, and nothing that waits."""
    text = handoff_text()
    body = text[text.index("define i32 @reserve") :]
    body = body[: body.index("\n}\n")]
    assert body.count("cmpxchg") == 4
    assert body.count("load atomic") == 4
    assert "call" not in body.replace("call i64 @llvm.cttz.i64", "")


def test_a_sleeping_helper_is_woken() -> None:
    functions, _, _ = native()
    with board_of(1) as board:
        env = np.array([1, 0, 0, 0], np.uint64)
        helper = threading.Thread(target=serve, args=(board, 0, env))
        helper.start()
        limit = time.monotonic() + PATIENCE_SECONDS
        while not board.word(0, "state") & HELPER_SLEEPS:
            assert time.monotonic() < limit
            time.sleep(0.001)
        assert functions["reserve"](board.address, 0, 0) == 0
        board.set_long(0, "place", 14)
        assert functions["publish"](board.helper_address(0)) > 0
        functions["join"](board.helper_address(0))
        assert board.long(0, "undo") == 43
        functions["ring"](board.helper_address(0))
        helper.join(PATIENCE_SECONDS)
        assert not helper.is_alive()


def test_nobody_is_woken_who_does_not_sleep() -> None:
    """A job that is published before its helper looks costs no system call."""
    functions, _, _ = native()
    with board_of(1) as board:
        board.set_long(0, "place", 1)
        assert functions["publish"](board.helper_address(0)) == 0


def test_a_killed_helper_is_noticed_by_the_issuer() -> None:
    functions, _, _ = native()
    with board_of(1) as board:
        name = board.segment.name

        def blocked() -> None:
            mine = Scoreboard.attach(name)
            mine.set_word(0, "pid", os.getpid())
            serve(mine, 0, np.array([1, 0, 0, 1], np.uint64))

        pid = os.fork()
        if pid == 0:
            try:
                blocked()
            finally:
                os._exit(0)
        wait_for_free(board, 1)
        assert functions["reserve"](board.address, 0, 0) == 0
        functions["publish"](board.helper_address(0))
        statuses: list[int] = []
        issuer = threading.Thread(target=lambda: statuses.append(functions["join"](board.helper_address(0))))
        issuer.start()
        time.sleep(0.1)
        assert not statuses
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        issuer.join(PATIENCE_SECONDS)
        assert statuses and statuses[0] & JOIN_LOST


def test_a_stopped_helper_is_waited_for() -> None:
    functions, _, _ = native()
    with board_of(1) as board:
        name = board.segment.name
        with child(lambda: serve_all(name, [0], 0, 0)) as pid:
            wait_for_free(board, 1)
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            assert functions["reserve"](board.address, 0, 0) == 0
            board.set_long(0, "place", 2)
            functions["publish"](board.helper_address(0))
            statuses: list[int] = []
            issuer = threading.Thread(target=lambda: statuses.append(functions["join"](board.helper_address(0))))
            issuer.start()
            time.sleep(0.1)
            assert not statuses
            os.kill(pid, signal.SIGCONT)
            issuer.join(PATIENCE_SECONDS)
            assert [status & 3 for status in statuses] == [JOINED]
            assert board.long(0, "undo") == 7
