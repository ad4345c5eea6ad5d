"""The measurements of asynchronous matrix instructions: one workgroup at 1/1 without and with one helper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from rjemu.bench.matmul import PRESET, TARGET
from rjemu.bench.matrix_kernels import MFMA_16, MFMA_32, ScaledMfma, dependent_loop, independent_loop
from rjemu.bench.timing import Figure, interleaved_medians
from rjemu.exec.dispatch import DispatchResult
from rjemu.integrations.llvm_ir import compile_ir
from rjemu.integrations.triton import compile_kernel, load
from rjemu.vm.machine import Machine

ROUNDS, ACCUMULATORS, CHAIN = 4000, 16, 16
BLOCK_SIZE, BLOCK_DEPTH = 128, 8192
"""The Triton kernels' one workgroup computes a block of so many rows and columns, from matrices of that depth."""

LEAST_NS = 0.1
"""Nothing takes less."""

Launch = Callable[[], DispatchResult]
Setup = Callable[[Machine], Launch]


@contextmanager
def _machines(setup: Setup) -> Iterator[tuple[Launch, Launch]]:
    """The same kernel on a machine without helpers, and on one with one."""
    with ExitStack() as stack:
        launches = []
        for helpers in (0, 1):
            gpu = stack.enter_context(Machine(PRESET, workers=(1, 1), async_helper_threads=helpers))
            gpu.start()
            launches.append(setup(gpu))
        yield launches[0], launches[1]


def _ratio(setup: Setup, repeat: int) -> Figure:
    """The dispatch's time without a helper over that with one."""
    with _machines(setup) as (alone, helped):
        plain, asynchronous = interleaved_medians((alone, helped), repeat)
    return plain / asynchronous, {"1/1/0": plain, "1/1/1": asynchronous}


def _loop(source: str, accumulators: int) -> Setup:
    def setup(gpu: Machine) -> Launch:
        kernel, out = gpu.load(compile_ir(source, TARGET))["loop"], gpu.empty(64 * 16 * accumulators, np.float32)
        return lambda: kernel.launch(1, 64, [out, np.int32(ROUNDS)])

    return setup


def _independent(mfma: ScaledMfma) -> Callable[[int], Figure]:
    return lambda repeat: _ratio(_loop(independent_loop(mfma, ACCUMULATORS), ACCUMULATORS), repeat)


def _chain(repeat: int) -> Figure:
    """How much longer a dependent chain takes where there is a helper that has nothing to do, in percent."""
    with _machines(_loop(dependent_loop(MFMA_32, CHAIN), CHAIN)) as (alone, helped):
        plain, asynchronous = interleaved_medians((alone, helped), repeat)
    return (asynchronous / plain - 1) * 100, {"1/1/0": plain, "1/1/1": asynchronous}


def _site(repeat: int) -> Figure:
    """Nanoseconds that the asynchronous loop adds to a matrix instruction which it does not give away: a difference of two
    times, which may be smaller than what disturbs them."""
    _, seconds = _chain(repeat)
    per_site = (seconds["1/1/1"] - seconds["1/1/0"]) / (ROUNDS * CHAIN)
    return max(per_site * 1e9, LEAST_NS), seconds


def _handoff(repeat: int) -> Figure:
    """Nanoseconds of handing an empty job to a helper and joining it."""
    with Machine(PRESET, workers=(1, 1), async_helper_threads=1) as gpu:
        kernel, out = gpu.load(compile_ir(independent_loop(MFMA_32, 2), TARGET))["loop"], gpu.empty(1 << 15, np.float32)
        gpu.start()
        figures = [kernel.launch(1, 64, [out, np.int32(1)]).stats["async"]["handoff_nanoseconds"] for _ in range(repeat)]
    nanoseconds = float(np.median(figures))
    return nanoseconds, {"handoff": nanoseconds / 1e9}


def _fp16_block(gpu: Machine) -> Launch:
    from rjemu.bench import triton_kernels

    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "N": "i32", "K": "i32"}
    tiles = {"BM": BLOCK_SIZE, "BN": BLOCK_SIZE, "BK": 64}
    kernel = load(gpu, compile_kernel(triton_kernels.matmul, signature, tiles, TARGET, divisible_by_16=signature))
    rng = np.random.default_rng(5)
    shapes = ((BLOCK_SIZE, BLOCK_DEPTH), (BLOCK_DEPTH, BLOCK_SIZE))
    operands = [gpu.to_device(rng.normal(size=shape).astype(np.float16)) for shape in shapes]
    args: list[Any] = [*operands, gpu.empty((BLOCK_SIZE, BLOCK_SIZE), np.float32), BLOCK_SIZE, BLOCK_DEPTH]
    return lambda: kernel.launch((1, 1), args)


def _mxfp4_block(gpu: Machine) -> Launch:
    from rjemu.bench import triton_kernels

    signature = {**dict.fromkeys(("a", "a_scale", "b", "b_scale"), "*u8"), "c": "*fp32", "N": "i32", "K": "i32"}
    tiles = {"BM": BLOCK_SIZE, "BN": BLOCK_SIZE, "BK": 128}
    kernel = load(gpu, compile_kernel(triton_kernels.matmul_mxfp4, signature, tiles, TARGET, divisible_by_16=signature))
    rng = np.random.default_rng(6)
    operands: list[Any] = []
    for _ in range(2):
        operands.append(gpu.to_device(rng.integers(0, 256, (BLOCK_SIZE, BLOCK_DEPTH // 2), np.uint8)))
        operands.append(gpu.to_device(rng.integers(120, 134, (BLOCK_SIZE, BLOCK_DEPTH // 32), np.uint8)))
    args = [*operands, gpu.empty((BLOCK_SIZE, BLOCK_SIZE), np.float32), BLOCK_SIZE, BLOCK_DEPTH]
    return lambda: kernel.launch((1, 1), args)


MEASUREMENTS: dict[str, Callable[[int], Figure]] = {
    "mfma32": _independent(MFMA_32),
    "mfma16": _independent(MFMA_16),
    "mxfp4-block": lambda repeat: _ratio(_mxfp4_block, repeat),
    "fp16-block": lambda repeat: _ratio(_fp16_block, repeat),
    "chain": _chain,
    "site": _site,
    "handoff": _handoff,
}
