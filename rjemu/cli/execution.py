"""The options of commands that open machines: which executor, on which worker processes."""

from __future__ import annotations

import argparse


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Adds --executor and --workers, whose values `rjemu.Machine` takes."""
    parser.add_argument(
        "--executor", choices=("native", "reference"), default="native", help="how to execute (default: %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=_workers,
        metavar="E/D",
        help="E engine processes and a dispatch width of D per GPU, or 'inline' for none (default: as the CPUs that may be "
        "used allow)",
    )


def _workers(text: str) -> str | tuple[int, int]:
    if text == "inline":
        return text
    try:
        engines, dispatch = (int(part) for part in text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'inline' nor two numbers, as in 1/2") from None
    return engines, dispatch
