"""`rjemu run`: a job file's dispatches, with progress on a terminal and a report of times and comparisons."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rjemu.cli.execution import add_execution_options
from rjemu.jobs import DispatchReport, JobReport, OutputReport, load_job, run_job
from rjemu.vm.module import Progress as ProgressCallback


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        description="Run the dispatches of a job file. The exit status is 1 if an output is not what the job expects.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the job file; its paths are relative to its folder")
    add_execution_options(parser)
    parser.add_argument("--stats", action="store_true", help="print what each worker did in each dispatch")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for Perfetto's or Chrome's viewer")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    job = load_job(arguments.job)
    with ExitStack() as stack:
        bars = _Bars(stack)
        report = run_job(
            job,
            executor=arguments.executor,
            workers=arguments.workers,
            trace=arguments.trace,
            start_dispatch=bars.start,
        )
    if arguments.json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        for dispatch in report.dispatches:
            print(_dispatch_line(dispatch))
            if arguments.stats:
                _print_stats(dispatch.stats)
        for output in report.outputs:
            print(_output_line(output))
    return 0 if report.succeeded else 1


class _Bars:
    """A progress bar for each dispatch, on standard error and only where that is a terminal."""

    def __init__(self, stack: ExitStack) -> None:
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self._progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))

    def start(self, kernel: str) -> ProgressCallback | None:
        progress = self._progress
        if progress is None:
            return None
        task = progress.add_task(kernel, total=None)
        return lambda done, total: progress.update(task, completed=done, total=total)


def _dispatch_line(dispatch: DispatchReport) -> str:
    rate = dispatch.wave_instructions / dispatch.seconds / 1e6 if dispatch.seconds else 0.0
    return (
        f"{dispatch.kernel}: {dispatch.seconds:.3f} s, {dispatch.wave_instructions} wave instructions ({rate:.1f} million/s)"
    )


def _print_stats(stats: dict[str, Any]) -> None:
    """A table of the workers, and what else the launch's statistics say."""
    table = Table(box=None, pad_edge=False)
    table.add_column("worker")
    for heading in ("CPU", "workgroups", "wave instr.", "busy s", "idle s"):
        table.add_column(heading, justify="right")
    for worker in stats["workers"]:
        cpu = "-" if worker["cpu"] is None else str(worker["cpu"])
        counts = (str(worker[name]) for name in ("workgroups", "wave_instructions"))
        seconds = (f"{worker[name]:.4f}" for name in ("busy_seconds", "idle_seconds"))
        table.add_row(worker["worker"], cpu, *counts, *seconds)
    Console().print(Padding(table, (0, 0, 0, 2), expand=False))
    engines, dispatch, helpers = (stats["allocation"][name] for name in ("engines", "dispatch", "helpers"))
    print(
        f"  allocation {engines}/{dispatch}/{helpers}; {stats['handlers_compiled']} handlers compiled, "
        f"{stats['compile_seconds']:.3f} s decoding and compiling"
    )
    if stats["async"] is not None:
        done = stats["async"]
        print(
            f"  helpers: {done['mmas_offloaded']} matrix instructions in {done['jobs']} jobs, {done['mmas_kept']} kept; "
            f"{done['helper_busy_seconds']:.4f} s busy"
        )


def _output_line(output: OutputReport) -> str:
    parts = []
    if output.comparison is not None:
        found = output.comparison
        errors = f"largest error {found.max_absolute:.3g} absolute, {found.max_relative:.3g} relative"
        if found.matches:
            parts.append(f"ok, {found.elements} elements, {errors}")
        else:
            first = list(found.first_mismatch or ())
            parts.append(f"WRONG, {found.mismatches} of {found.elements} elements differ, first at {first}, {errors}")
    if output.file is not None:
        parts.append(f"saved to {output.file}")
    return f"{output.buffer}: {'; '.join(parts)}"


def _as_json(report: JobReport) -> dict[str, Any]:
    return {
        "succeeded": report.succeeded,
        "dispatches": [
            {
                "kernel": entry.kernel,
                "seconds": entry.seconds,
                "wave_instructions": entry.wave_instructions,
                "stats": entry.stats,
            }
            for entry in report.dispatches
        ],
        "outputs": [_output_as_json(output) for output in report.outputs],
    }


def _output_as_json(output: OutputReport) -> dict[str, Any]:
    entry: dict[str, Any] = {"buffer": output.buffer}
    if output.file is not None:
        entry["file"] = str(output.file)
    if output.comparison is not None:
        found = output.comparison
        entry |= {
            "matches": found.matches,
            "elements": found.elements,
            "mismatches": found.mismatches,
            "first_mismatch": found.first_mismatch,
            "max_absolute": found.max_absolute,
            "max_relative": found.max_relative,
        }
    return entry
