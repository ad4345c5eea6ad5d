"""Ctrl-C that has to wait, whichever thread the host gives the signal to."""

from __future__ import annotations

import signal
import threading

import pytest

from rjemu.interrupts import ctrl_c_deferred


def interrupt_from_another_thread() -> None:
    """The signal's handler runs in that thread, and Python calls its own in the main one."""
    thread = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    thread.start()
    thread.join()


@pytest.mark.parametrize("interrupt", [interrupt_from_another_thread, lambda: signal.raise_signal(signal.SIGINT)])
def test_it_comes_at_the_end_of_the_block(interrupt: object) -> None:
    assert callable(interrupt)
    steps = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_deferred():
        interrupt()
        steps.append("after it")
    assert steps == ["after it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_comes_where_nothing_came() -> None:
    with ctrl_c_deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ctrl_c_deferred():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_change_nothing() -> None:
    seen = []

    def run() -> None:
        with ctrl_c_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
