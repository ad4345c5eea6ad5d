"""The machine: GPUs, and what runs their work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.config import load_config
from rjemu.errors import UsageError
from rjemu.shm.quota import MemoryQuota
from rjemu.shm.vram import Vram
from rjemu.vm.device import Device
from rjemu.vm.executor import Workers, executor_factory, observed, plugin_host
from rjemu.vm.gate import Gate
from rjemu.vm.pending import PendingLaunch
from rjemu.vm.trace import write_trace


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """What a machine was asked to be beside its configuration: `Machine`."""

    executor: str
    workers: Workers


class Machine(Device):
    """An emulated machine; it is its first GPU itself, `devices` are all of them.

    config: a preset's name, a JSON file or a parsed dict; keyword overrides replace its fields
    (`rjemu.config.load_config`). executor: "native", or "reference" (numpy, slow, easy to follow). workers: by default
    the worker processes that the configuration's thread policy gives for this host's CPUs, pinned one CPU each; (E, D) for
    E engines and a dispatch width of D per GPU; "inline" runs everything in the caller's thread, for debugging.
    cache_dir: where compiled handlers are kept, by default the user's cache directory. quota: device memory that it shares
    with other machines of this process, by default its own.

    Use it as a context manager, or call `close`. ConfigError for a configuration that cannot be used.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] = "gfx950_mi355x",
        *,
        executor: str = "native",
        workers: Workers = None,
        cache_dir: Path | None = None,
        quota: MemoryQuota | None = None,
        **overrides: Any,
    ) -> None:
        self.request = MachineRequest(executor, workers)
        loaded = load_config(config, **overrides)
        with ExitStack() as undo:  # if anything fails
            self._plugins = plugins = plugin_host(loaded)
            if plugins is not None:
                undo.callback(plugins.close)
            create = executor_factory(executor, workers, loaded, plugins)
            vram = Vram(loaded.vram_bytes, loaded.devices, quota)
            undo.callback(vram.close)
            runs = create(vram, loaded.target, lds_bytes=loaded.lds_bytes, cache_dir=cache_dir)
            if plugins is not None:
                runs = observed(runs, plugins, vram)
            gate = Gate(runs.concurrent_launches)
            super().__init__(0, loaded, vram, runs, gate)
            self._others = [Device(index, loaded, vram, runs, gate) for index in range(1, loaded.devices)]
            undo.pop_all()

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs, in order."""
        # Not kept: it would be a cycle, and a machine that is dropped should end at once.
        return self, *self._others

    @property
    def concurrent_launches(self) -> int:
        """Launches that may be under way at once, from different threads; further ones wait."""
        return self._gate.limit

    def start(self) -> None:
        """Starts all worker processes now; otherwise each starts with the first launch that needs it."""
        self._check_open()
        self._executor.start()

    def save(self, path: str | Path, *, stop: bool = False, data: Any = None) -> None:
        """Writes a checkpoint of the machine, from which `rjemu.restore` makes it anew.

        Launches under way in any thread stop at an instruction boundary and go on when the file is written; with `stop`
        they end with LaunchSuspended. data: what the program wants to find in `RestoredMachine.data`: None, numbers,
        strings, bytes, lists and dicts with strings as keys. The file is replaced only when the new one is complete.

        CheckpointError if the file cannot be written; UsageError for data of another kind.
        """
        from rjemu.checkpoint.save import save_machine

        self._check_open()
        with self._gate.paused() as launches, self.vram.held() as allocations:
            save_machine(self, path, launches, allocations, data)
            if stop:
                for launch in launches:
                    launch.ending = True

    @property
    def plugin_lines(self) -> dict[str, tuple[int, list[str]]]:
        """What the machine's plugins have written, by their names: the number of lines, and the first ones. They may write
        more when the machine closes."""
        return {} if self._plugins is None else self._plugins.lines

    @property
    def pending(self) -> list[PendingLaunch]:
        """Launches that are still to be gone on with: none, but in a `RestoredMachine`."""
        return []

    @contextmanager
    def trace(self, path: str | Path) -> Iterator[None]:
        """Records what the launches inside do, and writes it to a file for Perfetto's or Chrome's viewer at the end: a row
        for each worker, with workgroups' turns, waits and decoding, and for each launching thread.

        UsageError if the machine is being traced already, or the file cannot be written.
        """
        self._check_open()
        try:
            # Before anything runs: the file's place may be wrong.
            Path(path).touch()
            self._executor.begin_trace()
            try:
                yield
            finally:
                write_trace(path, self.config.name, self._executor.end_trace())
        except OSError as error:
            raise UsageError(f"cannot write the trace {path}: {error.strerror}") from error

    def close(self) -> None:
        """Releases everything; arrays and modules cannot be used any more. Streams are cancelled; launches of other
        threads are waited for. A second call does nothing."""
        if not self.closed:
            for device in self.devices:
                device.cancel_streams()
            with self._gate.emptied(), closing(self.vram):  # also if a plugin's `close` raises
                self._executor.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
