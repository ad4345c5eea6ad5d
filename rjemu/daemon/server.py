"""The daemon: takes connections, and gives each client a session with a machine of its own out of one quota of memory."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rjemu.config import MachineConfig
from rjemu.daemon.endpoint import listen, peer_of
from rjemu.daemon.protocol import BYE, PROTOCOL, RESULT, Channel, Request
from rjemu.daemon.session import Session
from rjemu.errors import ProtocolError, RjemuError, UsageError
from rjemu.shm.quota import MemoryQuota
from rjemu.vm.machine import Machine

MAX_CLIENTS = 32
"""By default. Each takes a machine's address space and file descriptors, and its workers once it launches."""

SPARE_CONNECTIONS = 16
"""Connections beside the clients': those that ask for the status, or have not said yet what they want."""

GREETING_SECONDS = 5.0
"""How long a connection may take to say what it wants."""

SEND_SECONDS = 10.0
"""How long a client may leave an answer lying before it is taken for dead."""

END_SECONDS = 15.0
"""How long sessions may take to end with the daemon."""

_TIMEVAL = struct.Struct("ll")

_log = logging.getLogger("rjemu.daemon")


class Daemon:
    """Serves machines of one configuration at a socket.

    source: the configuration's JSON, for clients to load. open_machine: called with `quota=` for each client's machine.
    """

    def __init__(
        self,
        path: Path,
        config: MachineConfig,
        source: dict[str, Any],
        open_machine: Callable[..., Machine],
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        """Listens; UsageError if it cannot, or a daemon lives there already."""
        self._config = config
        self._configuration = {"name": config.name, "source": source}
        self._open_machine = open_machine
        self._quota = MemoryQuota(config.vram_bytes, config.devices)
        self._max_clients = max_clients
        self._opened = time.monotonic()
        self._sessions: set[Session] = set()
        self._reserved = 0
        self._ending = False
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self.path = path
        self._listener = listen(path)
        self._inode = path.lstat().st_ino

    def serve(self) -> None:
        """Serve until SIGTERM or SIGINT. For the main thread."""
        with _signals() as stopped, selectors.DefaultSelector() as selector:
            self._listener.settimeout(0)
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(stopped, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if stopped in ready:
                    break
                self._accept()
            self.close()

    def close(self) -> None:
        """Take nobody any more, tell the clients, stop their launches, and release everything."""
        self._listener.close()
        with suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        with self._lock:
            self._ending = True
            sessions, threads = list(self._sessions), list(self._threads)
        for session in sessions:
            session.dismiss("the daemon has been ended")
        deadline = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def status(self) -> dict[str, Any]:
        """What the daemon serves, and to whom."""
        with self._lock:
            sessions = list(self._sessions)
        return {
            "pid": os.getpid(),
            "socket": str(self.path),
            "config": self._config.name,
            "target": self._config.target,
            "devices": self._config.devices,
            "seconds": time.monotonic() - self._opened,
            "memory_bytes": self._config.vram_bytes * self._config.devices,
            "max_clients": self._max_clients,
            "clients": [session.status() for session in sorted(sessions, key=lambda session: session.peer.pid)],
        }

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except BlockingIOError:  # it has gone again
            return
        except OSError as error:  # no file descriptors left, for instance
            _log.error("cannot take a connection: %s", error.strerror)
            time.sleep(0.1)
            return
        thread = threading.Thread(target=self._converse, args=(connected,), name="rjemu client", daemon=True)
        with self._lock:
            full = len(self._threads) >= self._max_clients + SPARE_CONNECTIONS
            if not full:
                self._threads.add(thread)
        if full:
            channel = Channel.of_daemon(connected)
            channel.say_farewell([0, BYE, "the daemon has more connections than it takes: more clients than it serves"])
            channel.close()
        else:
            thread.start()

    def _converse(self, connected: socket.socket) -> None:
        """A connection, from its greeting to its end."""
        channel = Channel.of_daemon(connected)
        try:
            connected.settimeout(GREETING_SECONDS)
            peer = peer_of(connected)
            if peer.uid not in (os.geteuid(), 0):
                raise UsageError(f"the daemon is user {os.geteuid()}'s, and serves nobody else")
            greeting = Request.parse(channel.receive())
            if greeting.fields.get("protocol") != PROTOCOL:
                raise ProtocolError(f"the daemon speaks version {PROTOCOL} of its protocol")
            if greeting.name == "status":
                channel.send([greeting.number, RESULT, self.status()])
            else:
                connected.settimeout(None)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(SEND_SECONDS), 0))
                with self._place():
                    self._serve(Session(channel, peer, self._open_machine(quota=self._quota)), greeting)
        except RjemuError as error:
            with suppress(OSError):
                channel.send([0, BYE, str(error)])
        except (EOFError, OSError):
            pass
        except Exception:
            _log.exception("a connection failed")
        finally:
            channel.close()
            with self._lock:
                self._threads.discard(threading.current_thread())

    @contextmanager
    def _place(self) -> Iterator[None]:
        """One of the places for clients; UsageError if all are taken."""
        with self._lock:
            if self._reserved == self._max_clients:
                raise UsageError(f"the daemon serves {self._max_clients} clients already, which is the most it takes")
            self._reserved += 1
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= 1

    def _serve(self, session: Session, greeting: Request) -> None:
        with self._lock:
            self._sessions.add(session)
            ending = self._ending
        if ending:
            session.dismiss("the daemon has been ended")
        try:
            session.serve(greeting, self._configuration)
        finally:
            with self._lock:
                self._sessions.discard(session)


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that can be read from when SIGTERM or SIGINT has come; neither ends the process meanwhile."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    before_fd = signal.set_wakeup_fd(there.fileno())
    try:
        yield here
    finally:
        signal.set_wakeup_fd(before_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        here.close()
        there.close()
