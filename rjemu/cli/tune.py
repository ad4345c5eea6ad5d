"""`rjemu tune`: a job's time over budgets of CPUs and allocations of processes, as a table, plots and a configuration."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rjemu.config import load_config
from rjemu.errors import UsageError
from rjemu.jobs import Job, load_job
from rjemu.jobs.files import write_text
from rjemu.mma.candidates import supports_async
from rjemu.tune import record
from rjemu.tune.candidates import Candidate, allocation_name, default_budgets, parse_allocation, parse_budget, plan
from rjemu.tune.measure import WrongOutput, check_budgets, host_cpus, measure
from rjemu.tune.plot import check_plotting, write_plots
from rjemu.tune.record import Experiment
from rjemu.tune.reports import read_below
from rjemu.tune.results import Row, as_configuration

TABLE_NAME = "thread_allocations.json"

Entry = TypeVar("Entry")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "tune",
        description="Run a job over budgets of CPUs and allocations of processes; print the median times, and write them, "
        "plots, and the best allocations as a configuration's thread_allocations. The exit status is 1 if an output is not "
        "what the job expects.",
    )
    parser.add_argument("job", nargs="?", type=Path, metavar="JOB.toml", help="the job file; its outputs are not written")
    parser.add_argument(
        "--budgets",
        type=_list_of(parse_budget),
        metavar="N,...",
        help="numbers of CPUs (default: powers of two up to the CPUs that this process may use, and these)",
    )
    parser.add_argument(
        "--allocations",
        type=_list_of(parse_allocation),
        default=[],
        metavar="E/D/H,...",
        help="engines, dispatch width per GPU and helpers to try in every budget that they fit (default: up to six for each "
        "budget, see docs/batch.md)",
    )
    parser.add_argument(
        "--repeat", type=_positive, default=5, metavar="N", help="runs of each, after one that does not count (default: 5)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: tune, or what is merged)")
    parser.add_argument("--oversubscribe", action="store_true", help="allow budgets of more CPUs than there are")
    parser.add_argument("--no-plot", action="store_true", help="write no plots, which need matplotlib")
    parser.add_argument("--json", action="store_true", help="print what tune.json holds in place of the table")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--plan", action="store_true", help="only print what would be run: lines of a budget and E/D/H")
    instead.add_argument("--merge", type=Path, metavar="DIR", help="run nothing: take the samples that are below DIR")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    if (arguments.job is None) == (arguments.merge is None):
        raise UsageError("tune needs a job file, or --merge with a folder, and not both")
    if arguments.merge is not None:
        return _merge(arguments)
    job = load_job(arguments.job)
    config = load_config(job.config, **job.overrides)
    cpus = host_cpus()
    budgets = arguments.budgets or default_budgets(cpus)
    candidates = plan(
        budgets, arguments.allocations, config.threads, config.execution_topology, helpers=supports_async(config.target)
    )
    if arguments.plan:
        for candidate in candidates:
            print(candidate.budget, allocation_name(candidate.allocation))
        return 0
    if not arguments.oversubscribe:
        check_budgets(budgets, cpus)
    if not arguments.no_plot:
        check_plotting()
    folder = arguments.out or Path("tune")
    with _writing(folder):
        pass  # what is wrong with it is said before hours of measuring
    try:
        experiment = _measure(job, candidates, config.devices, arguments.repeat, folder)
    except WrongOutput as error:
        print(f"rjemu: {error}", file=sys.stderr)
        return 1
    return _finish(experiment, arguments, folder)


def _merge(arguments: argparse.Namespace) -> int:
    """Sums up what has been measured before."""
    experiments, unfinished = read_below(arguments.merge)
    if unfinished:
        print(f"rjemu: left out: {unfinished} interrupted runs that have not been gone on with", file=sys.stderr)
    return _finish(record.merge(experiments), arguments, arguments.out or arguments.merge)


def _measure(job: Job, candidates: list[Candidate], gpus: int, repeat: int, folder: Path) -> Experiment:
    """The job's experiment. Its record is written after every round: one that is interrupted was not in vain."""
    experiment = Experiment(str(job.file.resolve()), gpus, ())
    with ExitStack() as stack:
        started = _progress(stack, len(candidates) * (1 + repeat))
        for samples in measure(job, candidates, repeat, started):
            experiment = Experiment(experiment.job, gpus, (*experiment.samples, *samples))
            with _writing(folder):
                record.write(experiment, folder)
    return experiment


def _progress(stack: ExitStack, runs: int) -> Callable[[int, Candidate], None]:
    """What to call before each run: moves a bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        return lambda number, candidate: None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = progress.add_task("", total=runs)
    begun = count()

    def started(number: int, candidate: Candidate) -> None:
        kind = f"run {number}" if number else "warm-up"
        text = f"{kind}, {candidate.budget} CPUs, {allocation_name(candidate.allocation)}"
        progress.update(task, completed=next(begun), description=text)

    return started


def _finish(experiment: Experiment, arguments: argparse.Namespace, folder: Path) -> int:
    """Writes the record, plots and configuration of an experiment, and prints it."""
    if not arguments.no_plot:
        check_plotting()
    rows, table = experiment.rows, as_configuration(experiment.table)
    with _writing(folder):
        paths = [record.write(experiment, folder), folder / TABLE_NAME]
        write_text(paths[1], json.dumps(table, indent=2) + "\n")
        if not arguments.no_plot:
            paths += write_plots(rows, experiment.gpus, Path(experiment.job).name, folder / "tune")
    if arguments.json:
        print(paths[0].read_text(), end="")
        return 0
    Console().print(_table(rows, experiment.gpus))
    hosts = sorted({sample.host for sample in experiment.samples})
    if len(hosts) > 1:
        print(f"samples of {len(hosts)} hosts are compared: {', '.join(hosts)}")
    interrupted = sum(sample.interrupted for sample in experiment.samples)
    if interrupted:
        print(f"{interrupted} of {len(experiment.samples)} runs went on from a checkpoint")
    print(json.dumps(table))
    print(f"written: {', '.join(map(str, paths))}")
    return 0


def _table(rows: Sequence[Row], gpus: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("CPUs", "E/D/H", "processes", "runs", "median s", "lowest", "highest", ""):
        table.add_column(heading, justify="left" if heading in ("E/D/H", "") else "right")
    for row in rows:
        allocation = row.candidate.allocation
        counts = (str(row.candidate.budget), allocation_name(allocation), str(allocation.total(gpus)), str(row.samples))
        seconds = (f"{value:.4f}" for value in (row.median, row.low, row.high))
        table.add_row(*counts, *seconds, "best" if row.best else "", style="bold" if row.best else None)
    return table


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Makes the folder, and a UsageError of what cannot be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error


def _list_of(parse: Callable[[str], Entry]) -> Callable[[str], list[Entry]]:
    """A reader of lists with commas, whose mistakes are argparse's."""

    def read(text: str) -> list[Entry]:
        try:
            return [parse(part) for part in text.split(",")]
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return int(text)
