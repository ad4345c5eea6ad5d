"""`rjemu run --checkpoint` and `rjemu resume` as processes that are sent signals, run out of time, and are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support.batch_jobs import BRIEF, SLOW, SPIN, leftovers, make_job, make_small_job, output_bytes, start_rjemu

import rjemu
import rjemu.config
from rjemu.cli.main import main


def begun(child: subprocess.Popen[str], seconds: float = 0.0) -> None:
    """Waits until the process has a machine, and so many seconds more."""
    while not leftovers(child.pid):
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    time.sleep(seconds)


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(status, output, errors) of a process that must leave nothing behind."""
    output, errors = child.communicate(timeout=120)
    deadline = time.monotonic() + 5
    while leftovers(child.pid) and time.monotonic() < deadline:  # a killed process's are removed by its guardian
        time.sleep(0.02)
    assert leftovers(child.pid) == []
    return child.returncode, output, errors


def finished(checkpoint: Path, *options: object) -> str:
    """What a resumed job prints that ends well, after which its checkpoint is gone."""
    status, output, errors = ended(start_rjemu("resume", checkpoint, *options))
    assert (status, errors) == (0, "")
    assert not checkpoint.exists()
    return output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_to_the_whole_group_ends_the_job_with_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    """Schedulers signal all processes, workers too."""
    job = make_small_job(tmp_path, SLOW, workgroups=5)
    child = start_rjemu("run", job.name, "--checkpoint", "saved", "--workers", "1/2", group=True, folder=tmp_path)
    begun(child, 0.7)
    os.killpg(child.pid, number)
    sent = time.monotonic()
    status, output, errors = ended(child)
    assert time.monotonic() - sent < 5
    assert (status, output) == (75, "")
    assert errors.splitlines()[-1] == f"rjemu: interrupted by {number.name}: rjemu resume saved goes on"
    job.unlink()
    (tmp_path / "kernel.o").unlink()
    output = finished(tmp_path / "saved", "--workers", "inline")
    assert f"interrupted 1 time: {number.name} after" in output
    assert np.load(tmp_path / "out.npy").tolist() == [5 * 64]


def test_interrupted_again_and_again_at_random_moments(tmp_path: Path) -> None:
    """Whatever it is at: starting, loading, launching, checking."""
    job = make_job(tmp_path)
    assert main(["run", str(job), "--quiet"]) == 0
    expected = output_bytes(tmp_path)
    rng = random.Random(3)
    child = start_rjemu("run", job, "--checkpoint", tmp_path / "saved", "--every", "0.2s")
    interruptions = 0
    for _ in range(4):
        begun(child, rng.uniform(0, 0.5))
        child.send_signal(rng.choice([signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]))
        status, _, errors = ended(child)
        assert status in (0, 75), errors
        if status == 0:
            break
        interruptions += 1
        child = start_rjemu("resume", tmp_path / "saved", "--workers", rng.choice(["inline", "1/1", "2/2"]))
    else:
        assert ended(child)[0] == 0
    assert interruptions
    assert output_bytes(tmp_path) == expected


def test_a_killed_process_loses_what_came_after_its_last_checkpoint(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert main(["run", str(job), "--quiet"]) == 0
    expected = output_bytes(tmp_path)
    child = start_rjemu("run", job, "--checkpoint", tmp_path / "saved", "--every", "0.1s", "--workers", "1/2")
    while not (tmp_path / "saved").exists():
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    child.kill()
    assert ended(child)[0] == -signal.SIGKILL
    report = tmp_path / "report.json"
    finished(tmp_path / "saved", "--report", report, "--quiet")
    assert output_bytes(tmp_path) == expected
    found = json.loads(report.read_text())
    assert [part["ended_by"] for part in found["parts"]] == ["lost", None]


def test_the_time_limit_is_each_processs(tmp_path: Path) -> None:
    job = make_small_job(tmp_path, SLOW, workgroups=4)
    report = tmp_path / "report.json"
    options = ("--checkpoint", "saved", "--time-limit", "0.4s", "--report", report, "--workers", "inline")
    status, _, errors = ended(start_rjemu("run", job, *options[:1], tmp_path / "saved", *options[2:]))
    assert status == 75
    assert "interrupted by the time limit: rjemu resume" in errors
    found = json.loads(report.read_text())
    assert (found["status"], found["succeeded"], found["interruptions"]) == ("interrupted", False, 0)
    parts = 1
    while (status := ended(start_rjemu("resume", tmp_path / "saved"))[0]) == 75:
        parts += 1
        assert parts < 60
    assert status == 0
    found = json.loads(report.read_text())
    assert (found["status"], found["interruptions"]) == ("done", parts)
    assert [part["ended_by"] for part in found["parts"]] == ["the time limit"] * parts + [None]
    assert found["checkpoints"]["count"] == parts
    (dispatch,) = found["dispatches"]
    assert dispatch["launches"] == 1
    # On a busy host a part may end before it has gone on with the launch.
    assert 1 <= dispatch["interruptions"] <= parts
    assert 0.1 < dispatch["seconds"] < found["seconds"]
    assert np.load(tmp_path / "out.npy").tolist() == [4 * 64]


def test_without_a_checkpoint_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    child = start_rjemu("run", make_small_job(tmp_path, SPIN), "--workers", "1/1", group=True)
    begun(child, 0.3)
    os.killpg(child.pid, signal.SIGTERM)
    assert ended(child)[0] == -signal.SIGTERM


def test_a_second_ctrl_c_gives_up(tmp_path: Path) -> None:
    """The reference executor runs launches to their ends, before which there is no checkpoint."""
    child = start_rjemu("run", make_small_job(tmp_path, SPIN), "--checkpoint", tmp_path / "saved", "--executor", "reference")
    begun(child, 0.5)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)  # too soon: the same one, sent twice
    time.sleep(1.2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    status, _, errors = ended(child)
    assert status == 1
    assert errors.count("warning: this launch cannot be suspended: a checkpoint is written when it has ended") == 1
    assert "kernel kernel was interrupted" in errors
    assert not (tmp_path / "saved").exists()


def test_a_kept_checkpoint_and_one_of_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_small_job(tmp_path, SLOW, workgroups=4)
    options = ("--time-limit", "0.4s", "--workers", "inline", "--keep-checkpoint")
    assert ended(start_rjemu("run", job, "--checkpoint", tmp_path / "first", *options))[0] == 75
    first = (tmp_path / "first").read_bytes()
    assert main(["checkpoint", "info", str(tmp_path / "first")]) == 0
    assert f"job {job}: 0 of 1 launches and 0 of 1 outputs done, in " in capsys.readouterr().out
    for name in (".first.0123abcd.part", ".second.0123abcd.part", ".second.part", "first.0123abcd.part"):
        (tmp_path / name).write_text("half")
    resumed = start_rjemu("resume", tmp_path / "first", "--checkpoint", tmp_path / "second", "--time-limit", "0.4s")
    assert ended(resumed)[0] == 75
    assert (tmp_path / "first").read_bytes() == first
    left = {path.name for path in tmp_path.iterdir() if "part" in path.name}
    assert left == {
        ".first.0123abcd.part",
        ".second.part",
        "first.0123abcd.part",
    }  # those of the file that it writes are gone
    assert ended(start_rjemu("resume", tmp_path / "second", "--time-limit", "1h", "--quiet"))[0] == 0
    assert (tmp_path / "second").exists()
    finished(tmp_path / "second", "--time-limit", "1h", "--no-keep-checkpoint")
    assert np.load(tmp_path / "out.npy").tolist() == [4 * 64]


def test_another_budget_and_other_fields_are_for_the_rest_of_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration's file is relative to where the command runs, not to the job."""
    job = make_small_job(tmp_path / "job", SLOW, workgroups=2, more='workers = "2/1"\nwave_quantum = 4\n')
    (tmp_path / "own.json").write_text(json.dumps(dict(rjemu.config.load_config("gfx950_mi355x").request)))
    monkeypatch.chdir(tmp_path)
    options = ["--checkpoint", "saved", "--time-limit", "0.2s", "--json", "--quiet"]
    assert main(["run", str(job), *options, "--config", "own.json"]) == 75
    (tmp_path / "own.json").unlink()
    fields = ["--set", "wave_quantum=8", "--set", "async_window=3"]
    assert main(["resume", "saved", "--budget", "1", "--time-limit", "1h", "--json", "--quiet", *fields]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["configuration"]["name"] == str(tmp_path / "own.json")
    assert found["configuration"]["workers"] == "auto"
    resolved = found["configuration"]["resolved"]
    assert (resolved["wave_quantum"], resolved["async_window"]) == (8, 3)
    allocation = found["allocation"]
    assert (allocation["budget"], allocation["engines"], allocation["dispatch"]) == (1, 1, 1)
    assert [worker["worker"] for worker in found["dispatches"][0]["stats"]["workers"]] == ["engine 0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--every", "10m"), "--every needs --checkpoint FILE"),
        (("--time-limit", "1h"), "--time-limit needs --checkpoint FILE"),
        (("--checkpoint", "none/saved"), "cannot write none/saved: there is no directory none"),
        (("--checkpoint", "."), "it is a directory"),
        (("--checkpoint", "job.toml"), "job.toml is no checkpoint: it would be lost"),
        (("--report", "none/report.json"), "none/report.json: there is no directory"),
        (("--set", "wave_quanta=3"), "no field 'wave_quanta' to override"),
        (("--config", "gfx949"), "no configuration"),
        (("--repeat", "0"), "repeat must be at least 1, not 0"),
        (("--output-dir", "none"), "there is no directory"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_small_job(tmp_path, SLOW)
    before = job.read_bytes()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "job.toml", *options]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert job.read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        ("--every", "10 parrots"),
        ("--every", "0s"),
        ("--budget", "0"),
        ("--set", "wave_quantum"),
        ("--set", "repeat=2"),
        ("--progress", "1s", "--quiet"),
        ("--workers", "0/1"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(make_small_job(tmp_path, SLOW)), *options])
    assert caught.value.code == 2


def test_what_is_no_jobs_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("text")
    with rjemu.Machine(workers="inline") as gpu:
        gpu.save(tmp_path / "machine", data={"kind": "another"})
        gpu.save(tmp_path / "bare")
    for name, message in (
        ("text", "is no checkpoint of rjemu"),
        ("machine", "is no job's checkpoint, but another program's: rjemu.restore reads it"),
        ("bare", "is no job's checkpoint"),
        ("absent", "cannot read"),
    ):
        assert main(["resume", str(tmp_path / name)]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert errors.count("\n") == 1


def test_a_report_holds_what_was_asked_for_and_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(tmp_path)
    report, outputs = tmp_path / "report.json", tmp_path / "results"
    outputs.mkdir()
    more = 'plugins={"throughput": {}}', 'sinks={"types": ["file"], "dir": "' + str(outputs) + '"}', "wave_quantum=8"
    options = ["--report", str(report), "--budget", "2", "--output-dir", str(outputs), "--json"]
    assert main(["run", str(job), *options, *(part for text in more for part in ("--set", text))]) == 0
    found = json.loads(report.read_text())
    printed = json.loads(capsys.readouterr().out)
    assert printed == found
    assert sorted(path.name for path in outputs.iterdir()) == [
        "c.npy",
        "flags.npy",
        "sum.npy",
        "throughput.log",
        "turns.npy",
    ]
    configuration = found["configuration"]
    assert (configuration["name"], configuration["executor"], configuration["workers"]) == (
        "gfx950_mi355x",
        "native",
        "auto",
    )
    assert configuration["asked"]["cpu_thread_budget"] == 2
    assert configuration["resolved"]["wave_quantum"] == 8
    assert (found["allocation"]["budget"], found["allocation"]["bound_by"]) == (2, "cpu_thread_budget")
    assert found["host"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert {"cpu", "features", "numpy", "python", "rjemu"} <= set(found["host"])
    assert [entry["launches"] for entry in found["dispatches"]] == [2, 2, 1, 1]
    for entry in found["dispatches"]:
        assert entry["seconds"] == pytest.approx(sum(entry["launch_seconds"]))
        assert sum(worker["wave_instructions"] for worker in entry["stats"]["workers"]) == entry["wave_instructions"]
    assert [entry.get("matches") for entry in found["outputs"]] == [True, True, None, True]
    throughput = found["plugins"]["throughput"]
    assert throughput["lines"] == 6
    assert [line["kernel"] for line in throughput["output"]] == ["gemm"] * 2 + ["kernel"] * 4
    assert found["interruptions"] == 0


def test_lines_of_progress_in_a_log(tmp_path: Path) -> None:
    job = make_small_job(tmp_path, BRIEF, workgroups=5000, more="repeat = 2\n")
    child = start_rjemu(
        "run", job, "--progress", "0.2s", "--workers", "inline", "--checkpoint", tmp_path / "saved", "--every", "1"
    )
    status, _, errors = ended(child)
    assert status == 0
    lines = errors.splitlines()
    progress = [line for line in lines if line.startswith("rjemu: kernel (launch ")]
    assert any(" of 5000 workgroups, " in line and "/s, about " in line and line.endswith(" left") for line in progress)
    assert [
        line for line in lines if line not in progress and not line.startswith(f"rjemu: checkpoint {tmp_path / 'saved'}: ")
    ] == []


def test_a_faults_report_and_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_small_job(tmp_path, SLOW)
    job.write_text(job.read_text().replace('kernarg = ["out"]', "kernarg = [{ u64 = 4096 }]"))
    report = tmp_path / "report.json"
    assert main(["run", str(job), "--report", str(report), "--workers", "inline", "--quiet"]) == 1
    found = json.loads(report.read_text())
    assert found["status"] == "failed"
    assert f"rjemu: {found['error']}\n" == capsys.readouterr().err
    assert "global_atomic_add" in found["error"]
