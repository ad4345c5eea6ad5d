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

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Budget:
    """CPUs to use, and what bounds them: those of the affinity mask, the quota of all cgroups above (None: none), the CPUs
    of the CPU sets that are not in the affinity mask's kernel view (None: none), the configured budget (None: none)."""

    cpus: int
    affinity: int
    quota: float | None = None
    cpuset: int | None = None
    configured: int | None = None

    def __str__(self) -> str:
        if self.configured is not None:
            return f"{self.cpus} (cpu_thread_budget)"
        bounds = [f"affinity {self.affinity}"]
        if self.cpuset is not None:
            bounds.append(f"cpuset {self.cpuset}")
        if self.quota is not None:
            bounds.append(f"CPU quota {self.quota:g}")
        return f"{self.cpus} ({', '.join(bounds)}, at most {MOST_CPUS})"


def detect_budget(
    configured: int | None = None, *, affinity: frozenset[int] | None = None, root: Path = Path("/"), pid: str = "self"
) -> Budget:
    """The budget of a process. configured: `cpu_thread_budget`, which wins. affinity: its CPUs, by default this process's.
    root: where /proc and /sys are.

    A quota counts in whole CPUs, rounded down, as a worker that gets no whole CPU delays those that do; but at least one.
    """
    allowed = frozenset(os.sched_getaffinity(0)) if affinity is None else affinity
    if configured:
        return Budget(configured, len(allowed), configured=configured)
    quotas, sets = [], []
    for directory in _cgroups(root, pid):
        quotas.append(_quota(directory))
        sets.append(_cpuset(directory))
    limits = [quota for quota in quotas if quota is not None]
    quota = min(limits) if limits else None
    usable = allowed
    for cpus in sets:
        # A set without a CPU in common belongs to another view of the machine than the affinity mask.
        if cpus is not None and usable & cpus:
            usable = usable & cpus
    bound = min(len(usable), MOST_CPUS, *([max(int(quota), 1)] if quota is not None else []))
    return Budget(max(bound, 1), len(allowed), quota, len(usable) if usable != allowed else None)


def _cgroups(root: Path, pid: str) -> Iterator[Path]:
    """The directories of all cgroups that a process is in, each followed by those above it, as far as they can be seen."""
    memberships = _memberships(root / "proc" / pid / "cgroup")
    for mount_root, mount_point, controllers in _mounts(root / "proc" / pid / "mountinfo"):
        for names, path in memberships:
            if names == controllers or (names and controllers and names & controllers):
                yield from _upwards(root, mount_root, mount_point, path)


def _memberships(file: Path) -> list[tuple[frozenset[str], str]]:
    """(controllers, path) of each hierarchy; no controllers for version 2."""
    out = []
    for line in _lines(file):
        parts = line.split(":", 2)
        if len(parts) == 3:
            out.append((frozenset(parts[1].split(",")) - {""}, parts[2]))
    return out


def _mounts(file: Path) -> list[tuple[str, str, frozenset[str]]]:
    """(path of the cgroup that is mounted, mount point, controllers) of each mounted cgroup hierarchy."""
    out = []
    for line in _lines(file):
        before, found, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not found or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset()
        out.append((_unescaped(fields[3]), _unescaped(fields[4]), options & {"cpu", "cpuset", "cpuacct"}))
    return out


def _upwards(root: Path, mount_root: str, mount_point: str, path: str) -> Iterator[Path]:
    """The directories from a cgroup up to the mounted one."""
    top = root / mount_point.lstrip("/")
    cgroup, mounted = PurePosixPath(path), PurePosixPath(mount_root)
    # In a container the path may be outside of what is mounted: then the mounted cgroup is the nearest that can be seen.
    inside = cgroup.relative_to(mounted) if cgroup.is_relative_to(mounted) and ".." not in cgroup.parts else PurePosixPath()
    directory = top / inside
    while True:
        yield directory
        if directory == top:
            return
        directory = directory.parent


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
    except (ValueError, ZeroDivisionError):
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
        return [line for line in file.read_text().splitlines() if line.strip()]
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """A field of mountinfo, where blanks are octal."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
