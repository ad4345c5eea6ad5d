"""The same bytes whatever the split: every number of engines and dispatch workers gives what one process gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import triton.language as tl
from support import triton_kernels as kernels
from support.assemble import build
from support.triton_objects import run_triton
from support.worker_kernels import CHAIN

import rjemu

Outputs = dict[str, bytes]

CORNERS = [(1, 1), (1, 8), (4, 1), (2, 3), (4, 8)]
REST = [(e, d) for e in range(1, 5) for d in range(1, 9) if (e, d) not in CORNERS]


def gemm_fp16(gpu: rjemu.Machine) -> Outputs:
    """32 workgroups of 4 waves; sums that are rounded."""
    rng = np.random.default_rng(1)
    m, n, k = 256, 128, 192
    a, b = rng.normal(size=(m, k)).astype(np.float16), rng.normal(size=(k, n)).astype(np.float16)
    c = gpu.zeros((m, n), np.float32)
    arguments = {
        "a": gpu.to_device(a), "b": gpu.to_device(b), "c": c, "M": m, "N": n, "K": k,
        "stride_am": k, "stride_ak": 1, "stride_bk": n, "stride_bn": 1,
    }  # fmt: skip
    constants = {"BM": 32, "BN": 32, "BK": 32, "ACCUMULATOR": tl.float32, "PRECISION": "ieee"}
    run_triton(gpu, kernels.matmul, (m // 32, n // 32), arguments, constants)
    return {"c": c.to_host().tobytes()}


def gemm_mxfp4(gpu: rjemu.Machine) -> Outputs:
    rng = np.random.default_rng(2)
    m, n, k = 256, 128, 256
    a, b = (rng.integers(0, 256, (rows, k // 2), np.uint8) for rows in (m, n))
    a_scale, b_scale = (rng.integers(120, 135, (rows, k // 32), np.uint8) for rows in (m, n))
    c = gpu.zeros((m, n), np.float32)
    to_device = gpu.to_device
    arguments = {
        "a": to_device(a), "a_scale": to_device(a_scale), "b": to_device(b), "b_scale": to_device(b_scale),
        "c": c, "M": m, "N": n, "K": k,
    }  # fmt: skip
    constants = {
        "A_FORMAT": "e2m1", "B_FORMAT": "e2m1", "A_PACK": 2, "B_PACK": 2, "BM": 64, "BN": 64, "BK": 128,
    }  # fmt: skip
    run_triton(gpu, kernels.matmul_scaled, (m // 64, n // 64), arguments, constants)
    return {"c": c.to_host().tobytes()}


def softmax(gpu: rjemu.Machine) -> Outputs:
    x = np.random.default_rng(3).normal(scale=4, size=(37, 781)).astype(np.float32)
    y = gpu.zeros(x.shape, np.float32)
    run_triton(gpu, kernels.softmax, len(x), {"x": gpu.to_device(x), "y": y, "columns": x.shape[1]}, {"BLOCK": 1024})
    return {"y": y.to_host().tobytes()}


def atomics(gpu: rjemu.Machine) -> Outputs:
    """What the order of workgroups does not change: everything but the values that additions return."""
    n, bins = 8000, 7
    x = np.random.default_rng(4).integers(1, 1 << 20, n).astype(np.int32)
    starts = {"sums": 0, "maxima": -5, "minima": 1 << 30, "ands": -1, "xors": 0}
    cells = {name: gpu.to_device(np.full(bins, start, np.int32)) for name, start in starts.items()}
    arguments = {"x": gpu.to_device(x), **cells, "olds": gpu.zeros(n, np.int32), "n": n}
    run_triton(gpu, kernels.integer_atomics, 32, arguments, {"BINS": bins, "BLOCK": 256})
    return {name: cell.to_host().tobytes() for name, cell in cells.items()}


def lock(gpu: rjemu.Machine) -> Outputs:
    """Programs that spin on each other."""
    x = np.arange(1, 9, dtype=np.int32)
    held, total = gpu.zeros(1, np.int32), gpu.zeros(1, np.int32)
    arguments = {"lock": held, "x": gpu.to_device(x), "total": total, "rounds": 3}
    run_triton(gpu, kernels.spin_lock, 8, arguments, {}, num_warps=1)
    return {"lock": held.to_host().tobytes(), "total": total.to_host().tobytes()}


def chain(gpu: rjemu.Machine) -> Outputs:
    """Workgroups each of which waits for the next one's flag."""
    out = gpu.zeros(24, np.uint32)
    gpu.load(build(CHAIN, "gfx950"))["kernel"].launch(24, 64, kernarg=np.uint64(out.address).tobytes(), timeout=100)
    return {"out": out.to_host().tobytes()}


KERNELS: list[Callable[[rjemu.Machine], Outputs]] = [gemm_fp16, gemm_mxfp4, softmax, atomics, lock, chain]


def run_all(workers: object) -> dict[str, Outputs]:
    with rjemu.Machine("gfx950_mi355x", workers=workers, time_slice=4096) as gpu:  # type: ignore[arg-type]
        return {kernel.__name__: kernel(gpu) for kernel in KERNELS}


@pytest.fixture(scope="module")
def expected() -> dict[str, Outputs]:
    outputs = run_all("inline")
    assert all(any(map(any, output.values())) for output in outputs.values())
    return outputs


@pytest.mark.parametrize(
    "workers",
    [*CORNERS, *(pytest.param(split, marks=pytest.mark.long) for split in REST)],
    ids=lambda split: f"{split[0]}/{split[1]}",
)
def test_every_split_gives_the_same_bytes(workers: tuple[int, int], expected: dict[str, Outputs]) -> None:
    found = run_all(workers)
    for kernel, outputs in expected.items():
        for name, data in outputs.items():
            assert found[kernel][name] == data, f"{kernel}: {name}"
