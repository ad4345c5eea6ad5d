"""Running a job's candidates: each run on a machine of its own, confined to the CPUs of its budget."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

from rjemu.config.threads import ThreadAllocation
from rjemu.errors import RjemuError, UsageError
from rjemu.jobs import Job, JobReport, run_job
from rjemu.tune.candidates import Candidate, allocation_name
from rjemu.tune.results import Sample
from rjemu.workers.affinity import available_cpus, placement
from rjemu.workers.budget import detect_budget, whole_cpus


class WrongOutput(RjemuError):
    """An output is not what the job expects."""


def host_cpus() -> int:
    """CPUs that a machine can be confined to here: those of the affinity mask and the CPU sets, as far as a CPU quota lets
    them run at once."""
    found = detect_budget()
    allowed = found.affinity if found.cpuset is None else found.cpuset
    return min(allowed, whole_cpus(found.quota) or allowed)


def check_budgets(budgets: Sequence[int], cpus: int) -> None:
    """UsageError for a budget of more CPUs than there are."""
    if max(budgets) > cpus:
        raise UsageError(
            f"a budget of {max(budgets)} CPUs cannot be measured on the {cpus} that this process may use (affinity, CPU "
            "sets and quota); --oversubscribe lets processes share CPUs"
        )


def measure(
    job: Job, candidates: Sequence[Candidate], repeat: int, started: Callable[[int, Candidate], None]
) -> Iterator[list[Sample]]:
    """Each round's samples, one of every candidate in turn, so that what disturbs the host disturbs all alike. The round
    before the first is not among them: it compiles handlers and fills caches.

    started: called before every run with the number of its round, 0 for that one. The job's files are not written.
    WrongOutput, and all that `run_job` raises.
    """
    cpus = placement(available_cpus())
    for number in range(1 + repeat):
        samples = []
        for candidate in candidates:
            started(number, candidate)
            samples.append(run_once(job, candidate, cpus))
        if number:
            yield samples


def run_once(job: Job, candidate: Candidate, cpus: Sequence[int]) -> Sample:
    """Runs a candidate on the first CPUs of the pinning order, as many as its budget has (or there are)."""
    with TemporaryDirectory(prefix="rjemu-tune-") as scratch, _confined(cpus[: candidate.budget]):
        report = run_job(confined_job(job, candidate, scratch))
    _check_outputs(report, candidate)
    for dispatch in report.dispatches:
        ran = ThreadAllocation(*(dispatch.stats["allocation"][name] for name in ("engines", "dispatch", "helpers")))
        if ran != candidate.allocation:
            raise UsageError(
                f"the job runs on {allocation_name(ran)} in place of {allocation_name(candidate.allocation)}: its executor "
                "or plugins do not leave the choice"
            )
    return Sample(
        candidate,
        seconds=sum(dispatch.seconds for dispatch in report.dispatches),
        compile_seconds=sum(dispatch.stats["compile_seconds"] for dispatch in report.dispatches),
        host=platform.node(),
    )


def confined_job(job: Job, candidate: Candidate, scratch: str) -> Job:
    """The job with a candidate's budget and allocation, that writes none of its files; plugins write to `scratch`."""
    changes = {
        "cpu_thread_budget": candidate.budget,
        "num_threads": candidate.allocation.num_threads,
        "cpu_dispatch_threads": candidate.allocation.cpu_dispatch_threads,
        "async_helper_threads": candidate.allocation.async_helper_threads,
        "sinks": {"types": ["file"], "dir": scratch},
    }
    outputs = tuple(replace(output, file=None) for output in job.outputs)
    return replace(job, overrides={**job.overrides, **changes}, workers=None, outputs=outputs)


@contextmanager
def _confined(cpus: Sequence[int]) -> Iterator[None]:
    """Confines the calling thread, and all processes and threads that it starts inside, to some of its CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _check_outputs(report: JobReport, candidate: Candidate) -> None:
    for output in report.outputs:
        found = output.comparison
        if found is not None and not found.matches:
            raise WrongOutput(
                f"output {output.buffer} is wrong on {allocation_name(candidate.allocation)} with {candidate.budget} CPUs: "
                f"{found.mismatches} of {found.elements} elements differ, first at {list(found.first_mismatch or ())}"
            )
