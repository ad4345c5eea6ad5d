"""One machine, many threads: loading, launching, copying and unloading at the same time."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.worker_kernels import COUNT, ENDLESS, pointer

import rjemu
from rjemu.errors import LaunchTimeout, MemoryFault

STRAY = kernel_text("  v_mov_b32 v0, 0\n  v_mov_b32 v1, 0\n  global_load_dword v2, v[0:1], off\n  s_endpgm\n")


class Stop(Exception):
    """Raised by a progress callback."""


def count(device: Any, rng: random.Random) -> None:
    module, total, workgroups = device.load(build(COUNT, "gfx950")), device.zeros(1, np.uint32), rng.choice([1, 5, 200])
    result = module["kernel"].launch(workgroups, 64, kernarg=pointer(total.address), timeout=60)
    assert int(total.to_host()[0]) == workgroups
    assert sum(worker["workgroups"] for worker in result.stats["workers"]) == workgroups
    module.unload()
    total.free()


def fault(device: Any, rng: random.Random) -> None:
    module = device.load(build(STRAY, "gfx950"))
    with pytest.raises(MemoryFault):
        module["kernel"].launch(3, 64, kernarg=b"", timeout=60)
    module.unload()


def run_out_of_time(device: Any, rng: random.Random) -> None:
    module = device.load(build(ENDLESS, "gfx950"))
    with pytest.raises(LaunchTimeout):
        module["kernel"].launch(2, 64, kernarg=b"", timeout=0.02)
    module.unload()


def give_up(device: Any, rng: random.Random) -> None:
    def progress(done: int, total: int) -> None:
        raise Stop

    module = device.load(build(ENDLESS, "gfx950"))
    with pytest.raises(Stop):
        module["kernel"].launch(2, 64, kernarg=b"", progress=progress)
    module.unload()


@pytest.mark.parametrize(("workers", "threads"), [("inline", 4), ((1, 2), 20)], ids=["inline", "workers"])
def test_threads_do_not_disturb_each_other(workers: Any, threads: int) -> None:
    """Also more of them than there may be launches at once."""
    failures: list[BaseException] = []
    with rjemu.Machine("gfx950_mi355x_kmd_2gpu", workers=workers, local_mem_size=1 << 26) as gpu:

        def hammer(seed: int) -> None:
            rng = random.Random(seed)
            try:
                for _ in range(6):
                    rng.choice([count, count, count, fault, run_out_of_time, give_up])(rng.choice(gpu.devices), rng)
            except BaseException as error:
                failures.append(error)

        used = [device.memory_used for device in gpu.devices]
        running = [threading.Thread(target=hammer, args=(seed,)) for seed in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        gpu.empty(1, np.uint8).free()
        assert not failures
        assert [device.memory_used for device in gpu.devices] == used
