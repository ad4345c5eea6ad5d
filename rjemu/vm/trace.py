"""A trace of a machine's launches in the Trace Event Format, which Chrome's and Perfetto's viewers read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rjemu.exec.trace import TraceRow

_NS_PER_US = 1000


def write_trace(path: str | Path, machine: str, rows: Sequence[TraceRow]) -> None:
    """Write the rows as complete ("X") events, times in microseconds from the earliest. OSError if that fails."""
    Path(path).write_text(json.dumps(trace_events(machine, rows)))


def trace_events(machine: str, rows: Sequence[TraceRow]) -> dict[str, Any]:
    """The JSON object of a trace. Every row is a thread of one process, in the given order."""
    pid = os.getpid()
    origin = min((piece.start for row in rows for piece in row.slices), default=0)
    events: list[dict[str, Any]] = [_metadata("process_name", pid, 0, {"name": f"rjemu {machine}"})]
    for tid, row in enumerate(rows, 1):
        events.append(_metadata("thread_name", pid, tid, {"name": row.name}))
        events.append(_metadata("thread_sort_index", pid, tid, {"sort_index": tid}))
        for piece in sorted(row.slices, key=lambda piece: piece.start):
            events.append(
                {
                    "name": piece.name,
                    "ph": "X",
                    "ts": (piece.start - origin) / _NS_PER_US,
                    "dur": (piece.end - piece.start) / _NS_PER_US,
                    "pid": pid,
                    "tid": tid,
                    "args": piece.details,
                }
            )
    lost = {row.name: row.lost for row in rows if row.lost}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"machine": machine, "events_lost": lost}}


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}
