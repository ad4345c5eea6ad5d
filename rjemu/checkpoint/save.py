"""Writing a checkpoint of a machine whose launches are paused."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from rjemu.checkpoint.contents import PIECE, encode_dtype, encode_piece, encode_workgroup
from rjemu.checkpoint.format import Writer, framed, replaced_file
from rjemu.errors import UsageError
from rjemu.shm.vram import Allocation
from rjemu.vm.gate import Pass
from rjemu.vm.packets import AqlQueue
from rjemu.vm.pending import PendingLaunch

if TYPE_CHECKING:
    from rjemu.vm.machine import Machine

_CODE_PIECE = 32 << 20
_MOST_THREADS = 8
"""That compress: more than that, and a disk does not keep up."""


def save_machine(
    machine: Machine, path: str | Path, launches: Sequence[Pass], allocations: Sequence[Allocation], data: Any
) -> None:
    """Writes the checkpoint. launches: those under way, suspended; allocations: all that are live, which nobody changes.

    CheckpointError if the file cannot be written; UsageError for data that is not plain.
    """
    under_way = [*_suspended(launches), *machine.pending]
    # Those of launches that have failed are about to be freed.
    ending = {address for launch in launches if launch.suspended is None for address in _owned(launch)}
    kept = [allocation for allocation in allocations if allocation.address not in ending]
    machine_section = _machine(machine, data)
    with replaced_file(Path(path)) as file:
        writer = Writer(file)
        writer.section("machine", machine_section)
        writer.section("allocations", {"rows": [[each.address, each.nbytes, each.label, each.device] for each in kept]})
        _write_code(writer, machine)
        writer.section("queues", {"rows": _queues(machine, under_way)})
        writer.section("arrays", {"rows": _arrays(machine)})
        for launch in under_way:
            _write_launch(writer, launch)
        _write_memory(writer, machine, kept)
        writer.end()


def _suspended(launches: Sequence[Pass]) -> list[PendingLaunch]:
    out = []
    for launch in launches:
        if launch.suspended is not None:
            assert launch.launch is not None and launch.memory is not None
            out.append(PendingLaunch(launch.launch, launch.memory, launch.suspended))
    return out


def _owned(launch: Pass) -> list[int]:
    return launch.memory.owned if launch.memory is not None else []


def _machine(machine: Machine, data: Any) -> dict[str, Any]:
    workers = machine.request.workers
    section = {
        "configuration": dict(machine.config.request),
        "name": machine.config.name,
        "executor": machine.request.executor,
        "workers": list(workers) if isinstance(workers, tuple) else workers,
        "async_helper_threads": machine.config.threads.async_helper_threads,
        "data": data,
    }
    try:
        msgpack.unpackb(msgpack.packb(section, strict_types=True), strict_map_key=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"a checkpoint's data, and a configuration, must be plain values: {error}") from None
    return section


def _write_code(writer: Writer, machine: Machine) -> None:
    for device in machine.devices:
        for placed in device.placed_code:
            content = placed.content
            writer.section(
                "code",
                {"address": placed.address, "device": device.index, "nbytes": len(content), "target": machine.config.target},
            )
            for start in range(0, len(content), _CODE_PIECE):
                writer.section("code bytes", {"data": content[start : start + _CODE_PIECE]})


def _queues(machine: Machine, under_way: Sequence[PendingLaunch]) -> list[list[Any]]:
    """[address, ring's address, device, whether it is the device's own] of each."""
    rows: dict[int, list[Any]] = {}
    queues = [(device.index, queue) for device in machine.devices for queue in (device.queue, *_stream_queues(device))]
    queues += [(launch.launch.target.module.device.index, launch.launch.queue) for launch in under_way]
    for index, queue in queues:
        assert isinstance(queue, AqlQueue)
        own = queue is machine.devices[index].queue
        rows.setdefault(queue.address, [queue.address, queue.ring_address, index, own])
    return list(rows.values())


def _stream_queues(device: Any) -> list[Any]:
    return [stream.queue for stream in device.streams]


def _arrays(machine: Machine) -> list[list[Any]]:
    """[address, device, shape, dtype] of each."""
    return [
        [address, device.index, list(array.shape), encode_dtype(array.dtype)]
        for device in machine.devices
        for address, array in device.arrays.items()
    ]


def _write_launch(writer: Writer, pending: PendingLaunch) -> None:
    launch, memory, suspended = pending.launch, pending.memory, pending.suspended
    geometry = launch.geometry
    writer.section(
        "launch",
        {
            "code": launch.target.module.address,
            "device": launch.target.module.device.index,
            "kernel": launch.target.name,
            "global_size": list(geometry.global_size),
            "block": list(geometry.block),
            "dimensions": geometry.dimensions,
            "dynamic_lds_bytes": launch.dynamic_lds_bytes,
            "kernarg": memory.kernarg,
            "kernarg_address": memory.kernarg_address,
            "packet_address": memory.packet_address,
            "queue_address": memory.queue_address,
            "dispatch_id": memory.dispatch_id,
            "scratch_address": memory.scratch_address,
            "begun": list(suspended.begun),
            "completed": suspended.completed,
            "instructions": suspended.instructions,
            "slots": list(suspended.slots),
        },
    )
    for record in suspended.workgroups():
        writer.section("workgroup", {"slot": record.slot, "data": encode_workgroup(record)})


def _write_memory(writer: Writer, machine: Machine, allocations: Sequence[Allocation]) -> None:
    """Several threads compress pieces, a few of them ahead of what is written: the machine stands still meanwhile."""
    pieces = (piece for allocation in allocations for piece in machine.vram.written(allocation, PIECE))
    count = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    under_way: deque[Future[tuple[bytes, bytes] | None]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="rjemu checkpoint") as threads:
        for address, pages in pieces:
            under_way.append(threads.submit(_memory_section, address, pages))
            if len(under_way) > 2 * count:
                _add(writer, under_way.popleft())
        while under_way:
            _add(writer, under_way.popleft())


def _memory_section(address: int, pages: np.ndarray) -> tuple[bytes, bytes] | None:
    piece = encode_piece(address, pages)
    return None if piece is None else framed("memory", piece)


def _add(writer: Writer, section: Future[tuple[bytes, bytes] | None]) -> None:
    frame = section.result()
    if frame is not None:
        writer.add(frame)
