"""What a machine needs of whatever runs its dispatches, and the choice of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rjemu.config import MachineConfig, ThreadAllocation, resolve_execution_threads
from rjemu.errors import ConfigError, UsageError
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.suspended import Pauses, SuspendedDispatch
from rjemu.exec.trace import TraceRow
from rjemu.isa.tables import FAMILIES
from rjemu.shm.scoreboard import MAX_HELPERS

if TYPE_CHECKING:
    from rjemu.plugins.host import PluginHost
    from rjemu.shm.vram import Vram

Progress = Callable[[int, int], None]
"""Called now and then during a launch with workgroups finished and workgroups in all."""


class Executor(Protocol):
    """What runs dispatches. Faults come as `KernelFault`s; memory keeps what was written before.

    concurrent_launches: how many `run`s may be under way at once, from different threads.
    """

    concurrent_launches: int

    def start(self) -> None:
        """Starts all processes now that it would start when they are needed."""

    def begin_trace(self) -> None:
        """Records what launches do from now on (`rjemu.vm.trace`)."""

    def end_trace(self) -> list[TraceRow]:
        """What has been recorded since `begin_trace`."""

    def add_code(self, address: int, nbytes: int) -> None:
        """Lets waves execute a range of device memory."""

    def remove_code(self, address: int) -> None:
        """Ends what `add_code` began."""

    def run(
        self,
        spec: DispatchSpec,
        *,
        timeout: float | None,
        progress: Progress | None,
        pauses: Pauses | None,
        suspended: SuspendedDispatch | None,
    ) -> DispatchResult:
        """Runs a dispatch to its end. pauses: where it can be made to wait; suspended: what of it has been done already."""

    def close(self) -> None:
        """Releases what the executor holds."""


Workers = str | tuple[int, int] | None
"""Where dispatches run: "inline", in the caller's thread; (E, D), on E engines and a dispatch width of D per GPU; None, on
as many processes as the thread policy gives."""


def executor_factory(
    name: str, workers: Workers, config: MachineConfig, plugins: PluginHost | None = None
) -> Callable[..., Executor]:
    """What makes the executor of that name: the fastest one that the hooks of the plugins allow. ConfigError for a target
    whose instructions rjemu does not execute."""
    if config.target not in FAMILIES:
        runs = " and ".join(sorted(FAMILIES))
        raise ConfigError(f"{config.name}: rjemu does not execute {config.target} code; it executes {runs}")
    if name not in ("native", "reference"):
        raise UsageError(f"no executor {name!r}: expected 'native' or 'reference'")
    if plugins is not None and (name == "reference" or plugins.steps):
        from rjemu.plugins.step import StepExecutor

        asynchronous = name == "native" and plugins.supports_async_instructions
        return partial(StepExecutor, host=plugins, helpers=helper_factory(None, config) if asynchronous else None)
    if name == "reference":
        from rjemu.exec.reference import ReferenceExecutor

        return ReferenceExecutor
    counting = plugins is not None and plugins.counts
    watches = plugins is not None and plugins.watches_waves
    threads = None if watches else execution_threads(workers, config)
    synchronous = plugins is not None and not plugins.supports_async_instructions
    helpers = None if synchronous else helper_factory(threads, config)
    notify = None
    if plugins is not None and helpers is not None and plugins.watches_issues:
        from rjemu.plugins.notify import IssueHooks

        notify = partial(IssueHooks, plugins)
    if threads is None:
        from rjemu.exec.native import NativeExecutor

        watch = None
        if plugins is not None and watches:
            from rjemu.plugins.watch import WaveHooks

            watch = partial(WaveHooks, plugins)
        return partial(NativeExecutor, helpers=helpers, counting=counting, watch=watch, notify=notify)
    from rjemu.workers.pool import PoolExecutor
    from rjemu.workers.roles import roles

    crew = roles(threads.num_threads, threads.cpu_dispatch_threads, config.devices)
    return partial(PoolExecutor, workers=crew, helpers=helpers, counting=counting, notify=notify)


def helper_factory(threads: ThreadAllocation | None, config: MachineConfig) -> Callable[..., Any] | None:
    """What makes the helpers for matrix instructions; None where there are none (inline: unless they are asked for)."""
    from rjemu.mma.candidates import supports_async

    count = (config.threads.async_helper_threads or 0) if threads is None else threads.async_helper_threads
    if count == 0 or not supports_async(config.target):
        return None
    from rjemu.workers.helpers import HelperPool

    return partial(HelperPool, min(count, MAX_HELPERS), config.async_window or 0)


def plugin_host(config: MachineConfig) -> PluginHost | None:
    """The configuration's plugins; None if it has none. ConfigError for plugins, settings or sinks that there cannot be."""
    if not config.plugins:
        return None
    from rjemu.plugins.host import PluginHost

    return PluginHost(config.plugins, config.sinks, config.target)


def observed(executor: Executor, plugins: PluginHost, vram: Vram) -> Executor:
    """The executor, with its dispatches told to the plugins, which it closes with itself."""
    from rjemu.plugins.executor import PluginExecutor

    return PluginExecutor(executor, plugins, vram)


def execution_threads(workers: Workers, config: MachineConfig) -> ThreadAllocation | None:
    """The processes that dispatches run on; None for inline. UsageError for workers that are none of `Workers`."""
    if workers == "inline":
        return None
    request = config.threads
    if workers is not None:
        if not isinstance(workers, tuple) or len(workers) != 2 or not all(isinstance(n, int) and n > 0 for n in workers):
            raise UsageError(f"workers is {workers!r}: expected 'inline' or (engines, dispatch width)")
        request = replace(request, num_threads=workers[0], cpu_dispatch_threads=workers[1])
    from rjemu.workers.budget import detect_budget

    return resolve_execution_threads(request, config.execution_topology, detect_budget(config.cpu_thread_budget).cpus)
