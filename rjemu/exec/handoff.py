"""The native side of the scoreboard (`rjemu.shm.scoreboard`): how issuers and helpers pass a job to and fro.

    i32 reserve(board, prefer, turn)    take a free helper, `prefer` if it is free: its number, or -1. Never waits: two loads
                                        find an exhausted pool, and at most two compare-and-swaps are tried for each word
    void release(board, helper)         give it back
    i64 publish(slot)                   hand over the job that the slot holds; ticks that it took to wake the helper, 0 if
                                        that was awake
    i32 join(slot)                      wait until the helper is through: JOINED, JOIN_REFUSED, JOIN_LOST; + JOIN_SLEPT
    i32 serve(slot, work, env)          a helper's loop: calls work(env, slot), which gives 0 or REFUSED, for each job;
                                        returns for the bell or after some time without work
    i64 round_trips(slot, n)            hand over the same job n times

Both sides look SPINS times before they sleep on the state word.
"""

from __future__ import annotations

from rjemu.exec.host_calls import HostCalls
from rjemu.exec.ir import Module, Ptr
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value
from rjemu.shm.scoreboard import BELL, HEADER, HELPER, HELPER_SLEEPS, ISSUER_SLEEPS, POSTED, REFUSED

SPINS = 512
JOINED, JOIN_REFUSED, JOIN_LOST, JOIN_SLEPT = 0, 1, 2, 4
SERVE_BELL, SERVE_IDLE = 0, 1
NOBODY = (1 << 32) - 1
"""What `reserve` gives when no helper is free."""

_IDLE_NANOSECONDS = 250_000_000
_LOOK_NANOSECONDS = 20_000_000
"""How long an issuer sleeps before it looks whether its helper is alive."""
_WORD_ATTEMPTS = 2


def write_handoff(module: Module) -> None:
    """Add the functions to a module."""
    _write_reserve(module)
    _write_give_back(module)
    _write_publish(module)
    _write_join(module)
    _write_serve(module)
    _write_round_trips(module)
    _write_ring(module)
    b = Native(module, 1)
    b.ret(HostCalls(b).ticks())
    b.finish("ticks", "i64", "")


def _write_reserve(module: Module) -> None:
    b = Native(module, 1)
    board, prefer, turn = Ptr("%board"), b.argument("prefer"), b.argument("turn")
    first = prefer >> 6 & 1
    for number in (first, first ^ 1):
        word = b.offset(board, number.to("u64") * (HEADER["free_high"] - HEADER["free"]))
        wished = b.select(number == prefer >> 6, b.const("u64", 1) << (prefer & 63).to("u64"), b.const("u64", 0))
        with b.loop():
            for _ in range(_WORD_ATTEMPTS):
                free = b.load_atomic(word, "u64", "seq_cst")
                b.break_if(free == 0)
                bit = _choose(b, free, wished, turn)
                _, taken = b.compare_exchange(word, free, free ^ bit)
                with b.if_(taken):
                    b.ret((number << 6) + b.ctz(bit).to("u32"))
            b.break_if(free == free)
    b.ret(b.const("u32", NOBODY))
    b.finish("reserve", "i32", "ptr %board, i32 %prefer, i32 %turn")


def _choose(b: Native, free: Value, wished: Value, turn: Value) -> Value:
    """One bit of `free`: the wished one, or the next from bit `turn` on."""
    above = free & (b.const("u64", (1 << 64) - 1) << (turn & 63).to("u64"))
    candidates = b.select(above == 0, free, above)
    following = candidates & (b.const("u64", 0) - candidates)
    return b.select((free & wished) == 0, following, wished)


def _write_give_back(module: Module) -> None:
    b = Native(module, 1)
    helper = b.argument("helper")
    word = b.offset(Ptr("%board"), (helper >> 6).to("u64") * (HEADER["free_high"] - HEADER["free"]))
    b.atomic_rmw("or", word, b.const("u64", 1) << (helper & 63).to("u64"))
    b.ret()
    b.finish("give_back", "void", "ptr %board, i32 %helper")


def _write_publish(module: Module) -> None:
    b = Native(module, 1)
    state = b.field(Ptr("%slot"), HELPER, "state")
    before = b.atomic_rmw("add", state, b.const("u32", POSTED))
    woken = b.variable("u64", 0)
    with b.if_((before & HELPER_SLEEPS) != 0, rarely=True):
        host = HostCalls(b)
        started = host.ticks()
        host.wake(state)
        woken.set(host.ticks() - started | 1)
    b.ret(woken.get())
    b.finish("publish", "i64", "ptr %slot")


def _write_join(module: Module) -> None:
    b = Native(module, 1)
    host = HostCalls(b)
    slot = Ptr("%slot")
    state = b.field(slot, HELPER, "state")
    slept = b.variable("u32", 0)
    turns = b.variable("u32", SPINS)
    with b.loop():
        now = b.load_atomic(state, "u32", "seq_cst")
        with b.if_((now & POSTED) == 0):
            with b.if_((now & REFUSED) != 0, rarely=True):
                b.atomic_rmw("and", state, b.const("u32", ~REFUSED & 0xFFFFFFFF))
                b.ret(slept.get() | JOIN_REFUSED)
            b.ret(slept.get() | JOINED)
        with b.if_(turns.get() != 0):
            turns.set(turns.get() - 1)
            host.pause()
        with b.if_(turns.get() == 0, rarely=True):
            slept.set(JOIN_SLEPT)
            announced = now | ISSUER_SLEEPS
            _, done = b.compare_exchange(state, now, announced)
            with b.if_(done):
                result = host.wait(state, announced, _LOOK_NANOSECONDS)
                lost = (result != 0) & host.gone(b.get(slot, HELPER, "pid"))
                with b.if_(lost, rarely=True):
                    # It may have finished just before it died.
                    last = b.load_atomic(state, "u32", "seq_cst")
                    with b.if_((last & POSTED) != 0):
                        b.ret(b.const("u32", JOIN_LOST | JOIN_SLEPT))
    b.terminate("unreachable")
    b.finish("join", "i32", "ptr %slot")


def _write_serve(module: Module) -> None:
    b = Native(module, 1)
    host = HostCalls(b)
    slot, env = Ptr("%slot"), Ptr("%env")
    state = b.field(slot, HELPER, "state")
    turns = b.variable("u32", SPINS)
    with b.loop():
        now = b.load_atomic(state, "u32", "seq_cst")
        posted = (now & POSTED) != 0
        with b.if_(posted):
            started = host.ticks()
            refused = b.invoke("%work", "u32", [env, slot])
            b.add_to(slot, HELPER, "busy_ticks", host.ticks() - started)
            b.add_to(slot, HELPER, "jobs")
            _finish_job(b, host, state, refused)
            turns.set(SPINS)
        with b.if_(posted ^ True):
            with b.if_((now & BELL) != 0, rarely=True):
                b.atomic_rmw("and", state, b.const("u32", ~BELL & 0xFFFFFFFF))
                b.ret(b.const("u32", SERVE_BELL))
            turns.set(turns.get() - 1)
            host.pause()
            with b.if_(turns.get() == 0, rarely=True):
                _sleep_until_posted(b, host, slot, state, now)
                turns.set(SPINS)
    b.terminate("unreachable")
    b.finish("serve", "i32", "ptr %slot, ptr %work, ptr %env")


def _finish_job(b: Native, host: HostCalls, state: Ptr, refused: Value) -> None:
    """Give the job back: clear POSTED and both sides' sleep bits, and wake the issuer if it sleeps."""
    with b.if_(refused != 0, rarely=True):
        b.atomic_rmw("or", state, b.const("u32", REFUSED))
    before = b.atomic_rmw("and", state, b.const("u32", BELL | REFUSED))
    with b.if_((before & ISSUER_SLEEPS) != 0, rarely=True):
        host.wake(state)


def _sleep_until_posted(b: Native, host: HostCalls, slot: Ptr, state: Ptr, now: Value) -> None:
    """Sleep unless the word has changed; leave `serve` if nothing came for long."""
    announced = now | HELPER_SLEEPS
    _, done = b.compare_exchange(state, now, announced)
    with b.if_(done):
        result = host.wait(state, announced, _IDLE_NANOSECONDS)
        unchanged = b.load_atomic(state, "u32", "seq_cst") == announced
        with b.if_(unchanged & (result != 0)):
            b.ret(b.const("u32", SERVE_IDLE))
        b.add_to(slot, HELPER, "wakeups")


def _write_round_trips(module: Module) -> None:
    b = Native(module, 1)
    slot = Ptr("%slot")
    with b.count(b.argument("n", "u64")):
        b.invoke("@publish", "u64", [slot])
        b.invoke("@join", "u32", [slot])
    b.ret(b.const("u64", 0))
    b.finish("round_trips", "i64", "ptr %slot, i64 %n")


def _write_ring(module: Module) -> None:
    """void ring(slot): have the helper leave `serve`."""
    b = Native(module, 1)
    state = b.field(Ptr("%slot"), HELPER, "state")
    b.atomic_rmw("or", state, b.const("u32", BELL))
    HostCalls(b).wake(state)
    b.ret()
    b.finish("ring", "void", "ptr %slot")
