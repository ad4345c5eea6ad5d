"""What a daemon and its clients say to each other: msgpack messages in frames, with a bound on everything.

A frame is the length of its body, a little-endian u32, and the body. A request is [number, name, fields], with the names
and fields of REQUESTS; it is answered by [number, RESULT, value] or [number, ERROR, encoded error], and before that, for a
launch that asks for it, by any number of [number, PROGRESS, [done, total]]. [0, BYE, text] ends the connection. Nothing
that comes from a client is trusted: what is not exactly as it is described here is a ProtocolError.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgpack

from rjemu.errors import ProtocolError, UsageError

PROTOCOL = 1
"""Changes whenever a daemon and a client of different versions would misunderstand each other."""

RESULT, ERROR, PROGRESS, BYE = "result", "error", "progress", "bye"

MAX_REQUEST_BYTES = 1 << 20
MAX_ANSWER_BYTES = 1 << 26
MAX_LABEL = 256
MAX_NAME = 1 << 16
MAX_FREED = 1024
"""Addresses in one "free" request."""

_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1
_LENGTH = struct.Struct("<I")
_REQUEST_LISTS = MAX_FREED
_ANSWER_LISTS = 1 << 20
"""Elements of a list or map. The decoder takes memory for as many as a list's header claims, so that this must be small
for what comes from clients."""

Check = Callable[[Any], bool]


def _whole(most: int) -> Check:
    return lambda value: type(value) is int and 0 <= value <= most


def _text(most: int) -> Check:
    return lambda value: type(value) is str and len(value) <= most


def _list(most: int, element: Check) -> Check:
    return lambda value: type(value) is list and len(value) <= most and all(map(element, value))


def _is_seconds(value: Any) -> bool:
    return value is None or (type(value) is float and math.isfinite(value) and value > 0)


_address = _whole(_U64)
_device = _whole(1 << 16)
_extent = _list(3, _whole(_U32))

REQUESTS: Mapping[str, Mapping[str, Check]] = {
    "hello": {"protocol": _whole(_U32)},
    "status": {"protocol": _whole(_U32)},
    "start": {},
    "memory_used": {"device": _device},
    "allocate": {"nbytes": _whole(_U64 >> 1), "label": _text(MAX_LABEL), "device": _device},
    "free": {"addresses": _list(MAX_FREED, _address)},
    "read": {"address": _address, "nbytes": _whole(_U32)},
    "write": {"address": _address, "nbytes": _whole(_U32)},
    "load": {"device": _device, "address": _address, "nbytes": _whole(_U64 >> 1), "label": _text(MAX_LABEL)},
    "unload": {"address": _address},
    "new_queue": {"device": _device},
    "free_queue": {"address": _address},
    "launch": {
        "module": _address,
        "kernel": _text(MAX_NAME),
        "global_size": _extent,
        "block": _extent,
        "lds_bytes": _whole(_U32),
        "segment": lambda value: type(value) is bytes,
        "queue": _address,
        "timeout": _is_seconds,
        "progress": lambda value: type(value) is bool,
    },
    "cancel": {"launch": _whole(_U64)},
}
"""Name -> field -> what it must be. "hello" or "status" is the first request; "cancel" has no answer.

"read" and "write" copy between device memory and the start of the staging memory. "load" takes the bytes of a code object
from device memory, "unload" the address that it gave. A launch's queue is one of those that "hello" or "new_queue" gave.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose fields are what REQUESTS says."""

    number: int
    name: str
    fields: dict[str, Any]

    @classmethod
    def parse(cls, message: Any) -> Request:
        """ProtocolError for anything else."""
        if type(message) is not list or len(message) != 3:
            raise ProtocolError("a request is a list of its number, its name and its fields")
        number, name, fields = message
        if not _address(number) or type(name) is not str or type(fields) is not dict:
            raise ProtocolError("a request is a list of its number, its name and its fields")
        checks = REQUESTS.get(name)
        if checks is None:
            raise ProtocolError(f"there is no request {name[:64]!r}")
        if fields.keys() != checks.keys():
            raise ProtocolError(f"the fields of {name!r} are {', '.join(checks) or 'none'}")
        for field, check in checks.items():
            if not check(fields[field]):
                raise ProtocolError(f"the field {field!r} of {name!r} is not what it must be")
        return cls(number, name, fields)


class Channel:
    """Frames over a connected socket. Any thread may send; one receives."""

    def __init__(self, connected: socket.socket, *, max_sent: int, max_received: int) -> None:
        self.socket = connected
        self._max_sent = max_sent
        self._max_received = max_received
        self._max_list = _REQUEST_LISTS if max_received == MAX_REQUEST_BYTES else _ANSWER_LISTS
        self._lock = threading.Lock()

    @classmethod
    def of_client(cls, connected: socket.socket) -> Channel:
        return cls(connected, max_sent=MAX_REQUEST_BYTES, max_received=MAX_ANSWER_BYTES)

    @classmethod
    def of_daemon(cls, connected: socket.socket) -> Channel:
        return cls(connected, max_sent=MAX_ANSWER_BYTES, max_received=MAX_REQUEST_BYTES)

    def encode(self, message: Any) -> bytes:
        """The frame of a message. UsageError if it is too large."""
        body = msgpack.packb(message)
        if len(body) > self._max_sent:
            raise UsageError(f"a message of {len(body)} bytes: at most {self._max_sent}")
        return _LENGTH.pack(len(body)) + bytes(body)

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send a message, and a file descriptor with it. UsageError if it is too large; OSError if nobody takes it, which
        ends the connection: a part of the frame may have gone."""
        self.send_frame(self.encode(message), descriptor)

    def send_frame(self, frame: bytes, descriptor: int | None = None) -> None:
        """Send what `encode` has made."""
        with self._lock:
            try:
                if descriptor is not None:
                    frame = frame[socket.send_fds(self.socket, [frame], [descriptor]) :]
                self.socket.sendall(frame)
            except BaseException:  # Ctrl-C, too
                self.shut_down()
                raise

    def say_farewell(self, message: Any) -> None:
        """Send a last message if the other end can take it at once, and end the connection."""
        if self._lock.acquire(blocking=False):  # else it leaves an answer lying
            try:
                with suppress(OSError):
                    self.socket.send(self.encode(message), socket.MSG_DONTWAIT)
            finally:
                self._lock.release()
        self.shut_down()

    def receive(self) -> Any:
        """The next message. EOFError at the end, also in the middle of a frame; ProtocolError; OSError."""
        return self._decode(self._exactly(self._length(self._exactly(_LENGTH.size))))

    def receive_with_descriptor(self) -> tuple[Any, int | None]:
        """The next message and the file descriptor that came with it."""
        header, descriptors, _, _ = socket.recv_fds(self.socket, _LENGTH.size, 1)
        header += self._exactly(_LENGTH.size - len(header)) if header else b""
        if not header:
            raise EOFError("the connection has been closed")
        return self._decode(self._exactly(self._length(header))), descriptors[0] if descriptors else None

    def finish(self) -> None:
        """Send nothing any more: the other end gets EOFError in `receive`, and may still answer."""
        with suppress(OSError):  # the other end was first
            self.socket.shutdown(socket.SHUT_WR)

    def shut_down(self) -> None:
        """End the connection; who waits in `receive`, at either end, gets EOFError."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self.socket.close()

    def _length(self, header: bytes) -> int:
        (length,) = _LENGTH.unpack(header)
        if length > self._max_received:
            raise ProtocolError(f"a frame of {length} bytes: at most {self._max_received}")
        return int(length)

    def _exactly(self, nbytes: int) -> bytes:
        parts, left = [], nbytes
        while left:
            part = self.socket.recv(min(left, 1 << 16))
            if not part:
                raise EOFError("the connection has been closed")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _decode(self, body: bytes) -> Any:
        limits = {"max_array_len": self._max_list, "max_map_len": self._max_list, "max_ext_len": 0}
        try:
            return msgpack.unpackb(body, **limits)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"a frame that is no message: {error}") from None
