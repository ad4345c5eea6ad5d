"""`rjemu tune` from job file to table, plots and configuration."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rjemu.cli.main import main
from rjemu.config import ThreadAllocation, load_config, resolve_execution_threads
from rjemu.examples.gemm.run import Problem, export
from rjemu.tune import record
from rjemu.tune.candidates import Candidate
from rjemu.tune.record import Experiment
from rjemu.tune.results import Sample


@pytest.fixture
def job(tmp_path: Path) -> Path:
    export(Problem.random(256), tmp_path / "gemm")
    return tmp_path / "gemm" / "job.toml"


def test_an_experiment_from_job_to_configuration(job: Path, tmp_path: Path) -> None:
    files = sorted(path.name for path in job.parent.iterdir())
    out = tmp_path / "out"
    # Hosts of one CPU run the tests, too.
    options = ["--budgets", "2,1", "--allocations", "1/1,1/2/0", "--repeat", "2", "--oversubscribe", "--out", str(out)]
    command = [sys.executable, "-m", "rjemu", "tune", str(job), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["CPUs", "E/D/H", "processes", "runs", "median", "s", "lowest", "highest"]
    assert [line[:4] for line in lines[1:4]] == [
        ["1", "1/1/0", "1", "2"],
        ["2", "1/1/0", "1", "2"],
        ["2", "1/2/0", "2", "2"],
    ]
    assert lines[1][-1] == "best"
    assert [line[-1] for line in lines[2:4]].count("best") == 1

    document = json.loads((out / "tune.json").read_text())
    assert document["job"] == str(job)
    assert [(entry["budget"], entry["dispatch"]) for entry in document["samples"]] == [(1, 1), (2, 1), (2, 2)] * 2
    assert all(entry["seconds"] > 0 for entry in document["samples"])
    configuration = json.loads((out / "thread_allocations.json").read_text())
    assert configuration == {"thread_allocations": document["thread_allocations"]}
    assert configuration == json.loads(done.stdout.splitlines()[4])
    config = load_config("gfx950_mi355x", **configuration)
    best = config.threads.table[-1]
    assert resolve_execution_threads(config.threads, config.execution_topology, 2) == best
    assert config.threads.table[0] == ThreadAllocation(1, 1, 0)

    assert (out / "tune.png").read_bytes().startswith(b"\x89PNG")
    drawing = (out / "tune.svg").read_text()
    assert "best of its budget" in drawing
    assert "1/1/0" in drawing
    assert sorted(path.name for path in job.parent.iterdir()) == files


def test_ctrl_c_keeps_the_rounds_that_are_complete(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--budgets", "1", "--allocations", "1/1", "--repeat", "100000", "--out", str(out)]
    command = [sys.executable, "-m", "rjemu", "tune", str(job), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while not (out / "tune.json").exists():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("rjemu: ")
    assert record.read(out / "tune.json").samples
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{child.pid}-")]


def test_a_wrong_output_is_status_1(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = np.load(job.parent / "expected.npy")
    expected[3, 4] += 1
    np.save(job.parent / "expected.npy", expected)
    options = ["--budgets", "1", "--allocations", "1/1", "--repeat", "1", "--no-plot", "--out", str(tmp_path / "out")]
    assert main(["tune", str(job), *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "rjemu: output c is wrong on 1/1/0 with 1 CPUs: 1 of 65536 elements differ, first at [3, 4]\n"


def test_the_plan_is_printed_for_hosts_with_more_cpus(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(job), "--budgets", "1,1000", "--allocations", "1/1,8/32/128", "--plan"]) == 0
    assert capsys.readouterr().out == "1 1/1/0\n1000 1/1/0\n1000 8/32/128\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budgets", "1,100000"], "a budget of 100000 CPUs cannot be measured on the "),
        (["--budgets", "1", "--allocations", "2/1"], "no allocation of those given fits a budget of 1 CPUs"),
        (["--merge", "."], "tune needs a job file, or --merge with a folder, and not both"),
        (["--budgets", "1", "--out", "/dev/null/out"], "cannot write to /dev/null/out"),
    ],
)
def test_mistakes_are_status_2(job: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(job), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budgets", "1,two"], "'two' is no budget"),
        (["--allocations", "1"], "'1' is no allocation"),
        (["--repeat", "0"], "'0' is no positive whole number"),
        (["--plan", "--merge", "x"], "not allowed with argument"),
    ],
)
def test_options_are_checked(job: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(job), *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Two experiments of one job in folders of their own."""
    for name, budget, width, seconds, host in [("a", 1, 1, 2.0, "node1"), ("b", 2, 2, 1.0, "node2")]:
        folder = tmp_path / "parts" / name
        folder.mkdir(parents=True)
        sample = Sample(Candidate(budget, ThreadAllocation(1, width)), seconds, 0.5, host)
        record.write(Experiment("/jobs/job.toml", 1, (sample,)), folder)
    return tmp_path / "parts"


def test_parts_are_merged_into_one_table(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second time there is the result of the first
        assert main(["tune", "--merge", str(parts)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines[1:3]] == [
            ["1", "1/1/0", "1", "1", "2.0000", "2.0000", "2.0000", "best"],
            ["2", "1/2/0", "2", "1", "1.0000", "1.0000", "1.0000", "best"],
        ]
        assert lines[3] == "samples of 2 hosts are compared: node1, node2"
    assert sorted(path.name for path in parts.iterdir()) == [
        "a",
        "b",
        "thread_allocations.json",
        "tune.json",
        "tune.png",
        "tune.svg",
    ]
    assert main(["tune", "--merge", str(parts), "--json", "--no-plot"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((parts / "tune.json").read_text())


def test_plots_of_the_same_samples_are_the_same_bytes(parts: Path, tmp_path: Path) -> None:
    written = []
    for name in ("x", "y"):
        assert main(["tune", "--merge", str(parts), "--out", str(tmp_path / name)]) == 0
        written.append([(tmp_path / name / f"tune{suffix}").read_bytes() for suffix in (".svg", ".png")])
    assert written[0] == written[1]


def test_without_matplotlib(parts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "matplotlib" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert main(["tune", "--merge", str(parts)]) == 2
    assert "pip install 'rjemu[plot]'" in capsys.readouterr().err
    assert main(["tune", "--merge", str(parts), "--no-plot"]) == 0
    assert not (parts / "tune.svg").exists()
