"""The measurements behind the rows. Every function gives its figure and the medians that it comes from, in seconds."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rjemu.bench import async_mma, checkpoints, processes
from rjemu.bench.ir_kernels import ALU_OPERATIONS, EMPTY, alu_loop
from rjemu.bench.matmul import PRESET, SIZE, TARGET, TILES, compile_matmul, matmul_grid
from rjemu.bench.timing import Figure, interleaved_medians
from rjemu.integrations.llvm_ir import compile_ir
from rjemu.integrations.triton import compile_kernel, load
from rjemu.vm.machine import Machine

COPY_BYTES, COPY_BLOCK = 32 << 20, 4096
SOFTMAX_SHAPE = (64, 4096)
ADD_ELEMENTS = 32768
"""Three float32 arrays of this size are 384 KiB: inside the second-level cache, where numpy adds fastest."""
ALU_ROUNDS = 2000
EMPTY_WORKGROUPS = 100_000


def measure(name: str, repeat: int) -> Figure:
    """The figure of the row of that name."""
    return _MEASUREMENTS[name](repeat)


def _against_numpy(repeat: int, emulated: Callable[[], object], numpy_run: Callable[[], object]) -> Figure:
    seconds, reference = interleaved_medians((emulated, numpy_run), repeat)
    return reference / seconds, {"rjemu": seconds, "numpy": reference}


def _numpy_matmul() -> Callable[[], object]:
    a, b = np.random.default_rng(1).normal(size=(2, SIZE, SIZE)).astype(np.float32)
    return lambda: np.matmul(a, b)


def _fp16(repeat: int) -> Figure:
    a, b = np.random.default_rng(2).normal(size=(2, SIZE, SIZE)).astype(np.float16)
    with Machine(PRESET, workers="inline") as gpu:
        kernel = load(gpu, compile_matmul())
        args = [gpu.to_device(a), gpu.to_device(b), gpu.empty((SIZE, SIZE), np.float32), SIZE, SIZE]
        return _against_numpy(repeat, lambda: kernel.launch(matmul_grid(), args), _numpy_matmul())


def _mxfp4(repeat: int) -> Figure:
    from rjemu.bench import triton_kernels

    signature = {**dict.fromkeys(("a", "a_scale", "b", "b_scale"), "*u8"), "c": "*fp32", "N": "i32", "K": "i32"}
    compiled = compile_kernel(triton_kernels.matmul_mxfp4, signature, TILES, TARGET, divisible_by_16=signature)
    rng = np.random.default_rng(3)
    with Machine(PRESET, workers="inline") as gpu:
        elements = [gpu.to_device(rng.integers(0, 256, (SIZE, SIZE // 2), np.uint8)) for _ in range(2)]
        scales = [gpu.to_device(rng.integers(120, 134, (SIZE, SIZE // 32), np.uint8)) for _ in range(2)]
        c = gpu.empty((SIZE, SIZE), np.float32)
        args = [elements[0], scales[0], elements[1], scales[1], c, SIZE, SIZE]
        kernel = load(gpu, compiled)
        return _against_numpy(repeat, lambda: kernel.launch(matmul_grid(), args), _numpy_matmul())


def _alu(repeat: int) -> Figure:
    a, b, c = np.ones((3, ADD_ELEMENTS), np.float32)
    with Machine(PRESET, workers="inline") as gpu:
        kernel, out = gpu.load(compile_ir(alu_loop(), TARGET))["alu"], gpu.empty(64, np.uint32)
        args = [out, np.int32(ALU_ROUNDS)]
        seconds, reference = interleaved_medians((lambda: kernel.launch(1, 64, args), lambda: np.add(a, b, out=c)), repeat)
    emulated_rate, numpy_rate = 64 * ALU_OPERATIONS * ALU_ROUNDS / seconds, ADD_ELEMENTS / reference
    return emulated_rate / numpy_rate, {"rjemu": seconds, "numpy": reference}


def _copy(repeat: int) -> Figure:
    from rjemu.bench import triton_kernels

    signature = {"x": "*fp32", "y": "*fp32"}
    compiled = compile_kernel(triton_kernels.copy, signature, {"BLOCK": COPY_BLOCK}, TARGET, divisible_by_16=signature)
    source = np.random.default_rng(4).normal(size=COPY_BYTES // 4).astype(np.float32)
    destination = np.empty_like(source)
    with Machine(PRESET, workers="inline") as gpu:
        kernel, args = load(gpu, compiled), [gpu.to_device(source), gpu.empty(source.shape, np.float32)]
        grid = source.size // COPY_BLOCK
        return _against_numpy(repeat, lambda: kernel.launch(grid, args), lambda: np.copyto(destination, source))


def _softmax(repeat: int) -> Figure:
    from rjemu.bench import triton_kernels

    rows, columns = SOFTMAX_SHAPE
    signature = {"x": "*fp32", "y": "*fp32"}
    compiled = compile_kernel(triton_kernels.softmax, signature, {"BLOCK": columns}, TARGET, divisible_by_16=signature)
    x = np.random.default_rng(5).normal(size=SOFTMAX_SHAPE).astype(np.float32)

    def numpy_softmax() -> np.ndarray:
        exponentials = np.exp(x - x.max(axis=1, keepdims=True))
        return np.divide(exponentials, exponentials.sum(axis=1, keepdims=True))

    with Machine(PRESET, workers="inline") as gpu:
        kernel, args = load(gpu, compiled), [gpu.to_device(x), gpu.empty(x.shape, np.float32)]
        return _against_numpy(repeat, lambda: kernel.launch(rows, args), numpy_softmax)


def _empty(repeat: int) -> Figure:
    with Machine(PRESET, workers="inline") as gpu:
        kernel = gpu.load(compile_ir(EMPTY, TARGET))["empty"]
        (seconds,) = interleaved_medians((lambda: kernel.launch(EMPTY_WORKGROUPS, 64),), repeat)
    return seconds, {"rjemu": seconds}


_CHILD = """
import sys
import numpy as np
import rjemu
code, block, lds_bytes, size, columns, rows = sys.argv[1], *map(int, sys.argv[2:])
with rjemu.Machine({preset!r}) as gpu:
    kernel = gpu.load(code)["matmul"]
    a, b = (gpu.to_device(np.ones((size, size), np.float16)) for _ in range(2))
    c = gpu.empty((size, size), np.float32)
    result = kernel.launch((rows, columns), block, [a, b, c, size, size], lds_bytes=lds_bytes)
    assert (c.to_host() == size).all()
"""
"""What a user's first script does: the whole process is timed, from the start of Python to its end."""


class _MatmulProcess:
    """A process that runs the matrix multiplication once, with handlers cached in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        compiled = compile_matmul()
        self._cache = directory / "cache"
        code = directory / "matmul.hsaco"
        code.write_bytes(compiled.asm["hsaco"])
        block, lds_bytes = compiled.metadata.num_warps * compiled.metadata.warp_size, compiled.metadata.shared
        arguments = (code, block, lds_bytes, SIZE, *reversed(matmul_grid()))
        self._command = [sys.executable, "-c", _CHILD.format(preset=PRESET), *map(str, arguments)]

    def seconds(self) -> float:
        self._cache.mkdir(mode=0o700, exist_ok=True)
        started = time.perf_counter()
        subprocess.run(self._command, check=True, env={**os.environ, "XDG_CACHE_HOME": str(self._cache)})
        return time.perf_counter() - started

    def median_seconds(self, repeat: int, *, empty_cache: bool) -> float:
        self.seconds()
        samples = []
        for _ in range(repeat):
            if empty_cache:
                shutil.rmtree(self._cache)
            samples.append(self.seconds())
        return statistics.median(samples)


def _cold(repeat: int) -> Figure:
    with tempfile.TemporaryDirectory() as directory:
        seconds = _MatmulProcess(Path(directory)).median_seconds(min(repeat, 3), empty_cache=True)
    return seconds, {"process": seconds}


def _warm(repeat: int) -> Figure:
    with tempfile.TemporaryDirectory() as directory:
        seconds = _MatmulProcess(Path(directory)).median_seconds(repeat, empty_cache=False)
    kernel = _fp16(repeat)[1]["rjemu"]
    return seconds - kernel, {"process": seconds, "kernel": kernel}


_MEASUREMENTS: dict[str, Callable[[int], Figure]] = {
    "fp16": _fp16,
    "mxfp4": _mxfp4,
    "alu": _alu,
    "copy": _copy,
    "softmax": _softmax,
    "empty": _empty,
    "cold": _cold,
    "warm": _warm,
    **processes.MEASUREMENTS,
    **async_mma.MEASUREMENTS,
    **checkpoints.MEASUREMENTS,
}
