"""The machine: device memory, loaded code, and launches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.code import CodeObject, Kernel, load_code_object
from rjemu.config import load_config
from rjemu.errors import LaunchError, MachineClosed, UsageError
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.shm.vram import Vram, round_up
from rjemu.vm.array import DeviceArray
from rjemu.vm.gate import Gate
from rjemu.vm.geometry import Extent, Geometry, resolve_geometry
from rjemu.vm.kernargs import HiddenValues, pack_arguments, pack_raw
from rjemu.vm.launch import LaunchMemory, Resources, default_block, dispatch_spec, required_resources
from rjemu.vm.module import LoadedKernel, Module, Progress
from rjemu.vm.packets import AqlQueue

_KERNARG_GRANULE = 64
"""Scalar loads of arguments may be wider than what is left of the segment: up to 16 aligned dwords."""


class Executor(Protocol):
    """What runs dispatches. Faults come as `KernelFault`s; memory keeps what was written before.

    concurrent_launches: how many `run`s may be under way at once, from different threads.
    """

    concurrent_launches: int

    def add_code(self, address: int, nbytes: int) -> None:
        """Lets waves execute a range of device memory."""

    def remove_code(self, address: int) -> None:
        """Ends what `add_code` began."""

    def run(self, spec: DispatchSpec, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        """Runs a dispatch to its end."""

    def close(self) -> None:
        """Releases what the executor holds."""


class Machine:
    """An emulated GPU.

    config: a preset's name, a JSON file or a parsed dict; keyword overrides replace its fields
    (`rjemu.config.load_config`). executor: "native", or "reference" (numpy, slow, easy to follow). workers: "inline"
    runs everything in this process; (E, D) on E engine and D - 1 dispatch processes, pinned one CPU each. cache_dir: where
    compiled handlers are kept, by default the user's cache directory.

    Use it as a context manager, or call `close`. ConfigError for a configuration that cannot be used.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] = "gfx950_mi355x",
        *,
        executor: str = "native",
        workers: str | tuple[int, int] = "inline",
        cache_dir: Path | None = None,
        **overrides: Any,
    ) -> None:
        create = _executor_class(executor, workers)
        self.config = load_config(config, **overrides)
        self.vram = Vram(self.config.vram_bytes)
        try:
            self._executor = create(self.vram, self.config.target, lds_bytes=self.config.lds_bytes, cache_dir=cache_dir)
            self._queue = AqlQueue(self.vram)
        except BaseException:
            self.vram.close()
            raise
        self._gate = Gate(self._executor.concurrent_launches)

    @property
    def closed(self) -> bool:
        return self.vram.closed

    def load(self, code: bytes | bytearray | memoryview | str | os.PathLike[str]) -> Module:
        """Loads a code object, from its bytes or its file; CodeObjectError if it is none for this machine's target."""
        self._check_open()
        loaded = load_code_object(code, self.config.target)
        image = loaded.image
        label = "code" if isinstance(code, bytes | bytearray | memoryview) else f"code of {Path(code).name}"
        address = self.vram.allocate(image.size, image.alignment, label)
        self.vram.view(address, image.size)[:] = np.frombuffer(image.relocate(address), np.uint8)
        for start, end in image.text_ranges:
            self._executor.add_code(address + start, end - start)
        return Module(self, loaded, address)

    def unload(self, code: CodeObject, address: int) -> None:
        """Releases a loaded code object: `Module.unload`."""
        if self.closed:
            return
        for start, _ in code.image.text_ranges:
            self._executor.remove_code(address + start)
        self.vram.free(address)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> DeviceArray:
        """A new array; its memory reads as zero. OutOfMemory if there is not that much left."""
        self._check_open()
        return DeviceArray(self.vram, shape, dtype)

    def zeros(self, shape: int | Sequence[int], dtype: Any) -> DeviceArray:
        """A new array of zeros."""
        return self.empty(shape, dtype)

    def to_device(self, source: Any) -> DeviceArray:
        """A new array with the contents, shape and dtype of a host array."""
        host = np.asarray(source)
        array = self.empty(host.shape, host.dtype)
        array.copy_from(host)
        return array

    def launch(
        self,
        target: LoadedKernel,
        grid: Extent | None,
        block: Extent | None,
        args: Sequence[Any] | None,
        *,
        global_size: Extent | None = None,
        kernarg: bytes | None = None,
        lds_bytes: int = 0,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> DispatchResult:
        """Runs a kernel: `LoadedKernel.launch`. Launches of several threads run one after another."""
        self._check_open()
        kernel = target.kernel
        if timeout is not None and timeout <= 0:
            raise UsageError(f"timeout is {timeout} seconds: expected more than 0")
        geometry = resolve_geometry(grid, global_size, default_block(kernel) if block is None else block)
        resources = required_resources(kernel, geometry, lds_bytes, self.config)
        segment = self._kernarg_segment(kernel, geometry, args, kernarg, lds_bytes)
        with self._gate.entered(), self._launch_memory(target, geometry, resources, segment) as memory:
            spec = dispatch_spec(kernel, target.module.address, geometry, resources, memory, self.config)
            return self._executor.run(spec, timeout=timeout, progress=progress)

    def close(self) -> None:
        """Releases everything; arrays and modules cannot be used any more. A second call does nothing."""
        if not self.closed:
            with self._gate.emptied():
                self._executor.close()
                self.vram.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _kernarg_segment(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[Any] | None, kernarg: bytes | None, lds_bytes: int
    ) -> bytes:
        hidden = HiddenValues(geometry, lds_bytes, self._queue.address)
        if kernarg is not None:
            if args is not None:
                raise LaunchError("a launch takes either args= or kernarg=")
            return pack_raw(kernel.name, kernel.metadata, kernel.descriptor.kernarg_size, kernarg, hidden)
        if kernel.metadata is None:
            if args or kernel.descriptor.kernarg_size:
                raise LaunchError(f"kernel {kernel.name} has no metadata that describes its arguments: kernarg= is needed")
            return b""
        for index, value in enumerate(args or ()):
            if isinstance(value, DeviceArray) and not value.is_in(self.vram):
                raise LaunchError(f"kernel {kernel.name}, argument {index}: the array is another machine's")
        return pack_arguments(kernel.metadata, args or (), hidden)

    @contextmanager
    def _launch_memory(
        self, target: LoadedKernel, geometry: Geometry, resources: Resources, segment: bytes
    ) -> Iterator[LaunchMemory]:
        """The dispatch's kernarg segment, scratch arena and packet, for as long as it runs."""
        name = target.name
        kernarg_address = self.vram.allocate(
            round_up(max(len(segment), 1), _KERNARG_GRANULE), label=f"kernarg segment of {name}"
        )
        scratch_address = 0
        try:
            self.vram.view(kernarg_address, len(segment))[:] = np.frombuffer(segment, np.uint8)
            if resources.scratch_bytes:
                scratch_address = self.vram.allocate(resources.scratch_arena_bytes, label=f"scratch of {name}")
            dispatch_id, packet_address = self._queue.push(
                geometry,
                target.module.address + target.kernel.descriptor_offset,
                kernarg_address,
                resources.scratch_bytes,
                resources.lds_bytes,
            )
            yield LaunchMemory(segment, kernarg_address, packet_address, self._queue.address, dispatch_id, scratch_address)
        finally:
            self.vram.free(kernarg_address)
            if scratch_address:
                self.vram.free(scratch_address)

    def _check_open(self) -> None:
        if self.closed:
            raise MachineClosed("the machine has been closed")


def _executor_class(name: str, workers: str | tuple[int, int]) -> Callable[..., Executor]:
    """What makes the executor of that name, in this process or on (engines, dispatch workers per SoC) processes."""
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
    from rjemu.workers.pool import PoolExecutor, roles

    return partial(PoolExecutor, workers=roles(*workers))
