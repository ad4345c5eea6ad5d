"""The file of a budget experiment, `tune.json`: all samples, and what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rjemu.config.threads import ThreadAllocation
from rjemu.errors import UsageError
from rjemu.jobs.files import write_text
from rjemu.tune.candidates import Candidate
from rjemu.tune.results import Row, Sample, allocation_table, as_configuration, summarise

NAME = "tune.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Experiment:
    """A job's samples. job: its file; gpus: of its machine."""

    job: str
    gpus: int
    samples: tuple[Sample, ...]

    @property
    def rows(self) -> list[Row]:
        return summarise(self.samples, self.gpus)

    @property
    def table(self) -> list[ThreadAllocation]:
        """The best entries, as a configuration's table."""
        return allocation_table(self.rows, self.gpus)


def write(experiment: Experiment, folder: Path) -> Path:
    """Writes tune.json, in place of one that is there, and gives its path. JobError if that cannot be done."""
    document = {
        "version": VERSION,
        "job": experiment.job,
        "gpus": experiment.gpus,
        "samples": [
            {
                **_candidate_as_json(sample.candidate),
                "seconds": sample.seconds,
                "compile_seconds": sample.compile_seconds,
                "host": sample.host,
                "interrupted": sample.interrupted,
            }
            for sample in experiment.samples
        ],
        "rows": [
            {
                **_candidate_as_json(row.candidate),
                "processes": row.candidate.allocation.total(experiment.gpus),
                "samples": row.samples,
                "median": row.median,
                "low": row.low,
                "high": row.high,
                "best": row.best,
            }
            for row in experiment.rows
        ],
        **as_configuration(experiment.table),
    }
    path = folder / NAME
    write_text(path, json.dumps(document, indent=2) + "\n")
    return path


def _candidate_as_json(candidate: Candidate) -> dict[str, int]:
    allocation = candidate.allocation
    return {
        "budget": candidate.budget,
        "engines": allocation.num_threads,
        "dispatch": allocation.cpu_dispatch_threads,
        "helpers": allocation.async_helper_threads,
    }


def read(path: Path) -> Experiment:
    """What `write` wrote. UsageError for a file that cannot be read, or is something else."""
    document = read_json(path)
    try:
        if document["version"] != VERSION:
            raise UsageError(f"{path}: version {document['version']} is not known to this rjemu, which reads {VERSION}")
        samples = tuple(_sample(entry) for entry in document["samples"])
        return Experiment(str(document["job"]), int(document["gpus"]), samples)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no record of a budget experiment ({type(error).__name__}: {error})") from error


def _sample(entry: dict[str, Any]) -> Sample:
    allocation = ThreadAllocation(*(int(entry[name]) for name in ("engines", "dispatch", "helpers")))
    candidate = Candidate(int(entry["budget"]), allocation)
    seconds, compile_seconds = float(entry["seconds"]), float(entry["compile_seconds"])
    return Sample(candidate, seconds, compile_seconds, str(entry["host"]), bool(entry["interrupted"]))


def read_json(path: Path) -> Any:
    """What a JSON file holds. UsageError if it cannot be read, or is none."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def merge(experiments: Sequence[Experiment]) -> Experiment:
    """One experiment of the samples of several. UsageError if there are none, or they are of different jobs."""
    if not any(experiment.samples for experiment in experiments):
        raise UsageError("there are no samples to merge")
    first = experiments[0]
    for other in experiments:
        if (other.job, other.gpus) != (first.job, first.gpus):
            raise UsageError(
                f"samples of different jobs cannot be merged: {first.job} on {first.gpus} GPUs, {other.job} on {other.gpus}"
            )
    return Experiment(first.job, first.gpus, tuple(sample for each in experiments for sample in each.samples))
