"""A job's report as tables and lines on the terminal."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from rjemu.jobs import DispatchReport, JobReport, OutputReport
from rjemu.jobs.duration import duration_text
from rjemu.jobs.report import SaveTally


def print_report(report: JobReport, *, stats: bool) -> None:
    """Prints what `JobReport.as_json` holds, for people. stats: with what each worker did."""
    print(_machine_line(report))
    _print_dispatches(report)
    if stats:
        for dispatch in report.dispatches:
            _print_stats(dispatch)
    for output in report.outputs:
        print(_output_line(output))
    if len(report.parts) > 1:
        print(_parts_line(report))
    if report.checkpoints.count:
        print(_checkpoints_line(report.checkpoints))
    for name, found in report.plugins.items():
        print(f"plugin {name}: {_counted(found.count, 'line')}")


def _machine_line(report: JobReport) -> str:
    allocation, host = report.allocation, report.host
    processes = "no worker processes"
    if allocation["engines"]:
        processes = f"E/D/H {allocation['engines']}/{allocation['dispatch']}/{allocation['helpers']}"
    budget = f"{allocation['budget']} CPUs ({allocation['bound_by']})"
    return f"{report.configuration['name']}: {processes} in a budget of {budget}; {host['cpu']}"


def _print_dispatches(report: JobReport) -> None:
    """Launches, their time together and each's, and speed. Interruptions where there were some."""
    interrupted = any(dispatch.interruptions for dispatch in report.dispatches)
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel", overflow="fold")
    headings = ["launches", "seconds", "median", "wave instr.", "million/s"]
    for heading in headings + ["interrupted"] * interrupted:
        table.add_column(heading, justify="right", no_wrap=True)
    for dispatch in report.dispatches:
        median = statistics.median(dispatch.launch_seconds) if dispatch.launches else 0.0
        rate = dispatch.wave_instructions / dispatch.seconds / 1e6 if dispatch.seconds else 0.0
        row = [
            dispatch.kernel,
            str(dispatch.launches),
            f"{dispatch.seconds:.3f}",
            f"{median:.4f}",
            str(dispatch.wave_instructions),
            f"{rate:.1f}",
        ]
        table.add_row(*row, *[str(dispatch.interruptions)] * interrupted)
    Console().print(table)


def _print_stats(dispatch: DispatchReport) -> None:
    """A table of the workers, and what else the launches' statistics say."""
    stats = dispatch.stats
    if not stats:
        return
    print(f"{dispatch.kernel}:")
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
    engines, dispatch_width, helpers = (stats["allocation"][name] for name in ("engines", "dispatch", "helpers"))
    print(
        f"  allocation {engines}/{dispatch_width}/{helpers}; {stats['handlers_compiled']} handlers compiled, "
        f"{stats['compile_seconds']:.3f} s decoding and compiling"
    )
    if stats["async"] is not None:
        _print_async(stats["async"])


def _print_async(done: dict[str, Any]) -> None:
    print(
        f"  helpers: {done.get('mmas_offloaded', 0)} matrix instructions in {done.get('jobs', 0)} jobs, "
        f"{done.get('mmas_kept', 0)} kept; {done.get('helper_busy_seconds', 0.0):.4f} s busy"
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


def _parts_line(report: JobReport) -> str:
    ends = ", ".join(f"{part.ended_by} after {duration_text(part.seconds)}" for part in report.parts[:-1])
    return f"interrupted {_counted(len(report.parts) - 1, 'time')}: {ends}"


def _checkpoints_line(saves: SaveTally) -> str:
    text = f"{_counted(saves.count, 'checkpoint')}, the last of {saves.last_bytes / 1e6:.1f} MB"
    return text + f"; {saves.timed} of them took {saves.seconds:.2f} s" * bool(saves.timed)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
