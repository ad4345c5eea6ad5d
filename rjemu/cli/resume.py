"""`rjemu resume`: goes on with a job from its checkpoint, and ends it as if nothing had interrupted it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rjemu.cli.job_options import (
    add_checkpoint_options,
    add_display_options,
    add_machine_options,
    checkpoint_options,
    machine_overrides,
)
from rjemu.cli.job_progress import display
from rjemu.cli.run import show
from rjemu.jobs import resume_job


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "resume",
        description="Go on with the job of a checkpoint that `rjemu run --checkpoint` or this command has written: what is "
        "left of the dispatch under way, the dispatches after it, and the outputs. The job file is not needed any more. The "
        "exit status is that of `rjemu run`.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the checkpoint")
    add_machine_options(parser)
    add_checkpoint_options(parser, "write further checkpoints there (default: to the same file)")
    add_display_options(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    with display(arguments.progress, arguments.quiet) as shown:
        report = resume_job(
            arguments.file,
            checkpoint=arguments.checkpoint,
            options=checkpoint_options(arguments),
            trace=arguments.trace,
            listener=shown,
            **machine_overrides(arguments),
        )
    return show(report, arguments)
