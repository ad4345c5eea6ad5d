"""The machine that a daemon serves, as its clients see it: the interface of `rjemu.Machine`."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from rjemu.code import CodeObject
from rjemu.config import MachineConfig, load_config
from rjemu.daemon.connection import Connection
from rjemu.daemon.endpoint import default_path
from rjemu.daemon.protocol import MAX_FREED, MAX_LABEL
from rjemu.daemon.session import MAX_WAITING_LAUNCHES
from rjemu.daemon.staging import STAGING_BYTES
from rjemu.daemon.values import decode_result
from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.executor import Progress
from rjemu.vm.gate import Gate
from rjemu.vm.gpu import Gpu
from rjemu.vm.launch import PackedLaunch


class RemoteMemory:
    """The daemon's device memory, which this process does not map: copies go through staging memory."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dropped: deque[int] = deque()
        self._staging = threading.Lock()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def check_open(self, what: str = "the device memory") -> None:
        self._connection.check_open(what)

    def allocate(self, nbytes: int, *, label: str = "", device: int = 0) -> int:
        while self._dropped:
            count = min(len(self._dropped), MAX_FREED)
            self._connection.call("free", {"addresses": [self._dropped.popleft() for _ in range(count)]})
        fields = {"nbytes": nbytes, "label": label[:MAX_LABEL], "device": device}
        return int(self._connection.call("allocate", fields))

    def free(self, address: int) -> None:
        self._connection.call("free", {"addresses": [address]})

    def free_later(self, address: int) -> None:
        self._dropped.append(address)

    def read(self, address: int, nbytes: int) -> np.ndarray:
        data = np.empty(nbytes, np.uint8)
        with self._staging:
            for start in range(0, nbytes, STAGING_BYTES):
                piece = data[start : start + STAGING_BYTES]
                self._connection.call("read", {"address": address + start, "nbytes": len(piece)})
                piece[:] = self._connection.staging.bytes[: len(piece)]
        return data

    def write(self, address: int, data: np.ndarray) -> None:
        with self._staging:
            for start in range(0, len(data), STAGING_BYTES):
                piece = data[start : start + STAGING_BYTES]
                self._connection.staging.bytes[: len(piece)] = piece
                self._connection.call("write", {"address": address + start, "nbytes": len(piece)})


class RemoteQueue:
    """A queue in the daemon's device memory."""

    def __init__(self, connection: Connection, address: int) -> None:
        self.address = address
        self._connection = connection
        self._freed = False

    @property
    def freed(self) -> bool:
        return self._freed or self._connection.closed

    def check_open(self, what: str) -> None:
        self._connection.check_open(what)

    def free(self) -> None:
        if not self.freed:
            self._freed = True
            self._connection.call("free_queue", {"address": self.address})


class RemoteDevice(Gpu):
    """A GPU of a daemon's machine."""

    def __init__(self, index: int, config: MachineConfig, memory: RemoteMemory, connection: Connection, gate: Gate) -> None:
        super().__init__(index, config, memory, RemoteQueue(connection, int(connection.configuration["queues"][index])))
        self._connection = connection
        self._gate = gate

    @property
    def memory_used(self) -> int:
        """Bytes of this GPU's memory that this client uses."""
        return int(self._connection.call("memory_used", {"device": self.index}))

    def place(self, code: CodeObject, content: bytes, label: str) -> int:
        # The file goes the way of all data, through an allocation, and the daemon takes the code out of it.
        upload = self.to_device(np.frombuffer(content, np.uint8))
        fields = {"device": self.index, "address": upload.address, "nbytes": upload.nbytes, "label": label[:MAX_LABEL]}
        try:
            return int(self._connection.call("load", fields))
        finally:
            upload.free()

    def unload(self, code: CodeObject, address: int) -> None:
        if not self.closed:
            self._connection.call("unload", {"address": address})

    def new_queue(self) -> RemoteQueue:
        return RemoteQueue(self._connection, int(self._connection.call("new_queue", {"device": self.index})))

    def dispatch(self, launch: PackedLaunch, *, timeout: float | None, progress: Progress | None) -> DispatchResult:
        geometry = launch.geometry
        fields = {
            "module": launch.target.module.address,
            "kernel": launch.target.name,
            "global_size": geometry.global_size[: geometry.dimensions],
            "block": geometry.block[: geometry.dimensions],
            "lds_bytes": launch.dynamic_lds_bytes,
            "segment": launch.segment,
            "queue": launch.queue.address,
            "timeout": None if timeout is None else float(timeout),
            "progress": progress is not None,
        }
        with self._gate.entered():
            return decode_result(self._connection.call("launch", fields, progress))


class RemoteMachine(RemoteDevice, AbstractContextManager["RemoteMachine"]):
    """A machine that a daemon serves; it is its first GPU itself, `devices` are all of them. Made by `connect`.

    What is in it is this client's alone, and is released when the client ends, however it ends. Beside the errors of
    `Machine`, everything raises DaemonGone once the daemon has ended.
    """

    def __init__(self, connection: Connection) -> None:
        configuration = connection.configuration
        config = replace(load_config(configuration["source"]), name=configuration["name"])
        memory, gate = RemoteMemory(connection), Gate(MAX_WAITING_LAUNCHES)
        super().__init__(0, config, memory, connection, gate)
        self._others = [RemoteDevice(index, config, memory, connection, gate) for index in range(1, config.devices)]

    @property
    def devices(self) -> tuple[RemoteDevice, ...]:
        """The GPUs, in order."""
        return self, *self._others

    def start(self) -> None:
        """Has the daemon start all of this client's worker processes now, rather than with the first launch."""
        self._connection.call("start", {})

    def close(self) -> None:
        """Releases everything; arrays and modules cannot be used any more. Streams are cancelled; launches of other
        threads are waited for. A second call does nothing."""
        if not self.closed:
            for device in self.devices:
                device.cancel_streams()
            with self._gate.emptied():
                self._connection.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def connect(path: str | os.PathLike[str] | None = None) -> RemoteMachine:
    """The machine of the daemon that listens at a path, by default where `rjemu daemon` does.

    UsageError if there is no daemon, it is another user's, or serves as many clients as it can.
    """
    return RemoteMachine(Connection(default_path() if path is None else Path(path)))
