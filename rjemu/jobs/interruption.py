"""Why a job shall end early: a signal, or its time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""What schedulers send before they kill, and Ctrl-C."""

SECOND_CTRL_C = 1.0
"""Seconds after which another Ctrl-C means that the user does not want to wait. `timeout` and shells may send one twice."""


class Interruption:
    """Looked at now and then by what can be interrupted; the handlers of signals only leave a note.

    time_limit: seconds from now on, None for none.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self._deadline = None if time_limit is None else time.monotonic() + time_limit
        self._signal: str | None = None
        self._noted = 0.0

    @property
    def reason(self) -> str | None:
        """The signal's name, or "the time limit"; None while nothing has happened."""
        if self._signal is None and self._deadline is not None and time.monotonic() >= self._deadline:
            return "the time limit"
        return self._signal

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """For the time of the block signals are noted, rather than that they end the process. In threads other than the main
        one, which cannot have handlers, only the time limit counts."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # A shell starts background jobs with Ctrl-C ignored: it is not meant for them.
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before: dict[int, Any] = {number: signal.signal(number, self._note) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._signal is None:
            self._signal, self._noted = signal.Signals(number).name, now
        elif number == signal.SIGINT and now - self._noted > SECOND_CTRL_C:
            raise KeyboardInterrupt
