"""Starting worker processes: forked from a server that has everything imported already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import multiprocess
from multiprocess.connection import Connection

from rjemu.workers.worker import Setup, worker_main

_PRELOAD = ["rjemu.workers.worker"]
_LOCK = threading.Lock()


def start_worker(setup: Setup) -> tuple[Any, Connection]:
    """A running worker (a `multiprocess` process) and the launcher's end of its connection."""
    context = multiprocess.get_context("forkserver")
    with _LOCK, _without_main_module():
        context.set_forkserver_preload(_PRELOAD)
        here, there = context.Pipe()
        process = context.Process(target=worker_main, args=(setup, there), name=f"rjemu {setup.role.name}", daemon=True)
        process.start()
        there.close()
    return process, here


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
