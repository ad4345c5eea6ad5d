"""Sending requests from a thread of its own: Ctrl-C interrupts the main thread only, and must not cut a frame in two."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue

from rjemu.daemon.protocol import Channel


class Sender:
    """Sends frames in the order in which they were posted. It ends with `finish`; a lost connection only loses frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._posted: SimpleQueue[tuple[int, bytes] | threading.Event | None] = SimpleQueue()
        self._sent: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="rjemu daemon requests", daemon=True)
        self._thread.start()

    def post(self, number: int, frame: bytes) -> None:
        """Have the frame of a request sent."""
        self._posted.put((number, frame))

    def has_gone(self, number: int) -> bool:
        """Whether a request is on its way, where `post` was interrupted and may or may not have done its work."""
        reached = threading.Event()
        self._posted.put(reached)
        reached.wait()
        return number in self._sent

    def forget(self, number: int) -> None:
        """A request has been answered."""
        self._sent.discard(number)

    def finish(self, seconds: float) -> None:
        """Wait until everything has been sent, at most so long, and end."""
        self._posted.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            item = self._posted.get()
            if item is None:
                return
            if isinstance(item, threading.Event):
                item.set()
                continue
            number, frame = item
            self._sent.add(number)
            with suppress(OSError):  # the connection has ended: the reading thread says how
                self._channel.send_frame(frame)
