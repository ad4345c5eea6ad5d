"""`rjemu clean`: shared memory that killed processes left behind."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rjemu.shm.orphans import find_orphans, remove_orphan


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "clean",
        description="Remove this user's rjemu segments in shared memory that no process uses any more.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list them")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    orphans = find_orphans()
    if not arguments.dry_run:
        orphans = [orphan for orphan in orphans if remove_orphan(orphan)]
    if arguments.json:
        print(json.dumps([asdict(orphan) for orphan in orphans], indent=2))
        return 0
    verb = "would remove" if arguments.dry_run else "removed"
    for orphan in orphans:
        print(f"{verb} {orphan.name}, {orphan.resident_bytes} bytes")
    print(f"{verb} {len(orphans)} segments")
    return 0
