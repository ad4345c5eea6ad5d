"""The `rjemu` command: finds the sub-command, runs it, and turns errors into one line and an exit status.

Exit status: 0 success; 1 the work was done and failed (a wrong result, a kernel's fault, a timeout); 2 the request
itself is wrong (command line, files, configuration, arguments); 75 (EX_TEMPFAIL of sysexits.h) a job was interrupted, with a
checkpoint from which `rjemu resume` goes on.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from rjemu.errors import (
    JobError,
    JobInterrupted,
    KernelFault,
    LaunchInterrupted,
    LaunchTimeout,
    OutOfMemory,
    RjemuError,
    WorkerLost,
)

SUCCESS, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 75

COMMANDS = {
    "run": ("rjemu.cli.run", "run the dispatches of a job file and check their outputs"),
    "resume": ("rjemu.cli.resume", "go on with a job from its checkpoint"),
    "info": ("rjemu.cli.info", "show the kernels of a code object, their arguments and resources"),
    "disasm": ("rjemu.cli.disasm", "print a code object's instructions"),
    "isa-coverage": ("rjemu.cli.isa_coverage", "count which of a target's instructions execute, and name the rest"),
    "topology": ("rjemu.cli.topology", "print the components of a configuration"),
    "plugins": ("rjemu.cli.plugins", "list the plugins and their settings"),
    "thread-budget-table": ("rjemu.cli.thread_budget_table", "print how many processes a budget of CPUs gives"),
    "tune": ("rjemu.cli.tune", "find the processes that run a job fastest, for budgets of CPUs"),
    "bench": ("rjemu.cli.bench", "measure rjemu against numpy on this host"),
    "checkpoint": ("rjemu.cli.checkpoint", "show what a checkpoint holds"),
    "daemon": ("rjemu.cli.daemon", "serve machines to other processes, or show what a running daemon serves"),
    "clean": ("rjemu.cli.clean", "remove shared memory that killed processes left behind"),
}
"""Name -> module and summary. The module's `add_parser(subparsers)` adds the command, with `handler` as a default:
a function of the parsed arguments that gives the exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (without the program's name; by default that of the process) and gives its exit status."""
    if arguments is None:
        sys.unraisablehook = _interrupt_again
        arguments = sys.argv[1:]
    try:
        parsed = _parser(arguments).parse_args(list(arguments))
        status: int = parsed.handler(parsed)
        sys.stdout.flush()
    except JobInterrupted as error:
        return _fail(error, INTERRUPTED)
    except (KernelFault, LaunchInterrupted, LaunchTimeout, OutOfMemory, JobError, WorkerLost) as error:
        return _fail(error, FAILED)
    except RjemuError as error:
        return _fail(error, MISUSED)
    except KeyboardInterrupt:
        return _fail("interrupted", FAILED)
    except BrokenPipeError:
        # The reader of a pipe has seen enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS
    return status


def _interrupt_again(unraisable: Any) -> None:
    """Python drops what is raised in a finaliser. A Ctrl-C that comes there comes again, when that is over."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, of which only the one asked for is imported: starting up must be quick."""
    parser = argparse.ArgumentParser(prog="rjemu", description="Run AMD GPU machine code on CPU cores.")
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        if name == asked:
            importlib.import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"rjemu {version('rjemu')}"
    except PackageNotFoundError:
        return "rjemu (not installed)"


def _fail(error: object, status: int) -> int:
    print(f"rjemu: {' '.join(str(error).split())}", file=sys.stderr)
    return status
