"""Matrix instructions on helpers: the same bits as without, whatever depends on what."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.asm_kernels import kernarg
from support.async_runs import PRESET, Loop, always_admitted, encodings, frame, fresh_helpers, helpers_of, load, run

import rjemu
from rjemu.shm.scoreboard import POSTED

HELPERS = (1, 2, 4, 8)
BIG = "v_mfma_f32_32x32x16_f16 {d}, {a}, {b}, {c}"
SMALL = "v_mfma_f32_16x16x32_bf16 {d}, {a}, {b}, {c}"
SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4 {d}, {a}, {b}, {c}, {s}, {t} op_sel_hi:[0,0,0] cbsz:4 blgp:4"


class Machines:
    """A machine without helpers, and machines with some, in this process or on a worker."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._machines: dict[tuple[int, bool], rjemu.Machine] = {}
        self._loops: dict[int, Loop] = {}

    def get(self, helpers: int, *, pool: bool = False) -> rjemu.Machine:
        if (helpers, pool) not in self._machines:
            workers = (1, 1) if pool else "inline"
            gpu = self._open.enter_context(rjemu.Machine(PRESET, workers=workers, async_helper_threads=helpers))
            gpu.start()
            self._machines[helpers, pool] = gpu
        if helpers:
            fresh_helpers(self._machines[helpers, pool])
        return self._machines[helpers, pool]

    def loop(self, helpers: int) -> Loop:
        gpu = self.get(helpers)
        if helpers not in self._loops:
            self._loops[helpers] = Loop(gpu)
        return self._loops[helpers]

    def close(self) -> None:
        self._loops.clear()
        self._open.close()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with always_admitted():
        found = Machines()
        yield found
        found.close()


def span(prefix: str, first: int, count: int) -> str:
    return f"{prefix}[{first}:{first + count - 1}]"


def independent(count: int, *, rounds: int = 3) -> str:
    """A loop over as many accumulators."""
    body = [
        BIG.format(d=span("a", 16 * k, 16), a="v[4:7]", b="v[8:11]", c=span("a", 16 * k, 16))
        if k % 2
        else SMALL.format(d=span("v", 16 + 4 * k, 4), a="v[4:7]", b="v[8:11]", c=span("v", 16 + 4 * k, 4))
        for k in range(count)
    ]
    return "\n".join(
        ["s_mov_b32 s12, 0", "loop:", *body, "s_add_u32 s12, s12, 1", f"s_cmp_lt_u32 s12, {rounds}", "s_cbranch_scc1 loop"]
    )


# --- random blocks --------------------------------------------------------------------------------------------------------


def random_matrix(rng: random.Random) -> str:
    """A matrix instruction over few registers, so that all kinds of chains come up."""
    text, size = rng.choice([(BIG, 16), (SMALL, 4), (SCALED, 4)])
    file = rng.choice("va")
    base = 4 if file == "v" else 0
    first = rng.randrange(3) * 16 if size == 16 else rng.randrange(12) * 4
    d = span(file, base + first, size)
    c = rng.choice([d, d, d, "0", span(file, base + (first + size) % 48, size)])
    a, b = (span(rng.choice("vva"), 4 + 4 * rng.randrange(7), 4) for _ in range(2))
    s, t = (f"v{rng.randrange(3, 35)}" for _ in range(2))
    return text.format(d=d, a=a, b=b, c=c, s=s, t=t)


def random_ordinary(rng: random.Random) -> str:
    x, y, z = (rng.randrange(4, 56) for _ in range(3))
    return rng.choice(
        [
            f"v_add_u32 v{x}, v{y}, v{z}",
            f"v_mov_b32 v{x}, v{y}",
            f"v_accvgpr_read_b32 v{x}, a{y}",
            f"v_accvgpr_write_b32 a{x}, v{y}",
            f"v_and_b32 v2, 0xfc, v{x}\nglobal_load_dword v{x}, v2, s[10:11]\ns_waitcnt vmcnt(0)",
            f"v_lshlrev_b32 v2, 2, v0\nglobal_store_dword v2, v{x}, s[10:11] offset:1024",
            f"v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v{x}\nds_read_b32 v{y}, v2\ns_waitcnt lgkmcnt(0)",
            f"v_readfirstlane_b32 s13, v{x}\nv_mov_b32 v{y}, s13",
            f"s_mov_b64 exec, {x}\nv_mov_b32 v{y}, v{z}\ns_mov_b64 exec, -1",
            "s_barrier",
            "s_nop 1",
        ]
    )


@cache
def entries() -> list[bytes]:
    """The code of the instructions that blocks are made of: matrix instructions first."""
    rng = random.Random(4)
    texts = [random_matrix(rng) for _ in range(MATRIX_ENTRIES)] + [random_ordinary(rng) for _ in range(ORDINARY_ENTRIES)]
    return encodings(texts)


MATRIX_ENTRIES, ORDINARY_ENTRIES = 120, 160
ENTRY = st.one_of(
    *[st.integers(0, MATRIX_ENTRIES - 1)] * 2, st.integers(MATRIX_ENTRIES, MATRIX_ENTRIES + ORDINARY_ENTRIES - 1)
)
BLOCKS = st.lists(ENTRY, min_size=3, max_size=28)


def check_block(machines: Machines, block: list[int], rounds: int, helpers: tuple[int, ...]) -> None:
    """The same bytes for any number of helpers."""
    body = b"".join(entries()[k] for k in block)
    expected, plain = machines.loop(0).run(body, rounds)
    for count in helpers:
        stored, result = machines.loop(count).run(body, rounds)
        assert np.array_equal(stored, expected), f"{count} helpers"
        assert result.wave_instructions == plain.wave_instructions


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(BLOCKS, st.integers(1, 5))
def test_random_blocks(machines: Machines, block: list[int], rounds: int) -> None:
    check_block(machines, block, rounds, (1, 4))


@pytest.mark.long
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(BLOCKS, st.integers(1, 5))
def test_many_random_blocks(machines: Machines, block: list[int], rounds: int) -> None:
    check_block(machines, block, rounds, (1, 2, 4, 8))


@pytest.mark.parametrize("seed", range(3))
def test_random_blocks_on_the_reference_executor(machines: Machines, seed: int) -> None:
    rng = random.Random(seed)
    block = [rng.randrange(MATRIX_ENTRIES if k % 3 else len(entries())) for k in range(20)]
    body = b"".join(entries()[k] for k in block)
    with rjemu.Machine(PRESET, executor="reference") as gpu:
        expected, _ = Loop(gpu).run(body, 2)
    stored, _ = machines.loop(2).run(body, 2)
    assert np.array_equal(stored, expected)


# --- the same bits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("helpers", HELPERS)
@pytest.mark.parametrize("pool", [False, True])
def test_independent_instructions_go_to_helpers(machines: Machines, helpers: int, pool: bool) -> None:
    text = frame(independent(8, rounds=40))
    expected, plain = run(machines.get(0), text)
    stored, result = run(machines.get(helpers, pool=pool), text)
    assert np.array_equal(stored, expected)
    assert result.wave_instructions == plain.wave_instructions
    counters = result.stats["async"]
    assert counters["jobs"] > 0
    assert counters["mmas_offloaded"] >= counters["jobs"]


def test_several_waves(machines: Machines) -> None:
    text = frame(independent(4, rounds=30) + "\ns_barrier\n" + independent(4, rounds=3).replace("loop", "again"))
    expected, _ = run(machines.get(0), text, waves=4)
    for helpers in (1, 4):
        stored, _ = run(machines.get(helpers), text, waves=4)
        assert np.array_equal(stored, expected)


def test_a_dependent_chain_gives_no_job() -> None:
    """With the real admission."""
    chain = "\n".join([BIG.format(d="a[0:15]", a="v[4:7]", b="v[8:11]", c="a[0:15]")] * 12)
    with rjemu.Machine(PRESET, workers="inline", async_helper_threads=1) as gpu:
        _, result = run(gpu, frame(chain))
    assert result.stats["async"]["jobs"] == 0
    assert result.stats["async"]["inline_rejected"] == 12
    assert result.stats["async"]["helpers"] == 0


def test_helpers_start_with_the_first_candidate() -> None:
    with rjemu.Machine(PRESET, workers="inline", async_helper_threads=2) as gpu, always_admitted():
        _, result = run(gpu, frame("v_mov_b32 v5, v6\nv_mfma_f32_4x4x4_16b_f16 a[0:3], v[4:5], v[6:7], a[0:3]"))
        assert result.stats["async"]["helpers"] == 0
        assert result.stats["async"]["inline_not_eligible"] == 1
        _, result = run(gpu, frame(independent(4)))
        assert result.stats["async"]["helpers"] == 2


def test_without_helpers_there_is_no_statistics() -> None:
    with rjemu.Machine(PRESET, workers="inline", async_helper_threads=0) as gpu:
        _, result = run(gpu, frame(independent(4)))
    assert result.stats["async"] is None


def test_what_runs_inline_is_counted(machines: Machines) -> None:
    lines = [
        "v_mfma_i32_16x16x32_i8 a[4:7], v[4:5], v[8:9], a[4:7]",
        "s_mov_b64 exec, 1",
        *[SMALL.format(d=span("a", 4 * k, 4), a="v[4:7]", b="v[8:11]", c=span("a", 4 * k, 4)) for k in range(2, 4)],
        "s_mov_b64 exec, -1",
    ]
    stored, result = run(machines.get(1), frame("\n".join(lines)))
    expected, _ = run(machines.get(0), frame("\n".join(lines)))
    assert np.array_equal(stored, expected)
    counters = result.stats["async"]
    assert counters["inline_not_eligible"] == 2
    assert counters["jobs"] == 0


def test_results_follow_the_issuers_fp_modes(machines: Machines) -> None:
    """FP16_OVFL clamps what overflows, on helpers too; VSKIP and VGPR indexing keep everything on the issuer."""
    lines = [
        "v_mov_b32 v4, 0x7bff7bff", "v_mov_b32 v5, v4", "v_mov_b32 v6, v4", "v_mov_b32 v7, v4",
        *[f"v_accvgpr_write_b32 a{k}, v12" for k in range(32)],
        "v_mov_b32 v12, 0x7f7fffff", *[f"v_accvgpr_write_b32 a{k}, v12" for k in range(16)],
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1",
        *[SMALL.format(d=span("a", 4 * k, 4), a="v[4:7]", b="v[4:7]", c=span("a", 4 * k, 4)) for k in range(6)],
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 0",
        *[SMALL.format(d=span("a", 4 * k, 4), a="v[4:7]", b="v[4:7]", c=span("a", 4 * k, 4)) for k in range(2, 8)],
        "s_setvskip 1, 0",
        *[SMALL.format(d=span("a", 4 * k, 4), a="v[4:7]", b="v[8:11]", c="0") for k in range(8)],
        "s_setvskip 0, 0",
    ]  # fmt: skip
    text = frame("\n".join(lines))
    expected, _ = run(machines.get(0), text)
    for _ in range(3):
        stored, _ = run(machines.get(2), text)
        assert np.array_equal(stored, expected)


# --- helpers that stop or die ---------------------------------------------------------------------------------------------


def test_a_killed_helper_changes_nothing() -> None:
    with always_admitted(), rjemu.Machine(PRESET, workers="inline", async_helper_threads=2) as gpu:
        gpu.start()
        text = frame(independent(8, rounds=60_000))
        with rjemu.Machine(PRESET, workers="inline") as plain:
            expected, _ = run(plain, text)
        board = helpers_of(gpu).board
        results = []
        launch = threading.Thread(target=lambda: results.append(run(gpu, text)))
        launch.start()
        while not sum(board.long(helper, "mmas") for helper in range(2)):
            assert launch.is_alive()
            time.sleep(0.002)
        for helper in range(2):
            time.sleep(0.02)
            os.kill(board.word(helper, "pid"), signal.SIGKILL)
            fresh_helpers(gpu)
        launch.join(60)
        stored, result = results[0]
        assert np.array_equal(stored, expected)
        assert result.stats["async"]["helpers_lost"] >= 1
        stored, _ = run(gpu, text)
        assert np.array_equal(stored, expected)


def test_a_helper_killed_in_the_middle_of_an_instruction_leaves_no_trace() -> None:
    """Accumulators that it was updating in place are put back, whatever part of them it had written."""
    with (
        ThreadPoolExecutor(1) as threads,
        always_admitted(),
        rjemu.Machine(PRESET, workers="inline", async_helper_threads=1) as gpu,
    ):
        gpu.start()
        text = frame(independent(8, rounds=20_000))
        with rjemu.Machine(PRESET, workers="inline") as plain:
            expected, _ = run(plain, text)
        board = helpers_of(gpu).board
        limit = time.monotonic() + 120
        for _ in range(2):
            pid = board.word(0, "pid")
            caught = False
            while not caught:
                assert time.monotonic() < limit, "the helper was never in the middle of an instruction"
                launch = threads.submit(run, gpu, text)
                while not caught and not launch.done():
                    fresh_helpers(gpu)
                    time.sleep(random.random() * 0.002)
                    with Stopped(gpu):
                        caught = bool(board.word(0, "state") & POSTED and board.long(0, "progress") & 1)
                        if caught:
                            os.kill(pid, signal.SIGKILL)
                assert np.array_equal(launch.result(60)[0], expected)
            while board.word(0, "pid") == pid or not board.free:  # until it has been replaced
                assert time.monotonic() < limit
                run(gpu, frame(independent(8)))


def test_helpers_that_die_between_short_launches_are_replaced() -> None:
    with always_admitted(), rjemu.Machine(PRESET, workers=(1, 1), async_helper_threads=2) as gpu:
        gpu.start()
        text = frame(independent(8))
        stored, _ = run(gpu, text)
        board = helpers_of(gpu).board
        before = {board.word(helper, "pid") for helper in range(2)}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        limit = time.monotonic() + 10
        while board.free != 3 or before & {board.word(helper, "pid") for helper in range(2)}:
            assert time.monotonic() < limit
            assert np.array_equal(run(gpu, text)[0], stored)
        _, result = run(gpu, text)
        assert (result.stats["async"]["helpers"], result.stats["async"]["helpers_lost"]) == (2, 2)


def test_helpers_that_die_while_they_start_are_replaced() -> None:
    with always_admitted(), rjemu.Machine(PRESET, workers="inline", async_helper_threads=2) as gpu:
        gpu.start()
        text = frame(independent(8))
        stored, _ = run(gpu, text)
        pool = helpers_of(gpu)
        for milliseconds in range(0, 60, 2):
            victim = pool._members[0].process
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            pool.update()  # as every launch does
            time.sleep(milliseconds / 1000)
        limit = time.monotonic() + 10
        while pool.board.free != 3:
            assert time.monotonic() < limit
            assert np.array_equal(run(gpu, text)[0], stored)


class Stopped:
    """Helper 0 of a machine does not run, but is not gone: whatever it is given stays pending until `go`."""

    def __init__(self, gpu: rjemu.Machine) -> None:
        self._pid = helpers_of(gpu).board.word(0, "pid")

    def __enter__(self) -> Stopped:
        os.kill(self._pid, signal.SIGSTOP)
        while Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.001)
        return self

    def go(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)

    def __exit__(self, *args: object) -> None:
        self.go()


TWO = "\n".join(SMALL.format(d=span("a", 4 * k, 4), a="v[4:7]", b="v[8:11]", c=span("a", 4 * k, 4)) for k in range(2))
MARK = "v_mov_b32 v2, 0\nv_mov_b32 v12, 7\nglobal_store_dword v2, v12, s[10:11]\n"
"""The wave has come so far: it writes 7 to the second array's first word."""


def comes_to_the_mark(gpu: rjemu.Machine, body: str, *, waves: int = 1) -> bool:
    """Whether the kernel gets to its MARK while the helper has the first of TWO and does not run."""
    fresh_helpers(gpu)
    text = frame(body, registers=range(3, 16), agprs=range(8))
    kernel = load(gpu, text)
    out, flag = gpu.zeros(1 << 15, np.uint32), gpu.zeros(64, np.uint32)
    arguments = {"kernarg": kernarg(out, flag), "lds_bytes": 4096, "timeout": 60}
    kernel.launch(1, 64 * waves, **arguments)  # everything is decoded, compiled and planned now
    flag.copy_from(np.zeros(64, np.uint32))
    fresh_helpers(gpu)
    results = []
    with Stopped(gpu) as helper:
        launch = threading.Thread(target=lambda: results.append(kernel.launch(1, 64 * waves, **arguments)))
        launch.start()
        limit = time.monotonic() + 0.4
        while flag.to_host()[0] != 7 and time.monotonic() < limit:
            time.sleep(0.005)
        came = bool(flag.to_host()[0] == 7)
        helper.go()
        launch.join(60)
        assert not launch.is_alive()
    assert flag.to_host()[0] == 7
    assert results[0].stats["async"]["jobs"] >= 1
    return came


@pytest.fixture(scope="module")
def blocked() -> Iterator[rjemu.Machine]:
    with always_admitted(), rjemu.Machine(PRESET, workers="inline", async_helper_threads=1) as gpu:
        gpu.start()
        run(gpu, frame(TWO))
        yield gpu


@pytest.mark.parametrize(
    "between",
    {
        "nothing": "",
        "a branch": "s_branch on\non:",
        "LDS": "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\nds_read_b32 v13, v2\ns_waitcnt lgkmcnt(0)",
        "a barrier": "s_barrier",
        "EXEC": "s_mov_b64 exec, 1\nv_mov_b32 v13, 1\ns_mov_b64 exec, -1",
        "MODE": "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0",
        "what it reads": "v_add_u32 v13, v4, v8",
        "another's accumulators": "v_accvgpr_read_b32 v13, a4",
        "a back edge": "s_mov_b32 s12, 0\nback:\ns_add_u32 s12, s12, 1\ns_cmp_lt_u32 s12, 100\ns_cbranch_scc1 back",
    }.items(),
    ids=lambda item: item[0],
)
def test_what_does_not_wait_for_a_job(blocked: rjemu.Machine, between: tuple[str, str]) -> None:
    assert comes_to_the_mark(blocked, f"{TWO}\n{between[1]}\n{MARK}")


@pytest.mark.parametrize(
    "between",
    {
        "its result": "v_accvgpr_read_b32 v13, a0",
        "overwriting its result": "v_accvgpr_write_b32 a3, v13",
        "overwriting its operand": "v_mov_b32 v4, v13",
        "the next matrix instruction": SMALL.format(d="a[0:3]", a="v[4:7]", b="v[8:11]", c="a[0:3]"),
        "register indexing": "s_set_gpr_idx_on s12, 1\nv_mov_b32 v13, v12\ns_set_gpr_idx_off",
        "an invalidated instruction cache": "s_icache_inv",
    }.items(),
    ids=lambda item: item[0],
)
def test_what_waits_for_a_job(blocked: rjemu.Machine, between: tuple[str, str]) -> None:
    assert not comes_to_the_mark(blocked, f"s_mov_b32 s12, 0\n{TWO}\n{between[1]}\n{MARK}")


def test_other_waves_do_not_wait_for_a_job(blocked: rjemu.Machine) -> None:
    """The first wave waits for its job; the second one comes to the mark."""
    body = f"""
  v_readfirstlane_b32 s12, v0
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 second
  {TWO}
  v_accvgpr_read_b32 v13, a0
  s_branch done
second:
  {MARK}
done:
"""
    assert comes_to_the_mark(blocked, body, waves=2)


# --- limits, processes -----------------------------------------------------------------------------------------------------


def test_a_window_may_be_limited() -> None:
    """With `async_window`, jobs are waited for after so many instructions."""
    text = frame(f"{TWO}\n" + "s_nop 0\n" * 40)
    drains = []
    for window in (0, 8):
        with (
            always_admitted(),
            rjemu.Machine(PRESET, workers="inline", async_helper_threads=1, async_window=window) as gpu,
        ):
            gpu.start()
            run(gpu, text)
            fresh_helpers(gpu)
            _, result = run(gpu, text)
            assert result.stats["async"]["jobs"] == 1
            drains.append(result.stats["async"]["boundary_drains"])
    assert drains[1] == 1


def test_a_lost_worker_leaves_no_helper_taken() -> None:
    with always_admitted(), rjemu.Machine(PRESET, workers=(1, 1), async_helper_threads=2) as gpu:
        gpu.start()
        text = frame(independent(8, rounds=5_000_000))
        failures: list[BaseException] = []

        def launch() -> None:
            try:
                run(gpu, text)
            except rjemu.errors.WorkerLost as error:
                failures.append(error)

        thread = threading.Thread(target=launch)
        thread.start()
        board = helpers_of(gpu).board
        while not sum(board.long(helper, "mmas") for helper in range(2)):
            assert thread.is_alive()
            time.sleep(0.01)
        executor: Any = gpu._executor
        os.kill(executor._control.workers[0].word("pid"), signal.SIGKILL)
        thread.join(60)
        assert failures
        limit = time.monotonic() + 10
        while board.free != 3:
            assert time.monotonic() < limit, f"free: {board.free:b}"
            time.sleep(0.01)
        short = frame(independent(8))
        with rjemu.Machine(PRESET, workers="inline") as plain:
            expected, _ = run(plain, short)
        stored, _ = run(gpu, short)
        assert np.array_equal(stored, expected)


def test_helpers_run_with_the_issuers_host_rounding() -> None:
    """The host's rounding direction when the launch begins is what matrix instructions round with, wherever they run."""
    text = frame(independent(6))
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    upward = {"x86_64": 0x800, "aarch64": 0x400000}[platform.machine()]

    def rounded_up(helpers: int) -> np.ndarray:
        with always_admitted(), rjemu.Machine(PRESET, workers="inline", async_helper_threads=helpers) as gpu:
            gpu.start()
            run(gpu, text)
            libm.fesetround(upward)
            try:
                stored, result = run(gpu, text)
            finally:
                libm.fesetround(0)
            assert not helpers or result.stats["async"]["jobs"] > 0
            return stored

    nearest, _ = run_plain(text)
    assert np.array_equal(rounded_up(2), rounded_up(0))
    assert not np.array_equal(rounded_up(0), nearest)


def run_plain(text: str) -> tuple[np.ndarray, Any]:
    with rjemu.Machine(PRESET, workers="inline") as gpu:
        return run(gpu, text)
