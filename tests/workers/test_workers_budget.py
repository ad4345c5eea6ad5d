"""The CPU budget, in made-up /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rjemu.workers.budget import MOST_CPUS, Budget, detect_budget

EIGHT = frozenset(range(8))
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


class Host:
    """A root directory with a process whose cgroups are made up."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)

    def cgroup(self, *lines: str) -> Host:
        (self.root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))
        return self

    def mounts(self, *lines: str) -> Host:
        (self.root / "proc/self/mountinfo").write_text("".join(f"{line}\n" for line in lines))
        return self

    def file(self, path: str, text: str) -> Host:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return self

    def budget(self, affinity: frozenset[int] = EIGHT, configured: int | None = None) -> Budget:
        return detect_budget(configured, affinity=affinity, root=self.root)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def v2(host: Host) -> Host:
    """Version 2, three levels deep, nothing limited."""
    host.cgroup("0::/a/b/c").mounts("23 1 0:21 / /sys rw - sysfs sysfs rw", V2_MOUNT)
    for directory in ("a", "a/b", "a/b/c"):
        host.file(f"/sys/fs/cgroup/{directory}/cpu.max", "max 100000")
        host.file(f"/sys/fs/cgroup/{directory}/cpuset.cpus.effective", "0-7")
    return host


def test_without_cgroups(host: Host) -> None:
    assert host.budget() == Budget(8, 8)
    assert str(host.budget()) == "8 (affinity 8, no CPU quota, at most 48)"
    assert host.budget(frozenset(range(64))).cpus == MOST_CPUS
    assert host.budget(frozenset({5})).cpus == 1


def test_a_configured_budget_wins(v2: Host) -> None:
    v2.file("/sys/fs/cgroup/a/cpu.max", "200000 100000")
    assert v2.budget(configured=60) == Budget(60, 8, configured=60)
    assert v2.budget(configured=0).cpus == 2


@pytest.mark.parametrize(
    ("affinity", "cpuset", "quota", "cpus", "bound_by"),
    [
        (8, "0-7", "max 100000", 8, "affinity"),
        (64, "0-63", "max 100000", MOST_CPUS, "limit"),
        (64, "0-63", "6000000 100000", MOST_CPUS, "limit"),
        (8, "2-3", "max 100000", 2, "cpuset"),
        (8, "0-7", "250000 100000", 2, "CPU quota"),
        (8, "0-3", "200000 100000", 2, "CPU quota"),
        (2, "0-7", "200000 100000", 2, "affinity"),
    ],
)
def test_what_bounds_it(v2: Host, affinity: int, cpuset: str, quota: str, cpus: int, bound_by: str) -> None:
    for directory in ("a", "a/b", "a/b/c"):
        v2.file(f"/sys/fs/cgroup/{directory}/cpuset.cpus.effective", cpuset)
    v2.file("/sys/fs/cgroup/a/b/cpu.max", quota)
    budget = v2.budget(frozenset(range(affinity)))
    assert (budget.cpus, budget.bound_by) == (cpus, bound_by)
    assert v2.budget(configured=3).bound_by == "cpu_thread_budget"


def test_no_limit(v2: Host) -> None:
    assert v2.budget() == Budget(8, 8)


@pytest.mark.parametrize("level", ["a", "a/b", "a/b/c"])
@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("300000 100000", 3),
        ("350000 100000", 3),
        ("50000 100000", 1),
        ("1000000 50000", 8),
        ("200000", 2),
        ("broken", 8),
        ("-1 5", 8),
    ],
)
def test_v2_quota_at_any_level(v2: Host, level: str, quota: str, cpus: int) -> None:
    v2.file(f"/sys/fs/cgroup/{level}/cpu.max", quota)
    assert v2.budget().cpus == cpus


def test_the_tightest_of_nested_quotas(v2: Host) -> None:
    v2.file("/sys/fs/cgroup/a/cpu.max", "200000 100000").file("/sys/fs/cgroup/a/b/c/cpu.max", "600000 100000")
    budget = v2.budget()
    assert (budget.cpus, budget.quota) == (2, 2.0)
    assert str(budget) == "2 (affinity 8, CPU quota 2, at most 48)"


def test_v2_cpusets(v2: Host) -> None:
    v2.file("/sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-4,7,9")
    assert v2.budget() == Budget(4, 8, cpuset=4)
    assert v2.budget(frozenset({0, 2, 3})).cpus == 2
    # another numbering than the mask's: nothing can be learnt from it
    assert v2.budget(frozenset({0, 1})).cpus == 2


def test_a_container_sees_its_own_cgroup_as_the_root(host: Host) -> None:
    """With a cgroup namespace the path is "/"; without one it may be one that is not mounted."""
    for path in ("/", "/docker/0123abc", "/../../elsewhere"):
        host.cgroup(f"0::{path}").mounts("30 23 0:26 /docker/other /sys/fs/cgroup ro - cgroup2 cgroup rw")
        host.file("/sys/fs/cgroup/cpu.max", "150000 100000")
        assert host.budget() == Budget(1, 8, quota=1.5)


def test_a_mounted_subtree(host: Host) -> None:
    host.cgroup("0::/docker/me/inner").mounts("30 23 0:26 /docker/me /sys/fs/cgroup ro - cgroup2 cgroup rw")
    host.file("/sys/fs/cgroup/inner/cpu.max", "400000 100000")
    assert host.budget().cpus == 4


def v1_mounts(prefix: str = "/sys/fs/cgroup") -> list[str]:
    return [
        f"31 30 0:27 / {prefix}/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct",
        f"32 30 0:28 / {prefix}/cpuset rw - cgroup cgroup rw,cpuset",
        f"33 30 0:29 / {prefix}/memory rw - cgroup cgroup rw,memory",
    ]


def test_v1(host: Host) -> None:
    host.cgroup("9:memory:/m", "4:cpu,cpuacct:/slurm/job", "3:cpuset:/slurm/set", "1:name=systemd:/x").mounts(*v1_mounts())
    cpu = "/sys/fs/cgroup/cpu,cpuacct/slurm"
    host.file(f"{cpu}/cpu.cfs_quota_us", "-1").file(f"{cpu}/cpu.cfs_period_us", "100000")
    host.file(f"{cpu}/job/cpu.cfs_quota_us", "250000").file(f"{cpu}/job/cpu.cfs_period_us", "50000")
    assert host.budget() == Budget(5, 8, quota=5.0)
    host.file("/sys/fs/cgroup/cpuset/slurm/set/cpuset.cpus", "0,2")
    assert host.budget() == Budget(2, 8, quota=5.0, cpuset=2)


def test_hybrid(host: Host) -> None:
    """Version 1 controllers, and version 2 beside them for systemd: only the former have limits."""
    host.cgroup("4:cpu,cpuacct:/job", "0::/user.slice").mounts(
        *v1_mounts(), "40 30 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    )
    host.file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000")
    host.file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    assert host.budget().cpus == 3


def test_other_controllers_are_not_asked(host: Host) -> None:
    """The memory hierarchy has files of that name here, the process's path is in another."""
    host.cgroup("9:memory:/m", "1:name=systemd:/x", "0::/m").mounts(*v1_mounts())
    for hierarchy in ("memory", "memory/m"):
        host.file(f"/sys/fs/cgroup/{hierarchy}/cpu.max", "100000 100000")
    assert host.budget() == Budget(8, 8)


def test_a_hierarchy_that_is_mounted_twice(host: Host) -> None:
    """Only the mount that shows the process's own cgroup counts."""
    host.cgroup("0::/pod/me").mounts(
        "40 23 0:26 /pod/other /other rw - cgroup2 cgroup rw", "41 23 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup rw"
    )
    host.file("/other/cpu.max", "100000 100000")
    host.file("/sys/fs/cgroup/me/cpu.max", "300000 100000")
    assert host.budget() == Budget(3, 8, quota=3.0)


def test_slurm(host: Host) -> None:
    """Slurm's cgroup/v2: the CPU set is the job's, above the task's. Its variables are not asked."""
    host.cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0").mounts(V2_MOUNT)
    host.file("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/cpuset.cpus.effective", "4-6")
    assert host.budget() == Budget(3, 8, cpuset=3)


def test_a_cgroup_that_has_been_removed(host: Host) -> None:
    host.cgroup("0::/a/b (deleted)").mounts(V2_MOUNT).file("/sys/fs/cgroup/a/cpu.max", "200000 100000")
    assert host.budget().cpus == 2


def test_blanks_in_mount_points(host: Host) -> None:
    host.cgroup("0::/").mounts(r"30 23 0:26 / /sys/my\040cgroups rw - cgroup2 cgroup2 rw")
    host.file("/sys/my cgroups/cpu.max", "200000 100000")
    assert host.budget().cpus == 2


def test_malformed_files(host: Host) -> None:
    host.cgroup("nonsense", "0::/").mounts("nonsense", "30 23 - cgroup2", V2_MOUNT)
    host.file("/sys/fs/cgroup/cpu.max", "").file("/sys/fs/cgroup/cpuset.cpus.effective", "a-b")
    assert host.budget() == Budget(8, 8)
    for quota in ("1 0", f"{10**400} 1", "-100000 100000", "max"):
        assert host.file("/sys/fs/cgroup/cpu.max", quota).budget() == Budget(8, 8)
    (host.root / "proc/self/mountinfo").write_bytes(b"30 23 0:26 / /sys/\xff rw - cgroup2 cgroup2 rw\n")
    assert host.budget() == Budget(8, 8)


def test_this_process() -> None:
    budget = detect_budget()
    assert budget.affinity == len(os.sched_getaffinity(0))
    assert 1 <= budget.cpus <= min(budget.affinity, MOST_CPUS)
