"""What a machine needs of whatever runs its dispatches, and the choice of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from rjemu.errors import UsageError
from rjemu.exec.dispatch import DispatchResult, DispatchSpec

Progress = Callable[[int, int], None]
"""Called now and then during a launch with workgroups finished and workgroups in all."""


class Executor(Protocol):
    """What runs dispatches. Faults come as `KernelFault`s; memory keeps what was written before.

    concurrent_launches: how many `run`s may be under way at once, from different threads.
    """

    concurrent_launches: int

    def start(self) -> None:
        """Starts all processes now that it would start when they are needed."""

    def add_code(self, address: int, nbytes: int) -> None:
        """Lets waves execute a range of device memory."""

    def remove_code(self, address: int) -> None:
        """Ends what `add_code` began."""

    def run(self, spec: DispatchSpec, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        """Runs a dispatch to its end."""

    def close(self) -> None:
        """Releases what the executor holds."""


def executor_factory(name: str, workers: str | tuple[int, int], devices: int) -> Callable[..., Executor]:
    """What makes the executor of that name, in this process or on (engines, dispatch workers per GPU) processes."""
    if name == "reference":
        from rjemu.exec.reference import ReferenceExecutor

        return ReferenceExecutor
    if name != "native":
        raise UsageError(f"no executor {name!r}: expected 'native' or 'reference'")
    if workers == "inline":
        from rjemu.exec.native import NativeExecutor

        return NativeExecutor
    if isinstance(workers, str):
        raise UsageError(f"workers is {workers!r}: expected 'inline' or (engines, dispatch workers)")
    from rjemu.workers.pool import PoolExecutor
    from rjemu.workers.roles import roles

    return partial(PoolExecutor, workers=roles(*workers, devices))
