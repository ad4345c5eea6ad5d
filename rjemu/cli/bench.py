"""`rjemu bench`: rjemu's speed on this host, as ratios to numpy's on the same core in the same run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rjemu.bench.rows import ROWS, Row
from rjemu.bench.timing import fair_environment
from rjemu.errors import UsageError

Figure = dict[str, Any]
"""value: the row's figure; seconds: the medians that it comes from. Or reason: why there is none."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        description="Measure rjemu against numpy on one core of this host. Most rows need Triton to be installed.",
    )
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"what to measure, by default everything: {names}")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each median (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    rows = _chosen(arguments.rows)
    if arguments.repeat < 1:
        raise UsageError(f"--repeat is {arguments.repeat}: expected at least 1")
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


def _chosen(names: Sequence[str]) -> list[Row]:
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no row {name!r} to measure; there are {', '.join(known)}")
    return [known[name] for name in names] or list(ROWS)


def _measure(row: Row, repeat: int) -> Figure:
    if row.needs_triton and importlib.util.find_spec("triton") is None:
        return {"reason": "needs triton"}
    command = [sys.executable, "-m", "rjemu.bench.worker", row.name, str(repeat)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=fair_environment(), text=True)
    if done.returncode != 0:
        return {"reason": "failed", "failed": True}
    figure: Figure = json.loads(done.stdout)
    return figure


def _table(rows: Sequence[Row], figures: Sequence[Figure]) -> Table:
    table = Table(box=None, pad_edge=False, caption="ratios: speed over numpy's on the same core", caption_justify="left")
    for heading in ("row", "what"):
        table.add_column(heading)
    for heading in ("rjemu", "at least", "aim"):
        table.add_column(heading, justify="right")
    table.add_column("keeps")
    for row, figure in zip(rows, figures, strict=True):
        unit = " s" if row.kind == "seconds" else ""
        value = f"{figure['value']:.2g}{unit}" if "value" in figure else "-"
        verdict = figure.get("reason") or row.verdict(figure["value"])
        table.add_row(row.name, row.title, value, f"{row.least:g}{unit}", f"{row.aim:g}{unit}", verdict)
    return table


def _as_json(row: Row, figure: Figure) -> dict[str, Any]:
    entry: dict[str, Any] = {"row": row.name, "kind": row.kind, "at_least": row.least, "aim": row.aim}
    if "reason" in figure:
        return {**entry, "reason": figure["reason"]}
    return {**entry, **figure, "verdict": row.verdict(figure["value"])}
