"""A worker's part in one dispatch."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rjemu.exec.engine import Engine
from rjemu.exec.layout import ASYNC_COUNTERS
from rjemu.exec.runner import Code, Runner
from rjemu.exec.slots import Slots
from rjemu.exec.trace import TraceRing
from rjemu.workers.control import DispatchSlot, Record


def share(resident: int, takers: int, place: int) -> tuple[int, int]:
    """(first, count): the workgroup slots of the worker at `place` when `takers` workers share `resident` of them."""
    whole, rest = divmod(resident, takers)
    return place * whole + min(place, rest), whole + (place < rest)


def resident_slots(slot: DispatchSlot, worker: int, memory: np.ndarray, wave_size: int) -> tuple[int, Slots]:
    """(number of the first among those of all workers, the workgroup slots) of a worker in a dispatch. memory: uint8, the
    worker's wave memory for that dispatch slot."""
    layout = slot.block.long("waves_offset"), slot.block.long("slot_stride")
    first, count = share(slot.word("resident"), slot.word("takers"), int(slot.places[worker]) - 1)
    return first, Slots(memory, layout, count, wave_size)


class Part:
    """What a worker does in the dispatch of slot k. record: its PART record, as the launcher has prepared it: if slots have
    been opened, it goes on with the workgroups in them. ring: to trace it in; issued: see `Runner`."""

    def __init__(
        self,
        k: int,
        slot: DispatchSlot,
        record: Record,
        engine: Engine,
        code: Code,
        slots: Slots,
        ring: TraceRing | None,
        issued: Callable[[np.ndarray], None],
    ) -> None:
        self.k = k
        self.generation = slot.word("generation")
        self.engine = engine
        self.slots = slots
        self._record = record
        self._block = slot.block
        trace = None if ring is None else (ring, slot.word("launch"))
        self._runner = Runner(
            engine, code, slot.kernel_name, slot.word("lds_bytes"), self._block.address, slots, trace, issued=issued
        )
        self._before = {name: record.long(name) for name in ("workgroups", "instructions", *ASYNC_COUNTERS)}
        if not record.word("opened"):
            slots.clear()
        record.set_long("started_ns", time.monotonic_ns())

    @property
    def suspended(self) -> bool:
        """Whether the dispatch has been stopped in order to go on."""
        return self._block.word("suspend") != 0

    def step(self, seconds: float) -> bool:
        """Run for about so long; whether nothing is left to do now. Raises KernelFaults."""
        if self._block.word("stop"):
            return True
        started = time.monotonic_ns()
        try:
            return self._runner.settle() if self.suspended else self._runner.step(seconds)
        finally:
            self._publish(started)

    def drain(self) -> None:
        """Wait for the matrix instructions that helpers have of the workgroups here."""
        self._runner.drain()

    def _publish(self, started: int) -> None:
        record, engine = self._record, self.engine
        now = time.monotonic_ns()
        record.set_word("opened", engine.opened)
        counters = {
            "workgroups": engine.long("workgroups_done"),
            "instructions": engine.long("instructions_done"),
            **engine.async_counters(),
        }
        for name, value in counters.items():
            record.set_long(name, self._before[name] + value)
        record.set_long("busy_ns", record.long("busy_ns") + now - started)
        record.set_long("ended_ns", now)
