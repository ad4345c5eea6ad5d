"""Starting worker processes: forked from a server that has everything imported already.

The server, and `multiprocess`'s resource tracker that comes with it, start with the first machine that has workers, and end
with the launcher, whose end closes the pipes that they read from. The server's end in turn kills the workers
(`die_with_server`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import multiprocess
from multiprocess import forkserver, resource_tracker
from multiprocess import process as processes
from multiprocess.connection import Connection

from rjemu.errors import WorkerLost
from rjemu.interrupts import ctrl_c_deferred
from rjemu.workers.entry import run_worker

if TYPE_CHECKING:
    from rjemu.workers.helper import HelperSetup
    from rjemu.workers.worker import Setup

_PRELOAD = ["rjemu.workers.worker", "rjemu.workers.helper"]
ANSWER_SECONDS = 5.0
"""How long the launcher's end of a connection waits for a worker that does not read, or has begun a message, at most."""

_LAUNCHERS_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP})

_PR_SET_PDEATHSIG = 1

_FILES_OF_A_START = 12
"""Files that the launcher has open at once while a worker starts, at most: two pipes, two sockets, what pickling opens."""

_lock = threading.Lock()
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def start_server() -> None:
    """Start the server, unless it runs, and do not wait for it: its imports take longer than all the rest of a start.
    WorkerLost if the host refuses."""
    with _lock, _refusals("the fork server"):
        multiprocess.get_context("forkserver").set_forkserver_preload(_PRELOAD)
        with _without_main_module():
            _ensure_server()


def _ensure_server() -> None:
    """Start the server and the resource tracker, if they do not run, deaf to the signals with which terminals and schedulers
    ask a whole group of processes to end: what they mean is for the launcher to decide, which may want to write a
    checkpoint first. Workers inherit that."""
    # Each start ends the blocking of some of them again.
    for ensure_running in (resource_tracker.ensure_running, forkserver.ensure_running):
        with _signals_blocked(), _launchers_search_path():
            ensure_running()


def start_worker(setup: Setup | HelperSetup) -> tuple[Any, Connection]:
    """A running worker or helper (a `multiprocess` process) and the launcher's end of its connection. WorkerLost if the
    host refuses."""
    context = multiprocess.get_context("forkserver")
    with _lock, _refusals(setup.name), _without_main_module(), ExitStack() as undo:
        context.set_forkserver_preload(_PRELOAD)
        _ensure_server()
        _try_files()
        here, there = context.Pipe()
        undo.callback(here.close)
        with there:
            _limit_waiting(here)
            arguments = pickle.dumps(setup), there
            process = context.Process(target=run_worker, args=arguments, name=f"rjemu {setup.name}", daemon=True)
            with _signals_blocked():  # the server would be left with half a message
                process.start()
        undo.pop_all()
        # `multiprocess` terminates the daemons that it knows of at exit, also at a forked child's, and keeps those that
        # nobody joins. Workers need neither: they end with their launcher, or when their machine is collected.
        processes._children.discard(process)
        _connections.add(here)
    return process, here


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """For a start: children inherit what is blocked, and Ctrl-C must not come in its middle."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LAUNCHERS_SIGNALS)
    try:
        with ctrl_c_deferred():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _try_files() -> None:
    """OSError if this process cannot open the files of a start: one that fails half-way would end the server, and with it
    all workers."""
    with ExitStack() as opened:
        for _ in range(_FILES_OF_A_START):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """What the host, or a server that has ended, answers to a start becomes a WorkerLost."""
    try:
        yield
    except (OSError, EOFError) as error:
        reason = "the fork server has ended" if isinstance(error, EOFError | ConnectionError) else str(error.strerror)
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            reason = f"the limit of open files (ulimit -n) is {limit}, and a machine takes three for each of its processes"
        if isinstance(error, FileNotFoundError):
            reason += " (has the current directory been removed?)"
        raise WorkerLost(f"{name} cannot be started: {reason}") from error


@contextmanager
def _launchers_search_path() -> Iterator[None]:
    """Have a process that starts find modules where this one does. It is a `python -c`, which would look into the current
    directory first: whatever lies there (a job's folder, of whoever) must not be run."""
    paths = os.pathsep.join(path or os.curdir for path in sys.path)
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    os.environ.update(PYTHONPATH=paths, PYTHONSAFEPATH="1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
