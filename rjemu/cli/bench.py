"""`rjemu bench`: rjemu's speed on this host, as ratios to numpy's on the same core, or of its own, in the same run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from rjemu.bench.rows import GROUPS, ROWS, Row
from rjemu.bench.timing import fair_environment
from rjemu.errors import UsageError
from rjemu.interrupts import ctrl_c_deferred

_UNITS = {"seconds": " s", "MiB": " MiB", "%": " %", "per second": "/s", "ns": " ns"}

Figure = dict[str, Any]
"""value: the row's figure; seconds: the medians that it comes from. Or reason: why there is none."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        description="Measure rjemu against numpy on one core of this host, or what worker processes bring and cost. Most "
        "rows need Triton to be installed.",
    )
    names = "; ".join(f"{group}: {', '.join(row.name for row in ROWS if row.group == group)}" for group in GROUPS)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"rows or groups, by default the group core ({names})")
    parser.add_argument(
        "--model", action="store_true", help="predict a matmul's time for each row of the thread allocation table"
    )
    parser.add_argument("--repeat", type=int, default=7, help="samples of each median (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.repeat < 1:
        raise UsageError(f"--repeat is {arguments.repeat}: expected at least 1")
    if arguments.model:
        return _model(arguments)
    rows = _chosen(arguments.rows)
    figures: list[Figure] = []
    with Console(stderr=True).status("") as status:
        for row in rows:
            status.update(row.title)
            figures.append(_measure(row, arguments.repeat))
    if arguments.json:
        print(json.dumps([_as_json(row, figure) for row, figure in zip(rows, figures, strict=True)], indent=2))
    else:
        Console().print(_table(rows, figures))
    return 1 if any(figure.get("failed") for figure in figures) else 0


def _model(arguments: argparse.Namespace) -> int:
    """Measure the model's costs, and print its rows."""
    if importlib.util.find_spec("triton") is None:
        raise UsageError("--model needs triton to be installed")
    from rjemu.bench.model import as_json, predict

    with Console(stderr=True).status("the model's costs"):
        costs, predictions = predict(arguments.repeat)
    if arguments.json:
        print(json.dumps(as_json(costs, predictions), indent=2))
        return 0
    print(
        f"fp16 matmul of {costs.workgroups} workgroups; us: launch {costs.launch * 1e6:.0f}, further worker "
        f"{costs.invitation * 1e6:.0f}, workgroup {costs.workgroup * 1e6:.0f}"
    )
    table = Table(box=None, pad_edge=False, caption="assumptions: docs/performance.md", caption_justify="left")
    for heading in ("budget", "E/D/H", "predicted ms", "measured ms", "speed-up", "workgroup us"):
        table.add_column(heading, justify="right")
    for row in predictions:
        threads = row.threads
        allocation = f"{threads.num_threads}/{threads.cpu_dispatch_threads}/{threads.async_helper_threads}"
        measured = workgroup = "-"
        if row.measured is not None:
            measured, workgroup = f"{row.measured.seconds * 1e3:.2f}", f"{row.measured.workgroup * 1e6:.0f}"
        speed_up = f"{predictions[0].seconds / row.seconds:.2f}"
        table.add_row(str(row.budget), allocation, f"{row.seconds * 1e3:.2f}", measured, speed_up, workgroup)
    Console().print(table)
    return 0


def _chosen(names: Sequence[str]) -> list[Row]:
    chosen: list[Row] = []
    for name in names or GROUPS[:1]:
        found = [row for row in ROWS if name in (row.name, row.group)]
        if not found:
            there_are = ", ".join((*GROUPS, *(row.name for row in ROWS)))
            raise UsageError(f"there is no row or group {name!r} to measure; there are {there_are}")
        chosen += found
    return chosen


def _measure(row: Row, repeat: int) -> Figure:
    if row.needs_triton and importlib.util.find_spec("triton") is None:
        return {"reason": "needs triton"}
    command = [sys.executable, "-m", "rjemu.bench.worker", row.name, str(repeat)]
    # In a group of its own: Ctrl-C is for this process, which then ends all that a measurement has started.
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "env": fair_environment(), "text": True, "start_new_session": True}
    with ExitStack() as starting:
        starting.enter_context(ctrl_c_deferred())  # in the middle of a start it would leave the process behind
        with subprocess.Popen(command, **options) as process:
            try:
                starting.close()
                output, _ = process.communicate()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    if process.returncode != 0:
        return {"reason": "failed", "failed": True}
    figure: Figure = json.loads(output)
    return figure


def _table(rows: Sequence[Row], figures: Sequence[Figure]) -> Table:
    against = {"core": "numpy's on the same core", "processes": "rjemu's own", "async": "rjemu's own"}
    present = {row.group for row in rows if row.kind == "ratio"}
    sides = dict.fromkeys(against[group] for group in GROUPS if group in present)
    caption = "ratios: speed over " + " or ".join(sides) if sides else None
    table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
    for heading in ("row", "what"):
        table.add_column(heading)
    for heading in ("rjemu", "at least", "aim"):
        table.add_column(heading, justify="right")
    table.add_column("keeps")
    for row, figure in zip(rows, figures, strict=True):
        unit = _UNITS.get(row.kind, "")
        value = f"{_rounded(figure['value'])}{unit}" if "value" in figure else "-"
        verdict = figure.get("reason") or row.verdict(figure["value"])
        table.add_row(row.name, row.title, value, f"{row.least:g}{unit}", f"{row.aim:g}{unit}", verdict)
    return table


def _rounded(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"


def _as_json(row: Row, figure: Figure) -> dict[str, Any]:
    entry: dict[str, Any] = {"row": row.name, "kind": row.kind, "at_least": row.least, "aim": row.aim}
    if "reason" in figure:
        return {**entry, "reason": figure["reason"]}
    return {**entry, **figure, "verdict": row.verdict(figure["value"])}
