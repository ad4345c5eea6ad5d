"""Whatever a plugin raises, and wherever: the launch ends with it, the machine can be used, and nothing is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.asm_kernels import run_assembly

from rjemu import Machine
from rjemu.errors import UsageError
from rjemu.plugins import Plugin

HOOKS = (
    "on_dispatch_begin",
    "on_dispatch_end",
    "on_wave_start",
    "on_wave_halt",
    "before_instruction",
    "after_instruction",
    "on_register_read",
    "on_register_write",
    "on_memory_access",
    "on_wait",
    "on_barrier",
    "on_barrier_release",
)
EVERYTHING = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  global_store_dword v1, v0, s[4:5]
  s_endpgm
"""


class Mishap(Exception):
    """What no part of rjemu raises or catches."""


def raising(monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]) -> dict[str, Any]:
    """The `plugins` object with a plugin whose method raises."""

    def raises(*_: Any) -> None:
        raise error(method)

    monkeypatch.setattr(sys.modules[__name__], "Raising", type("Raising", (Plugin,), {method: raises}), raising=False)
    return {f"{__name__}:Raising": {}}


def segments() -> set[str]:
    """Shared memory of this process."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{os.getpid()}-")}


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=["inline", "workers"])
@pytest.mark.parametrize("error", [Mishap, OSError, SystemExit, StopIteration])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_ends_the_launch(
    monkeypatch: pytest.MonkeyPatch, hook: str, error: type[BaseException], workers: Any
) -> None:
    before = segments()
    with Machine(plugins=raising(monkeypatch, hook, error), workers=workers) as gpu:
        out = gpu.zeros(128, np.uint32)
        for _ in range(2):
            with pytest.raises(error, match=hook):
                run_assembly(gpu, EVERYTHING, 1, 128, out)
        out.copy_from(np.arange(128, dtype=np.uint32))
        assert out.to_host()[127] == 127
    assert segments() <= before


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=["inline", "workers"])
@pytest.mark.parametrize("error", [Mishap, SystemExit])
@pytest.mark.parametrize("method", ["__init__", "supports_async_instructions", "close"])
def test_a_machine_that_cannot_be_opened_or_closed_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException], workers: Any
) -> None:
    before = segments()
    plugins = raising(monkeypatch, method, error)
    with pytest.raises(error, match=method), Machine(plugins=plugins, workers=workers) as gpu:
        gpu.zeros(16, np.uint32)
    assert segments() <= before


def test_a_full_disk_ends_the_launch_with_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "logging.log").symlink_to("/dev/full")
    sinks = {"types": ["file"], "dir": str(tmp_path)}
    with Machine(plugins={"logging": {}}, sinks=sinks, workers="inline") as gpu:
        with pytest.raises(UsageError, match=r"sinks.dir: cannot write .*logging\.log: No space left on device"):
            run_assembly(gpu, "s_endpgm", 1, 64)
        assert gpu.zeros(1, np.uint32).to_host() == [0]
