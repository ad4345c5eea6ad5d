"""Running a job from wherever it stands: buffers to the device, dispatches in order, outputs saved and compared."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.checkpoint.info import read_request
from rjemu.checkpoint.restore import restore
from rjemu.errors import CheckpointError, JobError, JobInterrupted, LaunchSuspended, RjemuError
from rjemu.exec.dispatch import DispatchResult
from rjemu.jobs.arguments import kernarg_segment, launch_values
from rjemu.jobs.checkpoints import Checkpoints, check_checkpoint_place, remove_leftovers
from rjemu.jobs.files import check_writable
from rjemu.jobs.host import describe_allocation, describe_configuration, describe_host
from rjemu.jobs.interruption import Interruption
from rjemu.jobs.listener import JobListener, LaunchPlace
from rjemu.jobs.outputs import check_expectations, check_places, finish_output
from rjemu.jobs.report import JobReport, Part, PluginLines, SaveTally
from rjemu.jobs.spec import Job
from rjemu.jobs.state import LOST, JobOptions, JobState, read_state
from rjemu.vm.array import DeviceArray
from rjemu.vm.machine import Machine
from rjemu.vm.module import Module
from rjemu.vm.restored import RestoredMachine

MOST_LINES = 1000
"""Lines of a plugin that a report holds."""

_PIECE = 32 << 20
"""Bytes that are copied to the device at a time."""


def run_job(
    job: Job,
    *,
    checkpoint: Path | None = None,
    options: JobOptions | None = None,
    trace: Path | None = None,
    listener: JobListener | None = None,
) -> JobReport:
    """Runs a job to its end. checkpoint: where to write checkpoints; signals that ask the process to end are heeded then.
    trace: where to write a trace of the dispatches. listener: is told of progress.

    UsageError, ConfigError and CodeObjectError for what is wrong with the job; KernelFault and LaunchTimeout for what its
    kernels do; JobInterrupted when a signal or the time limit has ended it, JobError if its results, or its last checkpoint,
    cannot be written.
    """
    check_places(job.outputs)

    def open_machine() -> Machine:
        return Machine(job.config, executor=job.executor, workers=job.workers, **job.overrides)

    return _carry_out(JobState(job, options or JobOptions()), open_machine, checkpoint, trace, listener or JobListener())


def resume_job(
    path: Path,
    *,
    checkpoint: Path | None = None,
    options: Mapping[str, Any] | None = None,
    trace: Path | None = None,
    listener: JobListener | None = None,
    **overrides: Any,
) -> JobReport:
    """Goes on with the job of a checkpoint, to its end. checkpoint: where to write further ones, by default the same file;
    options: fields of `JobOptions` in place of those that the job was run with. overrides: as of `rjemu.restore`.

    CheckpointError for a file that is no job's checkpoint, or is damaged; else as `run_job`.
    """
    configuration, data = read_request(path)
    state = read_state(data, path)
    state.options = replace(state.options, **(options or {}))
    state.saves = replace(state.saves, last_bytes=path.stat().st_size)
    check_places(state.job.outputs[len(state.outputs) :])

    def open_machine() -> Machine:
        machine = restore(path, **{**_appending(configuration), **overrides})
        try:
            _check_restored(machine, state, path)
        except BaseException:
            machine.close()
            raise
        return machine

    return _carry_out(state, open_machine, checkpoint or path, trace, listener or JobListener())


def _appending(configuration: Any) -> dict[str, Any]:
    """The override that has plugins go on with their files rather than begin them anew, where they have some."""
    sinks = configuration.get("sinks") if isinstance(configuration, Mapping) else None
    return {"sinks": {**sinks, "append": True}} if isinstance(sinks, Mapping) and sinks else {}


def _check_restored(machine: RestoredMachine, state: JobState, path: Path) -> None:
    """CheckpointError unless the machine has what the job refers to."""

    def fail(problem: str) -> None:
        raise CheckpointError(f"{path}: the job in it is damaged: {problem}")

    arrays, modules = set(machine.arrays), {module.address for module in machine.modules}
    for name, address in state.arrays.items():
        if address not in arrays:
            fail(f"buffer {name!r} is not in the machine")
    for code, address in zip(state.job.codes, state.modules, strict=False):
        if address not in modules:
            fail(f"code object {str(code)!r} is not in the machine")
    pending = machine.pending
    if len(pending) != (0 if state.under_way is None else 1):
        fail(f"{len(pending)} launches are under way, which is not what the job says: one of them may have failed")
    if pending:
        dispatch = state.job.dispatches[state.job.dispatch_of(state.launched)]
        target = pending[0].launch.target
        module = state.modules[state.job.codes.index(dispatch.code)]
        if (target.name, target.module.address) != (dispatch.kernel, module):
            fail(f"kernel {target.name} is under way where {dispatch.kernel} is expected")


def _carry_out(
    state: JobState,
    open_machine: Callable[[], Machine],
    checkpoint: Path | None,
    trace: Path | None,
    listener: JobListener,
) -> JobReport:
    options = state.options
    if options.report is not None:
        check_writable(options.report)
    if checkpoint is not None:
        check_checkpoint_place(checkpoint)
        remove_leftovers(checkpoint)
    interruption = Interruption(options.time_limit)
    with ExitStack() as stack:
        if checkpoint is not None:
            stack.enter_context(interruption.heeded())
        run = _JobRun(state, open_machine(), checkpoint, interruption, listener)
        try:
            run.to_end(trace)
        except (RjemuError, KeyboardInterrupt) as error:
            _report_failure(run, error, listener)
            raise
        report = run.report("done" if all(output.good for output in state.outputs) else "mismatch", None)
        if options.report is not None:
            report.write(options.report)
        if checkpoint is not None and not options.keep_checkpoint:
            checkpoint.unlink(missing_ok=True)
    return report


def _report_failure(run: _JobRun, error: BaseException, listener: JobListener) -> None:
    """Write the report of a job that has not come to its end."""
    path = run.state.options.report
    if path is None:
        return
    status = "interrupted" if isinstance(error, JobInterrupted | KeyboardInterrupt) else "failed"
    try:
        run.report(status, str(error) or "interrupted").write(path)
    except JobError as problem:  # the error that is about to be raised matters more
        listener.warn(str(problem))


class _JobRun:
    """What one process does of a job. It closes the machine."""

    def __init__(
        self,
        state: JobState,
        machine: Machine,
        checkpoint: Path | None,
        interruption: Interruption,
        listener: JobListener,
    ) -> None:
        self.state = state
        self._machine = machine
        self._listener = listener
        self._started, self._clock = time.time(), time.perf_counter()
        self._launch_clock: float | None = None
        self._ended_by: str | None = None
        self._interruption = interruption
        self._arrays: dict[str, DeviceArray] = {}
        self._modules: dict[Path, Module] = {}
        self._allocation = describe_allocation(machine.config, machine.request.workers)
        self._checkpoints: Checkpoints | None = None
        if checkpoint is not None:
            self._checkpoints = Checkpoints(checkpoint, state.options.every, interruption, self._write, listener)
            self._checkpoints.tally = state.saves

    # --- the job's steps ---------------------------------------------------------------------------------------------

    def to_end(self, trace: Path | None) -> None:
        """Load, launch and finish what is left of these."""
        with self._machine as machine, ExitStack() as stack:
            self._load()
            machine.start()  # so that no launch's time includes it
            if trace is not None:
                stack.enter_context(machine.trace(trace))
            while self.state.launched < self.state.job.launches:
                self._look()
                self._launch()
            self._finish()

    def _load(self) -> None:
        """Code objects and buffers that are not there yet."""
        state, machine = self.state, self._machine
        there = {module.address: module for module in machine.modules}
        self._modules = {code: there[address] for code, address in zip(state.job.codes, state.modules, strict=False)}
        for code in state.job.codes[len(self._modules) :]:
            self._look()
            module = machine.load(code)
            self._modules[code] = module
            state.modules.append(module.address)
        arrays = machine.arrays
        self._arrays = {name: arrays[address] for name, address in state.arrays.items()}
        for buffer in state.job.buffers[len(self._arrays) :]:
            self._look()
            array = self._on_device(buffer.contents())
            self._arrays[buffer.name] = array
            state.arrays[buffer.name] = array.address
        if state.launched == 0 and state.under_way is None:
            check_expectations(state.job.outputs, self._arrays)

    def _on_device(self, host: np.ndarray) -> DeviceArray:
        """A copy of an array. If the job is interrupted meanwhile, the array will be loaded anew: it may be large."""
        array = self._machine.empty(host.shape, host.dtype)
        content = np.ascontiguousarray(host, array.dtype).reshape(-1).view(np.uint8)
        for start in range(0, len(content), _PIECE):
            if self._checkpoints is not None and self._interruption.reason is not None:
                array.free()
                self._look()
            self._machine.vram.write(array.address + start, content[start : start + _PIECE])
        return array

    def _launch(self) -> None:
        """The next launch, or what is left of one that was interrupted."""
        state, job = self.state, self.state.job
        index = job.dispatch_of(state.launched)
        tally = state.tallies[index]
        dispatch = job.dispatches[index]
        place = LaunchPlace(dispatch.kernel, index + 1, len(job.dispatches), state.launched + 1, job.launches)
        progress = self._watched(self._listener.launch_begins(place))
        saving = self._seconds_of_saves
        self._launch_clock = time.perf_counter() - saving
        if state.under_way is not None:
            tally.interruptions += 1
        try:
            result = self._result(index, progress)
        except LaunchSuspended:
            self._look()  # raises JobInterrupted
            raise
        finally:
            self._launch_clock = None
        seconds = (state.under_way or 0.0) + max(result.seconds - (self._seconds_of_saves - saving), 0.0)
        tally.add(seconds, result.wave_instructions, result.stats)
        state.under_way = None
        state.launched += 1

    def _result(self, index: int, progress: Callable[[int, int], None]) -> DispatchResult:
        dispatch, machine = self.state.job.dispatches[index], self._machine
        if isinstance(machine, RestoredMachine) and machine.pending:
            (result,) = machine.resume(timeout=dispatch.timeout, progress=progress)
            return result
        return self._modules[dispatch.code][dispatch.kernel].launch(
            dispatch.grid,
            dispatch.block,
            None if dispatch.args is None else launch_values(dispatch.args, self._arrays),
            global_size=dispatch.global_size,
            kernarg=None if dispatch.kernarg is None else kernarg_segment(dispatch.kernel, dispatch.kernarg, self._arrays),
            lds_bytes=dispatch.lds_bytes,
            timeout=dispatch.timeout,
            progress=progress,
        )

    def _watched(self, progress: Callable[[int, int], None] | None) -> Callable[[int, int], None]:
        def call(done: int, total: int) -> None:
            if self._checkpoints is not None:
                self._checkpoints.look_in_launch()
            if progress is not None:
                progress(done, total)

        return call

    def _finish(self) -> None:
        """Outputs that are not finished yet."""
        state = self.state
        for output in state.job.outputs[len(state.outputs) :]:
            self._look()
            try:
                state.outputs.append(finish_output(output, self._arrays[output.buffer], self._look))
            except JobError as error:
                raise self._kept_results(error) from error

    def _kept_results(self, error: JobError) -> JobError:
        """The error of an output that could not be written, after what hours may have computed is in the checkpoint."""
        if self._checkpoints is None:
            return error
        self._ended_by = "a result that could not be written"
        with contextlib.suppress(CheckpointError):
            self._checkpoints.save(stop=False)
            return JobError(f"{error}; rjemu resume {self._checkpoints.path} finishes the outputs")
        return error

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """A moment, outside of launches, at which a checkpoint can be written."""
        if self._checkpoints is not None:
            self._checkpoints.look()

    @property
    def _seconds_of_saves(self) -> float:
        return 0.0 if self._checkpoints is None else self._checkpoints.seconds

    def _write(self, stop: bool, tally: SaveTally) -> None:
        assert self._checkpoints is not None
        under_way = self.state.under_way
        if self._launch_clock is not None:
            under_way = (under_way or 0.0) + time.perf_counter() - self._seconds_of_saves - self._launch_clock
        data = replace(self.state, saves=tally).as_data(
            self._part(self._interruption.reason or self._ended_by or LOST), under_way, self._plugin_lines()
        )
        self._machine.save(self._checkpoints.path, stop=stop, data=data)

    # --- the report --------------------------------------------------------------------------------------------------

    def _part(self, ended_by: str | None) -> Part:
        return Part(socket.gethostname(), self._started, time.perf_counter() - self._clock, ended_by)

    def _plugin_lines(self) -> dict[str, PluginLines]:
        """Of this process and those before."""
        found = dict(self.state.plugins)
        for name, (count, lines) in self._machine.plugin_lines.items():
            before = found.get(name, PluginLines(0, ()))
            found[name] = PluginLines(before.count + count, (*before.lines, *lines)[:MOST_LINES])
        return found

    def report(self, status: str, error: str | None) -> JobReport:
        """What the job has done so far."""
        state, machine = self.state, self._machine
        stopped = self._ended_by if self._checkpoints is None else self._checkpoints.stopped or self._ended_by
        return JobReport(
            job=state.job.file,
            status=status,
            error=error,
            dispatches=state.dispatch_reports(),
            outputs=tuple(state.outputs),
            configuration=describe_configuration(machine.config, machine.request.executor, machine.request.workers),
            host=describe_host(),
            allocation=self._allocation,
            parts=(*state.parts, self._part(stopped)),
            checkpoints=state.saves if self._checkpoints is None else self._checkpoints.tally,
            plugins=self._plugin_lines(),
        )
