"""The `waitcheck` plugin: registers that are used while a load that writes them is still under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rjemu.plugins.contract import Dispatch, Outcome, Plugin, RegisterAccess, Step, WaitCounters, Wave
from rjemu.plugins.outstanding import Operation, Outstanding, counted
from rjemu.plugins.sinks import Sink


@dataclass(frozen=True, slots=True)
class Finding:
    """A missing wait. access: "read" or "overwritten"; operation, user: the two instructions, the user later."""

    register: str
    access: str
    operation: tuple[int, str]
    user: tuple[int, str]
    counters: str


class WaitCheck(Plugin):
    """Registers read or overwritten while a load into them may be outstanding: missing or too weak waits. No settings."""

    def __init__(self, settings: Mapping[str, Any], sink: Sink) -> None:
        super().__init__(settings, sink)
        self._waves: dict[int, Outstanding] = {}
        self._writes: list[RegisterAccess] = []
        self._found: Counter[tuple[int, int, str]] = Counter()
        self.findings: list[Finding] = []

    def on_dispatch_begin(self, dispatch: Dispatch) -> None:
        self._waves.clear()
        self._found.clear()

    def on_wave_start(self, wave: Wave) -> None:
        self._waves[id(wave)] = Outstanding()

    def on_wave_halt(self, wave: Wave) -> None:
        del self._waves[id(wave)]

    def on_register_read(self, wave: Wave, step: Step, access: RegisterAccess) -> None:
        operation = self._waves[id(wave)].conflict(access)
        if operation is not None:
            self._report(wave, step, access, operation, "read")

    def on_register_write(self, wave: Wave, step: Step, access: RegisterAccess) -> None:
        kind = counted(step.instr)
        operation = self._waves[id(wave)].conflict(access, unless=None if kind is None else kind[0])
        if operation is not None:
            self._report(wave, step, access, operation, "overwritten")
        self._writes.append(access)

    def before_instruction(self, wave: Wave, step: Step) -> None:
        self._writes.clear()

    def after_instruction(self, wave: Wave, step: Step) -> None:
        operation = self._waves[id(wave)].issue(step)
        if operation is not None:
            operation.results = {(write.file, write.index): (write.lanes, write.bytes) for write in self._writes}

    def on_wait(self, wave: Wave, step: Step, counters: WaitCounters) -> None:
        self._waves[id(wave)].wait(counters)

    def _report(self, wave: Wave, step: Step, access: RegisterAccess, operation: Operation, how: str) -> None:
        """Each pair of instructions once per dispatch. One wait would do for all later uses: they are not reported."""
        counters = operation.why
        operation.counters.clear()
        pair = (operation.step.pc, step.pc, how)
        self._found[pair] += 1
        if self._found[pair] > 1:
            return
        early, late = operation.step, step
        finding = Finding(access.name, how, (early.pc, early.text), (late.pc, late.text), counters)
        self.findings.append(finding)
        self.sink.line(
            f"[waitcheck] {wave.place}: {access.name} is {how} by\n    {late.pc:#x}: {late.text}\n"
            f"  without a wait for {counters} since\n    {early.pc:#x}: {early.text}"
        )

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        if self._found:
            pairs, times = len(self._found), self._found.total()
            self.sink.line(f"[waitcheck] kernel {dispatch.kernel}: {pairs} missing waits, met {times} times")
