"""The daemon's own life: its socket and who may use it, signals, kills, and the command."""

from __future__ import annotations

import json
import os
import signal
import socket as sockets
import stat
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.assemble import build
from support.daemons import clients, finish, launch_daemon, running_daemon, start_client, wait_until
from support.launchers import run_python, still_running, wait_until_gone
from support.worker_kernels import FILL, check_fill

import rjemu
from rjemu.cli.main import main
from rjemu.daemon.endpoint import default_path, listen, make_private
from rjemu.errors import DaemonGone, UsageError

LAUNCH_UNTIL_GONE = """
import time
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
array = gpu.zeros(4, np.int32)
say("ready")
try:
    kernel.launch(4, 64)
except errors.DaemonGone as error:
    first = str(error)
for use in (array.to_host, lambda: gpu.empty(4, np.int32), lambda: gpu.memory_used):
    try:
        use()
    except errors.DaemonGone as error:
        assert str(error) == first
    else:
        raise AssertionError(use)
array.free()
gpu.close()
say(first)
"""


def command(*words: object) -> int:
    """The exit status of `rjemu daemon` in this process, for what does not serve."""
    return main(["daemon", *map(str, words)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_in_order_and_tells_the_clients(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "1/2") as daemon:
        client = start_client(path, LAUNCH_UNTIL_GONE, "ready")
        wait_until(lambda: any(entry["launches"] for entry in clients(path)))
        time.sleep(0.2)
        workers = psutil.Process(daemon.pid).children(recursive=True)
        assert len(workers) >= 3
        daemon.send_signal(number)
        assert f"the daemon at {path} has ended the connection: the daemon has been ended" in finish(client)
        _, errors = daemon.communicate(timeout=30)
        assert (daemon.returncode, errors) == (0, "")
    assert not path.exists()
    assert wait_until_gone(daemon.pid) == []
    assert still_running(workers, 2.0) == []


def test_a_killed_daemon_is_told_at_once_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "1/1") as daemon:
        client = start_client(path, LAUNCH_UNTIL_GONE, "ready")
        with rjemu.connect(path) as gpu:
            wait_until(lambda: any(entry["launches"] for entry in clients(path)))
            workers = psutil.Process(daemon.pid).children(recursive=True)
            daemon.kill()
            daemon.communicate()
            assert f"the daemon at {path} has ended" in finish(client)
            with pytest.raises(DaemonGone):
                gpu.empty(4, "int32")
    assert path.exists()
    assert wait_until_gone(daemon.pid) == []
    assert still_running(workers, 3.0) == []
    with pytest.raises(UsageError, match="no daemon can be reached"):
        rjemu.connect(path)
    with running_daemon(path, "--workers", "inline"), rjemu.connect(path) as gpu:
        check_fill(gpu)


def test_a_living_daemons_socket_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "inline"):
        assert command("--config", "gfx950_mi355x", "--workers", "inline", "--socket", path) == 2
        assert capsys.readouterr().err == f"rjemu: a daemon listens at {path} already\n"
        with rjemu.connect(path) as gpu:
            check_fill(gpu)


def test_what_is_no_socket_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(UsageError, match="is no socket"):
        listen(path)
    assert path.read_text() == "precious"
    with pytest.raises(UsageError, match="cannot listen at"):
        listen(tmp_path / "nowhere" / "socket")
    with pytest.raises(UsageError, match="too long"):
        listen(tmp_path / ("x" * 200))


def test_only_this_user_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous = os.umask(0)
    try:
        path = tmp_path / "socket"
        listener = listen(path)
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        listener.close()
        private = tmp_path / "private"
        make_private(private)
        make_private(private)
        assert stat.S_IMODE(private.lstat().st_mode) == 0o700
        private.chmod(0o755)
        with pytest.raises(UsageError, match="0700"):
            make_private(private)
        (tmp_path / "link").symlink_to(private)
        with pytest.raises(UsageError, match="0700"):
            make_private(tmp_path / "link")
    finally:
        os.umask(previous)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_path() == Path("/run/user/7/rjemu/daemon.sock")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_path().parent.name == f"rjemu-{os.geteuid()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_where_the_socket_lets_him_in(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "inline"):
        path.chmod(0o666)
        tmp_path.chmod(0o755)
        program = f"""
import os, socket
connected = socket.socket(socket.AF_UNIX)
os.chdir({str(tmp_path)!r})
os.setuid(65534)
connected.connect("socket")
print(connected.recv(4096))
"""
        assert "serves nobody else" in finish(run_python(program))
        assert clients(path) == []


def test_the_default_socket_serves_programs_that_name_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    daemon = launch_daemon(None, "--workers", "inline")
    assert daemon.stdout is not None
    assert str(tmp_path / "rjemu" / "daemon.sock") in daemon.stdout.readline()
    with rjemu.connect() as gpu:
        assert not gpu.closed
    assert command("--status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clients"] == []
    daemon.terminate()
    finish(daemon)


def test_the_status_is_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "inline") as daemon, rjemu.connect(path) as gpu:
        kept = gpu.zeros(1 << 20, "uint8")
        assert command("--status", "--socket", path) == 0
        text = capsys.readouterr().out
        assert f"pid {daemon.pid} serves" in text
        assert "1 of at most 32 clients" in text
        assert str(os.getpid()) in text
        assert command("--status", "--json", "--socket", path) == 0
        found = json.loads(capsys.readouterr().out)
        assert [entry["pid"] for entry in found["clients"]] == [os.getpid()]
        assert found["clients"][0]["memory_used"] > kept.nbytes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "no_such_preset"], "no configuration 'no_such_preset'"),
        (["--max-clients", "0"], "expected at least 1"),
        (["--json"], "--status"),
        (["--status"], "no daemon can be reached"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--socket", tmp_path / "socket", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_probe_of_a_dead_socket_leaves_one_listener(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    dead = sockets.socket(sockets.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    listener = listen(path)
    with pytest.raises(UsageError, match="listens at"):
        listen(path)
    listener.close()


def test_a_lost_worker_is_its_clients_error_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    program = """
kernel = gpu.load(build(ENDLESS, "gfx950"))["kernel"]
check_fill(gpu)
say("ready")
try:
    kernel.launch(4, 64)
except errors.WorkerLost as error:
    check_fill(gpu)
    say("lost")
"""
    with running_daemon(path, "--workers", "1/1") as daemon, rjemu.connect(path) as other:
        client = start_client(path, program, "ready")
        (worker,) = [process for child in psutil.Process(daemon.pid).children() for process in child.children()]
        wait_until(lambda: any(entry["launches"] for entry in clients(path)))
        time.sleep(0.1)
        worker.kill()
        assert finish(client) == "lost\n"
        check_fill(other)


def test_a_machine_of_two_gpus(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running_daemon(path, "--workers", "1/1", config="gfx950_mi355x_kmd_2gpu"), rjemu.connect(path) as gpu:
        first, second = gpu.devices
        before = first.memory_used, second.memory_used
        out = second.zeros(1 << 20, np.uint32)
        assert (first.memory_used, second.memory_used) == (before[0], before[1] + out.nbytes)
        for device in (first, second):
            kernel = device.load(build(FILL, "gfx950"))["kernel"]
            out.copy_from(np.zeros(1 << 20, np.uint32))
            with device.stream() as stream:
                stream.launch(kernel, 1, 64, kernarg=np.uint64(out.address).tobytes())
            assert (out.to_host()[:64] == 5).all()
        with pytest.raises(UsageError, match="no GPU 2"):
            gpu._connection.call("memory_used", {"device": 2})
