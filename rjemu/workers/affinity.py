"""Which CPU each worker is pinned to: whole cores before their SMT siblings, cores of one L3 cache together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

CPU_DIRECTORY = Path("/sys/devices/system/cpu")


def parse_cpu_list(text: str) -> list[int]:
    """The CPUs of a kernel list such as "0-3,8,10-11"."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def placement(cpus: Iterable[int], directory: Path = CPU_DIRECTORY) -> list[int]:
    """The CPUs in the order in which workers take them: the first thread of every core, L3 domain by L3 domain, then
    the second threads likewise. Where the kernel does not tell, by number."""
    allowed = sorted(cpus)

    def rank(cpu: int) -> tuple[int, int, int]:
        siblings = [
            other for other in _shared(directory / f"cpu{cpu}/topology/thread_siblings_list", cpu) if other in allowed
        ]
        domain = _shared(directory / f"cpu{cpu}/cache/index3/shared_cpu_list", 0)
        return siblings.index(cpu) if cpu in siblings else 0, min(domain), cpu

    return sorted(allowed, key=rank)


def _shared(path: Path, alone: int) -> list[int]:
    try:
        return parse_cpu_list(path.read_text()) or [alone]
    except (OSError, ValueError):
        return [alone]


def assign(workers: int, cpus: list[int]) -> list[int]:
    """The CPU of each worker: one each, in turn again where there are more workers than CPUs."""
    return [cpus[k % len(cpus)] for k in range(workers)]


def available_cpus() -> list[int]:
    """The CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))
