"""Jobs that are interrupted at any moment, any number of times, and end as if nothing had happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.assemble import kernel_text
from support.batch_jobs import OUTPUTS, SLOW, make_job, make_small_job, output_bytes
from support.interrupted import KERNARG

from rjemu.checkpoint.info import describe, read_request
from rjemu.checkpoint.restore import restore
from rjemu.errors import CheckpointError, JobInterrupted
from rjemu.jobs import JobOptions, JobReport, files, load_job, outputs, resume_job, run_job, runner
from rjemu.shm.vram import Vram

MACHINES: list[dict[str, Any]] = [
    {"workers": "inline"},
    {"workers": [1, 1]},
    {"workers": [1, 3]},
    {"workers": [2, 2]},
    {"workers": [1, 1], "async_helper_threads": 1},
]


def as_overrides(machine: dict[str, Any]) -> dict[str, Any]:
    """Of a checkpoint, rather than of a job file."""
    workers = machine["workers"]
    return {"async_helper_threads": 0, **machine, "workers": tuple(workers) if isinstance(workers, list) else workers}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def expected(job: Path) -> list[bytes]:
    """The outputs of a run that nothing interrupts."""
    assert run_job(load_job(job).with_changes(workers="inline")).succeeded
    return output_bytes(job.parent)


def carry_out(job: Path, limits: list[float], machines: list[dict[str, Any]]) -> tuple[JobReport, int]:
    """Runs the job, interrupted after each of these times on these machines in turn; the report, and how often it was."""
    for name in OUTPUTS:
        (job.parent / name).unlink(missing_ok=True)
    checkpoint = job.parent / "saved"
    try:
        options = JobOptions(time_limit=limits[0], every=0.1)
        return run_job(load_job(job).with_changes(**machines[0]), checkpoint=checkpoint, options=options), 0
    except JobInterrupted:
        pass
    for count, limit in enumerate([*limits[1:], 1000.0], start=1):
        machine = as_overrides(machines[count % len(machines)])
        try:
            return resume_job(checkpoint, options={"time_limit": limit}, **machine), count
        except JobInterrupted:
            describe(checkpoint)  # reads all of it
    raise AssertionError("the last part has no limit")


interruptions = given(
    limits=st.lists(st.floats(0.001, 0.5), min_size=1, max_size=5),
    machines=st.lists(st.sampled_from(MACHINES), min_size=1, max_size=6),
)


def check(job: Path, expected: list[bytes], limits: list[float], machines: list[dict[str, Any]]) -> None:
    report, interrupted = carry_out(job, limits, machines)
    assert report.succeeded
    assert output_bytes(job.parent) == expected
    assert len(report.parts) == interrupted + 1
    assert sum(dispatch.interruptions for dispatch in report.dispatches) <= interrupted
    assert [dispatch.launches for dispatch in report.dispatches] == [2, 2, 1, 1]
    assert not (job.parent / "saved").exists()


@interruptions
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bits_are_those_of_a_job_without_interruption(
    job: Path, expected: list[bytes], limits: list[float], machines: list[dict[str, Any]]
) -> None:
    check(job, expected, limits, machines)


@pytest.mark.long
@interruptions
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bits_are_those_of_a_job_without_interruption_long(
    job: Path, expected: list[bytes], limits: list[float], machines: list[dict[str, Any]]
) -> None:
    check(job, expected, limits, machines)


def signalled_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    """Has this process sent SIGTERM in the call of that number of a function, before it does anything."""
    function, calls = getattr(owner, name), []

    def calling(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, calling)


@pytest.mark.parametrize("call", [1, 2])
def test_interrupted_while_it_loads(job: Path, expected: list[bytes], call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = job.parent / "saved"
    with monkeypatch.context() as patched:
        signalled_at(patched, files.ArrayFile, "load", call)
        with pytest.raises(JobInterrupted, match="interrupted by SIGTERM"):
            run_job(load_job(job).with_changes(workers="inline"), checkpoint=checkpoint)
    assert len(describe(checkpoint)["arrays"]) == call - 1  # what it reads then is read again
    report = resume_job(checkpoint)
    assert [part.ended_by for part in report.parts] == ["SIGTERM", None]
    assert output_bytes(job.parent) == expected


def test_interrupted_in_the_middle_of_a_large_buffer(
    job: Path, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded anew, from its beginning."""
    checkpoint = job.parent / "saved"
    with monkeypatch.context() as patched:
        patched.setattr(runner, "_PIECE", 64 << 10)
        signalled_at(patched, Vram, "write", 20)  # of 16 for each of the large buffers
        with pytest.raises(JobInterrupted):
            run_job(load_job(job).with_changes(workers="inline"), checkpoint=checkpoint)
    assert len(describe(checkpoint)["arrays"]) == 1
    assert resume_job(checkpoint).succeeded
    assert output_bytes(job.parent) == expected


@pytest.mark.parametrize(("call", "done"), [(1, 0), (2, 1), (4, 3)])
def test_interrupted_while_it_writes_results(
    job: Path, expected: list[bytes], call: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between saving and comparing, too: what is not finished is done again."""
    checkpoint = job.parent / "saved"
    with monkeypatch.context() as patched:
        signalled_at(patched, outputs, "write_array", call)
        with pytest.raises(JobInterrupted):
            run_job(load_job(job).with_changes(workers="inline"), checkpoint=checkpoint)
    for name in OUTPUTS[done:]:
        (job.parent / name).unlink(missing_ok=True)
    report = resume_job(checkpoint)
    assert [dispatch.launches for dispatch in report.dispatches] == [2, 2, 1, 1]
    assert [output.comparison is None for output in report.outputs] == [False, False, True, False]
    assert report.succeeded
    assert output_bytes(job.parent) == expected


def test_interrupted_while_it_writes_the_last_result(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That one is not to be compared with anything."""
    with monkeypatch.context() as patched:
        text = job.read_text()
        last = text.rindex('expect = "expected.npz"')
        (job.parent / "unchecked.toml").write_text(text[:last])
        signalled_at(patched, outputs, "write_array", 4)
        with pytest.raises(JobInterrupted):
            run_job(load_job(job.parent / "unchecked.toml").with_changes(workers="inline"), checkpoint=job.parent / "saved")
    assert resume_job(job.parent / "saved").succeeded


def test_the_reference_executor_is_interrupted_between_launches(tmp_path: Path) -> None:
    text = "v_mov_b32 v1, 0\nv_mov_b32 v2, 1\ns_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
    code = kernel_text(text + "global_atomic_add v1, v2, s[4:5]\ns_endpgm", directives=KERNARG)
    job = make_small_job(tmp_path, code, more='repeat = 5\nexecutor = "reference"\n')
    checkpoint = tmp_path / "saved"
    report, parts = None, 0
    while report is None:
        parts += 1
        try:
            if parts == 1:
                report = run_job(load_job(job), checkpoint=checkpoint, options=JobOptions(time_limit=1e-6))
            else:
                report = resume_job(checkpoint, options={"time_limit": 0.02})
        except JobInterrupted:
            assert parts < 50
    assert parts > 1
    assert sum(dispatch.interruptions for dispatch in report.dispatches) == 0
    assert np.load(tmp_path / "out.npy").tolist() == [5 * 2 * 64]


def test_plugins_files_are_gone_on_with(tmp_path: Path) -> None:
    sinks = {"types": ["file"], "dir": str(tmp_path / "logs")}
    job = load_job(make_small_job(tmp_path, SLOW, more="repeat = 3\n")).with_changes(
        workers="inline", plugins={"throughput": {}}, sinks=sinks
    )
    checkpoint = tmp_path / "saved"
    with pytest.raises(JobInterrupted):
        run_job(job, checkpoint=checkpoint, options=JobOptions(time_limit=1.0))
    before = (tmp_path / "logs" / "throughput.log").read_text()
    report = resume_job(checkpoint, options={"time_limit": None})
    after = (tmp_path / "logs" / "throughput.log").read_text()
    assert before
    assert after.startswith(before)
    assert report.plugins["throughput"].count >= 3
    assert np.load(tmp_path / "out.npy").tolist() == [3 * 2 * 64]


def test_another_code_object_than_the_one_that_ran_is_not_read(job: Path, expected: list[bytes]) -> None:
    """All that has been loaded is in the checkpoint."""
    checkpoint = job.parent / "saved"
    with pytest.raises(JobInterrupted):
        run_job(load_job(job).with_changes(workers="inline"), checkpoint=checkpoint, options=JobOptions(time_limit=0.25))
    kept = {name: (job.parent / name).read_bytes() for name in ("gemm.o", "atomics.o", "inputs.npz", "job.toml")}
    try:
        for name in kept:
            (job.parent / name).write_bytes(b"changed")
        assert resume_job(checkpoint, options={"time_limit": None}).succeeded
        assert output_bytes(job.parent) == expected
    finally:
        for name, content in kept.items():
            (job.parent / name).write_bytes(content)


def test_a_launch_that_has_failed_while_it_was_saved_is_an_error(tmp_path: Path) -> None:
    checkpoint = tmp_path / "saved"
    with pytest.raises(JobInterrupted):
        run_job(
            load_job(make_small_job(tmp_path, SLOW, workgroups=8)).with_changes(workers="inline"),
            checkpoint=checkpoint,
            options=JobOptions(time_limit=0.3),
        )
    _, data = read_request(checkpoint)
    assert data["under_way"] > 0
    with restore(checkpoint) as gpu:
        gpu._pending.clear()
        gpu.save(checkpoint, data=data)
    with pytest.raises(CheckpointError, match="0 launches are under way, which is not what the job says"):
        resume_job(checkpoint)
