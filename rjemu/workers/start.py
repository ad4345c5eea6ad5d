"""Starting worker processes: forked from a server that has everything imported already.

The server, and `multiprocess`'s resource tracker that comes with it, start with the first machine that has workers, and end
with the launcher, whose end closes the pipes that they read from. The server's end in turn kills the workers
(`die_with_server`).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import multiprocess
from multiprocess import forkserver, resource_tracker
from multiprocess import process as processes
from multiprocess.connection import Connection

from rjemu.workers.entry import run_worker

if TYPE_CHECKING:
    from rjemu.workers.helper import HelperSetup
    from rjemu.workers.worker import Setup

_PRELOAD = ["rjemu.workers.worker", "rjemu.workers.helper"]
ANSWER_SECONDS = 5.0
"""How long the launcher's end of a connection waits for a worker that does not read, or has begun a message, at most."""

_LAUNCHERS_SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP})

_PR_SET_PDEATHSIG = 1

_lock = threading.Lock()
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def start_server() -> None:
    """Start the server, unless it runs, and do not wait for it: its imports take longer than all the rest of a start."""
    with _lock:
        multiprocess.get_context("forkserver").set_forkserver_preload(_PRELOAD)
        with _without_main_module():
            _ensure_server()


def _ensure_server() -> None:
    """Start the server and the resource tracker, if they do not run, deaf to the signals with which schedulers ask a whole
    group of processes to end: what they mean is for the launcher to decide, which may want to write a checkpoint first.
    Workers inherit that."""
    # Each start ends the blocking of some of them again.
    for ensure_running in (resource_tracker.ensure_running, forkserver.ensure_running):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _LAUNCHERS_SIGNALS)
        try:
            ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_worker(setup: Setup | HelperSetup) -> tuple[Any, Connection]:
    """A running worker or helper (a `multiprocess` process) and the launcher's end of its connection."""
    context = multiprocess.get_context("forkserver")
    with _lock, _without_main_module():
        context.set_forkserver_preload(_PRELOAD)
        _ensure_server()
        here, there = context.Pipe()
        _limit_waiting(here)
        arguments = pickle.dumps(setup), there
        process = context.Process(target=run_worker, args=arguments, name=f"rjemu {setup.name}", daemon=True)
        process.start()
        there.close()
        # `multiprocess` terminates the daemons that it knows of at exit, also at a forked child's, and keeps those that
        # nobody joins. Workers need neither: they end with their launcher, or when their machine is collected.
        processes._children.discard(process)
        _connections.add(here)
    return process, here


def _limit_waiting(connection: Connection) -> None:
    """Have `send` and `recv` raise BlockingIOError after ANSWER_SECONDS."""
    limit = struct.pack("ll", int(ANSWER_SECONDS), int(ANSWER_SECONDS % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def die_with_server() -> None:
    """In a worker: be killed as soon as the server ends, whatever the worker is doing (it may be stopped).

    The server ends when nobody holds its pipe any more, so that the worker must let go of it. Should the server have ended
    before, the launcher has ended, too, and the worker finds its connection closed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Hide the user's script while a process starts: the child would import it, and run what it does at its top level."""
    main = sys.modules["__main__"]
    missing = object()
    kept = {name: main.__dict__.pop(name, missing) for name in ("__spec__", "__file__")}
    main.__dict__["__spec__"] = None
    try:
        yield
    finally:
        del main.__dict__["__spec__"]
        main.__dict__.update({name: value for name, value in kept.items() if value is not missing})


def _leave_to_parent() -> None:
    """In a forked child: the workers and their server are the parent's, and no pipe of theirs may stay open for it."""
    global _lock
    _lock = threading.Lock()
    for connection in list(_connections):
        connection.close()
    _connections.clear()
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server.__init__()


os.register_at_fork(after_in_child=_leave_to_parent)
