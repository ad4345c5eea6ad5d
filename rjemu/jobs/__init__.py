"""Batch jobs: a TOML file that names code objects, buffers, dispatches and outputs; checkpoints and reports of them."""

from rjemu.jobs.listener import JobListener, LaunchPlace
from rjemu.jobs.outputs import OutputReport
from rjemu.jobs.report import DispatchReport, JobReport
from rjemu.jobs.runner import resume_job, run_job
from rjemu.jobs.spec import Job, load_job
from rjemu.jobs.state import JobOptions

__all__ = [
    "DispatchReport",
    "Job",
    "JobListener",
    "JobOptions",
    "JobReport",
    "LaunchPlace",
    "OutputReport",
    "load_job",
    "resume_job",
    "run_job",
]
