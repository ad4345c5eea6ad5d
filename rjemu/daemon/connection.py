"""The client's end of a connection to a daemon: requests from any thread, and their answers."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rjemu.daemon.endpoint import reach
from rjemu.daemon.protocol import BYE, ERROR, PROGRESS, PROTOCOL, RESULT, Channel
from rjemu.daemon.sender import Sender
from rjemu.daemon.staging import Staging
from rjemu.daemon.values import decode_error
from rjemu.errors import DaemonGone, ForkedMachine, LaunchInterrupted, MachineClosed, ProtocolError, UsageError
from rjemu.vm.executor import Progress

END_SECONDS = 10.0
"""How long `close` waits for the daemon."""
LOOK_SECONDS = 0.25
"""How often a wait looks up: a signal that comes just before the main thread blocks in a lock does not wake it."""


class _Inbox:
    """The answers to one request. final: the kind and value of the last one, once it is there.

    Ctrl-C may take what a queue has just given and lose it, so that the queue only says that there is something new.
    """

    def __init__(self) -> None:
        self.final: tuple[str, Any] | None = None
        self._counts: Any = None
        self._news: SimpleQueue[None] = SimpleQueue()

    def put(self, kind: str, value: Any) -> None:
        if kind == PROGRESS:
            self._counts = value
        else:
            self.final = kind, value
        self._news.put(None)

    def watch(self, progress: Progress | None) -> tuple[str, Any]:
        """Wait for the last answer, and tell of progress meanwhile."""
        while True:
            final = self.final
            counts, self._counts = self._counts, None
            if counts is not None and progress is not None:
                progress(*counts)
            if final is not None:
                return final
            with suppress(Empty):
                self._news.get(timeout=LOOK_SECONDS)


class _Answers:
    """Where answers go: read by a thread of its own, which ends with the connection and keeps nothing else alive."""

    def __init__(self, channel: Channel, path: Path) -> None:
        self.gone: str | None = None
        self._channel = channel
        self._path = path
        self._inboxes: dict[int, _Inbox] = {}
        self._lock = threading.Lock()

    def expect(self, number: int) -> _Inbox:
        """Where the answers to a request will be. DaemonGone if there will be none."""
        inbox = _Inbox()
        with self._lock:
            if self.gone is not None:
                raise DaemonGone(self.gone)
            self._inboxes[number] = inbox
        return inbox

    def forget(self, number: int) -> None:
        with self._lock:
            self._inboxes.pop(number, None)

    def read(self) -> None:
        """Hand out answers until the connection ends, and then tell everybody who still waits."""
        reason = f"the daemon at {self._path} has ended"
        try:
            while True:
                number, kind, value = self._channel.receive()
                if kind == BYE:
                    reason = f"the daemon at {self._path} has ended the connection: {value}"
                    break
                inbox = self._inboxes.get(number)
                if inbox is not None:
                    inbox.put(kind, value)
        except (ProtocolError, TypeError, ValueError) as error:
            reason = f"the daemon at {self._path} is not understood: {error}"
        except (EOFError, OSError):
            pass
        with self._lock:
            self.gone = reason
            inboxes = list(self._inboxes.values())
        for inbox in inboxes:
            inbox.put(BYE, None)
        self._channel.close()


class Connection:
    """A connection that has been greeted. configuration: what the daemon says about its machine; staging: shared memory.

    It ends with `close`, or when it is collected.
    """

    def __init__(self, path: Path) -> None:
        """UsageError if no daemon can be reached there, or it takes no further client."""
        self.forked = False
        self._numbers = itertools.count(2)
        self._channel = Channel.of_client(reach(path))
        try:
            self.configuration, descriptor = greet(self._channel, "hello")
            self.staging = Staging.attach(descriptor)
        except BaseException:
            self._channel.close()
            raise
        self._answers = _Answers(self._channel, path)
        self._reader = threading.Thread(target=self._answers.read, name="rjemu daemon answers", daemon=True)
        self._reader.start()
        self._sender = Sender(self._channel)
        self._end = weakref.finalize(self, _drop, self._channel, self._sender)
        _live.add(self)

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more: closed, the daemon gone, or the parent's where this is a forked child."""
        return self.forked or not self._end.alive or self._answers.gone is not None

    def check_open(self, what: str) -> None:
        """MachineClosed, saying that `what` has been closed; DaemonGone; ForkedMachine in a forked child."""
        if self.forked:
            raise ForkedMachine.of(what)
        if not self._end.alive:
            raise MachineClosed(f"{what} has been closed")
        if self._answers.gone is not None:
            raise DaemonGone(self._answers.gone)

    def call(self, name: str, fields: Mapping[str, Any], progress: Progress | None = None) -> Any:
        """The answer to a request; raises the error that the daemon answers with, or as `check_open`.

        Interrupted, by Ctrl-C or by what `progress` raises, it has a launch stopped and waits until that is so.
        """
        self.check_open("the machine")
        number = next(self._numbers)
        frame = self._channel.encode([number, name, fields])
        inbox = self._answers.expect(number)
        interruption: BaseException | None = None
        try:
            try:
                self._sender.post(number, frame)
                kind, value = inbox.watch(progress)
            except BaseException as error:
                if not self._sender.has_gone(number):
                    raise
                interruption = error
                cancel = next(self._numbers)
                self._sender.post(cancel, self._channel.encode([cancel, "cancel", {"launch": number}]))
                self._sender.forget(cancel)
                kind, value = inbox.watch(None)
        finally:
            self._answers.forget(number)
            self._sender.forget(number)
        failure = decode_error(value) if kind == ERROR else None
        if isinstance(interruption, KeyboardInterrupt) and isinstance(failure, LaunchInterrupted):
            raise failure  # it says where the launch stood
        if interruption is not None:
            raise interruption
        if failure is not None:
            raise failure
        if kind == BYE:
            self.check_open("the machine")
        return value

    def close(self) -> None:
        """End the connection, and wait until the daemon has released what the client had."""
        if self._end.detach():
            self._sender.finish(END_SECONDS)
            self._channel.finish()
            self._reader.join(END_SECONDS)
            self._channel.shut_down()

    def _leave_to_parent(self) -> None:
        """In a forked child: the daemon must see the parent's end even if the child lives on."""
        self.forked = True
        self._end.detach()
        self._channel.socket.close()


def _drop(channel: Channel, sender: Sender) -> None:
    """End a connection that nobody has closed."""
    channel.shut_down()
    sender.finish(0)


def greet(channel: Channel, name: str) -> tuple[dict[str, Any], int | None]:
    """The answer to a first request, and the file descriptor that came with it. UsageError if the daemon refuses."""
    try:
        with suppress(OSError):  # the daemon may have said why before it hung up
            channel.send([1, name, {"protocol": PROTOCOL}])
        (_, kind, value), descriptor = channel.receive_with_descriptor()
    except (OSError, EOFError) as error:
        raise UsageError(f"the daemon has ended the connection: {error}") from error
    if kind != RESULT:
        raise UsageError(str(value))
    return value, descriptor


def daemon_status(path: Path) -> dict[str, Any]:
    """What the daemon at a path serves, and to whom (`Daemon.status`). UsageError if none can be reached."""
    channel = Channel.of_client(reach(path))
    try:
        return greet(channel, "status")[0]
    finally:
        channel.close()


_live: weakref.WeakSet[Connection] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for connection in list(_live):
        connection._leave_to_parent()
    _live.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)
