"""Matrix instructions that helpers execute, as plugins see them: one notification each, and nothing else."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.asm_kernels import kernarg
from support.async_runs import OUT_WORDS, PRESET, SCRATCH_WORDS, always_admitted, frame, fresh_helpers, helpers_of, load
from support.plugin_runs import plugin_of

import rjemu
from rjemu.errors import MemoryFault, UsageError
from rjemu.exec.ir import Module
from rjemu.exec.issue_log import LOG_CAPACITY
from rjemu.exec.layout import CTX
from rjemu.exec.scheduler import scheduler_text
from rjemu.isa.instruction import Instruction
from rjemu.plugins import AsyncIssue, Dispatch, Outcome, Plugin

HELPERS = (1, 2, 4)
WORKERS: list[Any] = ["inline", (1, 1), (2, 2)]
Key = tuple[int, tuple[int, int, int], int]


class Issues(Plugin):
    """What it is told of helpers' instructions, and how often every instruction was executed."""

    counts_instructions: ClassVar[bool] = True

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.told: list[tuple[Key, int, str, str, int]] = []
        self.executed: list[dict[int, tuple[Instruction, int]]] = []
        self.stats: list[Any] = []
        self.threads: set[int] = set()

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return True

    def on_async_issue(self, issue: AsyncIssue) -> None:
        key = issue.dispatch.number, issue.workgroup, issue.wave
        self.told.append((key, issue.pc, issue.mnemonic, issue.text, issue.helper))
        self.threads.add(threading.get_ident())

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        self.executed.append({pc: (instr, count) for pc, instr, count in outcome.executed})
        self.stats.append(outcome.stats.get("async"))


class Waves(Issues):
    """The order of notifications and waves' hooks."""

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.order: list[tuple[str, tuple[int, int, int], int]] = []

    def on_wave_start(self, wave: Any) -> None:
        self.order.append(("start", wave.workgroup, wave.number))

    def on_wave_halt(self, wave: Any) -> None:
        self.order.append(("halt", wave.workgroup, wave.number))

    def on_async_issue(self, issue: AsyncIssue) -> None:
        self.order.append(("issue", issue.workgroup, issue.wave))


class Silent(Plugin):
    """Does not support asynchronous instructions."""


class Curious(Issues):
    """Keeps the notifications, and reads what it must not."""

    def __init__(self, settings: Any, sink: Any) -> None:
        super().__init__(settings, sink)
        self.kept: list[AsyncIssue] = []
        self.answers: list[str] = []

    def on_async_issue(self, issue: AsyncIssue) -> None:
        for earlier in self.kept[-1:]:
            with pytest.raises(UsageError, match="valid only until on_async_issue returns"):
                assert earlier.pc
        self.kept.append(issue)
        for name in ("vgpr", "scalars", "exec", "lds", "state"):
            with pytest.raises(UsageError, match=f"has no {name}: .* cannot be read"):
                getattr(issue, name)
        for take in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                take(issue)
        assert not hasattr(issue, "accumulators")
        self.answers.append(f"{issue!r}; {issue.place}")


class Raising(Issues):
    def on_async_issue(self, issue: AsyncIssue) -> None:
        super().on_async_issue(issue)
        raise RuntimeError("on_async_issue")


def name_of(kind: type[Plugin]) -> str:
    return f"{__name__}:{kind.__name__}"


@contextmanager
def machine(kind: type[Plugin], helpers: int, workers: Any = "inline", **options: Any) -> Iterator[tuple[Any, Any]]:
    """(machine, its plugin)"""
    plugins = {name_of(kind): {}}
    with (
        always_admitted(),
        rjemu.Machine(PRESET, workers=workers, async_helper_threads=helpers, plugins=plugins, **options) as gpu,
    ):
        gpu.start()
        yield gpu, plugin_of(gpu)


def span(prefix: str, first: int, count: int) -> str:
    return f"{prefix}[{first}:{first + count - 1}]"


def group(count: int) -> list[str]:
    """Independent products of several kinds, with other instructions between them."""
    kinds = [
        "v_mfma_f32_16x16x32_bf16 {d}, v[4:7], v[8:11], {d}",
        "v_mfma_f32_16x16x32_f16 {d}, v[8:11], v[4:7], {d}",
        "v_mfma_scale_f32_16x16x128_f8f6f4 {d}, v[4:7], v[8:11], {d}, v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4",
    ]
    lines = []
    for k in range(count):
        # Results that do not begin at multiples of four registers, too.
        d = span("a", 4 * k, 4) if k % 2 else span("v", 18 + 4 * k, 4)
        lines += [kinds[k % len(kinds)].format(d=d), "v_add_u32 v14, v15, v14"]
    return lines


def loop(lines: Sequence[str], rounds: int, label: str = "loop") -> str:
    start, end = ["s_mov_b32 s12, 0", f"{label}:"], ["s_add_u32 s12, s12, 1", f"s_cmp_lt_u32 s12, {rounds}"]
    return "\n".join([*start, *lines, *end, f"s_cbranch_scc1 {label}"])


def launch(gpu: rjemu.Machine, body: str, *, workgroups: int = 1, waves: int = 1) -> tuple[np.ndarray, Any]:
    """(what the kernel of a `frame` stored, its result). All workgroups store the same."""
    fresh_if_any(gpu)
    kernel = load(gpu, frame(body))
    out = gpu.zeros(OUT_WORDS * waves, np.uint32)
    scratch = gpu.to_device(np.arange(SCRATCH_WORDS, dtype=np.uint32))
    try:
        arguments = kernarg(out, scratch, 0)
        result = kernel.launch(workgroups, 64 * waves, kernarg=arguments, lds_bytes=4096, timeout=60)
        return out.to_host(), result
    finally:
        kernel.module.unload()
        out.free()
        scratch.free()


def fresh_if_any(gpu: rjemu.Machine) -> None:
    if getattr(getattr(gpu._executor, "_inner", gpu._executor), "_helpers", None) is not None:
        fresh_helpers(gpu)


def plain(body: str, **shape: int) -> np.ndarray:
    with rjemu.Machine(PRESET, workers="inline", async_helper_threads=0) as gpu:
        return launch(gpu, body, **shape)[0]


def is_subsequence(part: Sequence[int], whole: Iterator[int]) -> bool:
    return all(pc in whole for pc in part)


def check(plugin: Issues, dispatch: int = -1, *, rounds: int, waves: int) -> int:
    """Every matrix instruction was told of once or executed by its issuer, in program order; gives how many were told.
    rounds: of the loop that all of them are in."""
    executed, stats = plugin.executed[dispatch], plugin.stats[dispatch]
    number = len(plugin.executed) - 1 if dispatch == -1 else dispatch
    told = [entry for entry in plugin.told if entry[0][0] == number]
    matrix = {pc: (instr, count) for pc, (instr, count) in executed.items() if "mfma" in instr.name}
    assert {count for _, count in matrix.values()} == {rounds * waves}
    inline = stats["mmas_kept"] + sum(count for name, count in stats.items() if name.startswith("inline_"))
    assert len(told) == stats["mmas_offloaded"]
    assert len(told) + inline == sum(count for _, count in matrix.values())
    by_wave: dict[Key, list[int]] = {}
    for key, pc, mnemonic, text, helper in told:
        by_wave.setdefault(key, []).append(pc)
        assert mnemonic == matrix[pc][0].name
        assert text.startswith(mnemonic + " ")
        assert 0 <= helper < 4
    for pcs in by_wave.values():
        assert is_subsequence(pcs, iter(sorted(matrix) * rounds))
    return len(told)


# --- exactly once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS, ids=str)
@pytest.mark.parametrize("helpers", HELPERS)
def test_every_instruction_is_told_of_or_executed_inline(workers: Any, helpers: int) -> None:
    bodies = {"one wave": (loop(group(8), 30), 30, 1, 1), "several": (loop(group(6), 9), 9, 6, 4)}
    with machine(Issues, helpers, workers) as (gpu, plugin):
        for body, rounds, workgroups, waves in bodies.values():
            stored, result = launch(gpu, body, workgroups=workgroups, waves=waves)
            assert np.array_equal(stored, plain(body, waves=waves))
            told = check(plugin, rounds=rounds, waves=workgroups * waves)
            assert (told > 0) == (result.stats["async"]["jobs"] > 0)
        assert plugin.told
        assert plugin.threads == {threading.get_ident()}


def test_groups_are_told_of_in_program_order() -> None:
    """All but the last of a group are given away at its first instruction, and told of where they stand."""
    with machine(Issues, 2) as (gpu, plugin):
        launch(gpu, loop(group(5), 3))  # decodes
        plugin.told.clear()
        launch(gpu, "\n".join(group(5)))
        pcs = [pc for _, pc, *_ in plugin.told]
        assert pcs == sorted(pc for pc, (instr, _) in plugin.executed[-1].items() if "mfma" in instr.name)[:4]
        # Equal shares of two helpers.
        helpers = [helper for *_, helper in plugin.told]
        assert helpers[:2] == [helpers[0]] * 2
        assert helpers[2:] == [1 - helpers[0]] * 2
        assert plugin.told[0][3] == "v_mfma_f32_16x16x32_bf16 v[18:21], v[4:7], v[8:11], v[18:21]"


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_more_than_the_log_holds(workers: Any) -> None:
    rounds = LOG_CAPACITY
    with machine(Issues, 1, workers) as (gpu, plugin):
        told, limit = 0, time.monotonic() + 60
        while told < 3 * LOG_CAPACITY:  # a busy host has helpers take few
            assert time.monotonic() < limit
            plugin.told.clear()
            stored, _ = launch(gpu, loop(group(8), rounds))
            told = check(plugin, rounds=rounds, waves=1)
        assert np.array_equal(stored, plain(loop(group(8), rounds)))


def test_without_capacity_nothing_is_told() -> None:
    with machine(Issues, 2) as (gpu, plugin):
        pool = helpers_of(gpu)
        taken = [pool._calls.reserve(pool.board.address, helper) for helper in range(2)]
        launch(gpu, loop(group(4), 5))
        for helper in taken:
            pool._calls.give_back(pool.board.address, helper)
        assert check(plugin, rounds=5, waves=1) == 0
        assert plugin.stats[-1]["inline_no_capacity"] > 0
        launch(gpu, loop(group(4), 5))
        assert check(plugin, rounds=5, waves=1) > 0


def test_rejected_instructions_are_not_told_of() -> None:
    """With the real admission: a dependent chain is not worth a job."""
    chain = ["v_mfma_f32_32x32x16_f16 a[0:15], v[4:7], v[8:11], a[0:15]"] * 6
    plugins = {name_of(Issues): {}}
    with rjemu.Machine(PRESET, workers="inline", async_helper_threads=1, plugins=plugins) as gpu:
        launch(gpu, loop(chain, 4))
        plugin: Any = plugin_of(gpu)
        assert check(plugin, rounds=4, waves=1) == 0
        assert plugin.stats[-1]["inline_rejected"] == 24


def test_a_killed_helpers_instructions_are_told_of_once() -> None:
    rounds = 20_000
    body = loop(group(8), rounds)
    with machine(Issues, 2) as (gpu, plugin):
        launch(gpu, loop(group(8), 2))
        board = helpers_of(gpu).board
        before = sum(board.long(helper, "mmas") for helper in range(2))
        results: list[np.ndarray] = []
        thread = threading.Thread(target=lambda: results.append(launch(gpu, body)[0]))
        thread.start()
        while sum(board.long(helper, "mmas") for helper in range(2)) == before:
            assert thread.is_alive()
            time.sleep(0.002)
        for helper in range(2):
            time.sleep(0.02)
            os.kill(board.word(helper, "pid"), signal.SIGKILL)
            fresh_helpers(gpu)
        thread.join(60)
        assert check(plugin, rounds=rounds, waves=1) > 0
        assert plugin.stats[-1]["helpers_lost"] >= 1
    assert np.array_equal(results[0], plain(body))


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_what_was_issued_before_a_fault_is_told(workers: Any) -> None:
    lines = [*group(4), "v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "global_load_dword v2, v[2:3], off"]
    with machine(Issues, 1, workers) as (gpu, plugin):
        launch(gpu, "\n".join(group(4)))
        plugin.told.clear()
        for dispatch in range(1, 4):
            with pytest.raises(MemoryFault):
                launch(gpu, "\n".join(lines))
            assert {key for key, *_ in plugin.told} <= {(n, (0, 0, 0), 0) for n in range(1, dispatch + 1)}
        pcs = Counter(pc for _, pc, *_ in plugin.told)
        assert len(pcs) == 3
        assert set(pcs.values()) <= {1, 2, 3}


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_checkpoints_lose_nothing(workers: Any, tmp_path: Path) -> None:
    rounds = 4000
    with machine(Issues, 1, workers) as (gpu, plugin):
        stop = threading.Event()

        def save() -> None:
            while not stop.wait(0.01):
                gpu.save(tmp_path / "saved")

        saver = threading.Thread(target=save)
        saver.start()
        try:
            launch(gpu, loop(group(8), rounds), waves=2)
        finally:
            stop.set()
            saver.join(60)
        assert check(plugin, rounds=rounds, waves=2) > 0


def test_overwritten_code_is_told_of_as_it_was() -> None:
    """The instruction that was given away, not what a store has made of it since."""
    patch = """
  s_getpc_b64 s[16:17]
here:
  s_sub_u32 s16, s16, here - patched
  s_subb_u32 s17, s17, 0
  v_mov_b32 v2, s16
  v_mov_b32 v3, s17
  v_mov_b32 v12, 0xffffffff
  global_store_dword v[2:3], v12, off
  s_waitcnt vmcnt(0)
"""
    first, second = (f"v_mfma_f32_16x16x32_bf16 {span('a', 4 * k, 4)}, v[4:7], v[8:11], 0" for k in range(2))
    body = f"s_mov_b32 s12, 0\npatched:\n{first}\n{second}\n{patch}"
    with machine(Issues, 1) as (gpu, plugin):
        kernel = load(gpu, frame(body))
        out, scratch = gpu.zeros(OUT_WORDS, np.uint32), gpu.zeros(SCRATCH_WORDS, np.uint32)
        limit = time.monotonic() + 30
        while not plugin.told:
            assert time.monotonic() < limit
            fresh_helpers(gpu)
            kernel.module.unload()
            kernel = load(gpu, frame(body))
            kernel.launch(1, 64, kernarg=kernarg(out, scratch, 0), lds_bytes=4096, timeout=60)
        assert {text for *_, text, _ in plugin.told} == {first}


# --- hooks together -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS, ids=str)
@pytest.mark.parametrize("helpers", HELPERS)
def test_a_plugin_without_opt_in_leaves_no_jobs(workers: Any, helpers: int) -> None:
    body = loop(group(8), 5)
    plugins = {name_of(Issues): {}, name_of(Silent): {}}
    with (
        always_admitted(),
        rjemu.Machine(PRESET, workers=workers, async_helper_threads=helpers, plugins=plugins) as gpu,
    ):
        gpu.start()
        stored, result = launch(gpu, body, waves=2)
        issues: Any = plugin_of(gpu)
        assert issues.told == []
        assert result.stats["async"] is None
        assert result.stats["allocation"]["helpers"] == 0
    assert np.array_equal(stored, plain(body, waves=2))


def test_notifications_lie_between_a_waves_start_and_end() -> None:
    with machine(Waves, 1) as (gpu, plugin):
        launch(gpu, loop(group(8), 5), workgroups=3, waves=2)
        plugin.order.clear()
        fresh_helpers(gpu)
        launch(gpu, loop(group(8), 5), workgroups=3, waves=2)
        running, issues = set(), 0
        for kind, *wave in plugin.order:
            if kind == "start":
                running.add(tuple(wave))
            elif kind == "halt":
                running.remove(tuple(wave))
            else:
                assert tuple(wave) in running
                issues += 1
        assert not running
        assert issues == plugin.stats[-1]["mmas_offloaded"] > 0


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_a_notification_tells_nothing_of_the_state_and_ends_with_the_hook(workers: Any) -> None:
    with machine(Curious, 1, workers) as (gpu, plugin):
        launch(gpu, loop(group(8), 5))
        assert len(plugin.kept) > 1
        for issue in plugin.kept:
            for name in ("dispatch", "workgroup", "wave", "pc", "helper", "mnemonic", "text", "place"):
                with pytest.raises(UsageError, match="valid only until on_async_issue returns"):
                    getattr(issue, name)
            assert repr(issue) == "AsyncIssue(no longer valid)"
        assert plugin.answers[0].endswith("; kernel kernel, workgroup (0, 0, 0), wave 0")


@pytest.mark.parametrize("workers", ["inline", (1, 2)], ids=str)
def test_a_hook_that_raises_ends_the_launch(workers: Any) -> None:
    with machine(Raising, 1, workers) as (gpu, plugin):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="on_async_issue"):
                launch(gpu, loop(group(8), 50), workgroups=4)
        assert len(plugin.told) == 2
        assert gpu.to_device(np.arange(3)).to_host().tolist() == [0, 1, 2]


def test_launches_from_several_threads() -> None:
    with machine(Issues, 2, (1, 2)) as (gpu, plugin):
        threads = [threading.Thread(target=launch, args=(gpu, loop(group(4 + k), 20))) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(plugin.told) == sum(stats["mmas_offloaded"] for stats in plugin.stats)
        assert plugin.threads <= {thread.ident for thread in threads}


# --- the built-in plugins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["inline", (1, 1)], ids=str)
def test_throughput_counts_offloaded_instructions_once_and_times_nothing(workers: Any, tmp_path: Path) -> None:
    sinks = {"types": ["file"], "dir": str(tmp_path)}
    plugins: dict[str, Any] = {"throughput": {}, "logging": {}}
    with (
        always_admitted(),
        rjemu.Machine(PRESET, workers=workers, async_helper_threads=1, plugins=plugins, sinks=sinks) as gpu,
    ):
        gpu.start()
        _, result = launch(gpu, loop(group(8), 40), waves=2)
        assert result.stats["async"]["jobs"] > 0
        _, short = launch(gpu, "s_nop 0")
        assert short.stats["async"]["jobs"] == 0
    first, second = map(json.loads, (tmp_path / "throughput.log").read_text().splitlines())
    assert first["families"]["matrix"] == 8 * 40 * 2
    assert first["wave_instructions"] == result.wave_instructions
    assert (first["execution_timing_valid"], first["execution_seconds"], first["execution_mips"]) == (False, None, None)
    assert first["dispatch_wall_seconds"] > 0
    assert second["execution_timing_valid"]
    assert second["execution_seconds"] > 0
    assert second["execution_mips"] > 0
    [seen] = re.findall(r"dispatch 0: first matrix instruction at 0x\w+: (.*)", (tmp_path / "logging.log").read_text())
    assert seen == "v_mfma_f32_16x16x32_bf16 v[18:21], v[4:7], v[8:11], v[18:21]"


# --- what it costs where nobody asks --------------------------------------------------------------------------------------


def functions(text: str) -> dict[str, str]:
    """Name -> text of the functions of a module."""
    found = re.findall(r"^define [^@]*@(\w+)\(.*?^}", text, re.MULTILINE | re.DOTALL)
    bodies = re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL)
    return dict(zip(found, bodies, strict=True))


@pytest.mark.parametrize("counting", [False, True])
def test_without_notifications_the_loop_has_nothing_of_them(counting: bool) -> None:
    usual, notifying = (
        functions(scheduler_text(Module(""), 64, asynchronous=True, counting=counting, notifying=wanted))
        for wanted in (False, True)
    )
    changed = {name for name in usual if usual[name] != notifying[name]}
    assert changed == {"attend", "turn_async"}
    log = f"getelementptr i8, ptr %ctx, i64 {CTX['issue_log']}\n"
    assert [name for name in usual if log in usual[name]] == []
    assert [name for name in notifying if log in notifying[name]] == ["attend"]


def test_only_plugins_that_ask_have_the_notifying_loop() -> None:
    for plugins, notifies in (({}, False), ({"throughput": {}}, False), ({name_of(Issues): {}}, True)):
        with rjemu.Machine(PRESET, workers="inline", async_helper_threads=1, plugins=plugins) as gpu:
            executor: Any = gpu._executor
            engine = getattr(executor, "_inner", executor)._engine
            assert engine._runtime.notifying == notifies
