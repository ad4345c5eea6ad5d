"""Plugins for tests, which write down what they are told."""

from __future__ import annotations

from typing import Any, ClassVar

from rjemu.plugins import Plugin, Setting


class DispatchRecorder(Plugin):
    """Dispatch hooks alone."""

    made: ClassVar[list[Any]] = []
    SETTINGS: ClassVar[dict[str, Setting]] = {
        "label": Setting("string", "a name", default="none"),
        "limit": Setting("number", "a limit", default=3),
        "loud": Setting("boolean", "whether to shout", default=False),
        "level": Setting("string", "how much", default="low", choices=("low", "high")),
    }

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.events: list[tuple[Any, ...]] = []
        self.made.append(self)

    def on_dispatch_begin(self, dispatch: Any) -> None:
        self.events.append(("begin", dispatch))
        self.sink.line(f"begin {dispatch.kernel}")

    def on_dispatch_end(self, dispatch: Any, outcome: Any) -> None:
        self.events.append(("end", dispatch, outcome))

    def close(self) -> None:
        self.events.append(("close",))
        self.sink.line("close")


class Needy(Plugin):
    SETTINGS: ClassVar[dict[str, Setting]] = {"path": Setting("string", "where to put it")}


class Recorder(DispatchRecorder):
    """Every hook."""

    def on_wave_start(self, wave: Any) -> None:
        self.events.append(("start", wave.workgroup, wave.number, wave.exec))

    def on_wave_halt(self, wave: Any) -> None:
        self.events.append(("halt", wave.workgroup, wave.number))

    def before_instruction(self, wave: Any, step: Any) -> None:
        self.events.append(("before", step.instr.name, wave.number))

    def after_instruction(self, wave: Any, step: Any) -> None:
        self.events.append(("after", step.instr.name, wave.number))

    def on_register_read(self, wave: Any, step: Any, access: Any) -> None:
        self.events.append(("read", step.instr.name, access.name, access.lanes, access.bytes))

    def on_register_write(self, wave: Any, step: Any, access: Any) -> None:
        self.events.append(("write", step.instr.name, access.name, access.lanes, access.bytes))

    def on_memory_access(self, wave: Any, step: Any, access: Any) -> None:
        places = (access.lanes.tolist(), access.addresses.tolist())
        self.events.append(("memory", step.instr.name, access.space, access.kind, *places, access.nbytes))

    def on_wait(self, wave: Any, step: Any, counters: Any) -> None:
        self.events.append(("wait", counters.vmcnt, counters.lgkmcnt, counters.expcnt))

    def on_barrier(self, wave: Any, step: Any) -> None:
        self.events.append(("barrier", wave.number))

    def on_barrier_release(self, waves: Any) -> None:
        self.events.append(("release", tuple(wave.number for wave in waves)))
