"""A GPU of a machine in this process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rjemu.code import CodeObject
from rjemu.config import MachineConfig
from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.exec.suspended import SuspendedDispatch
from rjemu.shm.vram import Vram, round_up
from rjemu.vm.executor import Executor, Progress
from rjemu.vm.gate import Gate, Pass
from rjemu.vm.gpu import Gpu
from rjemu.vm.launch import LaunchMemory, PackedLaunch, dispatch_spec
from rjemu.vm.module import Module
from rjemu.vm.packets import AqlQueue
from rjemu.vm.pending import PendingLaunch

_KERNARG_GRANULE = 64
"""Scalar loads of arguments may be wider than what is left of the segment: up to 16 aligned dwords."""


@dataclass(frozen=True, slots=True)
class PlacedCode:
    """A code object in memory, parsed and as the bytes that it was loaded from."""

    code: CodeObject
    content: bytes
    address: int


class Device(Gpu):
    """A GPU whose memory this process has mapped, and whose work an executor of this process runs."""

    def __init__(self, index: int, config: MachineConfig, vram: Vram, executor: Executor, gate: Gate) -> None:
        super().__init__(index, config, vram, AqlQueue(vram, index))
        self.vram = vram
        self._executor = executor
        self._gate = gate
        self._placed: dict[int, PlacedCode] = {}

    @property
    def memory_used(self) -> int:
        return self.vram.used_on(self.index)

    def place(self, code: CodeObject, content: bytes, label: str) -> int:
        image = code.image
        address = self.vram.allocate(image.size, image.alignment, label, self.index)
        try:
            self.vram.view(address, image.size)[:] = np.frombuffer(image.relocate(address), np.uint8)
            self.adopt_code(PlacedCode(code, content, address))
        except BaseException:
            self.unload(code, address)
            raise
        return address

    def adopt_code(self, placed: PlacedCode) -> None:
        """Lets waves execute code that is in memory, until it is unloaded."""
        for start, end in placed.code.image.text_ranges:
            self._executor.add_code(placed.address + start, end - start)
        self._placed[placed.address] = placed

    @property
    def placed_code(self) -> list[PlacedCode]:
        """The code objects that are loaded, by address."""
        return [placed for _, placed in sorted(self._placed.items())]

    @property
    def modules(self) -> list[Module]:
        """The code objects that are loaded, by address."""
        return [Module(self, placed.code, placed.address) for placed in self.placed_code]

    def unload(self, code: CodeObject, address: int) -> None:
        if self.closed:
            return
        for start, _ in code.image.text_ranges:
            self._executor.remove_code(address + start)
        self._placed.pop(address, None)
        self.vram.free(address)

    def new_queue(self) -> AqlQueue:
        return AqlQueue(self.vram, self.index)

    def dispatch(self, launch: PackedLaunch, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        with self._gate.entered() as entry:
            entry.launch, entry.memory = launch, self._launch_memory(launch)
            return self._run(entry, None, timeout, progress)

    def go_on(self, pending: PendingLaunch, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        """Runs what is left of a launch."""
        with self._gate.entered() as entry:
            pending.taken = True
            entry.launch, entry.memory = pending.launch, pending.memory
            return self._run(entry, pending.suspended, timeout, progress)

    def _run(
        self, entry: Pass, suspended: SuspendedDispatch | None, timeout: float | None, progress: Progress | None
    ) -> DispatchResult:
        """Runs a launch whose memory has been set up, and releases that."""
        launch, memory = entry.launch, entry.memory
        assert launch is not None and memory is not None
        try:
            spec = self.spec_of(launch, memory)
            watched = entry.watched(progress)
            return self._executor.run(spec, timeout=timeout, progress=watched, pauses=entry, suspended=suspended)
        finally:
            for address in memory.owned:
                self.vram.free(address)

    def spec_of(self, launch: PackedLaunch, memory: LaunchMemory) -> DispatchSpec:
        """The dispatch of a launch on this GPU."""
        target = launch.target
        return dispatch_spec(
            target.kernel, target.module.address, launch.geometry, launch.resources, memory, self.config, self.index
        )

    def _launch_memory(self, launch: PackedLaunch) -> LaunchMemory:
        """The dispatch's kernarg segment, scratch arena and packet, set up."""
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
        except BaseException:
            self.vram.free(kernarg_address)
            if scratch_address:
                self.vram.free(scratch_address)
            raise
        return LaunchMemory(segment, kernarg_address, packet_address, queue.address, dispatch_id, scratch_address)
