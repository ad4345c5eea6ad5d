"""Making a machine from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rjemu.checkpoint.contents import (
    MAX_COUNT,
    MAX_WORD,
    decode_dtype,
    decode_piece,
    decode_workgroup,
    number,
    numbers,
    rows_of,
    triple,
    value,
)
from rjemu.checkpoint.format import Reader, Section
from rjemu.code import load_code_object
from rjemu.errors import CheckpointError, RjemuError
from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.suspended import SuspendedDispatch, WorkgroupRecord, check_totals, check_workgroup
from rjemu.shm.vram import PAGE, Allocation, Vram, round_up
from rjemu.vm.array import DeviceArray
from rjemu.vm.device import Device, PlacedCode
from rjemu.vm.geometry import resolve_geometry
from rjemu.vm.launch import LaunchMemory, PackedLaunch, required_resources
from rjemu.vm.module import Module
from rjemu.vm.packets import AMD_QUEUE, DISPATCH_PACKET, AqlQueue
from rjemu.vm.pending import PendingLaunch
from rjemu.vm.restored import RestoredMachine
from rjemu.vm.stream import Stream

MAX_CODE_BYTES = 1 << 31


def restore(path: str | Path, **overrides: Any) -> RestoredMachine:
    """The machine of a checkpoint, with its memory, arrays, code, queues, and the launches that were under way, which
    `RestoredMachine.resume` goes on with.

    overrides: what `Machine` takes, `config` included, and fields of the configuration; without them it is asked for as it
    was when it was made, and resolved for this host and its CPUs.

    CheckpointError for a file that cannot be read, is no checkpoint, is damaged, or does not fit the overrides; what
    `Machine` raises for a configuration that cannot be used here.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    with file:
        sections = Reader(file, str(path)).sections()
        section = _first(sections, path)
        machine = _machine(section, overrides)
        try:
            _Restoration(machine, str(path)).carry_out(sections, section.content.get("data"))
        except BaseException:
            machine.close()
            raise
    return machine


def _first(sections: Iterator[Section], path: str | Path) -> Section:
    section = next(sections, None)
    if section is None or section.name != "machine":
        raise CheckpointError(f"{path} does not begin with what machine it is of")
    return section


def _machine(section: Section, overrides: Mapping[str, Any]) -> RestoredMachine:
    """The empty machine that a checkpoint asks for."""
    content = section.content
    try:
        asked: dict[str, Any] = {"config": value(content, "configuration", dict)}
        if "executor" in content:
            asked["executor"] = value(content, "executor", str)
        workers = content.get("workers")
        asked["workers"] = tuple(workers) if isinstance(workers, list) else workers
        # A format that knew no helpers: there were none.
        if "async_helper_threads" not in content:
            asked["async_helper_threads"] = 0
        name = value(content, "name", str)
    except ValueError as problem:
        section.fail(problem)
    machine = RestoredMachine(**{**asked, **overrides})
    if "config" not in overrides:
        for device in machine.devices:
            device.config = replace(device.config, name=name)
    return machine


@dataclass
class _Launch:
    """A launch that is being read, and its workgroups' sections so far."""

    section: Section
    workgroups: list[bytes] = field(default_factory=list)


class _Restoration:
    """Fills an empty machine from a checkpoint's sections."""

    def __init__(self, machine: RestoredMachine, name: str) -> None:
        self._machine = machine
        self._vram: Vram = machine.vram
        self._name = name
        self._allocations: dict[int, Allocation] = {}
        self._owners: set[int] = set()
        self._code: list[tuple[Section, bytearray]] = []
        self._modules: dict[int, Module] = {}
        self._queues: dict[int, tuple[int, AqlQueue]] = {}
        self._streams: list[Stream] = []
        self._arrays: list[DeviceArray] = []
        self._launches: list[_Launch] = []
        self._takes = {
            "allocations": self._take_allocations,
            "code": self._take_code,
            "code bytes": self._take_code_bytes,
            "queues": self._take_queues,
            "arrays": self._take_arrays,
            "launch": self._take_launch,
            "workgroup": self._take_workgroup,
            "memory": self._take_memory,
        }

    def carry_out(self, sections: Iterator[Section], data: Any) -> None:
        for device in self._machine.devices:
            device.queue.free()
        missing = {"allocations", "queues", "arrays"}
        for section in sections:
            missing.discard(section.name)
            take = self._takes.get(section.name)
            if take is None:
                section.fail("no such section is known")
            self._attempt(section, take, section)
        if missing or any(device.queue.freed for device in self._machine.devices):
            raise CheckpointError(f"{self._name} lacks {', '.join(sorted(missing)) or 'the queue of a GPU'}")
        for section, content in self._code:
            self._attempt(section, self._place_code, section, bytes(content))
        pending = [self._attempt(launch.section, self._pending, launch) for launch in self._launches]
        self._machine.keep(self._arrays, self._streams, pending, data)

    def _attempt(self, section: Section, function: Any, *arguments: Any) -> Any:
        """Calls a function; what is wrong with a section's content becomes a CheckpointError that says where it is."""
        try:
            return function(*arguments)
        except CheckpointError:
            raise
        except (ValueError, RjemuError) as problem:
            section.fail(problem)

    def _device(self, content: Any) -> Device:
        return self._machine.devices[number(content, "device", len(self._machine.devices) - 1)]

    def _claim(self, address: int, nbytes: int, what: str) -> Allocation:
        """The allocation that is somebody's alone, of so many bytes at least."""
        allocation = self._allocations.get(address)
        if allocation is None or address in self._owners:
            raise ValueError(f"{what} is at {address:#x}, which is no allocation, or another's")
        if allocation.nbytes < nbytes:
            raise ValueError(f"{what} needs {nbytes} bytes, its allocation has {allocation.nbytes}")
        self._owners.add(address)
        return allocation

    # --- sections ----------------------------------------------------------------------------------------------------

    def _take_allocations(self, section: Section) -> None:
        for entry in rows_of(section.content, "address", "nbytes", "label", "device"):
            allocation = Allocation(
                number(entry, "address"), number(entry, "nbytes", MAX_COUNT), value(entry, "label", str),
                self._device(entry).index,
            )  # fmt: skip
            self._vram.place(allocation)
            self._allocations[allocation.address] = allocation

    def _take_code(self, section: Section) -> None:
        number(section.content, "nbytes", MAX_CODE_BYTES)
        self._code.append((section, bytearray()))

    def _take_code_bytes(self, section: Section) -> None:
        if not self._code:
            raise ValueError("bytes of no code object")
        owner, content = self._code[-1]
        content += value(section.content, "data", bytes)
        if len(content) > owner.content["nbytes"]:
            raise ValueError("more bytes than the code object has")

    def _take_queues(self, section: Section) -> None:
        for entry in rows_of(section.content, "address", "ring", "device", "own"):
            address, ring, device = number(entry, "address"), number(entry, "ring"), self._device(entry)
            self._claim(address, AMD_QUEUE.itemsize, "a queue")
            self._claim(ring, AqlQueue.SLOTS * DISPATCH_PACKET.itemsize, "a queue's ring")
            queue = AqlQueue(self._vram, device.index, existing=(address, ring))
            self._queues[address] = device.index, queue
            if value(entry, "own", bool):
                device.queue = queue
            else:
                self._streams.append(device.stream_of(queue))

    def _take_arrays(self, section: Section) -> None:
        for entry in rows_of(section.content, "address", "device", "shape", "dtype"):
            address, device = number(entry, "address"), self._device(entry)
            array = device.array_at(address, numbers(entry, "shape"), decode_dtype(entry["dtype"]))
            self._arrays.append(array)
            self._claim(address, array.nbytes, f"{array!r}")

    def _take_launch(self, section: Section) -> None:
        self._launches.append(_Launch(section))

    def _take_workgroup(self, section: Section) -> None:
        if not self._launches:
            raise ValueError("a workgroup of no launch")
        launch = self._launches[-1]
        slots = numbers(launch.section.content, "slots")
        if len(launch.workgroups) >= len(slots) or number(section.content, "slot") != slots[len(launch.workgroups)]:
            raise ValueError("a workgroup that its launch does not name")
        launch.workgroups.append(value(section.content, "data", bytes))

    def _take_memory(self, section: Section) -> None:
        address, present, pages = decode_piece(section.content)
        allocation = self._vram.find(address)
        most = 0 if allocation is None else round_up(max(allocation.nbytes, 1), PAGE) - (address - allocation.address)
        last = max(present.nonzero()[0].tolist(), default=-1) + 1
        if address % PAGE or last * PAGE > most:
            raise ValueError(f"{last} pages at {address:#x} are in no allocation: {self._vram.nearest(address)}")
        self._vram.pages(address, last * PAGE).reshape(-1, PAGE)[present[:last]] = pages

    # --- what is put together at the end -----------------------------------------------------------------------------

    def _place_code(self, section: Section, content: bytes) -> None:
        if len(content) != section.content["nbytes"]:
            raise ValueError(f"{len(content)} of {section.content['nbytes']} bytes of the code object are there")
        address, device = number(section.content, "address"), self._device(section.content)
        code = load_code_object(content, self._machine.config.target)
        self._claim(address, code.image.size, "a code object")
        device.adopt_code(PlacedCode(code, content, address))
        self._modules[address] = Module(device, code, address)

    def _pending(self, launch: _Launch) -> PendingLaunch:
        content = launch.section.content
        module = self._modules.get(number(content, "code"))
        if module is None:
            raise ValueError(f"no code object is at {number(content, 'code'):#x}")
        device = self._device(content)
        target = module[value(content, "kernel", str)]
        queue_address = number(content, "queue_address")
        queue_device, queue = self._queues.get(queue_address, (None, None))
        if module.device is not device or queue_device != device.index or queue is None:
            raise ValueError("the launch's code, queue and GPU do not belong together")
        block = triple(content, "block")
        geometry = replace(
            resolve_geometry(None, triple(content, "global_size"), block), dimensions=number(content, "dimensions", 3)
        )
        dynamic = number(content, "dynamic_lds_bytes", MAX_WORD)
        resources = required_resources(target.kernel, geometry, dynamic, self._machine.config)
        kernarg = value(content, "kernarg", bytes)
        memory = LaunchMemory(
            kernarg,
            number(content, "kernarg_address"),
            number(content, "packet_address"),
            queue_address,
            number(content, "dispatch_id"),
            number(content, "scratch_address"),
        )
        self._claim(memory.kernarg_address, len(kernarg), "a kernarg segment")
        if resources.scratch_bytes or memory.scratch_address:
            self._claim(memory.scratch_address, resources.scratch_arena_bytes, "the scratch of a launch")
        packed = PackedLaunch(target, geometry, dynamic, resources, kernarg, queue)
        suspended = self._suspended(launch, device.spec_of(packed, memory))
        return PendingLaunch(packed, memory, suspended)

    def _suspended(self, launch: _Launch, spec: DispatchSpec) -> SuspendedDispatch:
        content = launch.section.content
        slots = numbers(content, "slots")
        if len(launch.workgroups) != len(slots):
            raise ValueError(f"{len(launch.workgroups)} of {len(slots)} resident workgroups are there")

        def workgroups() -> Iterator[WorkgroupRecord]:
            # They stay compressed until they are needed: what a file can make this process hold is as large as the file.
            for slot, data in zip(slots, launch.workgroups, strict=True):
                yield decode_workgroup(slot, data)

        suspended = SuspendedDispatch(
            numbers(content, "begun"), number(content, "completed"), number(content, "instructions"), slots, workgroups
        )
        check_totals(suspended, spec)
        seen = set()
        for record in workgroups():
            check_workgroup(record, spec)
            seen.add(record.number)
        if len(seen) != len(slots):
            raise ValueError("a workgroup is resident twice")
        return suspended
