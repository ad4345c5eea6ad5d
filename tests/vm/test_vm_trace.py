"""Traces: what the viewers need, and the same counts as the statistics."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.assemble import build, kernel_text
from support.async_runs import always_admitted, frame, fresh_helpers, helpers_of
from support.async_runs import run as run_frame
from support.worker_kernels import SQUARES, pointer

import rjemu
from rjemu.errors import UsageError
from rjemu.exec.ir import Module
from rjemu.exec.layout import CTX
from rjemu.exec.scheduler import scheduler_text
from rjemu.exec.trace import RING_BYTES, RING_EVENTS, TURN, TraceRing

WORKERS = pytest.mark.parametrize("workers", ["inline", (1, 1), (2, 3)], ids=str)


def traced(
    gpu: rjemu.Machine, path: Path, workgroups: int, launches: int
) -> tuple[dict[str, Any], list[rjemu.DispatchResult]]:
    kernel = gpu.load(build(SQUARES, "gfx950"))["kernel"]
    out = gpu.zeros(1 + workgroups * 64, np.uint32)
    gpu.start()
    with gpu.trace(path):
        results = []
        for _ in range(launches):
            results.append(kernel.launch(workgroups, 64, kernarg=pointer(out.address + 4)))
            time.sleep(0.01)
    return json.loads(path.read_text()), results


def rows(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The complete events by row name."""
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            out[names[event["tid"]]].append(event)
    return out


@WORKERS
def test_a_trace_has_what_the_statistics_count(workers: Any, tmp_path: Path) -> None:
    with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:
        trace, results = traced(gpu, tmp_path / "out.json", 300, 3)
    turns: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    found = rows(trace)
    for name, events in found.items():
        for event in events:
            if "workgroup" in event["args"]:
                assert event["name"] == f"workgroup {event['args']['workgroup']}"
                assert event["args"]["kernel"] == "kernel"
                turns[name][event["args"]["launch"]].add(event["args"]["workgroup"])
    for launch, result in enumerate(results, 1):
        assert set().union(*(numbers[launch] for numbers in turns.values())) == set(range(300))
        for worker in result.stats["workers"]:
            assert len(turns[worker["worker"]][launch]) == worker["workgroups"]
            assert 0 <= worker["busy_seconds"] <= result.seconds + 0.01
            assert worker["busy_seconds"] + worker["idle_seconds"] == pytest.approx(result.seconds, abs=0.01)
        assert sum(worker["wave_instructions"] for worker in result.stats["workers"]) == result.wave_instructions
    launches = [event for event in found["launcher, MainThread"] if event["name"] == "kernel"]
    assert [event["args"]["launch"] for event in launches] == [1, 2, 3]
    assert trace["otherData"] == {"machine": "gfx950_mi355x", "events_lost": {}}
    if workers != "inline":
        assert any(event["name"] == "wait" for name, events in found.items() if "launcher" not in name for event in events)
    assert any(event["name"] == "decode" for events in found.values() for event in events)
    assert results[0].stats["compile_seconds"] > 0


@WORKERS
def test_events_are_those_of_the_format(workers: Any, tmp_path: Path) -> None:
    """Trace Event Format: complete events have ts and dur in microseconds; within a row they do not overlap."""
    with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:
        trace, _ = traced(gpu, tmp_path / "out.json", 100, 2)
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert {"name", "ph", "pid", "tid", "args"} <= set(event)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    assert min(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X") == 0
    for events in rows(trace).values():
        ends = 0.0
        for event in events:
            assert event["ts"] >= ends - 1e-3
            ends = event["ts"] + event["dur"]


def counting(rounds: int) -> bytes:
    """A kernel that counts down, in 3 instructions a round."""
    loop = "again:\n  s_sub_u32 s4, s4, 1\n  s_cmp_lg_u32 s4, 0\n  s_cbranch_scc1 again\n  s_endpgm\n"
    return build(kernel_text(f"  s_mov_b32 s4, {rounds}\n{loop}"), "gfx950")


@WORKERS
def test_turns_are_the_busy_time(workers: Any, tmp_path: Path) -> None:
    """What is busy beside them is the start of workgroups and the way to and from native code."""
    with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu:
        kernel = gpu.load(counting(500_000))["kernel"]
        kernel.launch(1, 64, kernarg=b"")  # decodes it
        gpu.start()
        with gpu.trace(tmp_path / "out.json"):
            result = kernel.launch(16, 64, kernarg=b"")
    found = rows(json.loads((tmp_path / "out.json").read_text()))
    for worker in result.stats["workers"]:
        turns = sum(event["dur"] for event in found.get(worker["worker"], []) if "workgroup" in event["args"]) / 1e6
        assert turns <= worker["busy_seconds"]
        if worker["workgroups"]:
            assert turns > 0.5 * worker["busy_seconds"]


def test_the_loop_without_a_trace_knows_nothing_of_traces() -> None:
    """Neither the clock nor the ring: it makes no call but those that do the work."""
    text = scheduler_text(Module(""), 64)
    functions = {body[body.index("@") + 1 : body.index("(")]: body for body in text.split("define ")[1:]}
    calls = {name: set(re.findall(r"call \S+ (@\w+|%)", functions[name])) for name in ("run", "run_traced")}
    assert calls == {"run": {"@admit", "@workgroup"}, "run_traced": {"@admit", "@workgroup", "%"}}
    for field in ("trace", "clock", "timespec"):
        address = f"getelementptr i8, ptr %ctx, i64 {CTX[field]}\n"
        assert address in functions["run_traced"]
        assert address not in functions["run"]


def test_turns_of_resident_workgroups(tmp_path: Path) -> None:
    """A workgroup whose time slice ends has several slices."""
    with rjemu.Machine("gfx950_mi355x", workers=(1, 1), time_slice=1000) as gpu:
        kernel = gpu.load(counting(2000))["kernel"]
        with gpu.trace(tmp_path / "out.json"):
            kernel.launch(4, 64, kernarg=b"")
    events = rows(json.loads((tmp_path / "out.json").read_text()))["engine 0"]
    numbers = [event["args"]["workgroup"] for event in events if "workgroup" in event["args"]]
    assert set(numbers) == {0, 1, 2, 3}
    assert all(numbers.count(number) > 3 for number in range(4))


@WORKERS
def test_a_trace_has_the_jobs_of_helpers(workers: Any, tmp_path: Path) -> None:
    products = [f"v_mfma_f32_16x16x32_f16 {d}, v[4:7], v[8:11], {d}" for d in (f"a[{4 * k}:{4 * k + 3}]" for k in range(8))]
    end = ["s_add_u32 s12, s12, 1", "s_cmp_lt_u32 s12, 40", "s_cbranch_scc1 loop"]
    text = frame("\n".join(["s_mov_b32 s12, 0", "loop:", *products, *end]))
    with always_admitted(), rjemu.Machine("gfx950_mi355x", workers=workers, async_helper_threads=2) as gpu:
        gpu.start()
        run_frame(gpu, text)
        pool = helpers_of(gpu)
        with gpu.trace(tmp_path / "out.json"):
            trace = pool._trace
            assert trace is not None
            limit = time.monotonic() + 30
            while not all(trace.bytes[k * RING_BYTES :][:RING_BYTES][:16].any() for k in range(2)):  # they have begun
                assert time.monotonic() < limit
                time.sleep(0.001)
            fresh_helpers(gpu)
            _, result = run_frame(gpu, text)
        _, after = run_frame(gpu, text)
        assert after.stats["async"]["jobs_lost"] == 0
    counters = result.stats["async"]
    found = rows(json.loads((tmp_path / "out.json").read_text()))
    jobs = {name: events for name, events in found.items() if name.startswith("helper ")}
    assert set(jobs) <= {"helper 0", "helper 1"}
    assert {event["name"] for events in jobs.values() for event in events} == {"job"}
    assert sum(map(len, jobs.values())) == counters["jobs"] > 0
    offloaded = sum(event["args"]["instructions"] for events in jobs.values() for event in events)
    assert offloaded == counters["mmas_offloaded"]
    assert 0 < sum(event["dur"] for events in jobs.values() for event in events) / 1e6 < 2 * result.seconds


def test_helpers_without_a_trace_know_nothing_of_traces() -> None:
    text = scheduler_text(Module(""), 64, asynchronous=True)
    functions = {body[body.index("@") + 1 : body.index("(")]: body for body in text.split("define ")[1:]}
    for field in ("trace", "clock", "timespec"):
        offset = f", i64 {CTX[field]}\n"
        assert [name for name in ("run_job", "run_job_traced", "serve") if offset in functions[name]] == ["run_job_traced"]


def test_one_trace_at_a_time(tmp_path: Path) -> None:
    for workers in ("inline", (1, 1)):
        with rjemu.Machine("gfx950_mi355x", workers=workers) as gpu, gpu.trace(tmp_path / "a"):
            with pytest.raises(UsageError, match="being traced already"), gpu.trace(tmp_path / "b"):
                pass
            with pytest.raises(UsageError, match="cannot write the trace"), gpu.trace(tmp_path / "none" / "c"):
                pass


def test_what_does_not_fit_is_counted() -> None:
    ring = TraceRing(np.zeros(RING_BYTES // 8, np.uint64).view(np.uint8))
    for number in range(RING_EVENTS + 5):
        ring.append(TURN, 1, number, number, number + 1)
    assert ring.lost == 5
    slices = ring.slices({1: "k"})
    assert len(slices) == RING_EVENTS
    assert slices[-1].name == f"workgroup {RING_EVENTS - 1}"


@WORKERS
def test_statistics_have_one_shape(workers: Any) -> None:
    engines, dispatch = (0, 0) if workers == "inline" else workers
    for helpers in (0, 2):
        with rjemu.Machine("gfx950_mi355x", workers=workers, async_helper_threads=helpers) as gpu:
            stats = gpu.load(counting(1))["kernel"].launch(8, 64, kernarg=b"").stats
        assert set(stats) == {"allocation", "workers", "handlers_compiled", "compile_seconds", "async"}
        assert stats["allocation"] == {"engines": engines, "dispatch": dispatch, "helpers": helpers}
        assert (stats["async"] is None) == (helpers == 0)
        assert len(stats["workers"]) == max(engines + dispatch - 1, 1)
        for worker in stats["workers"]:
            keys = {"worker", "cpu", "workgroups", "wave_instructions", "busy_seconds", "idle_seconds"}
            assert set(worker) == keys
            assert (worker["cpu"] is None) == (workers == "inline")
        json.dumps(stats)
