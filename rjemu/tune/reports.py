"""Samples that `rjemu run --report` has written, and the records of experiments, below a folder."""

from __future__ import annotations

from pathlib import Path

from rjemu.config.threads import ThreadAllocation
from rjemu.errors import UsageError
from rjemu.tune import record
from rjemu.tune.candidates import Candidate
from rjemu.tune.record import Experiment
from rjemu.tune.results import Sample

REPORT_NAME = "report.json"


def read_below(folder: Path) -> tuple[list[Experiment], int]:
    """The experiments of all records and reports in folders below one, where its own record may be the last merge; and how
    many reports are of jobs that are not finished. UsageError as `record.read` and `read_report`."""
    experiments = [record.read(path) for path in sorted(folder.glob(f"*/**/{record.NAME}"))]
    reports = [read_report(path) for path in sorted(folder.glob(f"*/**/{REPORT_NAME}"))]
    return experiments + [found for found in reports if found is not None], reports.count(None)


def read_report(path: Path) -> Experiment | None:
    """The sample of a job's report; None if the job has been interrupted and not gone on with yet. UsageError for a job that
    failed, for one that ran in a single process, and for a file that is no report."""
    report = record.read_json(path)
    try:
        if report["status"] == "interrupted":
            return None
        if report["status"] != "done":
            raise UsageError(f"{path}: the job did not succeed ({report['status']}: {report['error'] or 'a wrong output'})")
        ran = report["allocation"]
        allocation = ThreadAllocation(*(int(ran[name]) for name in ("engines", "dispatch", "helpers")))
        if allocation.num_threads < 1:
            raise UsageError(f"{path}: the job ran in the launching process alone, in no allocation")
        sample = Sample(
            Candidate(int(ran["budget"]), allocation),
            seconds=float(sum(dispatch["seconds"] for dispatch in report["dispatches"])),
            compile_seconds=float(sum(dispatch["stats"]["compile_seconds"] for dispatch in report["dispatches"])),
            host=str(report["host"]["name"]),
            interrupted=bool(report["interruptions"]),
        )
        job = str(Path(report["job"]).resolve())
        return Experiment(job, int(report["configuration"]["resolved"]["gpus"]), (sample,))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no report of a job ({type(error).__name__}: {error})") from error
