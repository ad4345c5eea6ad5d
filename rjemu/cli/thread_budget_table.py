"""`rjemu thread-budget-table`: how many engines, dispatch workers and helpers a configuration gets, without a machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rjemu.config import MachineConfig, load_config, resolve_execution_threads
from rjemu.workers.budget import MOST_CPUS, detect_budget

BUDGETS = (1, 2, 4, 8, 16, 24, 32, 34, 36, 40, MOST_CPUS)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "thread-budget-table",
        description="Print the processes that a configuration gets on this host, and for each budget of CPUs.",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="a configuration file or a preset's name")
    parser.add_argument("--budget", type=_positive, metavar="N", help="the configured row for N CPUs, not for this host's")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(handler=run)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    overrides = {} if arguments.budget is None else {"cpu_thread_budget": arguments.budget}
    config = load_config(arguments.config, **overrides)
    budget = detect_budget(config.cpu_thread_budget)
    configured = row(config, budget.cpus)
    rows = [row(config, cpus) for cpus in BUDGETS]
    if arguments.json:
        found = {**asdict(budget), "bound_by": budget.bound_by}
        table = {"config": config.name, "devices": config.devices, "budget": found}
        print(json.dumps({**table, "configured": configured, "rows": rows}, indent=2))
        return 0
    gpus = f", {config.devices} GPUs" if config.devices > 1 else ""
    print(f"{config.name}{gpus}; budget {budget}")
    heads = list(configured)
    print(" ".join([f"{'':10}", *(f"{head:>8}" for head in heads)]))
    for label, values in [("configured", configured), *(("", values) for values in rows)]:
        print(" ".join([f"{label:10}", *(f"{values[head]:8}" for head in heads)]))
    return 0


def row(config: MachineConfig, cpus: int) -> dict[str, int]:
    """What a configuration gets for a budget: dispatch is per GPU, and counts the engines as one; total counts processes."""
    threads = resolve_execution_threads(config.threads, config.execution_topology, cpus)
    return {
        "budget": cpus,
        "engines": threads.num_threads,
        "dispatch": threads.cpu_dispatch_threads,
        "helpers": threads.async_helper_threads,
        "total": threads.total(config.devices),
    }
