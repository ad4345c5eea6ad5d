"""Checkpoints and results that cannot be written: what is there stays, and the error says what happened."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.batch_jobs import BRIEF, SLOW, leftovers, make_small_job, start_rjemu

from rjemu.checkpoint.info import describe
from rjemu.cli.main import main
from rjemu.errors import JobError, JobInterrupted
from rjemu.jobs import JobListener, JobOptions, LaunchPlace, load_job, resume_job, run_job
from rjemu.vm.executor import Progress

FULL_AT = 16 << 10
"""Bytes that a file can have on the disk that is full."""


class FullDisk(JobListener):
    """The disk is full during some launches, by their numbers; what is said meanwhile is kept."""

    def __init__(self, launches: range) -> None:
        self.launches = launches
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def launch_begins(self, place: LaunchPlace) -> Progress | None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        # What the machine needs of shared memory is there since the first launch.
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_AT if place.launch in self.launches else most, most))
        return None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def limits() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def big_job(folder: Path, repeat: int) -> Path:
    """Its checkpoints are larger than FULL_AT."""
    more = f'repeat = {repeat}\nworkers = "inline"\n[[buffers]]\nname = "other"\ndtype = "float32"\nshape = 65536\n'
    return make_small_job(folder, BRIEF, workgroups=500, more=more + 'fill = { random = "normal" }\n')


def test_a_full_disk_costs_the_job_its_checkpoints_only(tmp_path: Path, limits: None) -> None:
    full = FullDisk(range(10, 20))
    path = tmp_path / "saved"
    report = run_job(
        load_job(big_job(tmp_path, 30)),
        checkpoint=path,
        options=JobOptions(every=0.02, keep_checkpoint=True),
        listener=full,
    )
    assert report.succeeded
    assert np.load(tmp_path / "out.npy").tolist() == [30 * 500 * 64]
    assert full.notes
    assert full.warnings
    for warning in full.warnings:
        assert warning.startswith(f"no checkpoint was written: cannot write {path}: File too large; the job goes on")
    assert "the checkpoint written before is still there" in full.warnings[-1]
    assert sorted(os.listdir(tmp_path)) == ["job.toml", "kernel.o", "out.npy", "saved"]
    describe(path)


def test_a_full_disk_at_the_end_is_an_error_and_keeps_the_one_before(tmp_path: Path, limits: None) -> None:
    path = tmp_path / "saved"
    report = tmp_path / "report.json"

    class Signalled(FullDisk):
        def launch_begins(self, place: LaunchPlace) -> Progress | None:
            super().launch_begins(place)
            if place.launch == 20:
                os.kill(os.getpid(), signal.SIGTERM)
            return None

    listener = Signalled(range(20, 40))
    with pytest.raises(
        JobError, match=r"interrupted by SIGTERM, but no checkpoint could be written: cannot write"
    ) as caught:
        run_job(
            load_job(big_job(tmp_path, 40)),
            checkpoint=path,
            options=JobOptions(every=0.02, report=report),
            listener=listener,
        )
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert "the checkpoint written before is still there" in str(caught.value)
    assert json.loads(report.read_text())["status"] == "failed"
    assert resume_job(path, options={"every": None}).succeeded
    assert np.load(tmp_path / "out.npy").tolist() == [40 * 500 * 64]


root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (Path.rmdir, "No such file or directory"),
        pytest.param(lambda folder: folder.chmod(0o500), "Permission denied", marks=root),
    ],
    ids=["gone", "read-only"],
)
def test_a_folder_that_takes_no_file_is_status_1_when_it_matters(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    job = make_small_job(tmp_path, SLOW, workgroups=8)
    (tmp_path / "folder").mkdir()
    child = start_rjemu("run", job, "--checkpoint", tmp_path / "folder" / "saved", "--every", "0.3s", "--workers", "1/1")
    while not leftovers(child.pid):
        assert child.poll() is None
        time.sleep(0.01)
    spoil(tmp_path / "folder")
    time.sleep(1.0)
    child.terminate()
    output, errors = child.communicate(timeout=60)
    *warnings, last = errors.splitlines()
    assert (child.returncode, output) == (1, "")
    assert warnings
    assert all("warning: no checkpoint was written: cannot write" in line for line in warnings)
    assert last.startswith("rjemu: interrupted by SIGTERM, but no checkpoint could be written: cannot write")
    assert reason in last
    assert leftovers(child.pid) == []


def test_results_that_cannot_be_written_are_in_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_small_job(tmp_path, BRIEF)
    job.write_text(job.read_text().replace('"out.npy"', '"results/out.npy"') + 'expect = "expected.npy"\nexact = true\n')
    np.save(tmp_path / "expected.npy", np.array([2 * 64], np.uint32))
    (tmp_path / "results").mkdir()

    class Removing(JobListener):
        def launch_begins(self, place: LaunchPlace) -> Progress | None:
            shutil.rmtree(tmp_path / "results", ignore_errors=True)
            return None

    path = tmp_path / "saved"
    with pytest.raises(JobError, match=rf"cannot write .*out\.npy: .*; rjemu resume {path} finishes the outputs"):
        run_job(load_job(job), checkpoint=path, listener=Removing())
    assert main(["resume", str(path)]) == 2
    assert "there is no directory" in capsys.readouterr().err
    (tmp_path / "results").mkdir()
    assert main(["resume", str(path)]) == 0
    assert np.load(tmp_path / "results" / "out.npy").tolist() == [2 * 64]
    with pytest.raises(JobError, match=r"cannot write .*out\.npy: No such file or directory$"):
        run_job(load_job(job), listener=Removing())


def test_expectations_are_looked_at_before_anything_is_launched(tmp_path: Path) -> None:
    job = make_small_job(tmp_path, SLOW, workgroups=1000)
    job.write_text(job.read_text() + 'expect = "expected.npy"\nexact = true\n')
    started = time.monotonic()
    for expected, message in (
        (np.zeros(2, np.uint32), r"output 'out': the result has shape \(1,\), what is expected \(2,\)"),
        (np.zeros(1, np.int32), "never exactly equal"),
    ):
        np.save(tmp_path / "expected.npy", expected)
        assert main(["run", str(job)]) == 2
        with pytest.raises(Exception, match=message):
            run_job(load_job(job))
    assert time.monotonic() - started < 20


def test_signals_are_heeded_only_where_checkpoints_are_asked_for(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    run_job(load_job(make_small_job(tmp_path, BRIEF)))
    with pytest.raises(JobInterrupted):
        run_job(load_job(tmp_path / "job.toml"), checkpoint=tmp_path / "saved", options=JobOptions(time_limit=1e-9))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == handlers
