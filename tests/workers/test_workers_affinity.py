"""Where workers are pinned, on made-up hosts and on this one."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.assemble import build
from support.worker_kernels import SQUARES, pointer, workers_of

import rjemu
from rjemu.workers import crew
from rjemu.workers.affinity import Place, assign, assign_with_helpers, available_cpus, parse_cpu_list, placement, places


def text(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus)) + "\n"


class Sysfs:
    """A made-up /sys/devices/system/cpu."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, cpu: int, name: str, content: str) -> None:
        file = self.root / f"cpu{cpu}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def cores(self, *cores: list[int]) -> Sysfs:
        for threads in cores:
            for cpu in threads:
                self.file(cpu, "topology/thread_siblings_list", text(threads))
        return self

    def caches(self, level: int, *groups: list[int], index: int | None = None) -> Sysfs:
        for group in groups:
            for cpu in group:
                directory = f"cache/index{level if index is None else index}"
                self.file(cpu, f"{directory}/level", f"{level}\n")
                self.file(cpu, f"{directory}/shared_cpu_list", text(group))
        return self

    def sockets(self, *groups: list[int]) -> Sysfs:
        for group in groups:
            for cpu in group:
                self.file(cpu, "topology/core_siblings_list", text(group))
        return self


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


@pytest.fixture
def desktop(sysfs: Sysfs) -> Sysfs:
    """Eight CPUs: CPU k and k + 4 are the threads of one core; cores 0, 1 and 2, 3 share an L3 cache each."""
    return sysfs.cores(*([k, k + 4] for k in range(4))).caches(3, [0, 1, 4, 5], [2, 3, 6, 7])


def test_cpu_lists() -> None:
    assert parse_cpu_list("0-2,8,10-11\n") == [0, 1, 2, 8, 10, 11]
    assert parse_cpu_list("\n") == []
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("0-x")


def test_cores_before_their_siblings_and_domain_by_domain(desktop: Sysfs) -> None:
    assert placement(range(8), desktop.root) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert places([4, 0, 2], desktop.root) == [Place(0, 0, 0), Place(2, 0, 2), Place(4, 1, 0)]


def test_a_sibling_whose_core_is_not_allowed_is_a_core(desktop: Sysfs) -> None:
    assert places([4, 5], desktop.root) == [Place(4, 0, 0), Place(5, 0, 0)]


def test_the_domain_with_most_cores_comes_first(desktop: Sysfs) -> None:
    assert placement([0, 4, 2, 3], desktop.root) == [2, 3, 0, 4]


def test_adjacent_numbering_of_siblings(sysfs: Sysfs) -> None:
    """As on some Intel and POWER hosts: 0 and 1 are one core."""
    sysfs.cores([0, 1], [2, 3], [4, 5]).caches(3, list(range(6)))
    assert placement(range(6), sysfs.root) == [0, 2, 4, 1, 3, 5]


def test_sockets_where_there_is_no_l3_cache(sysfs: Sysfs) -> None:
    """Some aarch64 hosts; here the sockets' CPUs alternate."""
    sysfs.cores(*([k] for k in range(6))).caches(2, *([k] for k in range(6))).sockets([0, 2, 4], [1, 3, 5])
    assert placement(range(6), sysfs.root) == [0, 2, 4, 1, 3, 5]


def test_a_caches_number_is_not_its_level(sysfs: Sysfs) -> None:
    sysfs.caches(3, [0, 2], [1, 3], index=2).caches(4, [0, 1, 2, 3], index=3)
    assert placement(range(4), sysfs.root) == [0, 2, 1, 3]


def test_without_sysfs_by_number(sysfs: Sysfs) -> None:
    assert placement([5, 2, 9, 2], sysfs.root / "nothing") == [2, 5, 9]
    for name in ("topology/thread_siblings_list", "cache/index3/level", "topology/core_siblings_list"):
        sysfs.file(2, name, "nonsense")
    assert placement([5, 2], sysfs.root) == [2, 5]


@given(st.integers(0, 100), st.lists(st.integers(0, 200), min_size=1, max_size=30, unique=True))
def test_workers_share_fairly(workers: int, cpus: list[int]) -> None:
    load = Counter(assign(workers, cpus))
    assert [load[cpu] for cpu in cpus] == sorted((load[cpu] for cpu in cpus), reverse=True)
    assert max(load[cpu] for cpu in cpus) - min(load[cpu] for cpu in cpus) <= 1


def epyc(domains: int) -> list[Place]:
    """Domains of eight cores, without SMT."""
    return [Place(cpu, 0, cpu // 8 * 8) for cpu in range(domains * 8)]


def test_helpers_in_every_domain() -> None:
    workers, helpers = assign_with_helpers(32, 16, epyc(6))
    assert sorted(workers + helpers) == list(range(48))
    assert workers[:5] == [0, 1, 2, 3, 4]
    assert sorted(Counter(cpu // 8 for cpu in helpers).values()) == [2, 2, 3, 3, 3, 3]


def test_the_only_helper_is_in_the_engines_domain() -> None:
    workers, helpers = assign_with_helpers(2, 1, epyc(2))
    assert (workers, helpers) == ([0, 1], [2])
    assert assign_with_helpers(14, 1, epyc(2))[1] == [7]


def test_helpers_take_the_siblings(desktop: Sysfs) -> None:
    order = places(range(8), desktop.root)
    assert assign_with_helpers(4, 4, order) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert assign_with_helpers(4, 2, order) == ([0, 1, 2, 3], [4, 5])


def test_without_helpers_as_assign() -> None:
    assert assign_with_helpers(5, 0, epyc(1)) == ([0, 1, 2, 3, 4], [])
    assert assign_with_helpers(10, 0, epyc(1)) == ([0, 1, 2, 3, 4, 5, 6, 7, 0, 1], [])


def test_more_processes_than_cpus() -> None:
    order = epyc(1)[:2]
    assert assign_with_helpers(1, 1, order) == ([0], [1])
    assert assign_with_helpers(2, 1, order) == ([0, 1], [0])
    assert assign_with_helpers(3, 2, order) == ([0, 1, 0], [1, 0])


domains = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.integers(1, 40), st.integers(0, 40), domains)
def test_every_domain_gets_its_share(workers: int, helpers: int, sizes: list[int]) -> None:
    numbers = [domain for domain, size in enumerate(sizes) for _ in range(size)]
    order = [Place(cpu, 0, domain) for cpu, domain in enumerate(numbers)]
    worker_cpus, helper_cpus = assign_with_helpers(workers, helpers, order)
    assert (len(worker_cpus), len(helper_cpus)) == (workers, helpers)
    total = workers + helpers
    if total > len(order):
        assert worker_cpus == assign(workers, range(len(order)))
        assert max(Counter(worker_cpus + helper_cpus).values()) == -(-total // len(order))
        return
    assert sorted(worker_cpus + helper_cpus) == list(range(total))
    assert worker_cpus == sorted(worker_cpus)
    for domain in range(len(sizes)):
        others = sum(place.domain == domain for place in order[1:total])
        share = sum(order[cpu].domain == domain for cpu in helper_cpus)
        assert abs(share - helpers * others / max(total - 1, 1)) < 1
    assert worker_cpus[0] == 0
    if helpers and sizes[0] > 1:
        assert order[helper_cpus[0]].domain == 0


PIN = "import os; from rjemu.workers.affinity import pin; print(pin({cpu}), sorted(os.sched_getaffinity(0)))"


@pytest.mark.parametrize(("cpu", "printed"), [("{own}", "{own} [{own}]"), (4000, "4294967295 [{own}]")])
def test_pinning_a_process(cpu: object, printed: str) -> None:
    """A CPU that is not there leaves the process where it is."""
    own = available_cpus()[0]
    command = ["taskset", "-c", str(own), sys.executable, "-c", PIN.format(cpu=str(cpu).format(own=own))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == printed.format(own=own)


def test_a_worker_whose_cpu_has_gone_works_unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    own = available_cpus()[0]
    monkeypatch.setattr(crew, "available_cpus", lambda: [own, 4000])
    with rjemu.Machine("gfx950_mi355x", workers=(1, 2)) as gpu:
        gpu.start()
        out = gpu.zeros(1 + 64 * 64, np.uint32)
        result = gpu.load(build(SQUARES, "gfx950"))["kernel"].launch(64, 64, kernarg=pointer(out.address + 4))
        assert int(out.to_host()[0]) == 64 * 64
    assert [worker["cpu"] for worker in result.stats["workers"]] == [own, None]


def test_workers_are_pinned_one_cpu_each() -> None:
    with rjemu.Machine("gfx950_mi355x", workers=(1, 3)) as gpu:
        gpu.start()
        pinned = [process.cpu_affinity() for process in workers_of(gpu)]
    assert pinned == [[cpu] for cpu in assign(3, placement(available_cpus()))]
