"""The `race` plugin: accesses to the same memory that nothing orders, one of which writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rjemu.isa.instruction import Instruction
from rjemu.plugins.contract import Dispatch, MemoryAccess, Outcome, Plugin, Size3, Step, Wave
from rjemu.plugins.ordering import Actor, Publications, meet
from rjemu.plugins.shadow import Shadow, Touch
from rjemu.plugins.sinks import Sink


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a race. lanes: those of the instruction that met the other side, empty for a scalar instruction."""

    workgroup: Size3
    wave: int
    pc: int
    text: str
    lanes: tuple[int, ...]
    writes: bool

    def __str__(self) -> str:
        who = f"workgroup {self.workgroup}, wave {self.wave}"
        lanes = f", lanes {_ranges(self.lanes)}" if self.lanes else ""
        return f"{who}{lanes} {'writes' if self.writes else 'reads'} by\n    {self.pc:#x}: {self.text}"


@dataclass(frozen=True, slots=True)
class Race:
    """A data race. address: the lowest one, a GPU address or a byte offset in LDS; first: the earlier access."""

    space: str
    address: int
    first: Party
    second: Party


class RaceDetector(Plugin):
    """Data races in LDS between waves of a workgroup, and in global memory between workgroups. No settings."""

    def __init__(self, settings: Mapping[str, Any], sink: Sink) -> None:
        super().__init__(settings, sink)
        self.races: list[Race] = []
        self._forget()

    def _forget(self) -> None:
        self._actors: dict[int, Actor] = {}
        self._begun = 0
        self._global = Shadow(between_workgroups=True)
        self._global_atomics = Publications()
        self._lds: dict[Size3, Shadow] = defaultdict(lambda: Shadow(between_workgroups=False))
        self._lds_atomics: dict[Size3, Publications] = defaultdict(Publications)
        self._pairs: set[tuple[str, int, int]] = set()

    def on_dispatch_begin(self, dispatch: Dispatch) -> None:
        self._forget()

    def on_wave_start(self, wave: Wave) -> None:
        self._actors[id(wave)] = Actor(self._begun, wave.workgroup, wave.number)
        self._begun += 1

    def on_wave_halt(self, wave: Wave) -> None:
        del self._actors[id(wave)]
        if all(actor.workgroup != wave.workgroup for actor in self._actors.values()):
            self._lds.pop(wave.workgroup, None)
            self._lds_atomics.pop(wave.workgroup, None)

    def on_barrier_release(self, waves: tuple[Wave, ...]) -> None:
        meet(self._actors[id(wave)] for wave in waves)

    def on_memory_access(self, wave: Wave, step: Step, access: MemoryAccess) -> None:
        if _is_private(wave, step.instr, access):
            return
        actor = self._actors[id(wave)]
        if access.space == "lds":
            shadow, atomics = self._lds[wave.workgroup], self._lds_atomics[wave.workgroup]
        else:
            shadow, atomics = self._global, self._global_atomics
        atomic = is_atomic(step.instr, access)
        if atomic:
            places = access.addresses.tolist()
            loads, stores = access.kind != "store", access.kind != "load"
            atomics.synchronise(actor, places, learns=loads, publishes=False)
        met: dict[tuple[Step, Actor], list[tuple[int, Touch, Touch]]] = defaultdict(list)
        for dword, touch in _touches(actor, step, access, atomic):
            for old in shadow.touch(dword, touch):
                met[old.step, old.actor].append((4 * dword, old, touch))
        if atomic and stores:
            atomics.synchronise(actor, places, learns=loads, publishes=True)
        for found in met.values():
            self._report(wave, access, found)

    def _report(self, wave: Wave, access: MemoryAccess, found: list[tuple[int, Touch, Touch]]) -> None:
        """Each pair of instructions once per dispatch and space."""
        space = "lds" if access.space == "lds" else "global"
        pair = (space, found[0][1].step.pc, found[0][2].step.pc)
        if pair in self._pairs:
            return
        self._pairs.add(pair)
        first, second = _party([old for _, old, _ in found]), _party([new for _, _, new in found])
        race = Race(space, min(address for address, _, _ in found), first, second)
        self.races.append(race)
        where = f"{'LDS' if space == 'lds' else space} address {race.address:#x}"
        self.sink.line(
            f"[race] kernel {wave.dispatch.kernel}, {where}:\n  {first}\n  {second}\n  and nothing orders the two"
        )

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        if self._pairs:
            self.sink.line(f"[race] kernel {dispatch.kernel}: {len(self._pairs)} pairs of instructions race")
        self._forget()


def is_atomic(instr: Instruction, access: MemoryAccess) -> bool:
    """Atomics, and loads and stores at device or system scope (sc1): what compilers make of atomic loads and stores."""
    return access.kind == "atomic" or (access.space == "global" and bool(instr.mod("sc1")))


def _is_private(wave: Wave, instr: Instruction, access: MemoryAccess) -> bool:
    """Whether an access is to the wave's own scratch, which later waves use again."""
    if access.space != "global":
        return False
    base = wave.state.long("scratch_base")
    end = base + wave.state.word("scratch_size") * wave.state.wave_size
    return instr.encoding == "SCRATCH" or bool(((access.addresses >= base) & (access.addresses < end)).all())


def _touches(actor: Actor, step: Step, access: MemoryAccess, atomic: bool) -> Iterator[tuple[int, Touch]]:
    """The dwords of an access, by number."""
    writes = access.kind != "load"
    lanes: list[int | None] = list(access.lanes.tolist()) or [None]
    for lane, address, data in zip(lanes, access.addresses.tolist(), access.data, strict=True):
        for dword in range(address // 4, -(-(address + access.nbytes) // 4)):
            low, high = max(address, 4 * dword), min(address + access.nbytes, 4 * dword + 4)
            covered = ((1 << (high - low)) - 1) << (low - 4 * dword)
            value = int.from_bytes(data[low - address : high - address].tobytes(), "little") << 8 * (low - 4 * dword)
            yield dword, Touch(actor, actor.time, step, lane, covered, writes, atomic, value if writes else 0)


def _party(touches: list[Touch]) -> Party:
    one = touches[0]
    lanes = tuple(sorted({touch.lane for touch in touches if touch.lane is not None}))
    return Party(one.actor.workgroup, one.actor.wave, one.step.pc, one.step.text, lanes, one.writes)


def _ranges(numbers: tuple[int, ...]) -> str:
    """0-3, 8, 10-11"""
    ordered = np.array(numbers)
    pieces = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)
    return ", ".join(f"{piece[0]}-{piece[-1]}" if len(piece) > 1 else f"{piece[0]}" for piece in pieces)
