"""The launcher's side of a machine's worker processes: starts them, hands out dispatches, answers their questions,
notices their death."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiprocess.connection import Connection

from rjemu.errors import KernelFault, LaunchInterrupted, LaunchTimeout, RjemuError, UsageError, WorkerLost
from rjemu.exec.cache import HandlerCache
from rjemu.exec.codebook import Codebook
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.engine import Runtime, runtime_object
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.layout import class_key
from rjemu.exec.prepare import DispatchBlock, slot_layout
from rjemu.exec.slots import Slots
from rjemu.shm import futex
from rjemu.shm.segment import Segment
from rjemu.shm.vram import Vram
from rjemu.workers.affinity import assign, available_cpus, placement
from rjemu.workers.control import CLOSED, DISPATCH_SLOTS, OPEN, Control
from rjemu.workers.start import start_worker
from rjemu.workers.worker import Setup, share

Progress = Callable[[int, int], None]

WAVES_BYTES = 4 << 30
"""Address space for one worker's resident workgroups; memory is taken only where it is used."""

LOOK_SECONDS = 0.05
"""How often a launch looks at the clock, and whether all its workers are alive."""

START_SECONDS = 60.0
"""How long workers may take to start before that is an error."""

_ASKABLE = frozenset({"mode_class", "decode", "instruction", "text", "nearest", "refresh"})


@dataclass(frozen=True, slots=True)
class Role:
    """What a worker is for. own_xcds, own_xcd: the XCDs whose workgroups it takes first (`worker.Setup`)."""

    name: str
    own_xcds: int
    own_xcd: int


def roles(engines: int, dispatch: int) -> list[Role]:
    """E engines, which advance XCDs of their own, and D - 1 dispatch workers, which take from any."""
    return [Role(f"engine {e}", engines, e) for e in range(engines)] + [
        Role(f"dispatch {d}", 1, 0) for d in range(1, dispatch)
    ]


@dataclass
class _Member:
    """A worker as the launcher sees it."""

    setup: Setup
    waves: Segment
    process: Any
    connection: Connection
    answered: int = 0


class PoolExecutor:
    """Runs dispatches on worker processes. See `vm.machine.Executor` for the interface. Launches may come from several
    threads. The workers start with the first dispatch."""

    wave_size = 64
    concurrent_launches = DISPATCH_SLOTS

    def __init__(
        self, vram: Vram, target: str, *, lds_bytes: int, cache_dir: Path | None = None, workers: list[Role]
    ) -> None:
        if not workers:
            raise UsageError("a machine needs at least one worker")
        self._vram = vram
        self._roles = workers
        cache = HandlerCache(cache_dir)
        self._runtime_code = runtime_object(cache, self.wave_size)
        self._runtime = Runtime(self._runtime_code)
        self._library = HandlerLibrary(target, self.wave_size, cache, self._runtime.undecoded)
        self._codebook = Codebook(vram, target, self._library)
        self._control = Control.create(len(workers))
        self._members: list[_Member] = []
        self._free_slots = list(range(DISPATCH_SLOTS))
        self._slot_free = threading.Condition()
        self._code_lock = threading.RLock()
        self._member_lock = threading.RLock()
        self._faults: dict[int, RjemuError] = {}
        self._first = 0

    # --- code --------------------------------------------------------------------------------------------------------

    def add_code(self, address: int, nbytes: int) -> None:
        """Register an executable range of device memory."""
        with self._code_lock:
            self._codebook.add(address, nbytes)

    def remove_code(self, address: int) -> None:
        """Forget a range; nothing may run in it."""
        with self._code_lock:
            self._codebook.remove(address)

    # --- workers -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers unless they run already, and wait until they listen."""
        with self._member_lock:
            if self._members:
                return
            cpus = assign(len(self._roles), placement(available_cpus()))
            for index, (role, cpu) in enumerate(zip(self._roles, cpus, strict=True)):
                waves = Segment.create("waves", WAVES_BYTES)
                setup = Setup(
                    index,
                    role.name,
                    cpu,
                    role.own_xcds,
                    role.own_xcd,
                    self.wave_size,
                    self._runtime_code,
                    self._control.segment.name,
                    self._vram.segment_name,
                    self._vram.table.segment.name,
                    waves.name,
                )
                self._members.append(_Member(setup, waves, *start_worker(setup)))
            self._await_ready()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for record, member in zip(self._control.workers, self._members, strict=True):
            while not record.word("ready"):
                if not member.process.is_alive() or time.monotonic() > deadline:
                    raise WorkerLost(f"worker {member.setup.name} did not start")
                attention = self._control.header.word("attention")
                if not record.word("ready"):
                    futex.wait(self._control.header.field_address("attention"), attention, LOOK_SECONDS)

    def _replace_dead(self) -> None:
        """Start anew what has died; fail the dispatches that a dead worker was in."""
        with self._member_lock:
            for record, member in zip(self._control.workers, self._members, strict=True):
                if member.process.is_alive():
                    continue
                slot = record.word("active")
                if slot:
                    text = f"worker {member.setup.name} (pid {record.word('pid')}) was lost in the middle of the launch"
                    self._fail(slot - 1, WorkerLost(text))
                record.set_word("ready", 0)
                self._exchange(record.field_address("active"), 0)
                member.connection.close()
                member.process.join()
                member.answered = record.word("requests")
                member.process, member.connection = start_worker(member.setup)

    def _exchange(self, address: int, value: int) -> None:
        self._runtime.exchange(address, value)

    # --- dispatch ----------------------------------------------------------------------------------------------------

    def run(self, spec: DispatchSpec, *, timeout: float | None = None, progress: Progress | None = None) -> DispatchResult:
        """Run a dispatch to its end; raises as `NativeExecutor.run`, and WorkerLost if a worker dies in it."""
        started = time.perf_counter()
        deadline = started + timeout if timeout is not None else None
        self.start()
        slot = self._take_slot()
        compiled = self._library.compiled
        try:
            self._open(slot, spec)
            self._attend(slot, spec, deadline, progress)
        except KeyboardInterrupt:
            text = self._abandon(slot, spec)
            raise LaunchInterrupted(f"kernel {spec.kernel} was interrupted: {text}") from None
        except BaseException:
            self._abandon(slot, spec)
            raise
        else:
            seconds = time.perf_counter() - started
            stats = self._statistics(slot)
            stats["handlers_compiled"] = self._library.compiled - compiled
            return DispatchResult(self._block(slot).long("instructions"), seconds, stats)
        finally:
            self._give_slot(slot)

    def _take_slot(self) -> int:
        with self._slot_free:
            while not self._free_slots:
                self._slot_free.wait(LOOK_SECONDS)
            return self._free_slots.pop()

    def _give_slot(self, slot: int) -> None:
        with self._slot_free:
            self._free_slots.append(slot)
            self._slot_free.notify()

    def _block(self, slot: int) -> DispatchBlock:
        return DispatchBlock(self._control.dispatches[slot])

    def _open(self, k: int, spec: DispatchSpec) -> None:
        """Fill slot k and ring the doorbell."""
        with self._code_lock:
            program = self._codebook.program_of(spec.entry)
            if program is None:
                raise KernelFault(f"kernel {spec.kernel} starts at {spec.entry:#x}, which holds no code")
            self._codebook.refresh()
            mode_class = self._library.mode_class(class_key(spec.mode))
            journal = len(self._library.journal)
        self._block(k).fill(spec, mode_class, program)
        self._faults.pop(k, None)
        fits = max(WAVES_BYTES // slot_layout(spec)[1], 1)
        takers = min(len(self._members), spec.max_resident, spec.workgroups)
        if self._first + takers > len(self._members):
            self._first = 0
        slot = self._control.slots[k]
        words = {
            "generation": (slot.word("generation") + 1) & 0xFFFFFFFF,
            "journal": journal,
            "first_worker": self._first,
            "last_worker": self._first + takers,
            "resident": min(spec.max_resident, fits * takers),
            "lds_bytes": spec.lds_bytes,
        }
        for name, value in words.items():
            slot.set_word(name, value)
        self._control.set_kernel_name(k, spec.kernel)
        self._first += takers
        self._exchange(slot.field_address("state"), OPEN)
        self._ring()

    def _ring(self) -> None:
        header = self._control.header
        bell = header.field_address("doorbell")
        self._exchange(bell, (header.word("doorbell") + 1) & 0xFFFFFFFF)
        futex.wake(bell)

    def _attend(self, k: int, spec: DispatchSpec, deadline: float | None, progress: Progress | None) -> None:
        """Answer questions until the dispatch is over."""
        header = self._control.header
        block = self._block(k)
        looked = time.monotonic()
        while True:
            seen = header.word("attention")
            self._answer()
            if k in self._faults:
                raise self._faults.pop(k)
            if block.long("completed") >= spec.workgroups:
                break
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                self._replace_dead()
                if progress is not None:
                    progress(block.long("completed"), spec.workgroups)
                if deadline is not None and time.perf_counter() > deadline:
                    raise LaunchTimeout(f"kernel {spec.kernel} ran out of time: {self._standing(k, spec)}")
            futex.wait(header.field_address("attention"), seen, LOOK_SECONDS)
        self._close(k)
        if progress is not None:
            progress(spec.workgroups, spec.workgroups)

    def _close(self, k: int) -> None:
        """Let no worker enter any more, and wait until all have left."""
        header = self._control.header
        self._exchange(self._control.slots[k].field_address("state"), CLOSED)
        while True:
            seen = header.word("attention")
            if all(record.word("active") != k + 1 for record in self._control.workers):
                return
            self._answer()
            self._replace_dead()
            futex.wait(header.field_address("attention"), seen, LOOK_SECONDS)

    def _abandon(self, k: int, spec: DispatchSpec) -> str:
        """Stop what is under way in slot k; gives where it stood."""
        text = self._standing(k, spec)
        self._block(k).set_word("stop", 1)
        self._close(k)
        self._faults.pop(k, None)
        return text

    def _fail(self, k: int, error: RjemuError) -> None:
        """Make slot k's launch raise, unless something else was first."""
        if self._control.slots[k].word("state") == OPEN:
            self._faults.setdefault(k, error)
            self._block(k).set_word("stop", 1)

    def _answer(self) -> None:
        """Carry out what the workers ask for."""
        with self._member_lock:
            for record, member in zip(self._control.workers, self._members, strict=True):
                while member.answered != record.word("requests") and self._answer_one(member):
                    member.answered = (member.answered + 1) & 0xFFFFFFFF

    def _answer_one(self, member: _Member) -> bool:
        """Take one message of a worker; False if it cannot be read (the worker is dying)."""
        try:
            kind, *content = member.connection.recv()
            if kind == "fault":
                k, generation, fault = content
                if self._control.slots[k].word("generation") == generation:
                    self._fail(k, fault)
                return True
            name, arguments, applied = content
            member.connection.send(self._carry_out(name, arguments, applied))
        except (EOFError, OSError):
            return False
        return True

    def _carry_out(self, name: str, arguments: tuple[Any, ...], applied: int) -> tuple[Any, RjemuError | None, list[Any]]:
        """(result, error, new journal entries) of a question."""
        with self._code_lock:
            result, failure = None, None
            if name in _ASKABLE:
                try:
                    result = getattr(self._codebook, name)(*arguments)
                except RjemuError as error:
                    failure = error
            return result, failure, self._library.journal[applied:]

    def _standing(self, k: int, spec: DispatchSpec) -> str:
        """Where a dispatch stands, for messages."""
        text = f"{self._block(k).long('completed')} of {spec.workgroups} workgroups had ended"
        slot = self._control.slots[k]
        first, last, resident = slot.word("first_worker"), slot.word("last_worker"), slot.word("resident")
        waiting: list[str] = []
        for index in range(first, last):
            if self._control.workers[index].word("active") == k + 1:
                count = share(resident, last - first, index - first)[1]
                memory = self._members[index].waves.bytes
                slots = Slots(memory, slot_layout(spec), count, self.wave_size)
                waiting += slots.waiting(self._control.workers[index].word("opened"))
        return f"{text}; waiting at a barrier: {', '.join(waiting[:8])}" if waiting else text

    def _statistics(self, k: int) -> dict[str, Any]:
        """What each worker did in the dispatch of slot k."""
        slot = self._control.slots[k]
        out = []
        for index in range(slot.word("first_worker"), slot.word("last_worker")):
            record = self._control.workers[index]
            if record.word("generation") == slot.word("generation"):
                out.append(
                    {
                        "worker": self._members[index].setup.name,
                        "cpu": record.word("cpu"),
                        "workgroups": record.long("workgroups"),
                        "wave_instructions": record.long("instructions"),
                        "busy_seconds": record.long("busy_ns") / 1e9,
                    }
                )
        return {"workers": out}

    def close(self) -> None:
        """End the workers and release everything."""
        with self._member_lock:
            self._control.header.set_word("shutdown", 1)
            self._ring()
            for member in self._members:
                member.connection.close()
            for member in self._members:
                member.process.join(2)
                if member.process.is_alive():
                    member.process.kill()
                    member.process.join()
                member.process.close()
                member.waves.close()
            self._members.clear()
            self._codebook.close()
            self._control.close()
