"""The launcher's side of the worker processes: starts them when they are first needed, invites them to dispatches, takes
their messages, replaces those that die."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from multiprocess.connection import Connection

from rjemu.errors import UsageError, WorkerLost
from rjemu.exec.engine import Runtime
from rjemu.shm import futex
from rjemu.shm.segment import Segment
from rjemu.workers.affinity import NO_CPU, assign, available_cpus, placement
from rjemu.workers.control import DISPATCH_SLOTS, Control, Record, sleep_group
from rjemu.workers.entry import FAILED
from rjemu.workers.helpers import HelperPool
from rjemu.workers.part import share
from rjemu.workers.roles import Role
from rjemu.workers.start import start_worker
from rjemu.workers.worker import WAVES_BYTES, Setup, owner_of, wave_memory

LOOK_SECONDS = 0.05
"""How often a waiting launcher looks at the clock, and whether all workers are alive."""

START_SECONDS = 60.0
"""How long workers may take to start before that is an error."""

START_TRIES = 3
"""How often a worker is started that ends before it listens, until the launches that wait for it fail."""

END_SECONDS = 2.0
"""How long workers may take to end when the machine closes before they are killed."""

_HINTS = {
    signal.SIGKILL: " (the host may have run out of memory)",
    signal.SIGBUS: " (shared memory is full)",
}

Answer = Callable[[tuple[Any, ...]], Any]
"""Called with a message of a worker; a result that is not None is sent back."""


@dataclass
class _Member:
    """A worker as the launcher sees it. answered: messages of it that have been taken; started: when, by time.monotonic;
    failed_starts: how often it has ended without ever listening."""

    setup: Setup
    record: Record
    waves: Segment
    process: Any
    connection: Connection
    started: float
    answered: int = 0
    failed_starts: int = 0

    @property
    def dead(self) -> bool:
        """Whether it has ended, or should have started long ago."""
        if self.process.is_alive() and not self.record.word("ready") and time.monotonic() > self.started + START_SECONDS:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def last_words(self) -> str:
        """Why it has ended."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message[0] == FAILED:
                    return str(message[1])
        except (EOFError, OSError):
            pass
        code = self.process.exitcode
        if code >= 0:
            return f"it ended with status {code}"
        number = signal.Signals(-code)
        return f"it was ended by {number.name}{_HINTS.get(number, '')}"


class Crew:
    """The workers of a machine. Calls may come from several threads."""

    def __init__(
        self,
        control: Control,
        roles: Sequence[Role],
        template: dict[str, Any],
        runtime: Runtime,
        helpers: HelperPool | None = None,
    ) -> None:
        """template: the fields of `Setup` that all workers have in common; helpers: those that run matrix instructions for
        the workers."""
        if not roles:
            raise UsageError("a machine needs at least one worker")
        self._control = control
        self._roles = roles
        self._template = template
        self._runtime = runtime
        self._helpers = helpers
        self._cpus = assign(len(roles), placement(available_cpus())) if helpers is None else helpers.worker_cpus
        self._members: list[_Member | None] = [None] * len(roles)
        self._load = [0] * len(roles)  # dispatches that each is invited to
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._roles)

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all workers that do not run yet, and wait until they listen. WorkerLost if one does not come up."""
        with self._lock:
            for index in range(len(self._roles)):
                self._ensure(index)
        header = self._control.header
        while True:
            seen = header.word("attention")
            late = [member for member in self._running() if not member.record.word("ready")]
            if not late:
                return
            with self._lock:
                for member in late:
                    error = self._replace(member, lambda k, error: None) if member.dead else None
                    if error is not None:
                        raise error
            futex.wait(header.field_address("attention"), seen, LOOK_SECONDS)

    def _ensure(self, index: int) -> _Member:
        member = self._members[index]
        if member is None:
            waves = Segment.create("waves", DISPATCH_SLOTS * WAVES_BYTES)
            number = 0 if self._helpers is None else self._helpers.add_waves(waves.name)
            setup = Setup(
                index=index,
                role=self._roles[index],
                cpu=self._cpus[index],
                waves=waves.name,
                wave_segment=number,
                **self._template,
            )
            record = self._control.workers[index]
            record.set_word("ready", 0)
            record.set_word("cpu", setup.cpu)
            try:
                member = _Member(setup, record, waves, *start_worker(setup), started=time.monotonic())
            except WorkerLost:
                if self._helpers is not None:
                    self._helpers.remove_waves(number)
                waves.close()
                raise
            member.answered = record.word("requests")
            self._members[index] = member
        return member

    def _running(self) -> list[_Member]:
        return [member for member in self._members if member is not None]

    # --- dispatches --------------------------------------------------------------------------------------------------

    def invite(self, k: int, device: int, most: int) -> list[int]:
        """Choose at most so many workers for the dispatch of slot k, those with the least to do first, and start what does
        not run yet. Their bells ring with `ring`. WorkerLost, and nobody is invited, if one cannot be started."""
        with self._lock:
            able = [index for index, role in enumerate(self._roles) if role.serves(device)]
            chosen = sorted(able, key=self._load.__getitem__)[:most]
            records = [self._ensure(index).record for index in chosen]
            for index, record in zip(chosen, records, strict=True):
                self._load[index] += 1
                record.set_word("invited", record.word("invited") | 1 << k)
            return chosen

    def dismiss(self, k: int, workers: Sequence[int]) -> None:
        """End what `invite` began."""
        with self._lock:
            for index in workers:
                self._load[index] -= 1
                record = self._control.workers[index]
                record.set_word("invited", record.word("invited") & ~(1 << k))

    def ring(self, workers: Sequence[int]) -> None:
        """Have workers look at what there is to do: one system call wakes those that sleep."""
        groups = 0
        for index in workers:
            self._runtime.increment(self._control.workers[index].field_address("bell"))
            groups |= 1 << sleep_group(index)
        doorbell = self._control.header.field_address("doorbell")
        self._runtime.increment(doorbell)
        futex.wake_groups(doorbell, groups)

    def busy(self, k: int, workers: Sequence[int]) -> list[int]:
        """Which of the workers are in the dispatch of slot k."""
        return [index for index in workers if self._control.workers[index].word("active") >> k & 1]

    def wave_memory(self, worker: int, k: int) -> np.ndarray:
        """uint8: the memory of a running worker's waves in the dispatch of slot k."""
        member = self._members[worker]
        assert member is not None, f"worker {worker} has not been started"
        return wave_memory(member.waves, k)

    def wave_ranges(self, k: int, workers: Sequence[int], resident: int, stride: int) -> list[tuple[Segment, int, int]]:
        """(segment, offset, bytes): what running workers may write of their waves' memory in the dispatch of slot k, for so
        many workgroups of `stride` bytes."""
        out = []
        for place, worker in enumerate(workers):
            member = self._members[worker]
            assert member is not None, f"worker {worker} has not been started"
            _, count = share(resident, len(workers), place)
            out.append((member.waves, k * WAVES_BYTES, count * stride))
        return out

    def discard_waves(self, k: int, workers: Sequence[int]) -> None:
        """Give back the memory of waves that workers have left behind in the dispatch of slot k, which will not go on."""
        for worker in workers:
            member = self._members[worker]
            if member is not None:
                member.waves.discard(k * WAVES_BYTES, WAVES_BYTES)

    def name(self, worker: int) -> str:
        return self._roles[worker].name

    def cpu(self, worker: int) -> int | None:
        """The CPU that a worker is pinned to, or will be once it has started; None if to none."""
        cpu = self._control.workers[worker].word("cpu")
        return None if cpu == NO_CPU else cpu

    # --- messages and deaths -----------------------------------------------------------------------------------------

    def answer(self, carry_out: Answer) -> None:
        """Take the messages that have come."""
        for member in self._running():
            if member.answered != member.record.word("requests"):
                with self._lock:
                    while member.answered != member.record.word("requests") and self._answer_one(member, carry_out):
                        member.answered = (member.answered + 1) & 0xFFFFFFFF

    def _answer_one(self, member: _Member, carry_out: Answer) -> bool:
        """Take one message of a worker; False if that cannot be (it is dying, or does not read and is killed)."""
        try:
            reply = carry_out(member.connection.recv())
            if reply is not None:
                member.connection.send(reply)
        except BlockingIOError:
            member.process.kill()
            return False
        except (EOFError, OSError):
            return False
        return True

    def replace_dead(self, lost: Callable[[int, WorkerLost], None]) -> None:
        """Start anew what has died. lost(k, error) is called for each dispatch slot that a dead worker was in, and, if it
        cannot be started, for those that it should be in."""
        with self._lock:
            for member in self._running():
                if member.dead:
                    self._replace(member, lost)

    def _replace(self, member: _Member, lost: Callable[[int, WorkerLost], None]) -> WorkerLost | None:
        """Start a dead worker anew; the error if that has failed START_TRIES times since it last was one."""
        record, name, reason = member.record, member.setup.role.name, member.last_words()
        if record.word("ready"):
            member.failed_starts = 0
            slots = record.word("active")
            text = f"worker {name} (pid {record.word('pid')}) was lost in the middle of the launch: {reason}"
        else:
            member.failed_starts += 1
            slots = record.word("invited") if member.failed_starts == START_TRIES else record.word("active")
            text = f"worker {name} did not start, {member.failed_starts} times: {reason}"
        record.set_word("ready", 0)
        self._runtime.exchange(record.field_address("active"), 0)
        if self._helpers is not None:
            self._helpers.reclaim(owner_of(member.setup.index))
        for k in range(DISPATCH_SLOTS):
            if slots >> k & 1:
                lost(k, WorkerLost(text))
        try:
            started = start_worker(member.setup)
        except WorkerLost as error:  # the next look tries again
            for k in range(DISPATCH_SLOTS):
                if record.word("invited") >> k & 1:
                    lost(k, error)
            return error
        member.connection.close()
        member.process.close()
        member.process, member.connection = started
        member.answered = record.word("requests")
        member.started = time.monotonic()
        if member.failed_starts < START_TRIES:
            return None
        member.failed_starts = 0
        return WorkerLost(text)

    def kill(self, workers: Sequence[int]) -> None:
        """Kill workers that do not answer (they may be stopped); `replace_dead` starts them anew."""
        with self._lock:
            for index in workers:
                member = self._members[index]
                if member is not None:
                    member.process.kill()
                    member.process.join()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._control.header.set_word("shutdown", 1)
            self.ring(range(len(self._roles)))
            deadline = time.monotonic() + END_SECONDS
            for member in self._running():
                member.process.join(max(deadline - time.monotonic(), 0))
                if member.process.is_alive():
                    member.process.kill()
                    member.process.join()
                member.connection.close()
                member.process.close()
                member.waves.close()
            self._members = [None] * len(self._roles)
