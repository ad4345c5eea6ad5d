"""`rjemu run` from job file to exit status, with an executor that computes one known kernel in numpy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.assemble import build, compile_hip, kernel_text, link
from support.executors import RecordingExecutor, kernarg_address, recording

from rjemu.cli.main import main
from rjemu.errors import FaultPlace, LaunchTimeout, MemoryFault
from rjemu.exec.dispatch import DispatchResult, DispatchSpec

HIP = """
extern "C" __attribute__((global)) void scale(float *data, float factor, int count) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < count) data[i] *= factor;
}
"""

JOB = """
config = "gfx950_mi355x"
local_mem_size = 1048576
code = "scale.hsaco"
[[buffers]]
name = "x"
file = "x.npy"
[[dispatches]]
kernel = "scale"
grid = 2
block = 64
args = ["x", { f32 = 2.0 }, { i32 = 100 }]
[[outputs]]
buffer = "x"
file = "y.npy"
expect = "ref.npy"
exact = true
"""


def scale(executor: RecordingExecutor, spec: DispatchSpec) -> None:
    """The kernel, with arguments from the kernarg segment."""
    layout = [("data", "u8"), ("factor", "f4"), ("count", "i4")]
    data, factor, count = executor.vram.view(kernarg_address(spec), 16).view(layout)[0]
    executor.vram.view(int(data), 4 * int(count)).view(np.float32)[:] *= factor


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "scale.hsaco").write_bytes(link(compile_hip(HIP, "gfx950")))
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    np.save(tmp_path / "ref.npy", 2 * np.arange(100, dtype=np.float32))
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    run = RecordingExecutor.run

    def run_scale(self: RecordingExecutor, spec: DispatchSpec, **options: Any) -> DispatchResult:
        scale(self, spec)
        return run(self, spec, **options)

    monkeypatch.setattr(RecordingExecutor, "run", run_scale)
    with recording():
        yield path


def test_success_prints_times_and_comparison_and_writes_the_output(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(job)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("gfx950_mi355x: E/D/H ")
    assert lines[1].split() == ["kernel", "launches", "seconds", "median", "wave", "instr.", "million/s"]
    assert lines[2].split() == ["scale", "1", "0.500", "0.5000", "24", "0.0"]
    assert lines[3].startswith("x: ok, 100 elements, largest error 0 absolute, 0 relative; saved to ")
    assert len(lines) == 4
    assert captured.err == ""
    assert np.array_equal(np.load(job.parent / "y.npy"), 2 * np.arange(100, dtype=np.float32))


def test_wrong_result_is_status_1_and_says_where(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = 2 * np.arange(100, dtype=np.float32)
    reference[7] += 1
    np.save(job.parent / "ref.npy", reference)
    assert main(["run", str(job)]) == 1
    assert "x: WRONG, 1 of 100 elements differ, first at [7], largest error 1 absolute" in capsys.readouterr().out


def test_stats_are_a_table_per_dispatch(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(job), "--stats"]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines[0] == "scale:"
    assert lines[1].split() == ["worker", "CPU", "workgroups", "wave", "instr.", "busy", "s", "idle", "s"]
    assert lines[2].split() == ["engine", "0", "3", "2", "24", "0.4000", "0.1000"]
    assert lines[3].strip() == "allocation 1/1/0; 2 handlers compiled, 0.250 s decoding and compiling"
    assert len(lines) == 5


@pytest.mark.parametrize("workers", ["inline", "1/2"])
def test_a_trace_of_the_kernel_itself(job: Path, workers: str) -> None:
    trace = job.parent / "trace.json"
    done = run_command(job, "--trace", str(trace), "--workers", workers, "--stats")
    output, errors = done.communicate(timeout=60)
    assert (done.returncode, errors) == (0, "")
    assert ("engine 0" if workers == "1/2" else "inline") in output
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"scale", "workgroup 0"} <= {event["name"] for event in events if event["ph"] == "X"}


@pytest.mark.parametrize("text", ["2", "1/2/3", "a/b", "1,2"])
def test_workers_are_two_numbers_or_inline(job: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(job), "--workers", text])
    assert ended.value.code == 2
    assert "neither 'inline' nor two numbers" in capsys.readouterr().err


def test_json(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(job), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["succeeded"] is True
    (dispatch,) = report["dispatches"]
    assert (dispatch["kernel"], dispatch["seconds"], dispatch["wave_instructions"]) == ("scale", 0.5, 24)
    assert dispatch["stats"]["workers"][0]["worker"] == "engine 0"
    assert (dispatch["stats"]["handlers_compiled"], dispatch["stats"]["compile_seconds"]) == (2, 0.25)
    (output,) = report["outputs"]
    assert (output["buffer"], output["matches"], output["mismatches"]) == ("x", True, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{ i32 = 100 }", "{ i64 = 100 }"), "kernel scale, argument 2: takes a value of 4 bytes, given int64 of 8 bytes"),
        (('"scale"', '"scales"'), "no kernel 'scales'"),
        (("gfx950_mi355x", "gfx942_cdna3"), "gfx942"),
        (("local_mem_size", "local_mem"), "no field 'local_mem' to override"),
        (("block = 64", "block = 2048"), "at most 1024"),
        (('file = "x.npy"', 'file = "z.npy"'), "cannot read"),
        (('file = "y.npy"', 'file = "none/y.npy"'), "cannot write"),
        (("exact = true", "rtol = 1\n[[outputs]]\nbuffer = 'x'\nexpect = 'scale.hsaco'"), "is no .npy file"),
    ],
)
def test_mistakes_are_status_2(job: Path, change: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace(*change))
    assert main(["run", str(job)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryFault("store outside device memory", FaultPlace("scale", (1, 0, 0), 0, 3, 0x1234, "s_nop 0")),
        LaunchTimeout("the launch took longer than 1 s"),
    ],
)
def test_kernel_faults_are_one_line_and_status_1(
    job: Path, error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RecordingExecutor, spec: DispatchSpec, **options: Any) -> DispatchResult:
        raise error

    monkeypatch.setattr(RecordingExecutor, "run", fail)
    assert main(["run", str(job)]) == 1
    assert capsys.readouterr().err == f"rjemu: {error}\n"


def test_values_of_a_kernarg_list_are_laid_out_naturally(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("args =", "kernarg ="))
    assert main(["run", str(job)]) == 0
    job.write_text(JOB.replace("args =", "kernarg =").replace("{ i32 = 100 }", "100"))
    assert main(["run", str(job)]) == 2
    assert "kernarg[2]: 100 needs a type" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_only(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        """Standard error as a terminal."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def isatty(self) -> bool:
            return True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

    monkeypatch.setenv("TERM", "xterm")

    monkeypatch.setattr(sys, "stderr", Terminal(sys.stderr))
    assert main(["run", str(job)]) == 0
    captured = capsys.readouterr()
    assert "scale" in captured.err
    assert "2/2" in captured.err
    assert "\x1b" not in captured.out


def run_command(job: Path, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "rjemu", "run", str(job), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("executor", ["native", "reference"])
def test_the_kernel_itself_in_a_process_of_its_own(job: Path, executor: str) -> None:
    done = run_command(job, "--executor", executor)
    output, errors = done.communicate(timeout=60)
    assert (done.returncode, errors) == (0, "")
    assert "x: ok, 100 elements" in output
    assert np.array_equal(np.load(job.parent / "y.npy"), 2 * np.arange(100, dtype=np.float32))


def test_ctrl_c_ends_a_run_within_a_second_and_leaves_nothing(job: Path) -> None:
    (job.parent / "scale.hsaco").write_bytes(build(kernel_text("again:\ns_branch again\ns_endpgm", "scale"), "gfx950"))
    job.write_text(JOB.replace('args = ["x", { f32 = 2.0 }, { i32 = 100 }]', ""))
    child = run_command(job)
    while not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{child.pid}-")]:
        assert child.poll() is None
        time.sleep(0.02)
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    start = time.monotonic()
    output, errors = child.communicate(timeout=60)
    assert time.monotonic() - start < 2
    assert (child.returncode, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("rjemu: ")
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{child.pid}-")]
