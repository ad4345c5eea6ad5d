"""One client: what it has allocated, loaded and launched, and the answers to its requests.

A client has a machine of its own, with a memory of its own: no address that it makes up, in a copy or in a kernel, is
another client's. What must not be touched even in its own machine (the kernarg segment of a running launch, its code) is
not in the tables here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rjemu.code import load_code_object
from rjemu.daemon.endpoint import Peer
from rjemu.daemon.protocol import BYE, ERROR, PROGRESS, RESULT, Channel, Request
from rjemu.daemon.staging import STAGING_BYTES, Staging
from rjemu.daemon.values import encode_error, encode_result
from rjemu.errors import LaunchError, LaunchInterrupted, ProtocolError, UsageError
from rjemu.vm.device import Device
from rjemu.vm.geometry import resolve_geometry
from rjemu.vm.launch import PackedLaunch, required_resources
from rjemu.vm.machine import Machine
from rjemu.vm.module import Module
from rjemu.vm.packets import Queue

MAX_WAITING_LAUNCHES = 1024
MAX_CODE_BYTES = 1 << 30


class _Loaded:
    """A module, and how many launches of it have not ended; it is unloaded when `unload` was called and none is left."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._users = 1
        self._lock = threading.Lock()

    def use(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.module.unload()


class Session:
    """Serves one client until it ends. `serve` is for a thread of its own; the other methods may be called from any."""

    def __init__(self, channel: Channel, peer: Peer, machine: Machine) -> None:
        self.peer = peer
        self.launches_ended = 0
        self._channel = channel
        self._machine = machine
        self._opened = time.monotonic()
        self._staging = Staging.create()
        self._arrays: set[int] = set()
        self._queues: dict[int, Queue] = {device.queue.address: device.queue for device in machine.devices}
        self._modules: dict[int, _Loaded] = {}
        self._cancelled: dict[int, threading.Event] = {}
        self._threads = ThreadPoolExecutor(machine.concurrent_launches, thread_name_prefix="rjemu launch")

    # --- for the daemon ----------------------------------------------------------------------------------------------

    def serve(self, greeting: Request, configuration: dict[str, Any]) -> None:
        """Answer the client's greeting, and then its requests until it ends or breaks the protocol. Afterwards nothing of it
        is left."""
        try:
            answer = {**configuration, "queues": list(self._queues)}
            self._channel.send([greeting.number, RESULT, answer], self._staging.descriptor)
            self._staging.close_descriptor()
            while True:
                self._answer(Request.parse(self._channel.receive()))
        except ProtocolError as error:
            self.dismiss(str(error))
        except (EOFError, OSError):
            pass
        finally:
            self._end()

    def dismiss(self, reason: str) -> None:
        """Tell the client that it is not served any more, and why; `serve` then returns."""
        self._channel.say_farewell([0, BYE, reason])

    def status(self) -> dict[str, Any]:
        """What the client has: bytes and counts, and seconds since it came."""
        return {
            "pid": self.peer.pid,
            "uid": self.peer.uid,
            "seconds": time.monotonic() - self._opened,
            "memory_used": self._machine.vram.used,
            "arrays": len(self._arrays),
            "modules": len(self._modules),
            "launches": len(self._cancelled),
            "launches_ended": self.launches_ended,
        }

    def _end(self) -> None:
        for cancelled in list(self._cancelled.values()):
            cancelled.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._machine.close()

    # --- requests ----------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> None:
        if request.name == "cancel":
            cancelled = self._cancelled.get(request.fields["launch"])
            if cancelled is not None:
                cancelled.set()
        elif request.name == "launch":
            try:
                self._begin(request)
            except Exception as error:
                self._channel.send([request.number, ERROR, encode_error(error)])
        elif request.name in _ANSWERS:
            self._reply(request.number, lambda: _ANSWERS[request.name](self, **request.fields))
        else:
            raise ProtocolError(f"{request.name!r} is the first request or none")

    def _reply(self, number: int, work: Callable[[], Any]) -> None:
        try:
            answer = [number, RESULT, work()]
        except Exception as error:
            answer = [number, ERROR, encode_error(error)]
        try:
            self._channel.send(answer)
        except UsageError as error:  # it is too large
            self._channel.send([number, ERROR, encode_error(error)])

    def _start(self) -> None:
        self._machine.start()

    def _memory_used(self, device: int) -> int:
        return self._device(device).memory_used

    def _allocate(self, nbytes: int, label: str, device: int) -> int:
        address = self._machine.vram.allocate(nbytes, label=label, device=self._device(device).index)
        self._arrays.add(address)
        return address

    def _free(self, addresses: list[int]) -> None:
        for address in addresses:
            if address not in self._arrays:
                raise UsageError(f"{address:#x} is not the start of an allocation")
            self._arrays.remove(address)
            self._machine.vram.free(address)

    def _read(self, address: int, nbytes: int) -> None:
        self._staged(nbytes)[:] = self._view(address, nbytes)

    def _write(self, address: int, nbytes: int) -> None:
        self._view(address, nbytes)[:] = self._staged(nbytes)

    def _staged(self, nbytes: int) -> Any:
        if nbytes > STAGING_BYTES:
            raise UsageError(f"a copy of {nbytes} bytes: at most {STAGING_BYTES} at once")
        return self._staging.bytes[:nbytes]

    def _view(self, address: int, nbytes: int) -> Any:
        """uint8 over device memory that the client has allocated; UsageError for other memory."""
        allocation = self._machine.vram.find(address)
        if allocation is not None and allocation.address not in self._arrays:
            raise UsageError(f"{nbytes} bytes at {address:#x} are no array's")
        return self._machine.vram.backed(address, nbytes)

    def _load(self, device: int, address: int, nbytes: int, label: str) -> int:
        if nbytes > MAX_CODE_BYTES:
            raise UsageError(f"a code object of {nbytes} bytes: at most {MAX_CODE_BYTES}")
        gpu = self._device(device)
        content = self._view(address, nbytes).tobytes()
        code = load_code_object(content, gpu.config.target)
        place = gpu.place(code, content, label)
        self._modules[place] = _Loaded(Module(gpu, code, place))
        return place

    def _unload(self, address: int) -> None:
        self._module(address)
        self._modules.pop(address).release()

    def _new_queue(self, device: int) -> int:
        queue = self._device(device).new_queue()
        self._queues[queue.address] = queue
        return queue.address

    def _free_queue(self, address: int) -> None:
        self._queue(address).free()
        del self._queues[address]

    def _device(self, index: int) -> Device:
        devices = self._machine.devices
        if index >= len(devices):
            raise UsageError(f"there is no GPU {index}: the machine has {len(devices)}")
        return devices[index]

    def _module(self, address: int) -> _Loaded:
        if address not in self._modules:
            raise UsageError(f"no module is loaded at {address:#x}")
        return self._modules[address]

    def _queue(self, address: int) -> Queue:
        if address not in self._queues:
            raise UsageError(f"there is no queue at {address:#x}")
        return self._queues[address]

    # --- launches ----------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        """Have a thread run a launch. All that the client has checked is checked again: it need not have."""
        fields = request.fields
        if len(self._cancelled) == MAX_WAITING_LAUNCHES or request.number in self._cancelled:
            raise LaunchError(
                f"a client may wait for {MAX_WAITING_LAUNCHES} launches at once, each under a number of its own"
            )
        loaded = self._module(fields["module"])
        target = loaded.module[fields["kernel"]]
        geometry = resolve_geometry(None, fields["global_size"], fields["block"])
        resources = required_resources(target.kernel, geometry, fields["lds_bytes"], self._machine.config)
        queue = self._queue(fields["queue"])
        launch = PackedLaunch(target, geometry, fields["lds_bytes"], resources, fields["segment"], queue)
        loaded.use()
        cancelled = self._cancelled[request.number] = threading.Event()
        self._threads.submit(self._run, request, launch, loaded, cancelled)

    def _run(self, request: Request, launch: PackedLaunch, loaded: _Loaded, cancelled: threading.Event) -> None:
        def watch(done: int, total: int) -> None:
            if cancelled.is_set():
                raise KeyboardInterrupt  # the client's Ctrl-C, or its end: executors take it as one here
            if request.fields["progress"]:
                try:
                    self._channel.send([request.number, PROGRESS, [done, total]])
                except OSError:  # the client has ended
                    raise KeyboardInterrupt from None

        def work() -> list[Any]:
            if cancelled.is_set():
                raise LaunchInterrupted(f"kernel {launch.target.name} was interrupted before it began")
            device = launch.target.module.device
            return encode_result(device.dispatch(launch, timeout=request.fields["timeout"], progress=watch))

        try:
            self._reply(request.number, work)
        except OSError:  # the client has ended
            pass
        finally:
            del self._cancelled[request.number]
            self.launches_ended += 1
            loaded.release()


_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "start": Session._start,
    "memory_used": Session._memory_used,
    "allocate": Session._allocate,
    "free": Session._free,
    "read": Session._read,
    "write": Session._write,
    "load": Session._load,
    "unload": Session._unload,
    "new_queue": Session._new_queue,
    "free_queue": Session._free_queue,
}
"""What is done at once, in the session's own thread: called with the session and the request's fields."""
