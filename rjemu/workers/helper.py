"""A helper process: runs matrix instructions of other processes' waves (`rjemu.shm.scoreboard`).

What it needs, code and the segments that waves lie in, the launcher sends it. A job that comes before its code is refused,
and its issuer runs it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from multiprocess.connection import Connection

from rjemu.exec.engine import CLOCK, Runtime, aligned_bytes
from rjemu.exec.handler_table import HandlerTable
from rjemu.exec.journal import Entry
from rjemu.exec.layout import CREDIT_LIMIT, CTX, ENV, MAX_SEGMENTS
from rjemu.exec.trace import RING_BYTES, TraceRing
from rjemu.shm.scoreboard import Scoreboard
from rjemu.shm.segment import Segment
from rjemu.workers.affinity import pin
from rjemu.workers.start import die_with_server


@dataclass(frozen=True)
class HelperSetup:
    """What a helper needs to start. shared: its CPU is a worker's, or another helper's, too."""

    index: int
    cpu: int
    shared: bool
    runtime: bytes
    scoreboard: str
    plans: str

    @property
    def name(self) -> str:
        return f"helper {self.index}"

    def run(self, connection: Connection) -> None:
        """The life of the process."""
        helper_main(self, connection)


@dataclass(frozen=True, slots=True)
class NewCode:
    """Message: journal entries to apply."""

    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class NewWaves:
    """Message: waves of segment `number` lie in the named shared segment; "" if they are gone."""

    number: int
    segment: str


@dataclass(frozen=True, slots=True)
class NewTrace:
    """Message: record jobs in the helper's ring in the named shared segment; "": record nothing any more."""

    segment: str


Message = NewCode | NewWaves | NewTrace


class Helper:
    """The state of a helper process."""

    def __init__(self, setup: HelperSetup, connection: Connection) -> None:
        self._connection = connection
        self._board = Scoreboard.attach(setup.scoreboard)
        self._plans = Segment.attach(setup.plans)
        runtime = Runtime(setup.runtime, asynchronous=True)
        assert runtime.handoff is not None
        self._runtime, self._calls = runtime, runtime.handoff
        self._handlers = HandlerTable(runtime.undecoded)
        self._waves: dict[int, Segment] = {}
        self._bases = np.zeros(MAX_SEGMENTS, np.uint64)
        self._context = aligned_bytes(-(-CTX["end"] // 8) * 8)
        self._context.view(np.uint64)[CTX["clock"] // 8] = CLOCK
        self._trace: Segment | None = None
        self._env = np.zeros(ENV["end"] // 8, np.uint64)
        values = {
            "tables": self._handlers.table_addresses.ctypes.data,
            "plans": self._plans.address,
            "segments": self._bases.ctypes.data,
            "undecoded": runtime.undecoded,
            "context": self._context.ctypes.data,
        }
        for name, value in values.items():
            self._env[ENV[name] // 8] = value
        self._index = setup.index
        # What a helper takes from those that it shares a CPU with, its issuer does not see: it is to be tried seldom.
        self._first_credit = 0 if setup.shared else CREDIT_LIMIT
        self._slot = self._board.helper_address(setup.index)
        self._board.set_word(setup.index, "cpu", setup.cpu)
        self._board.set_word(setup.index, "pid", os.getpid())

    def serve(self) -> None:
        """Work until the launcher ends or says so."""
        # The first message holds the code that there is: before it, every job would be refused.
        self._apply(self._connection.recv())
        self._board.set_word(self._index, "lost", 0)
        self._board.set_long(self._index, "credit", self._first_credit)
        self._board.set_word(self._index, "ready", 1)
        self._calls.give_back(self._board.address, self._index)
        while True:
            self._calls.serve(self._slot, self._env.ctypes.data, traced=self._trace is not None)
            while self._connection.poll():
                self._apply(self._connection.recv())

    def _apply(self, message: Message) -> None:
        if isinstance(message, NewCode):
            for entry in message.entries:
                self._handlers.apply(entry)
            return
        if isinstance(message, NewTrace):
            self._record_in(message.segment)
            return
        old = self._waves.pop(message.number, None)
        self._bases[message.number] = 0
        if old is not None:
            old.close()
        if message.segment:
            try:
                segment = Segment.attach(message.segment)
            except FileNotFoundError:  # gone again already: another message says so
                return
            self._waves[message.number] = segment
            self._bases[message.number] = segment.address

    def _record_in(self, name: str) -> None:
        """Record jobs in the named segment from now on; in none if that is "", or gone again."""
        old, self._trace = self._trace, None
        if old is not None:
            old.close()
        if name:
            with suppress(FileNotFoundError):
                self._trace = Segment.attach(name)
        if self._trace is not None:
            ring = TraceRing(self._trace.bytes[self._index * RING_BYTES :][:RING_BYTES])
            self._context.view(np.uint64)[CTX["trace"] // 8] = ring.address


def helper_main(setup: HelperSetup, connection: Connection) -> None:
    """The entry point of a helper process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_server()
    setup = replace(setup, cpu=pin(setup.cpu))
    try:
        Helper(setup, connection).serve()
    except (EOFError, OSError):  # the launcher has ended, or has closed the machine
        return
