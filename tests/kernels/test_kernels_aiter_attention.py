"""AITER's hand-written attention (fmha_v3_fwd, fmha_v3_bwd, mla, pa) against numpy: docs/testing.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.aiter_objects import BF16, FP8, Aiter, check, machines, quantize, table

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def aiter(request: pytest.FixtureRequest) -> Iterator[Aiter]:
    yield from machines(request.param)


def _softmax(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, logarithms of the sums) over the last axis."""
    top = scores.max(axis=-1, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(axis=-1, keepdims=True)
    return p / total, (top + np.log(total))[..., 0]


class _Attention:
    """Attention of one batch: q [sq, heads, dim], k and v [sk, key heads, dim], in double precision."""

    def __init__(self, sq: int, sk: int, heads: int, key_heads: int, dim: int, value_dim: int, causal: bool) -> None:
        rng = np.random.default_rng(1)
        self.q, self.gradient = (rng.normal(size=(sq, heads, d)).astype(BF16) for d in (dim, value_dim))
        self.k, self.v = (rng.normal(size=(sk, key_heads, d)).astype(BF16) for d in (dim, value_dim))
        self.scale = dim**-0.5
        self.group = heads // key_heads
        q, k, v = (x.astype(float) for x in (self.q, self.k, self.v))
        self._k, self._v = (np.repeat(x, self.group, axis=1) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, self._k) * self.scale
        if causal:
            scores = np.where(np.arange(sk) <= np.arange(sq)[:, None] + sk - sq, scores, -np.inf)
        self.p, self.lse = _softmax(scores)
        self.out = np.einsum("hqk,khd->qhd", self.p, self._v)

    def gradients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(sums of out times its gradient [heads, sq], gradients of q, and of k and v for each query head)."""
        do, q = self.gradient.astype(float), self.q.astype(float)
        sums = (do * self.out).sum(axis=-1).T
        ds = self.p * (np.einsum("qhd,khd->hqk", do, self._v) - sums[..., None]) * self.scale
        dv = np.einsum("hqk,qhd->khd", self.p, do)
        return sums, np.einsum("hqk,khd->qhd", ds, self._k), np.einsum("hqk,qhd->khd", ds, q), dv


FORWARD = {
    "gfx942": [("MI300/fwd_hd128_bf16{}_rtne", 128, 256, 512), ("MI308/fwd_hd128_bf16{}_rtna", 128, 256, 512)],
    "gfx950": [("fwd_hd128_bf16{}", 128, 256, 512), ("fwd_hd192_hd128_bf16{}", 192, 128, 256)],
}
"""(file, dimension of q and k, rows of q per workgroup, work-items per workgroup)."""


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sq", "sk"), [(256, 256), (200, 200), (100, 333)])
def test_forward(aiter: Aiter, sq: int, sk: int, causal: bool, kind: int) -> None:
    """Ragged lengths rely on zeros beyond the end of the keys' and values' buffers."""
    name, dim, rows, block = FORWARD[aiter.target][kind]
    heads, key_heads, value_dim = 2, 1, 128
    at = _Attention(sq, sk, heads, key_heads, dim, value_dim, causal)
    out, lse = aiter.gpu.zeros(at.out.shape, BF16), aiter.gpu.zeros((heads, sq), np.float32)
    row_q, row_k, row_v, row_o = (2 * n for n in (heads * dim, key_heads * dim, key_heads * value_dim, heads * value_dim))
    arguments = [out, at.q, at.k, at.v, lse, at.scale, sq, row_q, rows * row_q, 2 * dim, sq * row_q, at.group]
    arguments += [row_k, 2 * dim, sk * row_k, 3 if causal else 5, 1, sk, dim, value_dim, heads]
    arguments += [row_v, 2 * value_dim, sk * row_v, row_o, 2 * value_dim, sq * row_o, None, None, 4 * sq, None, None]
    tiles = -(-sq // rows)
    path = f"fmha_v3_fwd/{name.format('_causal' if causal else '')}.co"
    aiter.run(path, (-(-tiles // 2) if causal else tiles, heads, 1), arguments, block=block)
    check(out.to_host(), at.out, 0.003, path)
    check(lse.to_host(), at.lse, 1e-6, path)


KEYS = {64: 192, 128: 192, 192: 64}
"""Rows of k per workgroup of the backward kernels, by the heads' dimension."""


@pytest.mark.parametrize("dim", KEYS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sq", "sk", "heads", "key_heads"), [(192, 192, 2, 2), (100, 100, 2, 1), (128, 333, 1, 1)])
def test_backward(aiter: Aiter, sq: int, sk: int, heads: int, key_heads: int, causal: bool, dim: int) -> None:
    if causal and sq != sk:
        pytest.skip("the kernel's mask starts at the top left")
    if dim == 128 and aiter.target == "gfx950":
        pytest.skip("this kernel's arguments are others")
    keys = KEYS[dim]
    at = _Attention(sq, sk, heads, key_heads, dim, dim, causal)
    sums, dq, dk, dv = at.gradients()
    got_q = aiter.gpu.zeros((heads, sq, dim), np.float32)
    got_k, got_v = (aiter.gpu.zeros((sk, heads, dim), BF16) for _ in range(2))
    lse, sums = (x.astype(np.float32) for x in (at.lse, sums))
    arguments = [got_q, got_k, got_v, at.q, at.k, at.v, at.gradient, lse, sums, at.scale, float(np.log2(np.e))]
    arguments += [at.group, sq, sk, dim, heads]
    for length, count in ((sq, heads), (sk, key_heads), (sk, key_heads), (sq, heads), (sk, heads), (sk, heads)):
        arguments += [2 * dim, 2 * dim * length * count, 2 * dim * count]
    tiles = -(-sk // keys)
    suffix = "pssk" if dim == 64 else "psskddv"
    path = f"fmha_v3_bwd/bwd_hd{dim}_bf16{'_causal' if causal else ''}_a32_rtne_{suffix}.co"
    aiter.run(path, (-(-tiles // 2) if causal else tiles, heads, 1), arguments, slot=8)
    for got, expected, what in ((got_q.to_host().transpose(1, 0, 2), dq, "dq"), (got_k.to_host(), dk, "dk")):
        check(got, expected, 0.004, f"{path}: {what}")
    check(got_v.to_host(), dv, 0.004, f"{path}: dv")


LATENT, WHOLE = 512, 576
"""Multi-head latent attention: dimensions of the values, and of the keys, whose first part the values are."""

DECODING = [
    ("mla_dec_stage1_bf16_a16w16_subQ16_mqa16", 16, 1, 16, False),
    ("mla_dec_stage1_bf16_a16w16_subQ128_mqa128", 128, 1, 128, False),
    ("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1", 16, 2, 128, False),
    ("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1", 16, 4, 128, False),
    ("mla_a16w16_qh16_m32x4_n16x1_coex0_mask1", 16, 8, 128, False),
    ("mla_a8w8_qh16_qseqlen1_gqaratio16", 16, 1, 128, True),
    ("mla_a8w8_qh16_qseqlen2_gqaratio16", 16, 2, 128, True),
    ("mla_a8w8_qh16_qseqlen4_gqaratio16", 16, 4, 128, True),
    ("mla_a8w8_qh128_m32x4_n16x2_msk1", 128, 1, 128, True),
]
"""(file, heads, queries per sequence, rows of q per workgroup, FP8)."""


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("name", "heads", "queries", "rows", "fp8"), DECODING)
def test_latent_attention(aiter: Aiter, name: str, heads: int, queries: int, rows: int, fp8: bool, splits: int) -> None:
    """The FP8 kernels for 2 and 4 queries need the turns of tests/exec/test_exec_turns.py."""
    if name == "mla_a8w8_qh16_qseqlen4_gqaratio16" and aiter.target == "gfx950" and splits > 1:
        pytest.skip("this kernel's partial results lie in an order of their own")
    rng, lengths = np.random.default_rng(2), [77, 128] if splits == 1 else [300, 256]
    dtype = FP8[aiter.target] if fp8 else BF16
    total, batch = sum(lengths), len(lengths)
    cache, q = rng.normal(size=(total, WHOLE)).astype(dtype), rng.normal(size=(batch * queries, heads, WHOLE)).astype(dtype)
    pages = rng.permutation(total).astype(np.int32)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    counts = np.arange(batch + 1, dtype=np.int32)
    parts = aiter.gpu.zeros((batch * queries, splits, heads, LATENT), np.float32)
    lse = aiter.gpu.zeros((batch * queries, splits, heads), np.float32)
    one = np.ones(1, np.float32) if fp8 else None
    pointers = [parts, lse, q, cache, starts, pages, np.ones(batch, np.int32)]
    arguments = [*pointers, WHOLE**-0.5, heads * queries, splits, heads * WHOLE * q.itemsize * queries]
    arguments += [WHOLE * q.itemsize, 0, counts * queries, counts * splits, None, one, one, splits]
    aiter.run(f"mla/{name}.co", (-(-queries * heads // rows), batch, splits), arguments)
    # Unless the kernel always writes parts, a single one is the result, in bfloat16.
    if splits == 1 and "subQ16_" not in name:
        out = parts.to_host().view(BF16).reshape(-1)[: q[..., :LATENT].size].reshape(batch * queries, heads, LATENT)
    else:
        weights = np.exp(lse.to_host().astype(float))[..., None]
        out = (parts.to_host() * weights).sum(axis=1) / weights.sum(axis=1)
    for k, length in enumerate(lengths):
        mine = slice(k * queries, (k + 1) * queries)
        keys = cache[pages[starts[k] : starts[k + 1]]].astype(float)
        scores = np.einsum("qhd,kd->qhk", q[mine].astype(float), keys) * WHOLE**-0.5
        seen = np.arange(length) <= np.arange(queries)[:, None] + length - queries
        p, _ = _softmax(np.where(seen[:, None], scores, -np.inf))
        for row in range(queries):
            expected = p[row] @ keys[:, :LATENT]
            check(out[mine][row], expected, 0.03 if fp8 else 0.003, f"{name}: sequence {k}, query {row}")


@pytest.mark.parametrize("heads", [16, 128])
def test_latent_attention_of_prompts(aiter: Aiter, heads: int) -> None:
    rng, lengths, counts = np.random.default_rng(4), [77, 100], [20, 33]
    cache, q = (rng.normal(size=shape).astype(BF16) for shape in ((sum(lengths), WHOLE), (sum(counts), heads, WHOLE)))
    pages = rng.permutation(sum(lengths)).astype(np.int32)
    starts, firsts = (np.cumsum([0, *extents]).astype(np.int32) for extents in (lengths, counts))
    out, lse = aiter.gpu.zeros((sum(counts), heads, LATENT), BF16), aiter.gpu.zeros((sum(counts), heads), np.float32)
    pointers = [out, lse, q, cache, starts, pages, np.ones(len(lengths), np.int32)]
    arguments = [*pointers, WHOLE**-0.5, heads, 1, 2 * heads * WHOLE, 2 * WHOLE, 0, firsts, None, None, None, None, 0]
    path = f"mla/mla_pfl_bf16_a16w16_causal_subQ{heads}_mqa{heads}.co"
    aiter.run(path, (-(-max(counts) * heads // 128), len(lengths), 1), arguments)
    for k, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        mine = slice(firsts[k], firsts[k + 1])
        keys = cache[pages[starts[k] : starts[k + 1]]].astype(float)
        scores = np.einsum("qhd,kd->qhk", q[mine].astype(float), keys) * WHOLE**-0.5
        seen = np.arange(length) <= np.arange(count)[:, None] + length - count
        p, _ = _softmax(np.where(seen[:, None], scores, -np.inf))
        check(out.to_host()[mine], p @ keys[:, :LATENT], 0.003, f"{path}: sequence {k}")


QUERY_TYPES = {"bf16": BF16, "fp16": np.float16}


def _paged(aiter: Aiter, row: dict[str, str], queries: int) -> None:
    """One kernel of pa/pa_asm.csv on two sequences, two key heads."""
    rng, dim, group, block = np.random.default_rng(3), 128, int(row["Gqa"]), int(row["blkSz"])
    query_type = QUERY_TYPES[row["qType"]]
    cache_type = {**QUERY_TYPES, "fp8": FP8[aiter.target], "int8": np.int8}[row["kvType"]]
    key_heads, lengths = (2 if block == 16 else 1), [100, 37]
    blocks = [-(-length // block) for length in lengths]
    order = rng.permutation(sum(blocks)).astype(np.int32)
    tables = np.zeros((len(lengths), max(blocks)), np.int32)
    for sequence, mine in enumerate(np.split(order, np.cumsum(blocks)[:-1])):
        tables[sequence, : len(mine)] = mine
    k, v = (rng.normal(size=(sum(blocks), key_heads, block, dim)) for _ in range(2))
    if row["kvType"] in QUERY_TYPES:
        k, v = (x.astype(cache_type) for x in (k, v))
        scales, exact = [None, None], [k.astype(float), v.astype(float)]
    else:
        (k, scale_k, exact_k), (v, scale_v, exact_v) = (quantize(x, cache_type) for x in (k, v))
        scales, exact = [scale_k, scale_v], [exact_k, exact_v]
    piece = 16 // k.itemsize
    keys = k.reshape(-1, key_heads, block, dim // piece, piece).transpose(0, 1, 3, 2, 4)
    values = v.reshape(-1, key_heads, block // piece, piece, dim).transpose(0, 1, 2, 4, 3)
    heads = group * key_heads
    q = rng.normal(size=(len(lengths) * queries, heads, dim)).astype(query_type)
    out = aiter.gpu.zeros(q.shape, query_type)
    arguments = [out, q, keys, values, tables, np.array(lengths, np.int32), *scales, float(np.log2(np.e) / np.sqrt(dim))]
    of_head = dim * block * k.itemsize
    arguments += [tables.shape[1], key_heads, 2 * heads * dim, key_heads * of_head, of_head, group]
    first_queries = (np.arange(len(lengths) + 1) * queries).astype(np.int32)
    arguments.append(first_queries if int(row["Mtp"]) else None)
    aiter.run(f"pa/{row['knl_file']}", (key_heads, len(lengths), 1), arguments)
    expected = np.zeros(q.shape)
    for sequence, length in enumerate(lengths):
        mine = tables[sequence, : blocks[sequence]]
        rows_k, rows_v = (x[mine].transpose(1, 0, 2, 3).reshape(key_heads, -1, dim) for x in exact)
        for token in range(queries):
            end = length - queries + 1 + token if int(row["Msk"]) else length
            for head in range(heads):
                where = sequence * queries + token, head
                scores = rows_k[head // group, :end] @ q[where].astype(float) / np.sqrt(dim)
                expected[where] = _softmax(scores)[0] @ rows_v[head // group, :end]
    check(out.to_host(), expected, 0.003 if row["kvType"] in QUERY_TYPES else 0.035, row["knl_file"])


def test_paged_attention(aiter: Aiter) -> None:
    """All kernels; those for several new tokens per sequence (Mtp; above 10 for exactly so many) with two, too."""
    for row in table(aiter.target, "pa/pa_asm.csv"):
        most = int(row["Mtp"])
        for queries in {0: (1,), 1: (1, 2)}.get(most, (most - 10,)):
            _paged(aiter, row, queries)
