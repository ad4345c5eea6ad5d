"""What becomes of a job's buffers in the end: saved, and compared with what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rjemu.errors import UsageError
from rjemu.jobs.arguments import Arrays
from rjemu.jobs.compare import Comparison, check_comparable, compare
from rjemu.jobs.files import ArrayFile, check_writable, write_array
from rjemu.jobs.spec import Output
from rjemu.vm.array import DeviceArray


@dataclass(frozen=True, slots=True)
class OutputReport:
    """An output: the file written and the comparison made, each None where the job asks for none."""

    buffer: str
    file: Path | None
    comparison: Comparison | None

    @property
    def good(self) -> bool:
        """Whether it is as expected, or nothing was."""
        return self.comparison is None or self.comparison.matches


def check_places(outputs: tuple[Output, ...]) -> None:
    """UsageError for an output that could not be written, or whose expected values are not there."""
    for output in outputs:
        if output.file is not None:
            check_writable(output.file)
        if output.expect is not None:
            output.expect.check_readable()


def check_expectations(outputs: tuple[Output, ...], arrays: Arrays) -> None:
    """UsageError for an output whose expected values are of another shape, or not to be compared with."""
    for output in outputs:
        if output.expect is not None:
            array = arrays[output.buffer]
            try:
                check_comparable(array.shape, array.dtype, _expected(output.expect, array.dtype), exact=output.exact)
            except UsageError as error:
                raise UsageError(f"output {output.buffer!r}: {error}") from None


def finish_output(output: Output, array: DeviceArray, between: Callable[[], None]) -> OutputReport:
    """Save and compare. between: called now and then. JobError if the file cannot be written."""
    result = array.to_host()
    if output.file is not None:
        write_array(output.file, result, between)
        between()
    comparison = None
    if output.expect is not None:
        expected = _expected(output.expect, result.dtype)
        comparison = compare(result, expected, rtol=output.rtol, atol=output.atol, exact=output.exact, between=between)
    return OutputReport(output.buffer, output.file, comparison)


def _expected(file: ArrayFile, dtype: np.dtype) -> np.ndarray:
    """Expected values may be of a wider type than the result; a nameless type is the result's."""
    array = file.load()
    return ArrayFile(file.path, dtype, file.key).load() if array.dtype.kind == "V" else array
