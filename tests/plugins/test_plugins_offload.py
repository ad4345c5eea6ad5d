"""Hooks on instructions where helpers execute matrix instructions: every one is seen once, by a pair of hooks or by
`on_async_issue`, and results are the same bits."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.async_runs import PRESET, always_admitted, frame, launch, load, run

import rjemu
from rjemu.errors import MemoryFault, UsageError
from rjemu.plugins import Plugin
from rjemu.workers.helpers import HelperPool

BIG = "v_mfma_f32_32x32x16_f16 {d}, v[4:7], v[8:11], {d}"
SMALL = "v_mfma_f32_16x16x32_bf16 {d}, v[4:7], v[8:11], {d}"
REGISTERS: dict[str, Any] = {"registers": range(3, 24), "agprs": range(64)}
HELPERS = (1, 2, 4)
Key = tuple[Any, ...]


class Seen(Plugin):
    """What every wave is seen to execute, in order: (pc, whether by a notification)."""

    made: ClassVar[list[Any]] = []
    counts_instructions: ClassVar[bool] = True

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.steps: dict[Key, list[tuple[int, bool]]] = defaultdict(list)
        self.reads: dict[Key, list[Any]] = defaultdict(list)
        self.writes: dict[Key, list[Any]] = defaultdict(list)
        self.helpers: set[int] = set()
        self.executed: Counter[int] = Counter()
        self.act: Callable[[Any], None] = lambda given: None
        self.made.append(self)

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return True

    def before_instruction(self, wave: Any, step: Any) -> None:
        self.steps[wave.workgroup, wave.number].append((step.pc, False))

    def on_register_read(self, wave: Any, step: Any, access: Any) -> None:
        self.reads[wave.workgroup, wave.number, step.pc].append(access)

    def on_register_write(self, wave: Any, step: Any, access: Any) -> None:
        self.writes[wave.workgroup, wave.number, step.pc].append(access)

    def on_async_issue(self, issue: Any) -> None:
        self.steps[issue.workgroup, issue.wave].append((issue.pc, True))
        self.helpers.add(issue.helper)
        self.act(issue)

    def on_dispatch_end(self, dispatch: Any, outcome: Any) -> None:
        self.executed = Counter({pc: count for pc, _, count in outcome.executed})

    @property
    def issued(self) -> int:
        return sum(issued for steps in self.steps.values() for _, issued in steps)

    @property
    def order(self) -> dict[Key, list[int]]:
        """What every wave executes, however it is seen."""
        return {wave: [pc for pc, _ in steps] for wave, steps in self.steps.items()}

    def forget(self) -> None:
        for found in (self.steps, self.reads, self.writes):
            found.clear()


class Reluctant(Seen):
    """The same without opting in."""

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return False


NAMES = {kind: f"{__name__}:{kind.__name__}" for kind in (Seen, Reluctant)}


@contextmanager
def machine(kind: type[Seen], helpers: int, **options: Any) -> Iterator[tuple[rjemu.Machine, Any]]:
    """A machine with that plugin, whose helpers, where there are some, take jobs."""
    plugins = {NAMES[kind]: {}, **options.pop("plugins", {})}
    with always_admitted(), rjemu.Machine(PRESET, plugins=plugins, async_helper_threads=helpers, **options) as gpu:
        gpu.start()
        if pool(gpu) is not None:
            forgiven(gpu)
        yield gpu, kind.made[-1]


def pool(gpu: rjemu.Machine) -> HelperPool | None:
    executor: Any = gpu._executor
    offload = executor._inner._offload
    return None if offload is None else offload._helpers


def forgiven(gpu: rjemu.Machine) -> None:
    """Forget what helpers have cost, as they do on a busy host."""
    helpers = pool(gpu)
    assert helpers is not None
    for helper in range(helpers.board.helpers):
        helpers.board.set_long(helper, "credit", 1 << 40)


def accumulators(count: int, first: int = 0) -> list[str]:
    return [SMALL.format(d=f"a[{first + 4 * k}:{first + 4 * k + 3}]") for k in range(count)]


def looped(body: list[str], rounds: int) -> str:
    lines = ["s_mov_b32 s12, 0", "loop:", *body, "s_add_u32 s12, s12, 1", f"s_cmp_lt_u32 s12, {rounds}"]
    return "\n".join([*lines, "s_cbranch_scc1 loop"])


MIXED = looped(
    [
        *accumulators(3),
        "v_add_u32 v20, v20, v4",  # between two members of the group
        *accumulators(2, 12),
        "v_accvgpr_read_b32 v21, a0",  # waits for the first
        BIG.format(d="a[32:47]"),  # a group of its own
        "v_accvgpr_write_b32 a32, v21",
        "v_mfma_f32_4x4x4_16b_f16 a[60:63], v[4:5], v[8:9], a[60:63]",  # not eligible
        "s_mov_b64 exec, 1",
        *accumulators(2, 20),  # not with EXEC
        "s_mov_b64 exec, -1",
    ],
    4,
)
TEXT = frame(MIXED, **REGISTERS)


@pytest.fixture(scope="module")
def alone() -> tuple[np.ndarray, Any]:
    """What MIXED stores, and what is seen of it, without helpers."""
    with machine(Seen, 0) as (gpu, seen):
        stored, result = run(gpu, TEXT, waves=2)
        assert result.stats["async"] is None
        assert not seen.issued
        return stored, seen


@pytest.mark.parametrize("helpers", HELPERS)
def test_every_instruction_is_seen_once_and_in_order(alone: tuple[np.ndarray, Any], helpers: int) -> None:
    expected, reference = alone
    with machine(Seen, helpers) as (gpu, seen):
        stored, result = run(gpu, TEXT, waves=2)
    counters = result.stats["async"]
    assert np.array_equal(stored, expected)
    assert seen.order == reference.order
    assert seen.executed == reference.executed == Counter(pc for pcs in seen.order.values() for pc in pcs)
    assert seen.issued == counters["mmas_offloaded"] > 0
    assert counters["jobs"] > 0
    assert counters["inline_not_eligible"] > 0
    assert seen.helpers <= set(range(helpers))
    assert result.stats["allocation"]["helpers"] == helpers


def test_register_hooks_are_the_same_for_what_helpers_execute(alone: tuple[np.ndarray, Any]) -> None:
    _, reference = alone
    with machine(Seen, 1) as (gpu, seen):
        run(gpu, TEXT, waves=2)
    assert seen.issued
    assert seen.reads == reference.reads
    assert {key: sorted(map(repr, found)) for key, found in seen.writes.items()} == {
        key: sorted(map(repr, found)) for key, found in reference.writes.items()
    }


@pytest.mark.parametrize("helpers", HELPERS)
def test_without_opting_in_there_are_no_jobs(alone: tuple[np.ndarray, Any], helpers: int) -> None:
    expected, reference = alone
    with machine(Reluctant, helpers) as (gpu, seen):
        stored, result = run(gpu, TEXT, waves=2)
        assert pool(gpu) is None
    assert np.array_equal(stored, expected)
    assert result.stats["async"] is None
    assert not seen.issued
    assert seen.order == reference.order


def test_one_plugin_that_does_not_opt_in_is_enough() -> None:
    with machine(Seen, 1, plugins={"race": {}}) as (gpu, seen):
        _, result = run(gpu, TEXT)
        assert pool(gpu) is None
    assert result.stats["async"] is None
    assert not seen.issued


def test_many_workgroups() -> None:
    """Places of waves are used again."""
    text = "\n".join([*accumulators(4), "s_barrier", *accumulators(4), "s_endpgm"])
    with machine(Seen, 2) as (gpu, seen):
        kernel = load(gpu, text)
        for _ in range(2):
            seen.forget()
            forgiven(gpu)
            result = kernel.launch(12, 128, kernarg=bytes(64))
            assert len(seen.order) == 24
            assert all(pcs == sorted(pcs) and len(pcs) == 10 for pcs in seen.order.values())
            assert seen.issued == result.stats["async"]["mmas_offloaded"] > 0


def test_a_mode_that_comes_later_has_its_handlers_on_helpers() -> None:
    """Code that was decoded under one MODE setting runs under another."""
    body = [
        *accumulators(4),
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1",
        *accumulators(4),
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 0",
        "s_set_gpr_idx_on s12, 1",
        "v_mov_b32 v20, v4",
        "s_set_gpr_idx_off",
    ]
    text = frame(looped(body, 3), **REGISTERS)
    with machine(Seen, 0) as (gpu, reference):
        expected, _ = run(gpu, text)
    with machine(Seen, 2) as (gpu, seen):
        stored, _ = run(gpu, text)
    assert np.array_equal(stored, expected)
    assert seen.order == reference.order
    assert seen.issued > 0


def test_a_killed_helper_is_replaced_and_nothing_is_seen_twice() -> None:
    text = frame(looped(accumulators(6), 60), **REGISTERS)
    with machine(Seen, 0) as (gpu, reference):
        expected, _ = run(gpu, text)
    with machine(Seen, 2) as (gpu, seen):
        helpers = pool(gpu)
        assert helpers is not None
        counted = Counter[str]()

        def kill(issue: Any) -> None:
            counted["issues"] += 1
            if counted["issues"] == 20:
                os.kill(helpers.board.word(issue.helper, "pid"), signal.SIGKILL)
            forgiven(gpu)

        seen.act = kill
        stored, result = run(gpu, text)
        assert np.array_equal(stored, expected)
        assert seen.order == reference.order
        assert seen.issued == result.stats["async"]["mmas_offloaded"] >= 20
        limit = time.monotonic() + 30
        while not result.stats["async"]["helpers_lost"]:
            assert time.monotonic() < limit
            seen.forget()
            stored, result = run(gpu, text)
            assert np.array_equal(stored, expected)


class Looking(Seen):
    """Looks at what it must not, in each of its hooks, and keeps what it is given."""

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.errors: Counter[tuple[str, str]] = Counter()
        self.kept: list[Any] = []
        self.registers: list[int] = []

    def look(self, hook: str, given: Any, names: tuple[str, ...]) -> None:
        for name in names:
            try:
                getattr(given, name)
            except UsageError:
                self.errors[hook, name] += 1

    def on_wave_start(self, wave: Any) -> None:
        self.registers.append(int(wave.vgpr[0, 5]))

    def before_instruction(self, wave: Any, step: Any) -> None:
        self.look("before", wave, ("vgpr", "state", "scalars", "exec", "lds", "place"))

    def on_register_write(self, wave: Any, step: Any, access: Any) -> None:
        if "mfma" in step.instr.name and isinstance(wave, rjemu.plugins.IssuedWave):
            self.look("write", wave, ("vgpr", "state", "scalars", "exec", "lds", "place"))
            self.kept.append(wave)

    def on_async_issue(self, issue: Any) -> None:
        self.look("issue", issue, ("vgpr", "state", "scalars", "exec", "lds", "place"))
        self.kept.append(issue)

    def on_wave_halt(self, wave: Any) -> None:
        self.registers.append(int(wave.vgpr[0, 5]))


NAMES[Looking] = f"{__name__}:Looking"


def test_no_state_can_be_read_and_nothing_kept() -> None:
    with machine(Looking, 1) as (gpu, looking):
        run(gpu, TEXT)
    hooks = {hook: {name for other, name in looking.errors if other == hook} for hook, _ in looking.errors}
    assert hooks["before"] == {"vgpr", "state"}
    assert hooks["write"] == hooks["issue"] == {"vgpr", "state", "scalars", "exec", "lds"}
    assert looking.registers[0] == 5
    assert len(looking.registers) == 2
    assert len(looking.kept) > 2
    for kept in looking.kept:
        for name in ("dispatch", "workgroup", "place", "vgpr", "lds"):
            with pytest.raises(UsageError):
                getattr(kept, name)


def test_without_helpers_registers_can_be_looked_at() -> None:
    with machine(Looking, 0) as (gpu, looking):
        run(gpu, TEXT)
    assert not looking.errors


def test_throughput_counts_what_helpers_execute_once(tmp_path: Any) -> None:
    sinks = {"types": ["file"], "dir": str(tmp_path)}
    records = {}
    for helpers in (0, 2):
        with machine(Seen, helpers, plugins={"throughput": {}, "logging": {}}, sinks=sinks) as (gpu, seen):
            run(gpu, TEXT)
            assert bool(seen.issued) == bool(helpers)
        records[helpers] = json.loads((tmp_path / "throughput.log").read_text())
        assert "first matrix instruction" in (tmp_path / "logging.log").read_text()
    assert records[0]["families"] == records[2]["families"]
    assert records[0]["execution_timing_valid"]
    assert not records[2]["execution_timing_valid"]
    assert records[2]["execution_seconds"] is None
    assert records[2]["execution_mips"] is None


def test_a_fault_waits_for_the_jobs() -> None:
    """The launch ends with the fault's error, and the machine can be used again."""
    body = "\n".join(
        [*accumulators(4), "v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "global_load_dword v4, v[2:3], off", "s_endpgm"]
    )
    with machine(Seen, 1) as (gpu, seen):
        with pytest.raises(MemoryFault):
            load(gpu, body).launch(1, 64, kernarg=bytes(64))
        helpers = pool(gpu)
        assert helpers is not None
        assert helpers.board.free == 1
        seen.forget()
        run(gpu, TEXT)
        assert seen.issued


def test_what_a_hook_raises_ends_the_launch() -> None:
    def stop(issue: Any) -> None:
        raise RuntimeError(f"no {issue.mnemonic}")

    with machine(Seen, 1) as (gpu, seen):
        seen.act = stop
        with pytest.raises(RuntimeError, match="no v_mfma_f32_16x16x32_bf16"):
            run(gpu, TEXT)
        seen.act = lambda issue: None
        seen.forget()
        run(gpu, TEXT)
        assert seen.issued


def test_traces_have_the_jobs(tmp_path: Path) -> None:
    with machine(Seen, 1) as (gpu, _):
        with gpu.trace(tmp_path / "out.json"):
            _, result = run(gpu, TEXT)
        assert result.stats["async"]["jobs"] > 0
    names = [event["args"].get("name") for event in json.loads((tmp_path / "out.json").read_text())["traceEvents"]]
    assert "helper 0" in names


def test_code_that_is_overwritten_is_planned_anew() -> None:
    text = frame("\n".join([*accumulators(4), "s_nop 7", *accumulators(4, 16)]), **REGISTERS)
    other = frame("\n".join([*accumulators(4, 32), "s_nop 7", *accumulators(4, 48)]), **REGISTERS)
    with machine(Seen, 0) as (gpu, _):
        expected, _ = run(gpu, other)
    with machine(Seen, 1) as (gpu, seen):
        kernel = load(gpu, text)
        launch(gpu, kernel)
        (start, end), *_ = kernel.module.code.image.text_ranges
        replacement = load(gpu, other)
        source = gpu.vram.view(replacement.module.address + start, end - start)
        gpu.vram.view(kernel.module.address + start, end - start)[:] = source
        seen.forget()
        forgiven(gpu)
        stored, result = launch(gpu, kernel)
        assert np.array_equal(stored, expected)
        assert seen.issued == result.stats["async"]["mmas_offloaded"] > 0
