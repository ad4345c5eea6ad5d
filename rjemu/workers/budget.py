"""How many CPUs this process may use: its affinity, the CPU quotas and CPU sets of its cgroups.

Sources: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max, cpuset.cpus.effective), sched-bwc.rst (cpu.cfs_quota_us),
cgroup-v1/cpusets.rst; proc(5), /proc/pid/cgroup and /proc/pid/mountinfo.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rjemu.workers.affinity import parse_cpu_list

MOST_CPUS = 48
"""What is used at most unless a configuration asks for more (`cpu_thread_budget`)."""

_CPU_CONTROLLERS = frozenset({"cpu", "cpuset"})
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Budget:
    """CPUs to use, and what was found: the CPUs of the affinity mask; of these the ones in all CPU sets, the quota of all
    cgroups together (None: none), `cpu_thread_budget` (None: not given; nothing else matters where it is)."""

    cpus: int
    affinity: int
    cpuset: int | None = None
    quota: float | None = None
    configured: int | None = None

    @property
    def bound_by(self) -> str:
        """What the number comes from: the tightest bound, and of equal ones the one that the user sets most directly."""
        if self.configured is not None:
            return "cpu_thread_budget"
        bounds = [("affinity", self.affinity), ("cpuset", self.cpuset), ("CPU quota", whole_cpus(self.quota))]
        return next((name for name, cpus in bounds if cpus == self.cpus), "limit")

    def __str__(self) -> str:
        if self.configured is not None:
            return f"{self.cpus} (cpu_thread_budget)"
        found = [f"affinity {self.affinity}"]
        if self.cpuset is not None:
            found.append(f"cpuset {self.cpuset}")
        found.append("no CPU quota" if self.quota is None else f"CPU quota {self.quota:g}")
        return f"{self.cpus} ({', '.join(found)}, at most {MOST_CPUS})"


def detect_budget(
    configured: int | None = None, *, affinity: frozenset[int] | None = None, root: Path = Path("/"), pid: str = "self"
) -> Budget:
    """The budget of a process. configured: `cpu_thread_budget`, which wins. affinity: its CPUs, by default this process's.
    root: where /proc and /sys are."""
    allowed = frozenset(os.sched_getaffinity(0)) if affinity is None else affinity
    if configured:
        return Budget(configured, len(allowed), configured=configured)
    directories = list(_cgroups(root, pid))
    quota = min(filter(None, map(_quota, directories)), default=None)
    usable = allowed
    for cpus in filter(None, map(_cpuset, directories)):
        # A set without a CPU in common belongs to another view of the machine than the affinity mask.
        usable = (usable & cpus) or usable
    bounds = [len(usable), whole_cpus(quota), MOST_CPUS]
    return Budget(
        cpus=min(bound for bound in bounds if bound is not None),
        affinity=len(allowed),
        cpuset=len(usable) if usable != allowed else None,
        quota=quota,
    )


def whole_cpus(quota: float | None) -> int | None:
    """CPUs that a quota keeps busy: rounded down, as processes beyond that would be stopped for part of every period, and
    all others wait for them; but at least one."""
    return None if quota is None else max(int(quota), 1)


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A cgroup hierarchy: its controllers, none for version 2, and a path in it."""

    controllers: frozenset[str]
    path: str


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where a cgroup hierarchy is mounted, from which of its cgroups on."""

    hierarchy: _Hierarchy
    point: str


def _cgroups(root: Path, pid: str) -> Iterator[Path]:
    """The directories of the cgroups that a process is in, each followed by those above it, as far as they can be seen."""
    mounts = _mounts(root / "proc" / pid / "mountinfo")
    for member in _memberships(root / "proc" / pid / "cgroup"):
        own = [mount for mount in mounts if mount.hierarchy.controllers == member.controllers]
        # In a container the process's path may be outside of what is mounted: then the mounted cgroup is the nearest seen.
        inside = [mount for mount in own if _below(member.path, mount.hierarchy.path) is not None]
        for mount in inside or own:
            top = root / mount.point.lstrip("/")
            directory = top / (_below(member.path, mount.hierarchy.path) or "")
            yield directory
            yield from (above for above in directory.parents if above.is_relative_to(top))


def _below(path: str, top: str) -> PurePosixPath | None:
    """A cgroup's path relative to one above it; None if it is not above it."""
    cgroup = PurePosixPath(path)
    return cgroup.relative_to(top) if cgroup.is_relative_to(top) and ".." not in cgroup.parts else None


def _memberships(file: Path) -> list[_Hierarchy]:
    """The hierarchies of /proc/pid/cgroup that may bound CPUs."""
    out = []
    for line in _lines(file):
        number, *rest = line.split(":", 2)
        if len(rest) == 2 and (number == "0" or _CPU_CONTROLLERS & set(rest[0].split(","))):
            out.append(_Hierarchy(_CPU_CONTROLLERS & set(rest[0].split(",")), rest[1]))
    return out


def _mounts(file: Path) -> list[_Mount]:
    """The hierarchies of /proc/pid/mountinfo that may bound CPUs."""
    out = []
    for line in _lines(file):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        controllers = _CPU_CONTROLLERS & set(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        if kind[0] == "cgroup2" or controllers:
            out.append(_Mount(_Hierarchy(controllers, _unescaped(fields[3])), _unescaped(fields[4])))
    return out


def _quota(directory: Path) -> float | None:
    """CPUs that a cgroup may use on average; None without a limit."""
    for line in _lines(directory / "cpu.max"):
        quota, _, period = line.partition(" ")
        return _ratio(quota, period or "100000")
    quotas, periods = _lines(directory / "cpu.cfs_quota_us"), _lines(directory / "cpu.cfs_period_us")
    return _ratio(quotas[0], periods[0]) if quotas and periods else None


def _ratio(quota: str, period: str) -> float | None:
    try:
        ratio = int(quota) / int(period)
    except (ValueError, ArithmeticError):
        return None
    return ratio if ratio > 0 else None


def _cpuset(directory: Path) -> frozenset[int] | None:
    """The CPUs of a cgroup's CPU set; None where it has none."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        for line in _lines(directory / name):
            try:
                cpus = frozenset(parse_cpu_list(line))
            except ValueError:
                continue
            if cpus:
                return cpus
    return None


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(errors="surrogateescape").splitlines() if line.strip()]
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """A field of mountinfo, where blanks are octal."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
