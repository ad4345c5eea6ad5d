"""Issuers and helpers of the scoreboard's protocol in threads and processes of their own, for stress tests.

The helpers' work is a test's: it runs for a random while, counts itself in the slot, and answers the slot's `place` with
3 * place + 1 in the results.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from rjemu.exec.compiler import Loader, compile_object, host_features
from rjemu.exec.handoff import JOIN_LOST, JOIN_REFUSED, NOBODY, SERVE_BELL, write_handoff
from rjemu.exec.host_calls import HostCalls
from rjemu.exec.ir import Module, Ptr
from rjemu.exec.layout import HANDOFF_FUNCTIONS
from rjemu.exec.structures import Native
from rjemu.shm import futex
from rjemu.shm.scoreboard import HELPER, REFUSED, Scoreboard

ENV_WORDS = 4
"""u64: random state, mask of the delay's length in pauses, refuse every n-th job, block while not 0."""


def handoff_text() -> str:
    module = Module(host_features())
    write_handoff(module)
    _write_work(module)
    return module.text()


def _write_work(module: Module) -> None:
    b = Native(module, 1)
    host = HostCalls(b)
    env, slot = Ptr("%env"), Ptr("%slot")
    seed, mask, refuse, block = (b.offset(env, 8 * k) for k in range(ENV_WORDS))
    with b.loop():
        b.break_if(b.load_atomic(block, "u64") == 0)
        host.pause()
    random_ = b.load_value(seed, "u64") * 6364136223846793005 + 1442695040888963407
    b.store_value(seed, random_)
    left = b.variable("u64", (random_ >> 33) & b.load_value(mask, "u64"))
    with b.loop():
        b.break_if(left.get() == 0)
        left.set(left.get() - 1)
        host.pause()
    every = b.load_value(refuse, "u64")
    with b.if_(every != 0):
        _, rest = b.divide(random_ >> 33, every)
        with b.if_(rest == 0):
            b.ret(b.const("u32", REFUSED))
    b.add_to(slot, HELPER, "mmas")
    b.put(slot, HELPER, "undo", b.get(slot, HELPER, "place", "u64") * 3 + 1)
    b.ret(b.const("u32", 0))
    b.finish("work", "i32", "ptr %env, ptr %slot")


@cache
def native() -> tuple[dict[str, Any], int, Loader]:
    """(the functions by name, address of `work`, what keeps them loaded)."""
    loader = Loader()
    addresses = loader.load(compile_object(handoff_text(), opt=2, optimise=True), [*HANDOFF_FUNCTIONS, "work"])
    word, long, ptr = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    kinds = {
        "reserve": (word, ptr, word, word), "give_back": (None, ptr, word), "publish": (long, ptr), "join": (word, ptr),
        "serve": (word, ptr, ptr, ptr), "round_trips": (long, ptr, long), "ring": (None, ptr), "ticks": (long,),
    }  # fmt: skip
    functions = {name: ctypes.CFUNCTYPE(*kind)(addresses[name]) for name, kind in kinds.items()}
    return functions, addresses["work"], loader


def serve(board: Scoreboard, helper: int, env: np.ndarray) -> None:
    """Be a helper until the bell rings."""
    functions, work, _ = native()
    functions["give_back"](board.address, helper)
    while functions["serve"](board.helper_address(helper), work, env.ctypes.data) != SERVE_BELL:
        pass


def issue(board: Scoreboard, jobs: int, seed: int) -> int:
    """Be an issuer of so many jobs, up to eight at a time, joined in random order; gives those that helpers ran.
    AssertionError for a wrong answer."""
    functions, _, _ = native()
    rng = random.Random(seed)
    pending: list[tuple[int, int]] = []
    ran = 0

    def join_one() -> int:
        helper, place = pending.pop(rng.randrange(len(pending)))
        status = functions["join"](board.helper_address(helper))
        assert not status & JOIN_LOST
        if not status & JOIN_REFUSED:
            assert board.long(helper, "undo") == (3 * place + 1) % (1 << 64)
        functions["give_back"](board.address, helper)
        return 0 if status & JOIN_REFUSED else 1

    for _ in range(jobs):
        helper = functions["reserve"](board.address, rng.randrange(board.helpers), rng.randrange(64))
        if helper == NOBODY:
            if pending:
                ran += join_one()
            continue
        place = rng.getrandbits(64)
        board.set_long(helper, "place", place)
        functions["publish"](board.helper_address(helper))
        pending.append((helper, place))
        while len(pending) > rng.randrange(9):
            ran += join_one()
    while pending:
        ran += join_one()
    return ran


@contextmanager
def child(body: Callable[[], None]) -> Iterator[int]:
    """A forked process that runs `body`; it is killed at the end. Gives its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def serve_all(name: str, helpers: Sequence[int], delay_mask: int, refuse: int) -> None:
    """In a child: helpers in threads."""
    board = Scoreboard.attach(name)
    threads = []
    for helper in helpers:
        board.set_word(helper, "pid", os.getpid())
        env = np.array([helper + 1, delay_mask, refuse, 0], np.uint64)
        threads.append(threading.Thread(target=serve, args=(board, helper, env)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wake_all(name: str) -> None:
    """In a child: spurious wake-ups on every state word, for ever."""
    board = Scoreboard.attach(name)
    while True:
        for helper in range(board.helpers):
            futex.wake(board.helper_address(helper))
