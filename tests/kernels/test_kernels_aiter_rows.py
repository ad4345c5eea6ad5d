"""AITER's hand-written kernels on rows (top-k of a softmax, layer norm) for gfx942 against numpy: docs/testing.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.aiter_objects import BF16, Aiter, check, machines

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def aiter() -> Iterator[Aiter]:
    yield from machines("gfx942")


@pytest.mark.parametrize("renormalize", [0, 1])
@pytest.mark.parametrize("topk", [6, 8])
@pytest.mark.parametrize("experts", [128, 256])
@pytest.mark.parametrize("rows", [4, 12])
def test_topk_softmax(aiter: Aiter, rows: int, experts: int, topk: int, renormalize: int) -> None:
    tokens = 26
    x = np.random.default_rng(1).normal(size=(tokens, experts)).astype(np.float32)
    weights, chosen = aiter.gpu.zeros((tokens, topk), np.float32), aiter.gpu.zeros((tokens, topk), np.int32)
    arguments = [chosen, weights, x, tokens, experts, topk, renormalize, 4 * topk]
    aiter.run(f"topksoftmax/topksoftmax_{rows}x{experts}x{topk}.co", (-(-tokens // rows),), arguments)
    p = np.exp(x.astype(float))
    p /= p.sum(axis=1, keepdims=True)
    order = np.argsort(-p, axis=1, kind="stable")[:, :topk]
    best = np.take_along_axis(p, order, axis=1)
    np.testing.assert_array_equal(chosen.to_host(), order)
    check(weights.to_host(), best / best.sum(axis=1, keepdims=True) if renormalize else best, 1e-6, "weights")


def _truncated(x: np.ndarray) -> np.ndarray:
    """float32 cut to bfloat16, as the kernels store it."""
    return (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


class _Norm:
    """Inputs and results of a norm with residual. In spite of its name it subtracts no mean: the kernels compute one and
    never use it."""

    def __init__(self) -> None:
        rng, (self.m, self.n) = np.random.default_rng(2), (4, 8192)
        self.x, self.residual = (rng.normal(size=(self.m, self.n)).astype(BF16) for _ in range(2))
        self.weight, self.bias = (rng.normal(size=self.n).astype(BF16) for _ in range(2))
        self.sum = self.x.astype(np.float32) + self.residual.astype(np.float32)
        s = self.sum.astype(float)
        scaled = s / np.sqrt((s * s).mean(axis=1, keepdims=True) + 1e-5)
        self.result = scaled * self.weight.astype(float) + self.bias.astype(float)

    def arguments(self, out: object, residual_out: object, *rest: object) -> list[object]:
        return [out, self.x, self.weight, self.bias, 1e-5, self.m, self.n, residual_out, self.residual, *rest]


def test_layer_norm(aiter: Aiter) -> None:
    norm = _Norm()
    out, residual_out = (aiter.gpu.zeros((norm.m, norm.n), BF16) for _ in range(2))
    aiter.run("layer_norm.co", (norm.m // 2,), norm.arguments(out, residual_out, None, None))
    np.testing.assert_array_equal(residual_out.to_host().astype(np.float32), _truncated(norm.sum))
    got = out.to_host().astype(float)
    assert (np.abs(got - norm.result) <= np.abs(norm.result) * 2**-7 + 1e-5).all()
    assert (got == _truncated(norm.result)).mean() > 0.99


def test_layer_norm_with_quantized_results(aiter: Aiter) -> None:
    norm, rng = _Norm(), np.random.default_rng(3)
    smooth = rng.uniform(0.5, 2, norm.n).astype(np.float32)
    out, residual_out = aiter.gpu.zeros((norm.m, norm.n), np.int8), aiter.gpu.zeros((norm.m, norm.n), BF16)
    scales = aiter.gpu.zeros((norm.m,), np.float32)
    aiter.run("layer_norm_qnt.co", (norm.m // 2,), norm.arguments(out, residual_out, scales, smooth))
    smoothed = norm.result * smooth
    np.testing.assert_array_equal(residual_out.to_host().astype(np.float32), _truncated(norm.sum))
    check(scales.to_host(), np.abs(smoothed).max(axis=1) / 127, 0.005, "scales")
    quantized = smoothed / scales.to_host().astype(float)[:, None]
    assert (np.abs(out.to_host() - quantized) < 2).all()
