"""One GPU of a machine: arrays in its memory, code loaded for it, launches on it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.code import CodeObject, Kernel, load_code_object
from rjemu.config import MachineConfig
from rjemu.errors import LaunchError, UsageError
from rjemu.exec.dispatch import DispatchResult
from rjemu.shm.vram import Vram, round_up
from rjemu.vm.array import DeviceArray
from rjemu.vm.executor import Executor, Progress
from rjemu.vm.gate import Gate
from rjemu.vm.geometry import Extent, Geometry, resolve_geometry
from rjemu.vm.kernargs import HiddenValues, pack_arguments, pack_raw
from rjemu.vm.launch import LaunchMemory, Resources, default_block, dispatch_spec, required_resources
from rjemu.vm.module import LoadedKernel, Module
from rjemu.vm.packets import AqlQueue
from rjemu.vm.stream import Stream

_KERNARG_GRANULE = 64
"""Scalar loads of arguments may be wider than what is left of the segment: up to 16 aligned dwords."""


class Device:
    """GPU number `index` of a machine. Its kernels reach the memory of the machine's other GPUs as they do their own."""

    def __init__(self, index: int, config: MachineConfig, vram: Vram, executor: Executor, gate: Gate) -> None:
        self.index = index
        self.config = config
        self.vram = vram
        self._executor = executor
        self._gate = gate
        self._queue = AqlQueue(vram, index)
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()

    @property
    def closed(self) -> bool:
        return self.vram.closed

    @property
    def memory_used(self) -> int:
        """Bytes of this GPU's memory in use."""
        return self.vram.used_on(self.index)

    def load(self, code: bytes | bytearray | memoryview | str | os.PathLike[str]) -> Module:
        """Loads a code object, from its bytes or its file; CodeObjectError if it is none for this machine's target."""
        self._check_open()
        loaded = load_code_object(code, self.config.target)
        image = loaded.image
        label = "code" if isinstance(code, bytes | bytearray | memoryview) else f"code of {Path(code).name}"
        address = self.vram.allocate(image.size, image.alignment, label, self.index)
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
        return DeviceArray(self.vram, shape, dtype, self.index)

    def zeros(self, shape: int | Sequence[int], dtype: Any) -> DeviceArray:
        """A new array of zeros."""
        return self.empty(shape, dtype)

    def to_device(self, source: Any) -> DeviceArray:
        """A new array with the contents, shape and dtype of a host array."""
        host = np.asarray(source)
        array = self.empty(host.shape, host.dtype)
        array.copy_from(host)
        return array

    def stream(self) -> Stream:
        """A new queue of launches, which run one after another, and beside those of other streams."""
        self._check_open()
        stream = Stream(self.index, AqlQueue(self.vram, self.index))
        self._streams.add(stream)
        return stream

    def cancel_streams(self) -> None:
        """Ends every stream (`Stream.cancel`)."""
        for stream in list(self._streams):
            stream.cancel()

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
        queue: AqlQueue | None = None,
    ) -> DispatchResult:
        """Runs a kernel: `LoadedKernel.launch`. Launches of several threads run beside each other on worker processes.
        queue: what the kernel sees as its queue, the device's default one if None."""
        self._check_open()
        kernel = target.kernel
        if timeout is not None and timeout <= 0:
            raise UsageError(f"timeout is {timeout} seconds: expected more than 0")
        geometry = resolve_geometry(grid, global_size, default_block(kernel) if block is None else block)
        resources = required_resources(kernel, geometry, lds_bytes, self.config)
        queue = queue or self._queue
        segment = self._kernarg_segment(kernel, geometry, args, kernarg, lds_bytes, queue)
        with self._gate.entered(), self._launch_memory(target, geometry, resources, segment, queue) as memory:
            spec = dispatch_spec(kernel, target.module.address, geometry, resources, memory, self.config, self.index)
            return self._executor.run(spec, timeout=timeout, progress=progress)

    def _kernarg_segment(
        self,
        kernel: Kernel,
        geometry: Geometry,
        args: Sequence[Any] | None,
        kernarg: bytes | None,
        lds_bytes: int,
        queue: AqlQueue,
    ) -> bytes:
        hidden = HiddenValues(geometry, lds_bytes, queue.address)
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
        self, target: LoadedKernel, geometry: Geometry, resources: Resources, segment: bytes, queue: AqlQueue
    ) -> Iterator[LaunchMemory]:
        """The dispatch's kernarg segment, scratch arena and packet, for as long as it runs."""
        name = target.name
        kernarg_address = self.vram.allocate(
            round_up(max(len(segment), 1), _KERNARG_GRANULE), label=f"kernarg segment of {name}", device=self.index
        )
        scratch_address = 0
        try:
            self.vram.view(kernarg_address, len(segment))[:] = np.frombuffer(segment, np.uint8)
            if resources.scratch_bytes:
                scratch_address = self.vram.allocate(
                    resources.scratch_arena_bytes, label=f"scratch of {name}", device=self.index
                )
            dispatch_id, packet_address = queue.push(
                geometry,
                target.module.address + target.kernel.descriptor_offset,
                kernarg_address,
                resources.scratch_bytes,
                resources.lds_bytes,
            )
            yield LaunchMemory(segment, kernarg_address, packet_address, queue.address, dispatch_id, scratch_address)
        finally:
            self.vram.free(kernarg_address)
            if scratch_address:
                self.vram.free(scratch_address)

    def _check_open(self) -> None:
        self.vram.check_open("the machine")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index}, {self.config.target})"
