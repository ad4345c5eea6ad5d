"""Batch jobs: a TOML file that names a code object, its buffers, dispatches and outputs."""

from rjemu.jobs.run import DispatchReport, JobReport, OutputReport, run_job
from rjemu.jobs.spec import Job, load_job

__all__ = ["DispatchReport", "Job", "JobReport", "OutputReport", "load_job", "run_job"]
