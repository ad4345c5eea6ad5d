"""The plot of a budget experiment: time against processes, a line for each number of engines and helpers."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from rjemu.errors import UsageError
from rjemu.tune.candidates import allocation_name
from rjemu.tune.results import Row

SUFFIXES = (".svg", ".png")
INCHES = (8.0, 5.0)
DOTS_PER_INCH = 150


def check_plotting() -> None:
    """UsageError if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("the plots need matplotlib: pip install 'rjemu[plot]', or leave them out with --no-plot")


def write_plots(rows: Sequence[Row], socs: int, title: str, stem: Path) -> list[Path]:
    """Writes stem.svg and stem.png, and gives their paths. OSError if that cannot be done.

    A point is a candidate's median, its bar the range of its samples; the best of each budget has a ring and its name. The
    same rows give the same bytes.
    """
    # Optional, and slow to import: not before there is something to plot.
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.add_subplot()
    for label, series in _series(rows).items():
        points = sorted((row.candidate.allocation.total(socs), row.median, row.low, row.high) for row in series)
        processes, medians, lows, highs = zip(*points, strict=True)
        below = [median - low for median, low in zip(medians, lows, strict=True)]
        above = [high - median for median, high in zip(medians, highs, strict=True)]
        axes.errorbar(processes, medians, yerr=(below, above), marker="o", markersize=4, capsize=3, linewidth=1, label=label)
    best = [row for row in rows if row.best]
    counts = [row.candidate.allocation.total(socs) for row in best]
    axes.scatter(
        counts, [row.median for row in best], s=110, facecolors="none", edgecolors="black", label="best of its budget"
    )
    for row, count in zip(best, counts, strict=True):
        name = allocation_name(row.candidate.allocation)
        axes.annotate(name, (count, row.median), xytext=(6, 8), textcoords="offset points", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row.candidate.allocation.total(socs) for row in rows}))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.margins(x=0.08)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("processes: engines + GPUs x (dispatch width - 1) + helpers")
    axes.set_ylabel("median time of the job's dispatches in seconds")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    paths = [stem.with_suffix(suffix) for suffix in SUFFIXES]
    with rc_context({"svg.hashsalt": "rjemu", "svg.fonttype": "none"}):
        for path in paths:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each line, by its label."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        allocation = row.candidate.allocation
        found.setdefault((allocation.num_threads, allocation.async_helper_threads), []).append(row)
    return {_label(*key): found[key] for key in sorted(found)}


def _label(engines: int, helpers: int) -> str:
    text = f"{engines} engine{'s' * (engines > 1)}"
    return f"{text}, {helpers} helper{'s' * (helpers > 1)}" if helpers else text
