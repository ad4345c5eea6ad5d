"""A GPU of a machine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rjemu.code import CodeObject
from rjemu.config import MachineConfig
from rjemu.exec.dispatch import DispatchResult
from rjemu.shm.vram import Vram, round_up
from rjemu.vm.executor import Executor, Progress
from rjemu.vm.gate import Gate
from rjemu.vm.gpu import Gpu
from rjemu.vm.launch import LaunchMemory, PackedLaunch, dispatch_spec
from rjemu.vm.packets import AqlQueue

_KERNARG_GRANULE = 64
"""Scalar loads of arguments may be wider than what is left of the segment: up to 16 aligned dwords."""


class Device(Gpu):
    """A GPU whose memory this process has mapped, and whose work an executor of this process runs."""

    def __init__(self, index: int, config: MachineConfig, vram: Vram, executor: Executor, gate: Gate) -> None:
        super().__init__(index, config, vram, AqlQueue(vram, index))
        self.vram = vram
        self._executor = executor
        self._gate = gate

    @property
    def memory_used(self) -> int:
        return self.vram.used_on(self.index)

    def place(self, code: CodeObject, content: bytes, label: str) -> int:
        image = code.image
        address = self.vram.allocate(image.size, image.alignment, label, self.index)
        try:
            self.vram.view(address, image.size)[:] = np.frombuffer(image.relocate(address), np.uint8)
            for start, end in image.text_ranges:
                self._executor.add_code(address + start, end - start)
        except BaseException:
            self.unload(code, address)
            raise
        return address

    def unload(self, code: CodeObject, address: int) -> None:
        if self.closed:
            return
        for start, _ in code.image.text_ranges:
            self._executor.remove_code(address + start)
        self.vram.free(address)

    def new_queue(self) -> AqlQueue:
        return AqlQueue(self.vram, self.index)

    def dispatch(self, launch: PackedLaunch, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        target = launch.target
        with self._gate.entered(), self._launch_memory(launch) as memory:
            spec = dispatch_spec(
                target.kernel, target.module.address, launch.geometry, launch.resources, memory, self.config, self.index
            )
            return self._executor.run(spec, timeout=timeout, progress=progress)

    @contextmanager
    def _launch_memory(self, launch: PackedLaunch) -> Iterator[LaunchMemory]:
        """The dispatch's kernarg segment, scratch arena and packet, for as long as it runs."""
        target, segment, queue, resources = launch.target, launch.segment, launch.queue, launch.resources
        assert isinstance(queue, AqlQueue), "the queue of another kind of machine"
        kernarg_address = self.vram.allocate(
            round_up(max(len(segment), 1), _KERNARG_GRANULE), label=f"kernarg segment of {target.name}", device=self.index
        )
        scratch_address = 0
        try:
            self.vram.view(kernarg_address, len(segment))[:] = np.frombuffer(segment, np.uint8)
            if resources.scratch_bytes:
                scratch_address = self.vram.allocate(
                    resources.scratch_arena_bytes, label=f"scratch of {target.name}", device=self.index
                )
            dispatch_id, packet_address = queue.push(
                launch.geometry,
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
