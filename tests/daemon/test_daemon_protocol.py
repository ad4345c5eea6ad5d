"""Bytes that are not the protocol's end a connection at most, and errors and results arrive as they were sent."""

from __future__ import annotations

import contextlib
import itertools
import socket as sockets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.daemons import clients, running_daemon, wait_until
from support.worker_kernels import check_fill

import rjemu
from rjemu import errors
from rjemu.daemon.connection import daemon_status, greet
from rjemu.daemon.endpoint import reach
from rjemu.daemon.protocol import BYE, MAX_REQUEST_BYTES, REQUESTS, Channel, Request
from rjemu.daemon.values import decode_error, decode_result, encode_error, encode_result
from rjemu.errors import FaultPlace, MemoryFault, ProtocolError, RjemuError, UsageError
from rjemu.exec.dispatch import DispatchResult

FIRST_ANSWER_SECONDS = 10.0

numbers = st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.sampled_from([0, 1, 1 << 32, 0x6000_0000_0000]))
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=20), st.binary(max_size=200)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
valid_fields: dict[str, st.SearchStrategy[Any]] = {
    "kernel": st.sampled_from(["kernel", ""]),
    "label": st.text(max_size=20),
    "segment": st.binary(max_size=100),
    "timeout": st.sampled_from([None, 0.1]),
    "progress": st.booleans(),
    "global_size": st.lists(st.integers(0, 1 << 32), max_size=4),
    "block": st.lists(st.integers(0, 2048), max_size=4),
    "addresses": st.lists(numbers, max_size=4),
    "nbytes": st.integers(0, 1 << 40),
    "device": st.integers(0, 3),
}


@st.composite
def requests(draw: st.DrawFn) -> list[Any]:
    """Mostly well-formed requests with senseless contents, some with a field of a wrong kind."""
    name = draw(st.sampled_from(sorted(REQUESTS)))
    fields = {field: draw(valid_fields.get(field, numbers)) for field in REQUESTS[name]}
    if fields and draw(st.integers(0, 3)) == 0:
        fields[draw(st.sampled_from(sorted(fields)))] = draw(values)
    return [draw(st.integers(0, 1 << 40)), name, fields]


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("daemon") / "socket"
    with running_daemon(path, "--workers", "inline"):
        yield path


@pytest.fixture(scope="module")
def witness(socket: Path) -> Iterator[rjemu.Machine]:
    """A client that must not notice anything."""
    with rjemu.connect(socket) as gpu:
        yield gpu
        check_fill(gpu)


def frame(message: Any) -> bytes:
    body = msgpack.packb(message)
    return struct.pack("<I", len(body)) + body


@contextlib.contextmanager
def client(socket: Path) -> Iterator[Channel]:
    """A greeted connection without a client's checks."""
    channel = Channel.of_client(reach(socket))
    channel.socket.settimeout(FIRST_ANSWER_SECONDS)
    try:
        greet(channel, "hello")
        yield channel
    finally:
        channel.close()


def answers(channel: Channel) -> list[Any]:
    """All that the daemon says until it ends the connection, which the client has ended."""
    said = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            said.append(channel.receive())
    return said


@given(body=st.one_of(st.binary(max_size=300), values.map(msgpack.packb), requests().map(msgpack.packb)))
@settings(max_examples=500, deadline=None)
def test_any_body_is_a_request_or_a_protocol_error(body: bytes) -> None:
    here, there = sockets.socketpair()
    with here, there:
        here.sendall(struct.pack("<I", len(body)) + body)
        here.close()
        channel = Channel.of_daemon(there)
        try:
            request = Request.parse(channel.receive())
        except ProtocolError:
            return
        assert request.fields.keys() == REQUESTS[request.name].keys()


@given(data=st.binary(max_size=2000))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_instead_of_a_greeting(socket: Path, witness: rjemu.Machine, data: bytes) -> None:
    with reach(socket) as connected:
        with contextlib.suppress(OSError):
            connected.sendall(data)
            connected.shutdown(sockets.SHUT_WR)
        channel = Channel.of_client(connected)
        connected.settimeout(FIRST_ANSWER_SECONDS)
        assert all(kind == BYE for _, kind, _ in answers(channel))
    assert witness.memory_used > 0


@given(parts=st.lists(st.one_of(requests().map(frame), values.map(frame), st.binary(max_size=50)), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_senseless_requests_of_a_greeted_client(socket: Path, witness: rjemu.Machine, parts: list[bytes]) -> None:
    with client(socket) as channel:
        with contextlib.suppress(OSError):
            channel.socket.sendall(b"".join(parts))
        channel.finish()
        for number, kind, _ in answers(channel):
            assert kind in ("result", "error", "progress") or (number, kind) == (0, BYE)
    assert witness.memory_used > 0


@given(messages=st.lists(requests(), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_well_formed_request_is_answered(socket: Path, witness: rjemu.Machine, messages: list[list[Any]]) -> None:
    numbered = [[number, *rest] for number, (_, *rest) in zip(itertools.count(10), messages, strict=False)]
    sound = [message for message in numbered if _is_sound(message)]
    with client(socket) as channel:
        for message in sound:
            channel.send(message)
        wanted = {number for number, name, _ in sound if name != "cancel"}
        while wanted:
            number, kind, _ = channel.receive()
            if kind != "progress":
                wanted.remove(number)


def _is_sound(message: list[Any]) -> bool:
    try:
        return Request.parse(message).name not in ("hello", "status")
    except ProtocolError:
        return False


def test_frames_that_would_exhaust_the_daemon(socket: Path, witness: rjemu.Machine) -> None:
    """Lengths that are not true: of the frame, and of lists in lists, for which a decoder might take memory at once."""
    process = psutil.Process(daemon_status(socket)["pid"])
    before = process.memory_info().rss
    bombs = [
        struct.pack("<I", 0xFFFFFFFF),
        struct.pack("<I", MAX_REQUEST_BYTES + 1) + bytes(1000),
        struct.pack("<I", 5000) + b"\xdd\x00\x0f\xff\xff" * 1000,
        struct.pack("<I", 5000) + b"\xdf\x00\x0f\xff\xff" * 1000,
        struct.pack("<I", 5000) + b"\x91" * 5000,
        struct.pack("<I", MAX_REQUEST_BYTES) + b"\xdc\xff\xff" * (MAX_REQUEST_BYTES // 3) + b"\0",
        struct.pack("<I", 10) + b"\xc6\xff\xff\xff\xff12345",
    ]
    for bomb in bombs:
        with client(socket) as channel:
            with contextlib.suppress(OSError):
                channel.socket.sendall(bomb)
            ((number, kind, text),) = answers(channel)
            assert (number, kind) == (0, BYE)
            assert "frame" in text
    assert process.memory_info().rss - before < 64 << 20
    check_fill(witness)


def test_a_client_that_takes_no_answers_stops_nobody_else(socket: Path, witness: rjemu.Machine) -> None:
    with client(socket) as channel:
        channel.socket.settimeout(0.2)
        with contextlib.suppress(OSError):
            for number in range(100_000):
                channel.socket.sendall(frame([number, "memory_used", {"device": 0}]))
            raise AssertionError("the daemon must not take requests for ever whose answers nobody takes")
        check_fill(witness)
    wait_until(lambda: len(clients(socket)) == 1, 15)


def test_another_version_is_refused(socket: Path) -> None:
    with reach(socket) as connected:
        channel = Channel.of_client(connected)
        channel.send([1, "hello", {"protocol": 999}])
        assert channel.receive() == [0, BYE, "the daemon speaks version 1 of its protocol"]


def test_a_request_that_is_too_large_is_not_sent(witness: rjemu.Machine) -> None:
    with pytest.raises(UsageError, match="at most"):
        witness._connection.call("launch", {"segment": bytes(MAX_REQUEST_BYTES)})
    check_fill(witness)


@pytest.mark.parametrize(
    "kind",
    sorted({kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RjemuError)}, key=str),
)
def test_every_error_arrives_as_it_was(kind: type[RjemuError]) -> None:
    error = kind("it went wrong")
    arrived = decode_error(msgpack.unpackb(msgpack.packb(encode_error(error))))
    assert (type(arrived), str(arrived), vars(arrived)) == (kind, str(error), vars(error))


@pytest.mark.parametrize("lane", [None, 5])
def test_a_fault_arrives_with_its_facts(lane: int | None) -> None:
    place = FaultPlace("kernel", (1, 2, 3), 4, lane, 0x600000001000, "global_load_dword v1, v0, s[4:5]")
    error = MemoryFault("stray", place, address=(1 << 64) - 1, space="lds", access="atomic")
    arrived = decode_error(msgpack.unpackb(msgpack.packb(encode_error(error))))
    assert (type(arrived), str(arrived), vars(arrived)) == (MemoryFault, str(error), vars(error))


@given(encoded=values)
@settings(max_examples=200)
def test_what_is_no_error_or_result_is_a_protocol_error(encoded: Any) -> None:
    for decode in (decode_error, decode_result):
        with contextlib.suppress(ProtocolError):
            decode(encoded)


def test_a_mistake_in_the_daemon_is_an_error_at_the_client(caplog: pytest.LogCaptureFixture) -> None:
    arrived = decode_error(encode_error(ZeroDivisionError("division by zero")))
    assert (type(arrived), str(arrived)) == (RjemuError, "the daemon could not do this: ZeroDivisionError: division by zero")
    assert "a request failed" in caplog.text


def test_results_arrive_with_their_statistics() -> None:
    stats = {"workers": [{"worker": "engine 0", "busy_seconds": np.float64(0.5), "cpu": np.uint32(3)}], "compiled": 2}
    arrived = decode_result(msgpack.unpackb(msgpack.packb(encode_result(DispatchResult(7, 0.25, stats)))))
    assert arrived == DispatchResult(
        7, 0.25, {"workers": [{"worker": "engine 0", "busy_seconds": 0.5, "cpu": 3}], "compiled": 2}
    )
    with pytest.raises(TypeError):
        encode_result(DispatchResult(7, 0.25, {"object": object()}))
