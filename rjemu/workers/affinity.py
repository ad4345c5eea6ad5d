"""Which CPU each worker is pinned to: whole cores before their SMT siblings, cores of one L3 cache together.

Source of the files: Linux, Documentation/admin-guide/cputopology.rst and Documentation/ABI/testing/sysfs-devices-system-cpu.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

CPU_DIRECTORY = Path("/sys/devices/system/cpu")

NO_CPU = 0xFFFFFFFF
"""In place of the CPU of a process that is not pinned; fits a word of shared memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """A CPU that a worker may be pinned to. sibling: its number among the allowed threads of its core. domain: the lowest
    CPU that shares its L3 cache, or its socket where the kernel tells of no L3 cache."""

    cpu: int
    sibling: int
    domain: int


def parse_cpu_list(text: str) -> list[int]:
    """The CPUs of a kernel list such as "0-3,8,10-11"."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def places(cpus: Iterable[int], directory: Path = CPU_DIRECTORY) -> list[Place]:
    """CPUs in the order in which workers take them: the first thread of every core, L3 domain by L3 domain, then the second
    threads likewise. The domain with most cores comes first, so that few workers share one cache. By number where the
    kernel does not tell (containers without sysfs, some aarch64 hosts)."""
    allowed = sorted(set(cpus))
    found = [_place(cpu, allowed, directory) for cpu in allowed]
    cores = Counter(place.domain for place in found if place.sibling == 0)
    return sorted(found, key=lambda place: (place.sibling, -cores[place.domain], place.domain, place.cpu))


def placement(cpus: Iterable[int], directory: Path = CPU_DIRECTORY) -> list[int]:
    """The CPUs of `places`."""
    return [place.cpu for place in places(cpus, directory)]


def _place(cpu: int, allowed: list[int], directory: Path) -> Place:
    own = directory / f"cpu{cpu}"
    threads = [other for other in _shared(own / "topology/thread_siblings_list", cpu) if other in allowed]
    sharing = _l3_cache(own) or own / "topology/core_siblings_list"
    return Place(cpu, threads.index(cpu) if cpu in threads else 0, min(_shared(sharing, 0)))


def _l3_cache(cpu: Path) -> Path | None:
    """The list of CPUs that share a CPU's L3 cache; None where there is none. Cache numbers are not levels."""
    for level in sorted(cpu.glob("cache/index*/level"), reverse=True):
        try:
            if level.read_text().strip() == "3":
                return level.with_name("shared_cpu_list")
        except OSError:
            continue
    return None


def _shared(path: Path, alone: int) -> list[int]:
    try:
        return parse_cpu_list(path.read_text()) or [alone]
    except (OSError, ValueError):
        return [alone]


def assign(workers: int, cpus: Sequence[int]) -> list[int]:
    """The CPU of each worker: one each, in turn again where there are more workers than CPUs."""
    return [cpus[k % len(cpus)] for k in range(workers)]


def assign_with_helpers(workers: int, helpers: int, order: Sequence[Place]) -> tuple[list[int], list[int]]:
    """The CPUs of engines and dispatch workers, and those of helpers, which run matrix instructions for any of them.

    The first engine takes the first CPU. Of the others every L3 domain gets its share of the helpers, rounded up in the
    engines' favour, so that operands are handed over within a cache; in a domain workers take the cores, and helpers what is
    left. With more processes than CPUs the helpers only come after the workers, in turn.
    """
    total = workers + helpers
    if total > len(order):
        cpus = assign(total, [place.cpu for place in order])
        return cpus[:workers], cpus[workers:]
    others = order[1:total]
    room = Counter(place.domain for place in others)  # in the order of the domains' first CPUs
    taken = passed = 0
    helper_cpus: list[int] = []
    for domain, size in room.items():
        passed += size
        share = -(-helpers * passed // len(others)) - taken
        taken += share
        helper_cpus += [place.cpu for place in others if place.domain == domain][size - share :]
    return [place.cpu for place in order[:total] if place.cpu not in helper_cpus], helper_cpus


def available_cpus() -> list[int]:
    """The CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def pin(cpu: int) -> int:
    """Bind this process to one CPU, and give that; NO_CPU if it cannot be done: the CPU has gone offline or left the CPU set
    since it was chosen, or binding is forbidden. The process then keeps the CPUs that it has, since a slower worker is
    better than none. (Where a CPU goes later, the kernel moves the process.)"""
    try:
        psutil.Process().cpu_affinity([cpu])
    except (OSError, ValueError, psutil.Error):
        return NO_CPU
    return cpu
