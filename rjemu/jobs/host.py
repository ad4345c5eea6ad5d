"""Where and on what a job ran: facts for its report."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import psutil

from rjemu.config import MachineConfig
from rjemu.exec.compiler import this_host
from rjemu.vm.executor import Workers, execution_threads
from rjemu.workers.budget import detect_budget


def describe_host() -> dict[str, Any]:
    """The host's CPU, memory and software, as JSON has them. affinity: CPUs that this process may use; llvm_cpu and
    features: what handlers are compiled for; memory_bytes: in all."""
    host = this_host()
    return {
        "name": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "physical_cpus": psutil.cpu_count(logical=False),
        "affinity": sorted(os.sched_getaffinity(0)),
        "llvm_cpu": host.cpu,
        "features": sorted(host.features),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rjemu": rjemu_version(),
    }


def cpu_model() -> str:
    """The CPU's name as /proc/cpuinfo has it; the architecture where it has none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, text = line.partition(":")
                if key.strip() == "model name":
                    return text.strip()
    except OSError:
        pass
    return platform.machine()


def rjemu_version() -> str | None:
    """None where rjemu is not installed, but run from its sources."""
    try:
        return version("rjemu")
    except PackageNotFoundError:
        return None


def describe_configuration(config: MachineConfig, executor: str, workers: Workers) -> dict[str, Any]:
    """The configuration as it was asked for, and what it resolved to."""
    return {
        "name": config.name,
        "asked": dict(config.request),
        "executor": executor,
        "workers": "/".join(map(str, workers)) if isinstance(workers, tuple) else workers or "auto",
        "resolved": {
            "target": config.target,
            "marketing_name": config.marketing_name,
            "gpus": config.devices,
            "xcds": config.xcds,
            "compute_units_per_xcd": config.cus_per_xcd,
            "simds_per_compute_unit": config.simds_per_cu,
            "waves_per_simd": config.waves_per_simd,
            "wave_size": config.wave_size,
            "lds_bytes": config.lds_bytes,
            "memory_bytes": config.vram_bytes,
            "wave_quantum": config.wave_quantum,
            "time_slice": config.time_slice,
            "async_window": config.async_window,
            "plugins": dict(config.plugins),
            "sinks": dict(config.sinks),
        },
    }


def describe_allocation(config: MachineConfig, workers: Workers) -> dict[str, Any]:
    """The budget of CPUs and what bounds it, and what the thread policy makes of it: no engines and no dispatch width where
    the launching thread runs everything."""
    budget = detect_budget(config.cpu_thread_budget)
    threads = execution_threads(workers, config)
    chosen = (0, 0, config.threads.async_helper_threads or 0)
    if threads is not None:
        chosen = threads.num_threads, threads.cpu_dispatch_threads, threads.async_helper_threads
    return {
        "budget": budget.cpus,
        "bound_by": budget.bound_by,
        "affinity": budget.affinity,
        "cpuset": budget.cpuset,
        "cpu_quota": budget.quota,
        "engines": chosen[0],
        "dispatch": chosen[1],
        "helpers": chosen[2],
    }
