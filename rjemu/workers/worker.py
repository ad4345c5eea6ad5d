"""A worker process: an engine or a dispatch worker of a machine. It sleeps on the machine's doorbell, enters open
dispatches and runs their workgroups until none is left.

What it cannot do itself (decoding and compiling code that is met for the first time) it asks of the launcher, over its
connection; what it has learnt so far stands in the journal.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import psutil
from multiprocess.connection import Connection

from rjemu.errors import KernelFault
from rjemu.exec.engine import Engine, Runtime
from rjemu.exec.handlers import HandlerTable
from rjemu.exec.journal import DropProgram, Entry, NewProgram
from rjemu.exec.prepare import DispatchBlock
from rjemu.exec.runner import Runner
from rjemu.exec.slots import Slots
from rjemu.isa.instruction import Instruction
from rjemu.shm import futex
from rjemu.shm.segment import Segment
from rjemu.workers.control import OPEN, Control

IDLE_SECONDS = 0.25
"""How long a worker sleeps at most before it looks whether the launcher is still there."""

SPIN_SECONDS = 50e-6
"""How long it looks at the doorbell before it sleeps: a launch that follows another finds it awake."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Setup:
    """What a worker needs to start. own_xcds, own_xcd: it takes first the workgroups of XCDs x with
    x mod own_xcds == own_xcd."""

    index: int
    name: str
    cpu: int
    own_xcds: int
    own_xcd: int
    wave_size: int
    runtime: bytes
    control: str
    vram: str
    table: str
    waves: str


def share(resident: int, workers: int, place: int) -> tuple[int, int]:
    """(first, count): the slots of worker `place` when `workers` workers share `resident` of them."""
    whole, rest = divmod(resident, workers)
    return place * whole + min(place, rest), whole + (place < rest)


class LauncherGone(Exception):
    """The launcher has ended, or wants this worker to end."""


class RemoteCode:
    """The machine's code, seen from a worker: `exec.runner.Code` by questions to the launcher."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def program_of(self, pc: int) -> int | None:
        return self._worker.program_of(pc)

    def mode_class(self, mode_key: int) -> int:
        return int(self._worker.ask("mode_class", mode_key))

    def decode(self, pc: int, mode_class: int) -> bool:
        return bool(self._worker.ask("decode", pc, mode_class))

    def instruction(self, pc: int) -> Instruction:
        instr: Instruction = self._worker.ask("instruction", pc)
        return instr

    def text(self, pc: int) -> str:
        return str(self._worker.ask("text", pc))

    def nearest(self, address: int) -> str:
        return str(self._worker.ask("nearest", address))

    def refresh(self) -> None:
        self._worker.ask("refresh")


class Worker:
    """The state of a worker process."""

    def __init__(self, setup: Setup, connection: Connection) -> None:
        self._setup = setup
        self._connection = connection
        self._control = Control(Segment.attach(setup.control))
        self._record = self._control.workers[setup.index]
        self._vram = Segment.attach(setup.vram)
        self._table = Segment.attach(setup.table)
        self._waves = Segment.attach(setup.waves)
        self._runtime = Runtime(setup.runtime)
        self._handlers = HandlerTable(self._runtime.undecoded)
        self._engine = Engine(self._runtime, self._handlers, self._vram.address, self._table.address)
        self._applied = 0
        self._programs: dict[int, tuple[Segment, NewProgram]] = {}
        self._entered: dict[int, int] = {}

    # --- the launcher's side -----------------------------------------------------------------------------------------

    def ask(self, name: str, *arguments: Any) -> Any:
        """Have the launcher carry out a method of its codebook, and apply what the journal has gained. Raises what that
        raised."""
        self.tell("ask", name, arguments, self._applied)
        try:
            result, error, entries = self._connection.recv()
        except (EOFError, OSError) as gone:
            raise LauncherGone from gone
        for entry in entries:
            self._apply(entry)
        if error is not None:
            raise error
        return result

    def tell(self, *message: Any) -> None:
        """Send a message and ring for the launcher."""
        try:
            self._connection.send(message)
        except OSError as gone:
            raise LauncherGone from gone
        self._record.set_word("requests", self._record.word("requests") + 1)
        self._ring()

    def _ring(self) -> None:
        header = self._control.header
        self._runtime.exchange(header.field_address("attention"), (header.word("attention") + 1) & 0xFFFFFFFF)
        futex.wake(header.field_address("attention"))

    def _apply(self, entry: Entry) -> None:
        self._applied += 1
        if isinstance(entry, NewProgram):
            try:
                segment = Segment.attach(entry.segment)
            except FileNotFoundError:  # dropped again since: a later entry says so
                return
            self._programs[entry.index] = (segment, entry)
            self._engine.set_program(entry.index, segment.address, entry.base, entry.nbytes)
        elif isinstance(entry, DropProgram):
            if entry.index in self._programs:
                segment, _ = self._programs.pop(entry.index)
                self._engine.set_program(entry.index, 0, 0, 0)
                segment.close()
        else:
            self._handlers.apply(entry)

    def program_of(self, pc: int) -> int | None:
        """The index of the code range that holds an address."""
        for index, (_, entry) in self._programs.items():
            if entry.base <= pc < entry.base + entry.nbytes:
                return index
        return None

    # --- the loop ----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until the launcher ends or says so."""
        self._record.set_word("pid", os.getpid())
        self._record.set_word("cpu", self._setup.cpu)
        self._record.set_word("ready", 1)
        self._ring()
        header = self._control.header
        bell = header.field_address("doorbell")
        while True:
            seen = header.word("doorbell")
            slot = self._open_dispatch()
            if slot is not None:
                self._enter(slot)
                continue
            self._look_around()
            until = time.perf_counter() + SPIN_SECONDS
            while header.word("doorbell") == seen and time.perf_counter() < until:
                pass
            futex.wait(bell, seen, IDLE_SECONDS)

    def _look_around(self) -> None:
        """Raise LauncherGone if there is nobody left to work for."""
        if self._control.header.word("shutdown"):
            raise LauncherGone
        try:
            if self._connection.poll():
                self._connection.recv()
        except (EOFError, OSError) as gone:
            raise LauncherGone from gone

    def _open_dispatch(self) -> int | None:
        """A dispatch that this worker takes part in and has not been in yet."""
        for k, slot in enumerate(self._control.slots):
            if slot.word("state") != OPEN or self._entered.get(k) == slot.word("generation"):
                continue
            if slot.word("first_worker") <= self._setup.index < slot.word("last_worker"):
                return k
        return None

    def _enter(self, k: int) -> None:
        """Take part in the dispatch of slot k, unless it has closed meanwhile."""
        slot = self._control.slots[k]
        generation = slot.word("generation")
        self._entered[k] = generation
        self._runtime.exchange(self._record.field_address("active"), k + 1)
        try:
            if slot.word("state") == OPEN and slot.word("generation") == generation:
                self._take_part(k, generation)
        except KernelFault as fault:
            self.tell("fault", k, generation, fault)
        finally:
            self._runtime.exchange(self._record.field_address("active"), 0)
            self._ring()

    def _take_part(self, k: int, generation: int) -> None:
        slot = self._control.slots[k]
        started = time.monotonic_ns()
        self._record.set_long("started_ns", started)
        self._record.set_word("generation", generation)
        self._record.set_word("opened", 0)
        if slot.word("journal") > self._applied:
            self.ask("catch_up")
        block = DispatchBlock(self._control.dispatches[k])
        layout = block.long("waves_offset"), block.long("slot_stride")
        place = self._setup.index - slot.word("first_worker")
        first, count = share(slot.word("resident"), slot.word("last_worker") - slot.word("first_worker"), place)
        slots = Slots(self._waves.bytes, layout, count, self._setup.wave_size)
        slots.clear()
        self._engine.begin(self._setup.own_xcds, self._setup.own_xcd, first)
        runner = Runner(
            self._engine, RemoteCode(self), self._control.kernel_name(k), slot.word("lds_bytes"), block.address, slots
        )
        try:
            while not block.word("stop") and not runner.step():
                self._record.set_word("opened", self._engine.opened)
                self._look_around()
        finally:
            ended = time.monotonic_ns()
            self._record.set_long("workgroups", self._engine.long("workgroups_done"))
            self._record.set_long("instructions", self._engine.long("instructions_done"))
            self._record.set_long("busy_ns", ended - started)
            self._record.set_long("ended_ns", ended)


def worker_main(setup: Setup, connection: Connection) -> None:
    """The entry point of a worker process."""
    # Ctrl-C goes to the whole foreground group; the launcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    psutil.Process().cpu_affinity([setup.cpu])
    try:
        Worker(setup, connection).serve()
    except (LauncherGone, FileNotFoundError):
        return
