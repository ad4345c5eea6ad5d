"""What a GPU of a machine offers: arrays in its memory, code loaded for it, launches on it.

Where the memory is and what runs the work is for the subclasses: `rjemu.vm.device` has them in this process,
`rjemu.daemon.client` in a daemon. Everything that can be checked is checked here, in the caller's process.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.code import CodeObject, Kernel, load_code_object
from rjemu.code.loader import code_bytes
from rjemu.config import MachineConfig
from rjemu.errors import LaunchError, UsageError
from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.array import DeviceArray
from rjemu.vm.executor import Progress
from rjemu.vm.geometry import Extent, Geometry, resolve_geometry
from rjemu.vm.handle import Handle
from rjemu.vm.kernargs import HiddenValues, pack_arguments, pack_raw
from rjemu.vm.launch import PackedLaunch, default_block, required_resources
from rjemu.vm.memory import DeviceMemory
from rjemu.vm.module import LoadedKernel, Module
from rjemu.vm.packets import Queue
from rjemu.vm.stream import Stream


class Gpu(Handle, ABC):
    """GPU number `index` of a machine. Its kernels reach the memory of the machine's other GPUs as they do their own."""

    def __init__(self, index: int, config: MachineConfig, memory: DeviceMemory, queue: Queue) -> None:
        self.index = index
        self.config = config
        self._memory = memory
        self.queue = queue
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._arrays: weakref.WeakSet[DeviceArray] = weakref.WeakSet()
        self._members = threading.Lock()  # of the two sets

    @property
    def closed(self) -> bool:
        return self._memory.closed

    @property
    @abstractmethod
    def memory_used(self) -> int:
        """Bytes of this GPU's memory in use."""

    @abstractmethod
    def place(self, code: CodeObject, content: bytes, label: str) -> int:
        """Puts a code object, parsed and as its bytes, into memory and makes it executable; its GPU address."""

    @abstractmethod
    def unload(self, code: CodeObject, address: int) -> None:
        """Releases a loaded code object: `Module.unload`."""

    @abstractmethod
    def new_queue(self) -> Queue:
        """A queue in this GPU's memory."""

    @abstractmethod
    def dispatch(self, launch: PackedLaunch, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        """Runs a launch that has been checked."""

    def load(self, code: bytes | bytearray | memoryview | str | os.PathLike[str]) -> Module:
        """Loads a code object, from its bytes or its file; CodeObjectError if it is none for this machine's target."""
        self._check_open()
        content = code_bytes(code)
        loaded = load_code_object(content, self.config.target)
        label = "code" if isinstance(code, bytes | bytearray | memoryview) else f"code of {Path(code).name}"
        return Module(self, loaded, self.place(loaded, content, label))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> DeviceArray:
        """A new array; its memory reads as zero. OutOfMemory if there is not that much left."""
        self._check_open()
        return self._enter(DeviceArray(self._memory, shape, dtype, self.index))

    def array_at(self, address: int, shape: int | Sequence[int], dtype: Any) -> DeviceArray:
        """An array in an allocation that is there, and that ends with it."""
        return self._enter(DeviceArray(self._memory, shape, dtype, self.index, existing=address))

    def _enter(self, array: DeviceArray) -> DeviceArray:
        with self._members:
            self._arrays.add(array)
        return array

    @property
    def arrays(self) -> dict[int, DeviceArray]:
        """The arrays in this GPU's memory that have not been freed, by address."""
        with self._members:
            live = [array for array in self._arrays if not array.freed]
        return {array.address: array for array in sorted(live, key=lambda array: array.address)}

    @property
    def streams(self) -> list[Stream]:
        """The streams of this GPU that have not been closed."""
        with self._members:
            return [stream for stream in self._streams if not stream.queue.freed]

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
        return self.stream_of(self.new_queue())

    def stream_of(self, queue: Queue) -> Stream:
        """A new stream that uses a queue of this GPU, and releases it in the end."""
        stream = Stream(self.index, queue)
        with self._members:
            self._streams.add(stream)
        return stream

    def cancel_streams(self) -> None:
        """Ends every stream (`Stream.cancel`)."""
        with self._members:
            streams = list(self._streams)
        for stream in streams:
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
        queue: Queue | None = None,
    ) -> DispatchResult:
        """Runs a kernel: `LoadedKernel.launch`. Launches of several threads run beside each other on worker processes.
        queue: what the kernel sees as its queue, the device's default one if None."""
        self._check_open()
        kernel = target.kernel
        if timeout is not None and not timeout > 0:  # also NaN
            raise UsageError(f"timeout is {timeout} seconds: expected more than 0")
        geometry = resolve_geometry(grid, global_size, default_block(kernel) if block is None else block)
        resources = required_resources(kernel, geometry, lds_bytes, self.config)
        queue = queue or self.queue
        segment = self._kernarg_segment(kernel, geometry, args, kernarg, lds_bytes, queue)
        launch = PackedLaunch(target, geometry, lds_bytes, resources, segment, queue)
        return self.dispatch(launch, timeout=timeout, progress=progress)

    def _kernarg_segment(
        self,
        kernel: Kernel,
        geometry: Geometry,
        args: Sequence[Any] | None,
        kernarg: bytes | None,
        lds_bytes: int,
        queue: Queue,
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
            if isinstance(value, DeviceArray) and not value.is_in(self._memory):
                raise LaunchError(f"kernel {kernel.name}, argument {index}: the array is another machine's")
        return pack_arguments(kernel.metadata, args or (), hidden)

    def _check_open(self) -> None:
        self._memory.check_open("the machine")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index}, {self.config.target})"
