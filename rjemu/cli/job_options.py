"""The options of commands that run jobs: what overrides the job file, when checkpoints are written, what is shown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rjemu.config import preset_names
from rjemu.errors import UsageError
from rjemu.jobs.duration import parse_duration
from rjemu.jobs.spec import EXECUTORS, JOB_KEYS
from rjemu.vm.executor import Workers


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Adds what overrides the machine that a job asks for."""
    group = parser.add_argument_group("machine (default: as the job says)")
    group.add_argument("--config", metavar="CONFIG", help="preset or JSON file")
    group.add_argument("--executor", choices=EXECUTORS, help="how to execute")
    group.add_argument(
        "--workers",
        type=_workers,
        metavar="E/D",
        help="E engine processes and a dispatch width of D per GPU, 'inline' for none, or 'auto': as the budget allows",
    )
    group.add_argument(
        "--budget", type=_positive, metavar="CPUS", help="CPUs to use (cpu_thread_budget); workers are 'auto' unless given"
    )
    group.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the configuration, its value as JSON or a plain string; may be given several times",
    )


def add_checkpoint_options(parser: argparse.ArgumentParser, checkpoint_help: str) -> None:
    """Adds --checkpoint, --every, --time-limit and --keep-checkpoint."""
    group = parser.add_argument_group("checkpoints (durations: 90s, 10m, 1h)")
    group.add_argument("--checkpoint", type=Path, metavar="FILE", help=checkpoint_help)
    group.add_argument("--every", type=_duration, metavar="TIME", help="write one every so often")
    group.add_argument(
        "--time-limit", type=_duration, metavar="TIME", help="write a last one after that time, and end with status 75"
    )
    group.add_argument(
        "--keep-checkpoint",
        action=argparse.BooleanOptionalAction,
        help="keep it when the job has ended (default: remove it)",
    )


def add_display_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is written and shown."""
    group = parser.add_argument_group("output")
    group.add_argument("--report", type=Path, metavar="FILE", help="write a report as JSON")
    group.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for Perfetto's or Chrome's viewer")
    group.add_argument("--stats", action="store_true", help="print what each worker did in each dispatch")
    group.add_argument("--json", action="store_true", help="print the report as JSON")
    shown = group.add_mutually_exclusive_group()
    shown.add_argument(
        "--progress",
        type=_duration,
        metavar="TIME",
        help="a line of progress every so often (default: a bar on a terminal, else a line every 30s)",
    )
    shown.add_argument("--quiet", action="store_true", help="no progress, warnings only")


def machine_changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the machine options change, as `Job.with_changes` takes it: only what was given."""
    changes: dict[str, Any] = dict(arguments.set)
    if arguments.config is not None:
        changes["config"] = _config(arguments.config)
    if arguments.executor is not None:
        changes["executor"] = arguments.executor
    if arguments.budget is not None:
        changes |= {"cpu_thread_budget": arguments.budget, "workers": "auto"}
    if arguments.workers is not None:
        changes["workers"] = arguments.workers
    return changes


def machine_overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same, as `rjemu.restore` takes it."""
    changes = machine_changes(arguments)
    if "workers" in changes:
        changes["workers"] = _as_workers(changes["workers"])
    return changes


def check_checkpoint_options(arguments: argparse.Namespace) -> None:
    """UsageError for options that mean nothing without --checkpoint."""
    for name in ("every", "time_limit", "keep_checkpoint"):
        if getattr(arguments, name) is not None and arguments.checkpoint is None:
            raise UsageError(f"--{name.replace('_', '-')} needs --checkpoint FILE")


def checkpoint_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of `JobOptions` that were given."""
    given = {name: getattr(arguments, name) for name in ("every", "time_limit", "keep_checkpoint")}
    given["report"] = None if arguments.report is None else arguments.report.absolute()
    return {name: value for name, value in given.items() if value is not None}


def _config(name: str) -> str:
    """A file's name is relative to the working directory here, not to the job's."""
    return name if name in preset_names() else str(Path(name).absolute())


def _as_workers(text: str) -> Workers:
    if text in ("auto", "inline"):
        return None if text == "auto" else text
    engines, dispatch = (int(part) for part in text.split("/"))
    return engines, dispatch


def _workers(text: str) -> str:
    try:
        workers = _as_workers(text)
        if not isinstance(workers, tuple) or min(workers) >= 1:
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is neither 'inline' nor two numbers, as in 1/2")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form FIELD=VALUE")
    if key in JOB_KEYS:
        raise argparse.ArgumentTypeError(f"{key!r} is no field of a configuration")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
