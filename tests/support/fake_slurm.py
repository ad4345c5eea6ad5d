"""A Slurm of one host, for scripts that submit arrays: `sbatch` runs the tasks of an array one after another.

`install` makes `sbatch`, `srun` and `scontrol` commands of this file. Their state is in a folder: `submitted`, a line of
options for each `sbatch`; `ended`, a line for each run of a task: "BUDGET TASK RUN STATUS". As the real ones do, sbatch
runs a copy of the script, with a CPU set of the size asked for; the array's first task has the array's own number as job
id, so that `scontrol requeue` of a plain number is an error here; srun passes signals on to what it runs.

Preemption: a task's runs, but for the last, are signalled as the words of `FAKE_SLURM_PREEMPTIONS` say. The batch shell gets
SIGUSR1: "start", as soon as srun runs; "checkpoint", as soon as a file of that name below `FAKE_SLURM_WATCH` is new. Or srun
gets the SIGTERM that begins a grace time: "grace", at the same moment.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "scontrol")
SBATCH_OPTIONS = [
    "--job-name",
    "--array",
    "--ntasks",
    "--cpus-per-task",
    "--requeue",
    "--signal",
    "--open-mode",
    "--output",
    "--partition",
]
SRUN_OPTIONS = ["--ntasks", "--cpus-per-task", "--cpu-bind"]
DEADLINE_SECONDS = 60


def install(folder: Path) -> dict[str, str]:
    """Writes the commands, and gives the environment in which scripts find them and their state, which is in `folder`."""
    for name in COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} {name} "$@"\n')
        command.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "FAKE_SLURM": str(folder)}


def _split(arguments: list[str], known: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options before the command, and the command."""
    options = {}
    while arguments and arguments[0].startswith("-"):
        name, _, value = arguments.pop(0).partition("=")
        if name not in known:
            sys.exit(f"fake Slurm: no option {name}")
        options[name] = value
    return options, arguments


def sbatch(arguments: list[str]) -> int:
    state = Path(os.environ["FAKE_SLURM"])
    line = " ".join(arguments)
    options, (script, *rest) = _split(arguments, SBATCH_OPTIONS)
    array = 100 * (1 + len(_lines(state / "submitted")))
    _append(state / "submitted", line)
    assert options["--signal"] == "B:USR1@60"
    assert "--requeue" in options
    print(f"Submitted batch job {array}", flush=True)
    spooled = state / f"script-{array}"
    shutil.copy(script, spooled)
    first, last = map(int, options["--array"].split("-"))
    for task in range(first, last + 1):
        _run_to_its_end(array, task, options, [str(spooled), *rest], state)
    return 0


def _run_to_its_end(array: int, task: int, options: dict[str, str], command: list[str], state: Path) -> None:
    """A task, and again as often as it is requeued."""
    preemptions = os.environ["FAKE_SLURM_PREEMPTIONS"].split()
    budget = int(options["--cpus-per-task"])
    environment = {
        **os.environ,
        "SLURM_JOB_ID": str(array + task),
        "SLURM_ARRAY_JOB_ID": str(array),
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_CPUS_PER_TASK": str(budget),
    }
    log = options["--output"].replace("%A", str(array)).replace("%a", str(task))
    requeued = state / f"requeued-{array}_{task}"
    for run in range(1 + len(preemptions)):
        with open(log, "a") as output:
            known = _checkpoints()
            shell = subprocess.Popen(
                ["bash", *command],
                env=environment,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:budget]),
            )
            if run < len(preemptions):
                _wait_for(preemptions[run], shell, state, known)
                if preemptions[run] == "grace":
                    os.kill(int((state / "srun-runs").read_text()), signal.SIGTERM)
                else:
                    shell.send_signal(signal.SIGUSR1)
            status = shell.wait(DEADLINE_SECONDS)
        (state / "srun-runs").unlink(missing_ok=True)
        _append(state / "ended", f"{budget} {task} {run} {status}")
        if not requeued.exists():
            return
        requeued.unlink()
        environment["SLURM_RESTART_COUNT"] = str(run + 1)


def _wait_for(moment: str, shell: subprocess.Popen[bytes], state: Path, known: dict[Path, int]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and shell.poll() is None:
        if moment == "start" and (state / "srun-runs").exists():
            return
        if moment != "start" and _checkpoints() != known:
            return
        time.sleep(0.01)


def _checkpoints() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(os.environ["FAKE_SLURM_WATCH"]).glob("**/checkpoint")}


def srun(arguments: list[str]) -> int:
    _, command = _split(arguments, SRUN_OPTIONS)
    child = subprocess.Popen(command)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: child.send_signal(number))
    (Path(os.environ["FAKE_SLURM"]) / "srun-runs").write_text(str(os.getpid()))
    status = child.wait()
    return 128 - status if status < 0 else status


def scontrol(arguments: list[str]) -> int:
    verb, job = arguments
    if verb != "requeue" or not re.fullmatch(r"\d+_\d+", job):
        sys.exit(f"fake Slurm: {verb} {job} would not requeue one task")
    (Path(os.environ["FAKE_SLURM"]) / f"requeued-{job}").touch()
    return 0


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        print(line, file=file)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))
