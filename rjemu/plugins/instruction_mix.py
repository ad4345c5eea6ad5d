"""The `instruction_mix` plugin: how often each mnemonic was executed, by kernel."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

from rjemu.isa.instruction import Instruction
from rjemu.plugins.contract import Dispatch, Outcome, Plugin
from rjemu.plugins.schema import Setting


class InstructionMix(Plugin):
    """Executed wave instructions by mnemonic, for each kernel over all its dispatches, when the machine closes."""

    SETTINGS: ClassVar[dict[str, Setting]] = {
        "format": Setting("string", "a table for people, or JSON", default="table", choices=("table", "json")),
        "most": Setting("number", "mnemonics of a kernel's table, the most frequent first; 0: all", default=0),
    }
    counts_instructions: ClassVar[bool] = True

    def __init__(self, settings: dict[str, Any], sink: Any) -> None:
        super().__init__(settings, sink)
        self._dispatches: Counter[str] = Counter()
        self._executed: dict[str, Counter[str]] = {}

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return True

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        self._dispatches[dispatch.kernel] += 1
        self._executed.setdefault(dispatch.kernel, Counter()).update(outcome.executed.totals(_mnemonic))

    def close(self) -> None:
        if self.settings["format"] == "json":
            kernels = [self._record(kernel, mix) for kernel, mix in self._executed.items()]
            self.sink.line(json.dumps({"kernels": kernels}))
            return
        for kernel, mix in self._executed.items():
            for line in self._table(kernel, mix):
                self.sink.line(line)

    def _record(self, kernel: str, mix: Counter[str]) -> dict[str, Any]:
        return {
            "kernel": kernel,
            "dispatches": self._dispatches[kernel],
            "wave_instructions": mix.total(),
            "mnemonics": dict(_by_frequency(mix)),
        }

    def _table(self, kernel: str, mix: Counter[str]) -> list[str]:
        total = mix.total()
        dispatches = self._dispatches[kernel]
        lines = [f"{kernel}: {total} wave instructions in {dispatches} dispatch{'es' if dispatches != 1 else ''}"]
        entries = _by_frequency(mix)
        shown = entries[: int(self.settings["most"]) or None]
        lines += [f"{count:>14} {100 * count / total:6.2f}%  {name}" for name, count in shown]
        rest = sum(count for _, count in entries[len(shown) :])
        if rest:
            lines.append(f"{rest:>14} {100 * rest / total:6.2f}%  {len(entries) - len(shown)} others")
        return lines


def _mnemonic(instr: Instruction) -> str:
    return instr.name


def _by_frequency(mix: Counter[str]) -> list[tuple[str, int]]:
    return sorted(mix.items(), key=lambda entry: (-entry[1], entry[0]))
