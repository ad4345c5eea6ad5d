"""Launches that the caller does not wait for: in order within a stream, beside each other between streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from rjemu.errors import LaunchError, LaunchInterrupted, MachineClosed
from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.geometry import Extent
from rjemu.vm.handle import Handle
from rjemu.vm.module import LoadedKernel
from rjemu.vm.packets import Queue

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS = 0.25
"""How often a wait looks up: a signal that comes just before the main thread blocks in a lock does not wake it."""


class Stream(Handle):
    """A queue of one GPU. What is put into it runs in order; a failure ends the stream: what follows fails, too, until
    `synchronize` has raised it.

    As a context manager it waits at the end, or cancels what is left if the block raises.
    """

    def __init__(self, device: int, queue: Queue) -> None:
        self._device = device
        self.queue = queue
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rjemu stream")
        self._cancelled = threading.Event()
        self._failure: BaseException | None = None

    def launch(
        self,
        kernel: LoadedKernel,
        grid: Extent | None = None,
        block: Extent | None = None,
        args: Sequence[Any] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Future[DispatchResult]:
        """`LoadedKernel.launch` as soon as what is in the stream has ended; the result, or what it raises, in the future.
        Arguments are read when the launch begins."""
        device = kernel.module.device
        if device.index != self._device:
            raise LaunchError(f"kernel {kernel.name} is loaded on GPU {device.index}, the stream is GPU {self._device}'s")

        def watch(done: int, total: int) -> None:
            if self._cancelled.is_set():
                raise LaunchInterrupted(f"kernel {kernel.name}: its stream was closed")
            if progress is not None:
                progress(done, total)

        return self.submit(device.launch, kernel, grid, block, args, progress=watch, queue=self.queue, **options)

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Calls a function when everything put in before has ended: a copy, `array.copy_from`, for instance."""

        def call() -> T:
            if self._failure is not None:
                raise LaunchError(f"the stream has failed before: {self._failure}") from self._failure
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                self._failure = error
                raise

        self.queue.check_open("the machine of the stream")
        try:
            return self._thread.submit(call)
        except RuntimeError as error:
            raise MachineClosed("the stream has been closed") from error

    def synchronize(self) -> None:
        """Waits until the stream is empty; raises the first failure since the last call, and lets the stream go on."""
        self.queue.check_open("the machine of the stream")
        end = self._thread.submit(lambda: None)
        while not wait([end], LOOK_SECONDS).done:
            pass
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def cancel(self) -> None:
        """Ends the stream: what waits is cancelled, what runs is stopped (LaunchInterrupted in its future)."""
        self._cancelled.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Waits as `synchronize`, then ends the stream and releases its queue. A second call does nothing."""
        if self.queue.freed:
            return
        try:
            if not self._cancelled.is_set():
                self.synchronize()
        finally:
            self.cancel()
            self.queue.free()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.cancel()
        self.close()
