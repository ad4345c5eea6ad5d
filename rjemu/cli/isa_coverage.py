"""`rjemu isa-coverage`: how many of a target's instructions execute."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rjemu.vm.coverage import TARGETS, coverage


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "isa-coverage",
        description="Count the instructions of a target's opcode tables that rjemu executes, and name the others.",
    )
    parser.add_argument("--target", required=True, choices=TARGETS, help="the architecture, e.g. gfx950")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    found = coverage(arguments.target)
    if arguments.json:
        print(json.dumps(asdict(found), indent=2))
        return 0
    print(f"{found.target}: {len(found.executed)} of {found.total} instructions execute")
    print(f"raising UnsupportedInstruction: {', '.join(found.unsupported) or 'none'}")
    return 0
