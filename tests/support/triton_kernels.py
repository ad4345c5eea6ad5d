"""The Triton kernels that tests run whole."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACCUMULATOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C = A B with masks at every edge; C is contiguous, of the accumulator's type. PRECISION: of float32 inputs."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    accumulator = tl.zeros((BM, BN), ACCUMULATOR)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        tile_a = tl.load(a + m[:, None] * stride_am + k[None, :] * stride_ak, (m[:, None] < M) & (k[None, :] < K), 0.0)
        tile_b = tl.load(b + k[:, None] * stride_bk + n[None, :] * stride_bn, (k[:, None] < K) & (n[None, :] < N), 0.0)
        accumulator = tl.dot(tile_a, tile_b, accumulator, PRECISION, out_dtype=ACCUMULATOR)
    tl.store(c + m[:, None] * N + n[None, :], accumulator, (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_scaled(
    a, a_scale, b, b_scale, c, M, N, K,
    A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """C = A B in a microscaling format: one e8m0 scale for 32 elements along K.

    a: [M, K / A_PACK] bytes, a_scale: [M, K / 32]; b: [N, K / B_PACK] bytes (transposed), b_scale: [N, K / 32].
    PACK: elements of a byte.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    group = tl.arange(0, BK // 32)
    byte_a = tl.arange(0, BK // A_PACK)
    byte_b = tl.arange(0, BK // B_PACK)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        tile_a = tl.load(a + m[:, None] * (K // A_PACK) + start // A_PACK + byte_a[None, :])
        tile_b = tl.load(b + n[None, :] * (K // B_PACK) + start // B_PACK + byte_b[:, None])
        scale_a = tl.load(a_scale + m[:, None] * (K // 32) + start // 32 + group[None, :])
        scale_b = tl.load(b_scale + n[:, None] * (K // 32) + start // 32 + group[None, :])
        accumulator = tl.dot_scaled(tile_a, scale_a, A_FORMAT, tile_b, scale_b, B_FORMAT, accumulator)
    tl.store(c + m[:, None] * N + n[None, :], accumulator)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """Row softmax; a program for each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, i < columns, -float("inf"))
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + i, exponentials / tl.sum(exponentials, 0), i < columns)


@triton.jit
def layer_norm(x, weight, bias, y, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, i < columns, 0.0).to(tl.float32)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(i < columns, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    result = centred * scale * tl.load(weight + i, i < columns, 0.0) + tl.load(bias + i, i < columns, 0.0)
    tl.store(y + row * columns + i, result, i < columns)


@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Attention of one head for each program_id(1): q, k, v, out are [heads, length, D]; online softmax over key blocks."""
    head = tl.program_id(1) * length * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + head + m[:, None] * D + d[None, :], m[:, None] < length, 0.0)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    accumulator = tl.zeros((BM, D), tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(length, (tl.program_id(0) + 1) * BM)
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + head + n[None, :] * D + d[:, None], n[None, :] < length, 0.0)
        scores = tl.dot(queries, keys) * scale
        visible = n[None, :] < length
        if CAUSAL:
            visible = visible & (n[None, :] <= m[:, None])
        scores = tl.where(visible, scores, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_largest[:, None])
        correction = tl.exp2(largest - new_largest)
        total = total * correction + tl.sum(weights, 1)
        values = tl.load(v + head + n[:, None] * D + d[None, :], n[:, None] < length, 0.0)
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator * correction[:, None])
        largest = new_largest
    result = accumulator / total[:, None]
    tl.store(out + head + m[:, None] * D + d[None, :], result.to(out.dtype.element_ty), m[:, None] < length)


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


@triton.jit
def transpose(x, y, rows, columns, BLOCK: tl.constexpr):
    """y[columns, rows] = x[rows, columns], turned in registers and LDS: both sides are contiguous."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * columns + j[None, :], (i[:, None] < rows) & (j[None, :] < columns))
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(tile), (j[:, None] < columns) & (i[None, :] < rows))


@triton.jit
def gather_rows(table, indices, y, n, columns, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """y[i, :] = table[indices[i], :], as an embedding does."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.arange(0, COLUMNS)
    row = tl.load(indices + i, i < n, 0)
    mask = (i[:, None] < n) & (j[None, :] < columns)
    tl.store(y + i[:, None] * columns + j[None, :], tl.load(table + row[:, None] * columns + j[None, :], mask), mask)


@triton.jit
def gather_in_registers(x, indices, y, N: tl.constexpr, WIDTH: tl.constexpr):
    """y[i, j] = x[indices[i, j], j] by `tl.gather`: across lanes or through LDS."""
    i = tl.arange(0, N)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(y + i, tl.gather(tl.load(x + i), tl.load(indices + i), 0))


@triton.jit
def reductions(x, sums, maxima, places, xors, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    """Sum, maximum with its first place, and exclusive or of an int32 tile along AXIS."""
    tile = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    i = tl.arange(0, COLUMNS if AXIS == 0 else ROWS)
    largest, place = tl.max(tile, AXIS, return_indices=True)
    tl.store(sums + i, tl.sum(tile, AXIS))
    tl.store(maxima + i, largest)
    tl.store(places + i, place)
    tl.store(xors + i, tl.xor_sum(tile, AXIS))


@triton.jit
def linear_recurrence(a_left, b_left, a_right, b_right):
    """Composition of the maps x -> a x + b."""
    return a_left * a_right, a_right * b_left + b_right


@triton.jit
def scans(x, coefficients, sums, products, states, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REVERSE: tl.constexpr):
    """Along rows: cumulative sum, cumulative product, and the recurrence state = coefficient * state + x (int32)."""
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile, factor = tl.load(x + i), tl.load(coefficients + i)
    tl.store(sums + i, tl.cumsum(tile, 1, reverse=REVERSE))
    tl.store(products + i, tl.cumprod(tile, 1, reverse=REVERSE))
    _, state = tl.associative_scan((factor, tile), 1, linear_recurrence, reverse=REVERSE)
    tl.store(states + i, state)


@triton.jit
def sort_rows(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + i, tl.sort(tl.load(x + i), 1, DESCENDING))


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """counts += histogram of x: within programs by `tl.histogram`, between them by atomics."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.histogram(tl.load(x + i, i < n, 0), BINS, i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), found)


@triton.jit
def integer_atomics(x, sums, maxima, minima, ands, xors, olds, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Every work-item updates cell i % BINS of five arrays; olds[i] is what the addition found."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask, cell = i < n, i % BINS
    value = tl.load(x + i, mask, 0)
    tl.store(olds + i, tl.atomic_add(sums + cell, value, mask), mask)
    tl.atomic_max(maxima + cell, value, mask)
    tl.atomic_min(minima + cell, value, mask)
    tl.atomic_and(ands + cell, value, mask)
    tl.atomic_xor(xors + cell, value, mask)


@triton.jit
def float_atomics(x, sums, maxima, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, 0)
    tl.atomic_add(sums + i % BINS, value, i < n)
    tl.atomic_max(maxima + i % BINS, value, i < n)


@triton.jit
def spin_lock(lock, x, total, rounds):
    """A sum under a lock that programs take with compare-and-swap."""
    for _ in range(rounds):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(total, tl.load(total, volatile=True) + tl.load(x + tl.program_id(0)))
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)


@triton.jit
def dropout(x, y, n, seed, probability, BLOCK: tl.constexpr):
    """Philox random numbers: 32-bit high products."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) >= probability
    tl.store(y + i, tl.where(keep, tl.load(x + i, i < n), 0.0), i < n)


@triton.jit
def convert(x, y, n, BLOCK: tl.constexpr):
    """y = x in y's element type."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n).to(y.dtype.element_ty), i < n)


@triton.jit
def elementwise(x, y, quotients, remainders, roots, powers, n, BLOCK: tl.constexpr):
    """Division, remainder, square root and base-2 exponential. Triton's rounded forms are for float32 alone."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = tl.load(x + i, i < n, 1), tl.load(y + i, i < n, 1)
    if first.dtype == tl.float32:
        tl.store(quotients + i, tl.div_rn(first, second), i < n)
        tl.store(roots + i, tl.sqrt_rn(tl.abs(first)), i < n)
    else:
        tl.store(quotients + i, first / second, i < n)
        tl.store(roots + i, tl.sqrt(tl.abs(first)), i < n)
    tl.store(remainders + i, first % second, i < n)
    tl.store(powers + i, tl.exp2(first), i < n)


@triton.jit
def integer_division(x, y, quotients, remainders, highs, n, BLOCK: tl.constexpr):
    """Quotient and remainder, rounded toward zero, and for 32 and 64 bits the high half of the product."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = tl.load(x + i, i < n, 1), tl.load(y + i, i < n, 1)
    tl.store(quotients + i, first // second, i < n)
    tl.store(remainders + i, first % second, i < n)
    tl.store(highs + i, tl.umulhi(first, second), i < n)
