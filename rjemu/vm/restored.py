"""A machine made from a checkpoint, and what it has still to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.array import DeviceArray
from rjemu.vm.executor import Progress
from rjemu.vm.machine import Machine
from rjemu.vm.pending import PendingLaunch
from rjemu.vm.stream import Stream


class RestoredMachine(Machine):
    """Made by `rjemu.restore`. Its arrays are those of `arrays`, which it keeps alive until they are freed; its code that of
    `modules`. data: what `Machine.save` was given."""

    data: Any = None

    def keep(self, arrays: list[DeviceArray], streams: list[Stream], pending: list[PendingLaunch], data: Any) -> None:
        """What a checkpoint has beside memory and code."""
        self._kept = arrays, streams
        self._pending = pending
        self.data = data

    @property
    def pending(self) -> list[PendingLaunch]:
        """Launches that were under way, and have not been gone on with yet."""
        return [launch for launch in self._pending if not launch.taken]

    def resume(self, *, timeout: float | None = None, progress: Progress | None = None) -> list[DispatchResult]:
        """Runs the launches that were under way to their ends, beside each other as far as that is possible, and gives their
        results in the order in which they had begun. Raises what the first that fails raises, when all have ended.

        A result counts the wave instructions of the whole launch, and the seconds since it goes on. timeout, progress: of
        each launch, as of `LoadedKernel.launch`; progress may be called from several threads.
        """
        self._check_open()

        def run(launch: PendingLaunch) -> DispatchResult:
            device = self.devices[launch.launch.target.module.device.index]
            return device.go_on(launch, timeout=timeout, progress=progress)

        pending = self.pending
        if len(pending) < 2:
            return [run(launch) for launch in pending]
        with ThreadPoolExecutor(len(pending), thread_name_prefix="rjemu resume") as threads:
            futures = [threads.submit(run, launch) for launch in pending]
        return [future.result() for future in futures]
