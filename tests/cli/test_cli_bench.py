"""`rjemu bench`: rows, bounds and reports; and that every measurement runs and measures what it says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from typing import Any

import numpy as np
import pytest

import rjemu
from rjemu.bench.ir_kernels import ALU_OPERATIONS, alu_loop
from rjemu.bench.measure import measure
from rjemu.bench.model import Costs
from rjemu.bench.rows import ROWS, Row
from rjemu.bench.timing import fair_environment, interleaved_medians
from rjemu.cli import bench
from rjemu.cli.main import main
from rjemu.integrations.llvm_ir import compile_ir


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_can_be_measured(row: Row) -> None:
    value, seconds = measure(row.name, 1)
    assert (-50 if row.kind == "%" else 0) < value < 100_000
    assert all(0 < median < 60 for median in seconds.values())


def test_the_model_is_its_formula() -> None:
    costs = Costs(launch=100e-6, invitation=5e-6, workgroup=1e-3, workgroups=64)
    assert costs.seconds(1) == pytest.approx(64.1e-3)
    assert costs.seconds(24) == pytest.approx(100e-6 + 23 * 5e-6 + 3e-3)
    assert costs.seconds(1000) == pytest.approx(100e-6 + 63 * 5e-6 + 1e-3)


def test_the_model_has_a_prediction_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--model", "--repeat", "3", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)
    assert [row["budget"] for row in model["rows"]] == [1, 2, 4, 8, 16, 24, 32, 34, 36, 40, 48, 64]
    assert [(row["engines"], row["dispatch"]) for row in model["rows"][:4]] == [(1, 1), (1, 2), (2, 3), (2, 7)]
    costs = Costs(**model["costs"], workgroups=model["workgroups"])
    for row, workers in zip(model["rows"], (1, 2, 4, 8, 16, 24, 32, 32, 32, 32, 32, 32), strict=True):
        assert row["seconds"] == pytest.approx(costs.seconds(workers))
        assert (row["measured"] is not None) == (workers <= len(os.sched_getaffinity(0)))
    # On one worker it says what was measured: it is nearly its own busy time.
    one = model["rows"][0]
    assert one["measured"]["workgroup"] == costs.workgroup
    assert one["seconds"] == pytest.approx(one["measured"]["seconds"], rel=0.5)


def test_alu_loop_is_the_vector_instructions_that_it_counts() -> None:
    """Beside three scalar instructions of the loop."""
    with rjemu.Machine("gfx950_mi355x", local_mem_size=1 << 24) as gpu:
        kernel, out = gpu.load(compile_ir(alu_loop(), "gfx950"))["alu"], gpu.zeros(64, np.uint32)
        counts = [kernel.launch(1, 64, [out, np.int32(rounds)]).wave_instructions for rounds in (10, 30)]
    assert counts[1] - counts[0] == 20 * (ALU_OPERATIONS + 3)


def test_verdicts() -> None:
    ratio, seconds = Row("r", "", "ratio", 0.3, 0.5), Row("s", "", "seconds", 2.0, 1.0)
    assert [ratio.verdict(value) for value in (0.5, 0.49, 0.3, 0.29)] == ["aim", "least", "least", "missed"]
    assert [seconds.verdict(value) for value in (1.0, 1.1, 2.0, 2.1)] == ["aim", "least", "least", "missed"]
    assert Row("n", "", "per second", 10, 20).verdict(15) == "least"
    assert [Row("m", "", kind, 20, 10).verdict(15) for kind in ("MiB", "%")] == ["least", "least"]


def test_samples_alternate() -> None:
    order: list[str] = []
    interleaved_medians([lambda: order.append("a"), lambda: order.append("b")], 2)
    # Each is called to warm up and to find out how often a sample calls it, and then in two samples.
    assert [name for name, _ in itertools.groupby(order)] == ["a", "b"] * 3


def test_numpy_runs_on_one_thread_and_on_its_own_tuning() -> None:
    environment = fair_environment({"PATH": "/bin", "OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "8"})
    assert environment["PATH"] == "/bin"
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert "OPENBLAS_CORETYPE" not in environment


def test_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "empty", "--repeat", "1"]) == 0
    assert "100,000 empty workgroups" in capsys.readouterr().out
    assert main(["bench", "empty", "--repeat", "1", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["row"], entry["kind"], entry["at_least"], entry["aim"]) == ("empty", "seconds", 0.6, 0.2)
    assert entry["value"] == entry["seconds"]["rjemu"] > 0


def test_rows_without_triton_say_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "fp16", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["reason"] == "needs triton"


def test_measurements_that_fail_are_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def environment(**_: Any) -> dict[str, str]:
        return {"PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}

    monkeypatch.setattr(bench, "fair_environment", environment)
    assert main(["bench", "empty"]) == 1
    assert "failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"), [(["none"], "there is no row or group 'none'"), (["empty", "--repeat", "0"], "at least 1")]
)
def test_mistakes_are_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
