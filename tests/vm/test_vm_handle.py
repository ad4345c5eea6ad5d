"""What stands for a part of a machine is neither copied nor pickled."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.daemons import running_daemon

import rjemu


def check(handles: list[Any]) -> None:
    ways: list[Callable[[Any], Any]] = [pickle.dumps, copy.copy, copy.deepcopy, lambda handle: copy.deepcopy([handle])]
    for handle in handles:
        for way in ways:
            with pytest.raises(TypeError, match=f"a {type(handle).__name__} cannot be copied or pickled"):
                way(handle)


def handles_of(gpu: Any) -> list[Any]:
    module = gpu.load(build(kernel_text("s_endpgm"), "gfx950"))
    return [gpu, gpu.to_device(np.arange(10)), module, module["kernel"], gpu.stream()]


def test_handles_of_a_machine() -> None:
    with rjemu.Machine(workers="inline", num_gpus=2, local_mem_size=1 << 20) as gpu:
        handles = handles_of(gpu)
        check([*handles, gpu.devices[1]])
        gc.collect()  # of half-made copies
        assert np.array_equal(handles[1].to_host(), np.arange(10))


def test_handles_of_a_daemons_machine(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "socket", "--workers", "inline"), rjemu.connect(tmp_path / "socket") as gpu:
        handles = handles_of(gpu)
        check(handles)
        gc.collect()
        assert np.array_equal(handles[1].to_host(), np.arange(10))
