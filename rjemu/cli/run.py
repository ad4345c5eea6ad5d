"""`rjemu run`: the dispatches of a job file, with progress, checkpoints, and a report of times and comparisons."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rjemu.cli.job_options import (
    add_checkpoint_options,
    add_display_options,
    add_machine_options,
    check_checkpoint_options,
    checkpoint_options,
    machine_changes,
)
from rjemu.cli.job_progress import display
from rjemu.cli.job_tables import print_report
from rjemu.jobs import JobOptions, JobReport, load_job, run_job


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        description="Run the dispatches of a job file. The exit status is 1 if a kernel fails or an output is not what the "
        "job expects, and 75 if a signal or the time limit has ended the job and a checkpoint holds the rest of it.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the job file; its paths are relative to its folder")
    parser.add_argument("--repeat", type=int, metavar="N", help="run all dispatches so many times")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="where outputs go (default: the job file's folder)")
    add_machine_options(parser)
    add_checkpoint_options(parser, "write checkpoints: SIGTERM, SIGUSR1 and Ctrl-C do before they end the job")
    add_display_options(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    check_checkpoint_options(arguments)
    changes = machine_changes(arguments)
    if arguments.repeat is not None:
        changes["repeat"] = arguments.repeat
    if arguments.output_dir is not None:
        changes["output_dir"] = str(arguments.output_dir.absolute())
    job = load_job(arguments.job).with_changes(**changes)
    with display(arguments.progress, arguments.quiet) as shown:
        report = run_job(
            job,
            checkpoint=arguments.checkpoint,
            options=JobOptions(**checkpoint_options(arguments)),
            trace=arguments.trace,
            listener=shown,
        )
    return show(report, arguments)


def show(report: JobReport, arguments: argparse.Namespace) -> int:
    """Prints the report of a job that has ended, and gives the exit status."""
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print_report(report, stats=arguments.stats)
    return 0 if report.succeeded else 1
