"""Compiles gemm.ll, runs it on an emulated MI355X, checks the result against numpy and compares the speed."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

import rjemu
from rjemu.errors import RjemuError
from rjemu.integrations.llvm_ir import compile_ir

TARGET, PRESET = "gfx950", "gfx950_mi355x"
TILE = 128
"""A workgroup's rows and columns of C; the kernel's own steps along K divide it."""
BLOCK = 256

JOB = """\
config = "{preset}"
code = "gemm.o"

[[buffers]]
name = "a"
file = "a.npy"

[[buffers]]
name = "b"
file = "b.npy"

[[buffers]]
name = "c"
dtype = "float32"
shape = [{size}, {size}]
fill = "nan"

[[dispatches]]
kernel = "gemm"
grid = [{tiles}, {tiles}]
block = {block}
args = ["a", "b", "c", {{ i32 = {size} }}, {{ i32 = {size} }}]

[[outputs]]
buffer = "c"
file = "c.npy"
expect = "expected.npy"
rtol = 1e-4
atol = 1e-3
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """C = A B^T. a: float16 [size, size]; b: float16 [size, size]; expected: float64 [size, size]."""

    a: np.ndarray
    b: np.ndarray
    expected: np.ndarray

    @classmethod
    def random(cls, size: int) -> Problem:
        rng = np.random.default_rng(0)
        a, b = (rng.normal(size=(size, size)).astype(np.float16) for _ in range(2))
        return cls(a, b, a.astype(np.float64) @ b.astype(np.float64).T)

    @property
    def size(self) -> int:
        return len(self.a)

    def error(self, c: np.ndarray) -> tuple[float, float]:
        """The largest error of `c` in units of (|A| |B|^T), and the bound that sums in float32, in any order, keep."""
        scale = np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64).T
        return float(np.max(np.abs(c - self.expected) / scale)), self.size * 2.0**-24


def code_object() -> bytes:
    """gemm.ll, compiled for gfx950."""
    source = resources.files("rjemu.examples.gemm") / "gemm.ll"
    return compile_ir(source.read_text(), TARGET)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; the exit status is 1 if the result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m rjemu.examples.gemm", description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="rows, columns and depth (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs (default: %(default)s)")
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write the code, inputs and a job file of `rjemu run` instead"
    )
    parsed = parser.parse_args(arguments)
    if parsed.size <= 0 or parsed.size % TILE:
        parser.error(f"--size must be a multiple of {TILE}")
    if parsed.repeat < 1:
        parser.error("--repeat must be at least 1")
    problem = Problem.random(parsed.size)
    if parsed.export is not None:
        export(problem, parsed.export)
        print(f"wrote {parsed.export / 'job.toml'}: rjemu run {parsed.export / 'job.toml'}")
        return 0
    try:
        return 0 if run(problem, parsed.repeat) else 1
    except RjemuError as error:
        parser.exit(1, f"{error}\n")


def run(problem: Problem, repeat: int) -> bool:
    """Runs the kernel and prints what came out; False if the result is wrong."""
    started = time.perf_counter()
    code = code_object()
    print(f"compiled gemm.ll for {TARGET}: {len(code)} bytes in {time.perf_counter() - started:.2f} s")
    size = problem.size
    with rjemu.Machine(PRESET, workers="inline") as gpu:
        kernel = gpu.load(code)["gemm"]
        a, b, c = gpu.to_device(problem.a), gpu.to_device(problem.b), gpu.empty((size, size), np.float32)
        grid, args = (size // TILE, size // TILE), [a, b, c, np.int32(size), np.int32(size)]
        first = kernel.launch(grid, BLOCK, args)
        error, bound = problem.error(c.to_host())
        wide_a, wide_b = problem.a.astype(np.float32), np.ascontiguousarray(problem.b.T).astype(np.float32)
        emulated, numpy_seconds = [], []
        for _ in range(repeat):
            emulated.append(kernel.launch(grid, BLOCK, args).seconds)
            started = time.perf_counter()
            np.matmul(wide_a, wide_b)
            numpy_seconds.append(time.perf_counter() - started)
    correct = error <= bound
    print(
        f"C = A B^T, {size} x {size} x {size}, {'correct' if correct else 'WRONG'}: largest error {error:.1e} of |A| |B|^T, "
        f"where float32 sums keep {bound:.1e}"
    )
    seconds, reference = statistics.median(emulated), statistics.median(numpy_seconds)
    gflop = 2e-9 * size**3
    print(f"first run {first.seconds:.3f} s, then {seconds:.4f} s: {gflop / seconds:.1f} GFLOP/s emulated, one thread")
    print(f"{first.wave_instructions} wave instructions, {first.wave_instructions / seconds / 1e6:.1f} million/s")
    print(
        f"numpy float32 matmul, one thread: {reference:.4f} s, {gflop / reference:.1f} GFLOP/s; "
        f"numpy time / rjemu time = {reference / seconds:.2f}"
    )
    return correct


def export(problem: Problem, directory: Path) -> None:
    """Writes gemm.o, a.npy, b.npy, expected.npy and job.toml."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gemm.o").write_bytes(code_object())
    for name, array in (("a", problem.a), ("b", problem.b), ("expected", problem.expected)):
        np.save(directory / f"{name}.npy", array)
    size = problem.size
    job = JOB.format(preset=PRESET, size=size, tiles=size // TILE, block=BLOCK)
    (directory / "job.toml").write_text(job)
