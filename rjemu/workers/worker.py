"""A worker process: an engine or a dispatch worker of a machine. It sleeps on its bell, enters the dispatches that it is
invited to, and runs their workgroups until none is left; it takes turns among several dispatches.

What it cannot do itself (decoding and compiling code that is met for the first time) it asks of the launcher, over its
connection; what it has learnt so far stands in the journal.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from multiprocess.connection import Connection

from rjemu.errors import KernelFault
from rjemu.exec.engine import Engine, Runtime
from rjemu.exec.handler_table import HandlerTable
from rjemu.exec.journal import DropProgram, Entry, NewProgram
from rjemu.exec.layout import RECORD_BYTES
from rjemu.exec.plans import note_addresses
from rjemu.exec.runner import PAUSE_SECONDS
from rjemu.exec.trace import WAIT
from rjemu.isa.instruction import Instruction
from rjemu.shm import futex
from rjemu.shm.segment import Segment
from rjemu.workers.affinity import pin
from rjemu.workers.control import DISPATCH_SLOTS, OPEN, Control, Record, sleep_group
from rjemu.workers.part import Part, resident_slots
from rjemu.workers.roles import Role
from rjemu.workers.start import die_with_server
from rjemu.workers.tracing import WorkerTrace

WAVES_BYTES = 4 << 30
"""Address space for a worker's resident workgroups of one dispatch; memory is taken only where it is used."""

KEPT_BYTES = 64 << 20
"""What of it keeps its memory from dispatch to dispatch."""

IDLE_SECONDS = 0.25
"""How long a worker sleeps at most before it looks whether the launcher is still there."""

SPIN_SECONDS = 50e-6
"""How long it looks at its bell before it sleeps: a launch that follows another finds it awake."""

TURN_SECONDS = 0.004
"""How long a dispatch has the worker for itself where it is in several."""


@dataclass(frozen=True)
class HelperLinks:
    """Where a machine's helpers are reached: the names of the scoreboard's and the plans' segments; window: see
    `Engine.connect`."""

    scoreboard: str
    plans: str
    window: int


@dataclass(frozen=True)
class Setup:
    """What a worker needs to start."""

    index: int
    role: Role
    cpu: int
    wave_size: int
    runtime: bytes
    counting: bool
    notifying: bool
    control: str
    vram: str
    table: str
    waves: str
    wave_segment: int
    links: HelperLinks | None

    @property
    def name(self) -> str:
        return self.role.name

    def run(self, connection: Connection) -> None:
        """The life of the process."""
        worker_main(self, connection)


class LauncherGone(Exception):
    """The launcher has ended, or wants this worker to end."""


def owner_of(worker: int) -> int:
    """The number by which the scoreboard knows a worker."""
    return worker + 1


def wave_memory(waves: Segment, k: int) -> np.ndarray:
    """uint8 [WAVES_BYTES]: a worker's wave memory for dispatch slot k."""
    return waves.bytes[k * WAVES_BYTES : (k + 1) * WAVES_BYTES]


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A program as this process has it: its records' segment, and that of its notes where there are helpers."""

    entry: NewProgram
    segment: Segment
    notes: Segment | None

    def enter(self, engine: Engine) -> None:
        """Let an engine execute it."""
        entry, notes = self.entry, (0, 0)
        if self.notes is not None:
            notes = note_addresses(self.notes, self.segment.size // RECORD_BYTES)
        engine.set_program(entry.index, self.segment.address, entry.base, entry.nbytes, notes)

    def close(self) -> None:
        self.segment.close()
        if self.notes is not None:
            self.notes.close()


class RemoteCode:
    """The machine's code, seen from a worker in the dispatch of slot k: `exec.runner.Code` by questions to the launcher."""

    def __init__(self, worker: Worker, k: int) -> None:
        self._worker = worker
        self._k = k

    def program_of(self, pc: int) -> int | None:
        return self._worker.program_of(pc)

    def mode_class(self, mode_key: int) -> int:
        return int(self._worker.ask(self._k, "mode_class", mode_key))

    def decode(self, pc: int, mode_class: int) -> bool:
        return bool(self._worker.ask(self._k, "decode", pc, mode_class))

    def instruction(self, pc: int) -> Instruction:
        instr: Instruction = self._worker.ask(self._k, "instruction", pc)
        return instr

    def text(self, pc: int) -> str:
        return str(self._worker.ask(self._k, "text", pc))

    def nearest(self, address: int) -> str:
        return str(self._worker.ask(self._k, "nearest", address))

    def refresh(self) -> None:
        self._worker.ask(self._k, "refresh")

    def start_helpers(self) -> None:
        self._worker.ask(self._k, "start_helpers")


class Worker:
    """The state of a worker process."""

    def __init__(self, setup: Setup, connection: Connection) -> None:
        self._setup = setup
        self._connection = connection
        self._control = Control(Segment.attach(setup.control))
        self._record = self._control.workers[setup.index]
        self._part_records = [self._control.part(setup.index, k) for k in range(DISPATCH_SLOTS)]
        self._vram = Segment.attach(setup.vram)
        self._table = Segment.attach(setup.table)
        self._waves = Segment.attach(setup.waves)
        self._wave_memories = [wave_memory(self._waves, k) for k in range(DISPATCH_SLOTS)]
        self._runtime = Runtime(
            setup.runtime, asynchronous=setup.links is not None, counting=setup.counting, notifying=setup.notifying
        )
        self._scoreboard = None if setup.links is None else Segment.attach(setup.links.scoreboard)
        self._plans = None if setup.links is None else Segment.attach(setup.links.plans)
        self._handlers = HandlerTable(self._runtime.undecoded)
        self._engines: list[Engine] = []
        self._idle_engines: list[Engine] = []
        self._trace = WorkerTrace(self._control, setup.index)
        self._applied = 0
        self._programs: dict[int, _Mapped] = {}
        self._entered: dict[int, int] = {}
        self._parts: dict[int, Part] = {}

    # --- the launcher's side -----------------------------------------------------------------------------------------

    def ask(self, k: int, name: str, *arguments: Any) -> Any:
        """Have the launcher's thread of dispatch slot k carry out a method of its codebook, and apply what the journal has
        gained. Raises what that raised."""
        self.tell(k, "ask", name, arguments, self._applied)
        try:
            result, error, entries = self._connection.recv()
        except (EOFError, OSError) as gone:
            raise LauncherGone from gone
        for entry in entries:
            self._apply(entry)
        if error is not None:
            raise error
        return result

    def tell(self, k: int, *message: Any) -> None:
        """Ring for the launcher's thread of slot k and send a message. In this order: what does not fit into the connection
        must be read while it is being sent."""
        self._record.set_word("requests", self._record.word("requests") + 1)
        self._ring(self._control.slots[k])
        try:
            self._connection.send(message)
        except OSError as gone:
            raise LauncherGone from gone

    def _ring(self, record: Record) -> None:
        """Wake the launcher's thread that sleeps on a record's `attention`."""
        address = record.field_address("attention")
        self._runtime.increment(address)
        futex.wake(address)

    def _apply(self, entry: Entry) -> None:
        self._applied += 1
        if isinstance(entry, NewProgram):
            try:
                segment = Segment.attach(entry.segment)
                notes = Segment.attach(entry.notes) if entry.notes else None
            except FileNotFoundError:  # dropped again since: a later entry says so
                return
            mapped = self._programs[entry.index] = _Mapped(entry, segment, notes)
            for engine in self._engines:
                mapped.enter(engine)
        elif isinstance(entry, DropProgram):
            if entry.index in self._programs:
                mapped = self._programs.pop(entry.index)
                for engine in self._engines:
                    engine.set_program(entry.index, 0, 0, 0)
                mapped.close()
        else:
            self._handlers.apply(entry)

    def program_of(self, pc: int) -> int | None:
        """The index of the code range that holds an address."""
        for index, mapped in self._programs.items():
            if mapped.entry.base <= pc < mapped.entry.base + mapped.entry.nbytes:
                return index
        return None

    # --- the loop ----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until the launcher ends or says so."""
        self._record.set_word("pid", os.getpid())
        self._record.set_word("cpu", self._setup.cpu)
        self._record.set_word("ready", 1)
        self._ring(self._control.header)
        while True:
            bell = self._record.word("bell")
            self._join()
            if self._parts:
                self._take_turns(bell)
            else:
                self._sleep(bell)

    def _take_turns(self, bell: int) -> None:
        """Let every dispatch that the worker is in go on for a while, the less the more there are."""
        seconds = PAUSE_SECONDS if len(self._parts) == 1 else TURN_SECONDS
        for part in list(self._parts.values()):
            part.engine.heard(bell)
            try:
                over = part.step(seconds)
            except KernelFault as fault:
                self.tell(part.k, "fault", part.k, part.generation, fault)
                over = True
            if over:
                self._leave(part)
        if self._parts:
            self._look_around()

    def _sleep(self, bell: int) -> None:
        """Until the bell rings, or it is time to look around."""
        until = time.perf_counter() + SPIN_SECONDS
        while time.perf_counter() < until:
            if self._record.word("bell") != bell:
                return
            os.sched_yield()  # the launcher may be on this CPU
        if self._control.header.word("shutdown"):  # the bell has rung for it before this sleep
            raise LauncherGone
        ring = self._trace.ring()
        began = time.monotonic_ns()
        header = self._control.header
        doorbell = header.word("doorbell")
        if self._record.word("bell") == bell:
            group = sleep_group(self._setup.index)
            futex.wait_in_group(header.field_address("doorbell"), doorbell, IDLE_SECONDS, group)
        if ring is not None:
            ring.append(WAIT, 0, 0, began, time.monotonic_ns())
        if self._record.word("bell") == bell:
            self._look_around()

    def _look_around(self) -> None:
        """Raise LauncherGone if there is nobody left to work for."""
        if self._control.header.word("shutdown"):
            raise LauncherGone
        try:
            if self._connection.poll():
                self._connection.recv()
        except (EOFError, OSError) as gone:
            raise LauncherGone from gone

    def _join(self) -> None:
        """Enter what the worker is invited to and has not been in yet."""
        invited = self._record.word("invited")
        for k in range(DISPATCH_SLOTS):
            if invited >> k & 1:
                generation = self._control.slots[k].word("generation")
                if self._entered.get(k) != generation:
                    self._enter(k, generation)

    def _enter(self, k: int, generation: int) -> None:
        """Take part in the dispatch of slot k, unless it is not open yet (the bell will ring) or not any more, or by now
        another one, which is for other workers."""
        slot = self._control.slots[k]
        self._set_active(self._record.word("active") | 1 << k)
        open_to_me = slot.word("state") == OPEN and slot.places[self._setup.index]
        if not open_to_me or slot.word("generation") != generation:
            self._set_inactive(k)
            return
        self._entered[k] = generation
        if slot.word("journal") > self._applied:
            self.ask(k, "catch_up")
        engine = self._idle_engines.pop() if self._idle_engines else self._new_engine()
        first, slots = resident_slots(slot, self._setup.index, self._wave_memories[k], self._setup.wave_size)
        own, mine = self._setup.role.own_xcds(slot.word("device"), slot.block.word("xcds"))
        engine.begin(own, mine, first, max(self._part_records[k].word("opened"), 1))
        ring = self._trace.ring() if slot.word("launch") else None

        def issued(entries: np.ndarray) -> None:
            self.tell(k, "issued", k, generation, entries)

        self._parts[k] = Part(k, slot, self._part_records[k], engine, RemoteCode(self, k), slots, ring, issued)

    def _leave(self, part: Part) -> None:
        executed = part.engine.executed()
        if executed:
            self.tell(part.k, "executed", part.k, part.generation, executed)
        part.drain()
        touched = part.engine.opened * part.slots.stride
        if touched > KEPT_BYTES and not part.suspended:
            start = part.k * WAVES_BYTES + KEPT_BYTES
            self._waves.discard(start, -(-(touched - KEPT_BYTES) // 4096) * 4096)
        self._idle_engines.append(part.engine)
        del self._parts[part.k]
        self._set_inactive(part.k)

    def _set_active(self, slots: int) -> None:
        self._runtime.exchange(self._record.field_address("active"), slots)

    def _set_inactive(self, k: int) -> None:
        self._set_active(self._record.word("active") & ~(1 << k))
        self._ring(self._control.slots[k])

    def _new_engine(self) -> Engine:
        bell = self._record.field_address("bell")
        engine = Engine(self._runtime, self._handlers, self._vram.address, self._table.address, bell)
        for mapped in self._programs.values():
            mapped.enter(engine)
        if self._scoreboard is not None and self._plans is not None and self._setup.links is not None:
            owner = owner_of(self._setup.index)
            engine.connect(self._scoreboard.address, self._plans.address, owner, self._setup.links.window)
            engine.set_waves(self._setup.wave_segment, self._waves.address)
        self._engines.append(engine)
        return engine


def worker_main(setup: Setup, connection: Connection) -> None:
    """The entry point of a worker process."""
    # Ctrl-C goes to the whole foreground group; the launcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_server()
    setup = replace(setup, cpu=pin(setup.cpu))
    try:
        Worker(setup, connection).serve()
    except (LauncherGone, FileNotFoundError):
        return
