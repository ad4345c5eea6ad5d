"""An executor between a machine and the one that runs its dispatches: tells the machine's plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.suspended import Pauses, SuspendedDispatch
from rjemu.exec.trace import TraceRow
from rjemu.plugins.host import PluginHost
from rjemu.plugins.program import LoadedCode
from rjemu.shm.vram import Vram

if TYPE_CHECKING:
    from rjemu.vm.executor import Executor, Progress


class PluginExecutor:
    """See `vm.executor.Executor` for the interface."""

    def __init__(self, inner: Executor, host: PluginHost, vram: Vram) -> None:
        self.concurrent_launches = inner.concurrent_launches
        self._inner = inner
        self._host = host
        self._code = LoadedCode(vram)
        host.attach(self._code)

    def start(self) -> None:
        self._inner.start()

    def begin_trace(self) -> None:
        self._inner.begin_trace()

    def end_trace(self) -> list[TraceRow]:
        return self._inner.end_trace()

    def add_code(self, address: int, nbytes: int) -> None:
        self._inner.add_code(address, nbytes)
        self._code.add(address, nbytes)

    def remove_code(self, address: int) -> None:
        self._inner.remove_code(address)
        self._code.remove(address)

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        pauses: Pauses | None = None,
        suspended: SuspendedDispatch | None = None,
    ) -> DispatchResult:
        return self._host.run(
            spec,
            lambda: self._inner.run(spec, timeout=timeout, progress=progress, pauses=pauses, suspended=suspended),
        )

    def close(self) -> None:
        self._inner.close()
        self._host.close()
