"""AITER's hand-written mixture-of-experts kernels (fmoe, fmoe_2stages) against numpy: docs/testing.md.

Those with "vs" in their names skip atomics of padding rows by VSKIP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.aiter_objects import BF16, FP8, Aiter, check, machines, quantize, shuffle_weight, table

pytestmark = pytest.mark.long

Activation = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def aiter(request: pytest.FixtureRequest) -> Iterator[Aiter]:
    yield from machines(request.param)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


@dataclass
class Layer:
    """Tokens, the experts that each of them goes to, and the experts' weights; in double precision."""

    x: np.ndarray  # [tokens, dim]
    up: np.ndarray  # [experts, inner or 2 inner (gate first), dim]
    down: np.ndarray  # [experts, dim, inner]
    chosen: np.ndarray  # [tokens, topk]
    weights: np.ndarray  # [tokens, topk]

    @staticmethod
    def random(inner: int, gated: bool, dim: int = 512, tokens: int = 17, experts: int = 4, topk: int = 2) -> Layer:
        rng = np.random.default_rng(1)
        up = 2 * rng.normal(size=(experts, inner * (2 if gated else 1), dim)) / math.sqrt(dim)
        down = rng.normal(size=(experts, dim, inner)) / math.sqrt(inner)
        chosen = np.stack([rng.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        return Layer(
            rng.normal(size=(tokens, dim)), up, down, chosen, rng.uniform(0.2, 1, (tokens, topk)).astype(np.float32)
        )

    def hidden(self, activation: Activation, gated: bool, weighted: bool) -> np.ndarray:
        """[tokens, topk, inner]. weighted: by the token's weight of the expert, before the activation."""
        products = np.einsum("tkid,td->tki", self.up[self.chosen], self.x)
        if weighted:
            products = products * self.weights[..., None]
        if not gated:
            return activation(products)
        gate, value = np.split(products, 2, axis=-1)
        return activation(gate) * value

    def result(self, activation: Activation, gated: bool, weighted: bool) -> np.ndarray:
        """[tokens, dim]; the experts' results weighted here unless the hidden ones are."""
        weights = np.ones_like(self.weights) if weighted else self.weights
        hidden = self.hidden(activation, gated, weighted)
        return np.einsum("tkdi,tki,tk->td", self.down[self.chosen], hidden, weights)

    def sorted(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(token and, in bits 31:24, position among its experts; weights; expert of each block; counts): tokens by
        expert, in blocks of `rows`, padded with a token that does not exist."""
        tokens, topk = self.chosen.shape
        ids, weights, experts = [], [], []
        for expert in range(len(self.up)):
            token, position = np.nonzero(self.chosen == expert)
            blocks = -(-len(token) // rows)
            padding = blocks * rows - len(token)
            ids.append(np.concatenate([token | position << 24, np.full(padding, topk << 24 | tokens)]))
            weights.append(np.concatenate([self.weights[token, position], np.zeros(padding)]))
            experts += [expert] * blocks
        order = np.concatenate(ids).astype(np.int32)
        counts = np.array([len(order), tokens], np.int32)
        return order, np.concatenate(weights).astype(np.float32), np.array(experts, np.int32), counts


@dataclass
class Numbers:
    """A layer's numbers as a kernel gets them: with one scale per row, or without."""

    x: np.ndarray
    up: np.ndarray
    down: np.ndarray
    scales: list[np.ndarray | None]
    exact: Layer

    @staticmethod
    def of(layer: Layer, dtype: Any) -> Numbers:
        parts = layer.x, layer.up, layer.down
        if dtype in (BF16, np.float16):
            plain = [part.astype(dtype) for part in parts]
            exact = [part.astype(float) for part in plain]
            return Numbers(*plain, [None] * 3, Layer(*exact, layer.chosen, layer.weights))
        quantized, scales, exact = zip(*(quantize(part, dtype) for part in parts), strict=True)
        return Numbers(*quantized, list(scales), Layer(*exact, layer.chosen, layer.weights))

    def strides(self) -> list[int]:
        """Bytes from one expert's scales of `up`, and of `down`, to the next's."""
        return [0 if scale is None else scale[0].nbytes for scale in self.scales[1:]]


@dataclass(frozen=True)
class Kernel:
    """What a file's name in fmoe says."""

    path: str
    dtype: Any
    result: Any
    rows: int
    inner: int
    gated: bool
    gelu: bool
    persistent: bool
    weighted: bool

    @staticmethod
    def named(path: str, target: str) -> Kernel:
        name = path.split("/")[-1]
        result = BF16 if "_bf16_" in name else np.float16
        # The files "fp16_noquant" take bfloat16 all the same.
        dtype = BF16 if "noquant" in name else FP8[target] if "Fp8" in name else np.int8
        rows, inner = (int(n) for n in re.findall(r"(\d+)x(\d+)\.co", name)[0])
        return Kernel(path, dtype, result, rows, inner, "g1u1" in name, "gelu" in name, "_ps_" in name, "tkw1" in name)


def _run_fused(aiter: Aiter, kernel: Kernel) -> None:
    layer = Layer.random(kernel.inner, kernel.gated)
    numbers = Numbers.of(layer, kernel.dtype)
    (tokens, dim), experts, inner, size = layer.x.shape, len(layer.up), kernel.inner, numbers.x.itemsize
    order, weights, blocks, counts = layer.sorted(kernel.rows)
    out = aiter.gpu.zeros((tokens, dim), kernel.result)
    workgroups = 8 if kernel.persistent else 0
    arguments: list[Any] = [out, numbers.x, shuffle_weight(numbers.up), counts, shuffle_weight(numbers.down)]
    arguments += [*numbers.scales, None, order, weights, blocks, dim, inner, tokens, experts]
    arguments += [dim * size, dim * size, inner * size, 2 * dim, dim * size * layer.up.shape[1], inner * size * dim]
    arguments += [*numbers.strides(), 4 * inner, layer.chosen.shape[1], workgroups, 1]
    aiter.run(kernel.path, (workgroups, 1) if kernel.persistent else (1, len(blocks)), arguments)
    expected = numbers.exact.result(_gelu if kernel.gelu else _silu, kernel.gated, kernel.weighted)
    # The hidden numbers are quantized again in between.
    check(out.to_host(), expected, 0.004 if kernel.dtype == BF16 else 0.045, kernel.path)


_NOT_AS_NAMED = re.compile(
    r"multix|smf"  # other inputs: smoothed ones, one for each expert
    r"|fp16_\w+_g1u[01]_(silu|gelu|atm)"  # bfloat16 numbers, added as float16
    r"|Int8_g1u1_tkw1"  # FP8 instructions
    r"|Fp8_g1u1_vs_(silu|gelu)_1tg_32x128"  # the loop never stores what it computes
)
"""Files that do not do what their names say, and those whose inputs are other than this test's."""


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("kind", ["noquant", "pertokenFp8_g1u1", "pertokenInt8_g1u1"])
def test_fused(aiter: Aiter, kind: str, activation: str) -> None:
    paths = sorted((aiter.directory / "fmoe" / activation).glob(f"*{kind}*.co"))
    kernels = [Kernel.named(f"fmoe/{activation}/{path.name}", aiter.target) for path in paths]
    tried = [kernel for kernel in kernels if not _NOT_AS_NAMED.search(kernel.path)]
    assert len(tried) >= 4
    for kernel in tried:
        _run_fused(aiter, kernel)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["Fp8", "Int8"])
def test_first_of_two_stages(aiter: Aiter, kind: str, weighted: bool) -> None:
    """act(gate) * value of each token and expert; weighted: products weighted by the expert's weight before that."""
    if weighted and kind == "Int8":
        pytest.skip("there is no such kernel")
    family = f"fmoe_stage1_bf16_pertoken{kind}{'_doweight' if weighted else ''}_g1u1"
    for row in table(aiter.target, f"fmoe_2stages/{family}.csv"):
        rows, columns = int(row["tile_m"]), int(row["tile_n"])
        inner = columns if columns > 256 else 2 * columns
        layer = Layer.random(inner, True)
        numbers = Numbers.of(layer, FP8[aiter.target] if kind == "Fp8" else np.int8)
        (tokens, dim), topk = layer.x.shape, layer.chosen.shape[1]
        order, weights, blocks, counts = layer.sorted(rows)
        out = aiter.gpu.zeros((tokens, topk, inner), BF16)
        arguments: list[Any] = [out, numbers.x, shuffle_weight(numbers.up), counts, *numbers.scales[:2], None]
        arguments += [order, blocks, dim, inner, tokens, len(layer.up), dim, dim, 2 * topk * inner, 2 * dim * inner]
        arguments += [numbers.strides()[0], 4 * inner, topk, 0, 0, weights if weighted else None]
        aiter.run(f"fmoe_2stages/{row['co_name']}", (inner // columns, len(blocks)), arguments)
        check(out.to_host(), numbers.exact.hidden(_silu, True, weighted), 0.0025, row["co_name"])
