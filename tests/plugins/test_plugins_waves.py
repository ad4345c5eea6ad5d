"""Hooks on waves alone: native execution in the launcher, told of the same waves as the step executor tells of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.asm_kernels import run_assembly
from support.plugin_runs import plugin_of, triton_results

from rjemu import Machine
from rjemu.errors import BarrierDeadlock
from rjemu.exec.native import NativeExecutor
from rjemu.plugins import Plugin
from rjemu.plugins.step import StepExecutor


class Waves(Plugin):
    """Starts and ends, with v0 of lane 1, s2 and EXEC then, and the first dword of LDS."""

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.events: list[tuple[Any, ...]] = []

    def note(self, kind: str, wave: Any) -> None:
        lds = int.from_bytes(wave.lds[:4].tobytes(), "little")
        registers = (int(wave.vgpr[0, 1]), int(wave.scalars[2]), wave.exec)
        self.events.append((kind, wave.workgroup, wave.number, *registers, lds))

    def on_wave_start(self, wave: Any) -> None:
        self.note("start", wave)

    def on_wave_halt(self, wave: Any) -> None:
        self.note("halt", wave)


class SteppedWaves(Waves):
    def before_instruction(self, wave: Any, step: Any) -> None:
        """Makes the machine step."""


def told(kind: type[Waves], run: Callable[[Machine], None], **options: Any) -> list[tuple[Any, ...]]:
    with Machine("gfx950_mi355x", plugins={f"{__name__}:{kind.__name__}": {}}, **options) as gpu:
        executor = NativeExecutor if kind is Waves else StepExecutor
        assert isinstance(gpu._executor._inner, executor)  # type: ignore[attr-defined]
        run(gpu)
        plugin = plugin_of(gpu)
        assert isinstance(plugin, Waves)
        return plugin.events


KERNELS = {
    "partial waves that end at once": ("s_endpgm", 3, 100),
    "ends at different times": (
        "v_readfirstlane_b32 s9, v0\nv_lshlrev_b32 v0, 1, v0\n"
        "1:\ns_sub_u32 s9, s9, 16\ns_cbranch_scc0 1b\ns_endpgm", 4, 256),
    "barriers": (
        "v_mov_b32 v2, 0\nv_mov_b32 v3, 1\ns_barrier\nds_add_u32 v2, v3\ns_waitcnt lgkmcnt(0)\ns_barrier\ns_endpgm", 2, 192),
    "one ends, the others meet": (
        "v_readfirstlane_b32 s9, v0\ns_cmp_eq_u32 s9, 128\ns_cbranch_scc1 1f\ns_barrier\ns_nop 0\n1:\ns_endpgm", 3, 256),
    "the last is left alone": (
        "v_readfirstlane_b32 s9, v0\ns_cmp_lg_u32 s9, 0\ns_cbranch_scc1 2f\ns_movk_i32 s10, 200\n"
        "1:\ns_sub_u32 s10, s10, 1\ns_cbranch_scc0 1b\n2:\ns_endpgm", 2, 256),
}  # fmt: skip


@pytest.mark.parametrize("helpers", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_waves_as_when_stepping(kernel: str, helpers: int) -> None:
    body, grid, block = KERNELS[kernel]

    def run(gpu: Machine) -> None:
        for _ in range(2):
            run_assembly(gpu, body, grid, block, lds_bytes=256)

    native = told(Waves, run, async_helper_threads=helpers)
    assert native == told(SteppedWaves, run)
    waves = 2 * grid * -(-block // 64)
    assert [event[0] for event in native].count("start") == [event[0] for event in native].count("halt") == waves


def test_halted_waves_and_deadlocks() -> None:
    body = "v_readfirstlane_b32 s9, v0\ns_cmp_eq_u32 s9, 0\ns_cbranch_scc0 1f\ns_sethalt 1\n1:\ns_barrier\ns_endpgm"

    def run(gpu: Machine) -> None:
        with pytest.raises(BarrierDeadlock):
            run_assembly(gpu, body, 1, 128, lds_bytes=256)

    native = told(Waves, run)
    assert [event[:3] for event in native] == [
        ("start", (0, 0, 0), 0), ("start", (0, 0, 0), 1), ("halt", (0, 0, 0), 0),
    ]  # fmt: skip
    assert native == told(SteppedWaves, run)


def test_results_are_the_same() -> None:
    results = []
    told(Waves, lambda gpu: results.append(triton_results(gpu)))
    with Machine("gfx950_mi355x", workers="inline") as plain:
        assert results == [triton_results(plain)]


def test_counting_and_watching_go_together() -> None:
    with Machine(
        "gfx950_mi355x", plugins={f"{__name__}:Waves": {}, "instruction_mix": {}, "throughput": {}}, workers=(1, 1)
    ) as gpu:
        out = gpu.zeros(64, np.uint32)
        result = run_assembly(gpu, "s_nop 0\ns_nop 0\ns_endpgm", 2, 64, out, lds_bytes=64)
        mix = plugin_of(gpu, 1)
        assert mix._executed["kernel"] == {"s_nop": 4, "s_endpgm": 2}  # type: ignore[attr-defined]
        assert result.wave_instructions == 6
