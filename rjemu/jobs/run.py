"""Running a job: buffers to the device, dispatches in order, outputs saved and compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rjemu.errors import LaunchError, UsageError
from rjemu.jobs.compare import Comparison, compare
from rjemu.jobs.spec import Argument, BufferArgument, Dispatch, Job, Output, load_array
from rjemu.vm.array import DeviceArray
from rjemu.vm.executor import Workers
from rjemu.vm.machine import Machine
from rjemu.vm.module import Module, Progress

Arrays = dict[str, DeviceArray]


@dataclass(frozen=True, slots=True)
class DispatchReport:
    """A finished dispatch: wall seconds, wave instructions executed, and `rjemu.exec.dispatch.launch_stats`."""

    kernel: str
    seconds: float
    wave_instructions: int
    stats: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OutputReport:
    """An output: the file written and the comparison made, each None where the job asks for none."""

    buffer: str
    file: Path | None
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job did."""

    dispatches: tuple[DispatchReport, ...]
    outputs: tuple[OutputReport, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every comparison came out as expected."""
        return all(output.comparison is None or output.comparison.matches for output in self.outputs)


def run_job(
    job: Job,
    *,
    executor: str = "native",
    workers: Workers = None,
    trace: Path | None = None,
    start_dispatch: Callable[[str], Progress | None] = lambda kernel: None,
) -> JobReport:
    """Runs a job to its end. executor, workers: as for a Machine. trace: where to write a trace of the dispatches.
    start_dispatch: called with each kernel's name, gives what to report progress to.

    UsageError, ConfigError and CodeObjectError for what is wrong with the job; KernelFault for what its kernels do.
    """
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(job.config, executor=executor, workers=workers, **job.overrides))
        module = machine.load(job.code)
        arrays = {buffer.name: machine.to_device(buffer.contents()) for buffer in job.buffers}
        machine.start()  # so that no dispatch's time includes it
        if trace is not None:
            stack.enter_context(machine.trace(trace))
        dispatches = tuple(
            _run_dispatch(module, dispatch, arrays, start_dispatch(dispatch.kernel)) for dispatch in job.dispatches
        )
        return JobReport(dispatches, tuple(_finish_output(output, arrays) for output in job.outputs))


def _run_dispatch(module: Module, dispatch: Dispatch, arrays: Arrays, progress: Progress | None) -> DispatchReport:
    result = module[dispatch.kernel].launch(
        dispatch.grid,
        dispatch.block,
        None if dispatch.args is None else [_value(argument, arrays) for argument in dispatch.args],
        global_size=dispatch.global_size,
        kernarg=None if dispatch.kernarg is None else _kernarg(dispatch, arrays),
        lds_bytes=dispatch.lds_bytes,
        timeout=dispatch.timeout,
        progress=progress,
    )
    return DispatchReport(dispatch.kernel, result.seconds, result.wave_instructions, result.stats)


def _value(argument: Argument, arrays: Arrays) -> Any:
    if isinstance(argument, BufferArgument):
        array = arrays[argument.name]
        return array.address + argument.offset if argument.offset else array
    return argument


def _kernarg(dispatch: Dispatch, arrays: Arrays) -> bytes:
    """The segment of a kernel without metadata: the values one after another, each at a multiple of its size."""
    segment = b""
    for index, argument in enumerate(dispatch.kernarg or ()):
        if isinstance(argument, BufferArgument):
            argument = np.uint64(arrays[argument.name].address + argument.offset)
        if isinstance(argument, bytes):
            segment += argument
        elif isinstance(argument, np.generic):
            segment = segment.ljust(-(-len(segment) // argument.itemsize) * argument.itemsize, b"\0") + argument.tobytes()
        else:
            raise LaunchError(f"kernel {dispatch.kernel}, kernarg[{index}]: {argument} needs a type, as in {{ i32 = 1 }}")
    return segment


def _finish_output(output: Output, arrays: Arrays) -> OutputReport:
    result = arrays[output.buffer].to_host()
    if output.file is not None:
        try:
            with output.file.open("wb") as stream:
                np.save(stream, result)
        except OSError as error:
            raise UsageError(f"cannot write {output.file}: {error.strerror}") from error
    comparison = None
    if output.expect is not None:
        expected = _expected(output.expect, result.dtype)
        comparison = compare(result, expected, rtol=output.rtol, atol=output.atol, exact=output.exact)
    return OutputReport(output.buffer, output.file, comparison)


def _expected(path: Path, dtype: np.dtype) -> np.ndarray:
    """Expected values may be of a wider type than the result; a nameless type is the result's."""
    array = load_array(path, None)
    return load_array(path, dtype) if array.dtype.kind == "V" else array
