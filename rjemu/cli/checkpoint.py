"""`rjemu checkpoint info`: what a checkpoint holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rjemu.checkpoint.info import describe, read_request
from rjemu.jobs.duration import duration_text
from rjemu.jobs.state import is_job, read_state


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("checkpoint", description="Look at checkpoints.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    info = actions.add_parser("info", description="Show what a checkpoint holds, and check that it is undamaged.")
    info.add_argument("file", type=Path, metavar="FILE", help="what `Machine.save` has written")
    info.add_argument("--json", action="store_true", help="print it as JSON")
    info.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    facts = describe(arguments.file)
    facts["job"] = _job(arguments.file)
    print(json.dumps(facts, indent=2) if arguments.json else "\n".join(_lines(facts)))
    return 0


def _job(path: Path) -> dict[str, Any] | None:
    """How far the job is that the checkpoint is of; None if it is of none."""
    _, data = read_request(path)
    if not is_job(data):
        return None
    state = read_state(data, path)
    return {
        "file": str(state.job.file),
        "launches": state.job.launches,
        "launched": state.launched,
        "outputs": len(state.job.outputs),
        "finished": len(state.outputs),
        "seconds": sum(part.seconds for part in state.parts),
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    machine, memory, allocations = facts["machine"], facts["memory"], facts["allocations"]
    workers = machine["workers"]
    asked = "/".join(map(str, workers)) if isinstance(workers, list) else workers or "as the configuration says"
    lines = [
        f"checkpoint of {machine['name']}, format version {facts['version']}, {facts['file_bytes']} bytes",
        f"asked for: executor {machine['executor']}, workers {asked}",
        f"{allocations['bytes']} bytes in {allocations['count']} allocations, of which {memory['pages_bytes']} in pages "
        f"that are not zero, in {memory['file_bytes']} bytes of the file",
        f"{len(facts['arrays'])} arrays, {len(facts['code'])} code objects, {facts['queues']} queues, "
        f"{len(facts['launches'])} launches under way",
    ]
    job = facts["job"]
    if job is not None:
        lines.append(
            f"job {job['file']}: {job['launched']} of {job['launches']} launches and {job['finished']} of {job['outputs']} "
            f"outputs done, in {duration_text(job['seconds'])}"
        )
    for launch in facts["launches"]:
        waves = ", ".join(f"{count} {state}" for state, count in sorted(launch["waves"].items())) or "none"
        lines += [
            "",
            f"{launch['kernel']} on GPU {launch['device']}, {launch['global_size']} work-items in workgroups of "
            f"{launch['block']}",
            f"  {launch['workgroups_completed']} workgroups completed, {launch['workgroups_resident']} resident",
            f"  waves: {waves}",
        ]
    return lines
