"""`rjemu daemon`: serve a machine to other processes, or show what a running daemon serves."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rjemu.cli.execution import add_execution_options
from rjemu.config import load_config
from rjemu.config.source import read_source
from rjemu.daemon.connection import daemon_status
from rjemu.daemon.endpoint import default_path, make_private
from rjemu.daemon.server import MAX_CLIENTS, Daemon
from rjemu.errors import UsageError
from rjemu.vm.machine import Machine

SOCKET_HELP = "the socket (default: rjemu/daemon.sock in $XDG_RUNTIME_DIR, or a private directory among temporary files)"


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "daemon",
        description="Serve machines of one configuration to this user's processes, which use rjemu.connect(), until SIGTERM "
        "or Ctrl-C. With --status, show what a running daemon serves.",
    )
    parser.add_argument("--config", default="gfx950_mi355x_kmd", help="preset or JSON file (default: %(default)s)")
    parser.add_argument("--socket", type=Path, metavar="PATH", help=SOCKET_HELP)
    add_execution_options(parser)
    parser.add_argument(
        "--max-clients", type=int, default=MAX_CLIENTS, metavar="N", help="clients at once (default: %(default)s)"
    )
    parser.add_argument("--status", action="store_true", help="show the clients of the daemon at the socket, and end")
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    path = arguments.socket or default_path()
    if arguments.status:
        _print_status(daemon_status(path), as_json=arguments.json)
        return 0
    if arguments.json:
        raise UsageError("--json is for --status")
    if arguments.max_clients < 1:
        raise UsageError(f"--max-clients is {arguments.max_clients}: expected at least 1")
    if arguments.socket is None:
        make_private(path.parent)
    config, source = load_config(arguments.config), read_source(arguments.config)
    options = {"executor": arguments.executor}
    if arguments.workers is not None:
        options["workers"] = arguments.workers
    open_machine = partial(Machine, source.data, **options)
    open_machine().close()  # what is wrong with the options is not to be every client's error
    daemon = Daemon(path, config, dict(source.data), open_machine, arguments.max_clients)
    print(f"serving {config.name} ({config.target}) at {path}", flush=True)
    daemon.serve()
    return 0


def _print_status(status: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status, indent=2))
        return
    clients = status["clients"]
    print(
        f"pid {status['pid']} serves {status['config']} ({status['target']}) at {status['socket']} for "
        f"{status['seconds']:.0f} s: {len(clients)} of at most {status['max_clients']} clients"
    )
    if clients:
        table = Table("pid", "seconds", "memory, bytes", "arrays", "modules", "launches now", "launches ended")
        for client in clients:
            columns = ("pid", "seconds", "memory_used", "arrays", "modules", "launches", "launches_ended")
            table.add_row(*(f"{client[column]:.0f}" for column in columns))
        Console().print(table)
