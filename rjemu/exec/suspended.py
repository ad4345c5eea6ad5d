"""A dispatch that has stopped between two instructions, as values that hold in any process: others can go on with it.

What is left out is what a process makes for itself: addresses of the host, numbers of handler classes and of programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rjemu.errors import CheckpointError, OutOfMemory
from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.layout import (
    DISPATCH,
    SLOT_FREE,
    SLOT_RUNNING,
    WAVE_BARRIER,
    WAVE_ENDED,
    WAVE_HALTED,
    WAVE_RUNNING,
    class_key,
)
from rjemu.exec.prepare import DispatchBlock
from rjemu.exec.slots import Slots
from rjemu.exec.wave import WaveState

FIRST_AGPR = 256

WAVE_STATES = {WAVE_RUNNING: "running", WAVE_BARRIER: "at a barrier", WAVE_ENDED: "ended", WAVE_HALTED: "halted"}

WAVE_LONGS = ("pc", "instructions", "scratch_base", "clock")
WAVE_WORDS = (
    "scratch_size", "scc", "mode", "gpr_idx", "status", "trapsts", "hw_id", "xcc_id", "gpr_alloc", "lds_alloc", "ib_sts",
    "wave_in_group", "state",
)  # fmt: skip
"""The fields of a wave beside its registers, by their names in `layout.WAVE`."""

Size3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WaveRecord:
    """A wave. vgprs, agprs: uint32 [register][lane], those that the kernel may use; scalars: uint32 [128] by hardware code
    (SGPRs, VCC, M0, EXEC), all as little-endian bytes. fields: WAVE_LONGS and WAVE_WORDS."""

    vgprs: bytes
    agprs: bytes
    scalars: bytes
    fields: dict[str, int]


@dataclass(frozen=True, slots=True)
class WorkgroupRecord:
    """A resident workgroup. slot: its number among those of all processes, from which scratch addresses follow; number:
    its place in the grid, x fastest; next_wave: whose turn it is."""

    slot: int
    number: int
    next_wave: int
    lds: bytes
    waves: Sequence[WaveRecord]


@dataclass(frozen=True, slots=True)
class SuspendedDispatch:
    """begun: workgroups begun, by XCD; completed: those that have ended; instructions: executed by ended waves. slots: of
    the resident workgroups, which `workgroups` makes records of, one after another in the same order."""

    begun: tuple[int, ...]
    completed: int
    instructions: int
    slots: tuple[int, ...]
    workgroups: Callable[[], Iterator[WorkgroupRecord]]


class Pausable(Protocol):
    """A dispatch that is being executed. Both methods are called by the thread that launched it."""

    def suspend(self) -> SuspendedDispatch | None:
        """Stops it; what it is then, until it goes on. None if it has failed, which its launch is about to raise."""

    def go_on(self) -> None:
        """Ends what `suspend` began."""


class Pauses(Protocol):
    """Where a launch can be made to wait: `vm.gate.Pass`."""

    def pausable(self, dispatch: Pausable) -> AbstractContextManager[None]:
        """For the time in which the dispatch may be suspended."""

    def look(self) -> float:
        """Suspends the dispatch if that is wanted; the seconds that took. LaunchSuspended if it shall end with that."""


class Codes(Protocol):
    """What a wave's state refers to in a process: `Codebook`."""

    def program_of(self, pc: int) -> int | None: ...
    def mode_class(self, mode_key: int) -> int: ...


def check_totals(state: SuspendedDispatch, spec: DispatchSpec) -> None:
    """ValueError unless what has begun is what has ended and what is resident, on as many XCDs as there are."""
    if len(state.begun) != spec.xcds:
        raise ValueError(f"workgroups were dealt out to {len(state.begun)} XCDs, the device has {spec.xcds}")
    shares = [len(range(xcd, spec.workgroups, spec.xcds)) for xcd in range(spec.xcds)]
    begun = sum(min(count, share) for count, share in zip(state.begun, shares, strict=True))
    if begun != state.completed + len(state.slots):
        raise ValueError(f"{begun} workgroups were begun, {state.completed} ended, {len(state.slots)} are resident")
    if len(set(state.slots)) != len(state.slots) or any(slot >= spec.max_resident for slot in state.slots):
        raise ValueError(f"the resident workgroups' slots are not different ones of {spec.max_resident}")


def check_workgroup(record: WorkgroupRecord, spec: DispatchSpec) -> None:
    """ValueError for a record that no dispatch of that specification can have."""
    row = 4 * spec.wave_size
    vgprs, agprs = register_rows(spec)
    if record.number >= spec.workgroups:
        raise ValueError(f"workgroup {record.number} of {spec.workgroups}")
    if not 1 <= len(record.waves) <= spec.waves_per_workgroup or record.next_wave > len(record.waves):
        raise ValueError(f"{len(record.waves)} waves, of which number {record.next_wave} is next")
    if len(record.lds) != spec.lds_bytes:
        raise ValueError(f"{len(record.lds)} bytes of LDS, the kernel has {spec.lds_bytes}")
    for wave in record.waves:
        sizes = len(wave.vgprs), len(wave.agprs), len(wave.scalars)
        if sizes != (vgprs * row, agprs * row, 512):
            raise ValueError(f"registers of {sizes} bytes, expected {(vgprs * row, agprs * row, 512)}")
        if wave.fields["pc"] % 4 or wave.fields["state"] > WAVE_HALTED:
            raise ValueError(f"a wave at pc {wave.fields['pc']:#x} in state {wave.fields['state']}")


def register_rows(spec: DispatchSpec) -> tuple[int, int]:
    """VGPRs and AGPRs of a wave that a kernel may use."""
    return min(spec.vgprs, FIRST_AGPR), min(spec.agprs, FIRST_AGPR)


def running_slots(slots: Slots, opened: int) -> list[int]:
    """The slots in use, of those that have been opened."""
    return [number for number in range(opened) if slots.word(number, "state") == SLOT_RUNNING]


def counters(block: DispatchBlock) -> tuple[tuple[int, ...], int, int]:
    """(workgroups begun by XCD, completed, instructions of ended waves)."""
    first = DISPATCH["xcd_next"]
    begun = block.memory[first : first + 8 * block.word("xcds")].view(np.uint64)
    return tuple(int(count) for count in begun), block.long("completed"), block.long("instructions")


def set_counters(block: DispatchBlock, state: SuspendedDispatch) -> None:
    """Write what `counters` reads."""
    first = DISPATCH["xcd_next"]
    block.memory[first : first + 8 * len(state.begun)].view(np.uint64)[:] = state.begun
    block.set_long("completed", state.completed)
    block.set_long("instructions", state.instructions)


def record_workgroup(slots: Slots, number: int, first: int, spec: DispatchSpec) -> WorkgroupRecord:
    """What is in a slot of a process, whose first slot is number `first` among those of all."""
    waves = tuple(_record_wave(slots.wave(number, k), spec) for k in range(slots.word(number, "waves")))
    return WorkgroupRecord(
        first + number,
        slots.long(number, "workgroup"),
        slots.word(number, "next_wave"),
        slots.lds(number, spec.lds_bytes).tobytes(),
        waves,
    )


def _record_wave(wave: WaveState, spec: DispatchSpec) -> WaveRecord:
    vgprs, agprs = register_rows(spec)
    fields = {name: wave.long(name) for name in WAVE_LONGS} | {name: wave.word(name) for name in WAVE_WORDS}
    return WaveRecord(
        wave.vgpr[:vgprs].tobytes(), wave.vgpr[FIRST_AGPR : FIRST_AGPR + agprs].tobytes(), wave.scalars.tobytes(), fields
    )


def put_workgroup(slots: Slots, number: int, record: WorkgroupRecord, spec: DispatchSpec, code: Codes) -> None:
    """Put a workgroup into a slot of a process. CheckpointError if a wave of it is in no code."""
    x, y, _ = spec.grid
    states = [wave.fields["state"] for wave in record.waves]
    words = {
        "id_x": record.number % x,
        "id_y": record.number // x % y,
        "id_z": record.number // (x * y),
        "waves": len(states),
        "live": len(states) - states.count(WAVE_ENDED),
        "waiting": states.count(WAVE_BARRIER),
        "next_wave": record.next_wave,
        "state": SLOT_RUNNING,
    }
    for name, value in words.items():
        slots.set_word(number, name, value)
    slots.set_long(number, "workgroup", record.number)
    slots.lds(number, spec.lds_bytes)[:] = np.frombuffer(record.lds, np.uint8)
    for k, wave in enumerate(record.waves):
        _put_wave(slots.wave(number, k), wave, code)


def _put_wave(state: WaveState, record: WaveRecord, code: Codes) -> None:
    state.memory[state.vgpr.nbytes :] = 0
    vgprs, agprs = (np.frombuffer(rows, np.uint32).reshape(-1, state.wave_size) for rows in (record.vgprs, record.agprs))
    state.vgpr[: len(vgprs)] = vgprs
    state.vgpr[FIRST_AGPR : FIRST_AGPR + len(agprs)] = agprs
    state.scalars[:] = np.frombuffer(record.scalars, np.uint32)
    for name in WAVE_LONGS:
        state.set_long(name, record.fields[name])
    for name in WAVE_WORDS:
        state.set_word(name, record.fields[name])
    state.set_word("fp_class", code.mode_class(class_key(record.fields["mode"])))
    if record.fields["state"] == WAVE_ENDED:
        return
    pc = record.fields["pc"]
    program = code.program_of(pc)
    if program is None:  # it may have run past the end of its code, and will fault there
        program = code.program_of(pc - 4)
    if program is None:
        raise CheckpointError(f"a wave is at pc {pc:#x}, which holds no code")
    state.set_word("program", program)


def free_slots(slots: Slots, opened: int, used: Sequence[int]) -> None:
    """Mark the opened slots that are not in use."""
    for number in range(opened):
        if number not in used:
            slots.set_word(number, "state", SLOT_FREE)


def placement(slots: Sequence[int], shares: Sequence[tuple[int, int]], *, keep_numbers: bool) -> list[tuple[int, int]]:
    """(process, slot of it) for each resident workgroup, by its slot's number among those of all.

    shares: (first, count) of each process. keep_numbers: the scratch of later workgroups is found by the numbers, so that
    each must stay what it is; else they are dealt out evenly. OutOfMemory if there are too few slots, as happens only where
    memory is too short for all that the hardware could hold.
    """
    total = sum(count for _, count in shares)
    if len(slots) > total or (keep_numbers and slots and max(slots) >= total):
        raise OutOfMemory(
            f"{len(slots)} workgroups, up to slot {max(slots)}, do not fit into the {total} slots there is memory for"
        )
    if not keep_numbers:
        return [(index % len(shares), index // len(shares)) for index in range(len(slots))]
    out = []
    for slot in slots:
        process = next(p for p, (first, count) in enumerate(shares) if first <= slot < first + count)
        out.append((process, slot - shares[process][0]))
    return out
