"""The `throughput` plugin: wave instructions by family and time of every dispatch, as JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from rjemu.plugins.contract import Dispatch, Outcome, Plugin
from rjemu.plugins.families import FAMILIES, family_of

_MILLION = 1e6


class Throughput(Plugin):
    """Wave instructions by family and seconds of every dispatch. No settings."""

    counts_instructions: ClassVar[bool] = True

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return True

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        families = Counter(dict.fromkeys(FAMILIES, 0))
        families.update(outcome.executed.totals(family_of))
        seconds = execution_seconds(outcome.stats)
        record = {
            "dispatch": dispatch.number,
            "kernel": dispatch.kernel,
            "device": dispatch.device,
            "workgroups": dispatch.workgroups,
            "wave_instructions": sum(families.values()),
            "families": dict(families),
            "dispatch_wall_seconds": outcome.seconds,
            "execution_timing_valid": seconds is not None,
            "execution_seconds": seconds,
            "execution_mips": sum(families.values()) / seconds / _MILLION if seconds else None,
            "error": outcome.error,
        }
        self.sink.line(json.dumps(record))


def execution_seconds(stats: Mapping[str, Any]) -> float | None:
    """What all workers together have spent on a dispatch's workgroups; None where that is not all of the work: after an
    error, and if helpers, whose time is nobody's in particular, have executed some of it."""
    asynchronous = stats.get("async")
    if not stats or (asynchronous is not None and asynchronous["jobs"]):
        return None
    return float(sum(worker["busy_seconds"] for worker in stats["workers"]))
