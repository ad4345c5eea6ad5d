"""How many launches of a machine may be under way at once, and waiting for them all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets at most `limit` launches in at a time. Closing it waits for those inside."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._inside = 0
        self._changed = threading.Condition()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For the time of one launch."""
        with self._changed:
            while self._inside >= self.limit:
                self._changed.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """For the time in which no launch may run."""
        with self._changed:
            while self._inside:
                self._changed.wait()
            yield
