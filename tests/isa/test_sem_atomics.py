"""Atomics of DS, FLAT, GLOBAL and MUBUF: what they leave in memory and what they return, against a model lane by lane."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support.memory_runs import EXECUTORS, LDS_BYTES, MemoryRig, lanes_of, memory_rig, pair
from support.vector_runs import ALL_LANES, DEFAULT_MODE, LANES, filler, prepare

Model = Callable[[int, int, int, int], int]
"""(memory, first data operand, second data operand, bits) -> new memory."""

MASK = 0xF731_FFFF_0000_8421
FLUSH_ALL = DEFAULT_MODE & ~0xF0
CELLS = 7
"""Memory elements that the lanes of a test share."""


def _signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


INTEGER: dict[str, Model] = {
    "add": lambda m, d, _, n: m + d,
    "sub": lambda m, d, _, n: m - d,
    "rsub": lambda m, d, _, n: d - m,
    "inc": lambda m, d, _, n: 0 if m >= d else m + 1,
    "dec": lambda m, d, _, n: d if m == 0 or m > d else m - 1,
    "smin": lambda m, d, _, n: d if _signed(d, n) < _signed(m, n) else m,
    "smax": lambda m, d, _, n: d if _signed(d, n) >= _signed(m, n) else m,
    "umin": lambda m, d, _, n: min(m, d),
    "umax": lambda m, d, _, n: max(m, d),
    "and": lambda m, d, _, n: operator.and_(m, d),
    "or": lambda m, d, _, n: operator.or_(m, d),
    "xor": lambda m, d, _, n: operator.xor(m, d),
    "swap": lambda m, d, _, n: d,
    "mskor": lambda m, d, e, n: m & ~d | e,
    "cmpst": lambda m, d, e, n: e if m == d else m,
    "cmpswap": lambda m, d, e, n: d if m == e else m,
    "wrap": lambda m, d, e, n: m - d if m >= d else m + e,
}
DS_NAMES = {
    "add": "add{}_u",
    "sub": "sub{}_u",
    "rsub": "rsub{}_u",
    "inc": "inc{}_u",
    "dec": "dec{}_u",
    "smin": "min{}_i",
    "smax": "max{}_i",
    "umin": "min{}_u",
    "umax": "max{}_u",
    "and": "and{}_b",
    "or": "or{}_b",
    "xor": "xor{}_b",
    "mskor": "mskor{}_b",
    "cmpst": "cmpst{}_b",
}
VECTOR_NAMES = ("swap", "cmpswap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec")
TWO_OPERANDS = ("mskor", "cmpst", "wrap")


def _tuple(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _ds_text(mnemonic: str, words: int, *, returning: bool, second: bool) -> str:
    operands = ["v0", _tuple(20, words), *([_tuple(24, words)] if second else [])]
    if returning:
        operands.insert(0, _tuple(8, words))
    return f"ds_{mnemonic} {', '.join(operands)} offset:64"


def _ds_integer_text(name: str, bits: int, returning: bool) -> str:
    mnemonic = DS_NAMES[name].format("_rtn" if returning else "") + str(bits)
    return _ds_text(mnemonic, bits // 32, returning=returning, second=name in TWO_OPERANDS)


def _vector_text(family: str, name: str, returning: bool) -> str:
    words = 2 if name.endswith(("_x2", "f64")) else 1
    count = 2 * words if name.startswith("cmpswap") else words
    old, data = _tuple(8, words), _tuple(20, count)
    address = "v[0:1]" if family == "flat" else "v[0:1], "
    if family == "buffer":
        return f"buffer_atomic_{name} {data}, v0, s[4:7], 0 offen offset:16" + (" sc0" if returning else "")
    operands = [*([old] if returning else []), address.rstrip(", "), data, *(["off"] if family == "global" else [])]
    return f"{family}_atomic_{name} {', '.join(operands)} offset:16" + (" sc0" if returning else "")


DS_CASES = [(name, bits, returning) for name in DS_NAMES for bits in (32, 64) for returning in (False, True)]
DS_RETURNING = [("wrxchg_rtn_b32", "swap", 32), ("wrxchg_rtn_b64", "swap", 64), ("wrap_rtn_b32", "wrap", 32)]
VECTOR_CASES = [
    (family, name + suffix, returning)
    for family in ("global", "flat", "buffer")
    for name in VECTOR_NAMES
    for suffix in ("", "_x2")
    for returning in (False, True)
]
FLOAT_VECTOR = ("add_f32", "add_f64", "min_f64", "max_f64", "pk_add_f16", "pk_add_bf16")
FLOAT_DS = [
    *(f"{name}{{}}_f{bits}" for name in ("add", "min", "max", "cmpst") for bits in (32, 64)),
    "pk_add{}_f16",
    "pk_add{}_bf16",
]


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    prepare(
        [
            *(_ds_integer_text(*case) for case in DS_CASES),
            *(
                _ds_text(mnemonic, bits // 32, returning=True, second=name in TWO_OPERANDS)
                for mnemonic, name, bits in DS_RETURNING
            ),
            *(_vector_text(*case) for case in VECTOR_CASES),
            *(_vector_text(family, name, True) for family in ("global", "flat", "buffer") for name in FLOAT_VECTOR),
            *(_float_ds_text(name) for name in FLOAT_DS),
        ],
        "gfx950",
    )
    with memory_rig() as one:
        yield one


def _float_ds_text(name: str) -> str:
    words = 2 if name.endswith("f64") else 1
    return _ds_text(name.format("_rtn"), words, returning=True, second=name.startswith("cmpst"))


def _data(bits: int, seed: int) -> np.ndarray:
    """uint64 [lanes]: small numbers, so that comparisons meet equals, and patterns with the top bits set."""
    generator = np.random.default_rng(seed)
    wide = generator.integers(0, 1 << bits, LANES, dtype=np.uint64, endpoint=bits == 64 and False)
    small = generator.integers(0, 4, LANES, dtype=np.uint64)
    return np.where(generator.random(LANES) < 0.5, small, wide)


def _registers(first: int, values: np.ndarray, bits: int) -> dict[int, np.ndarray]:
    low = values & np.uint64(0xFFFFFFFF)
    return {first: low} if bits == 32 else {first: low, first + 1: values >> np.uint64(32)}


def _results(vgpr: np.ndarray, first: int, bits: int) -> np.ndarray:
    low = vgpr[first].astype(np.uint64)
    return low if bits == 32 else low | vgpr[first + 1].astype(np.uint64) << np.uint64(32)


class _Shared:
    """Memory elements shared by the lanes, and what a model makes of them."""

    def __init__(self, bits: int, cells: np.ndarray, mask: int) -> None:
        self.bits, self.cells, self.mask = bits, [int(c) for c in cells], mask
        self.where = np.random.default_rng(11).integers(0, len(cells), LANES)

    def expect(self, model: Model, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """(old values by lane, memory after)."""
        old, cells = np.zeros(LANES, np.uint64), list(self.cells)
        for lane in lanes_of(self.mask):
            cell = int(self.where[lane])
            old[lane] = cells[cell]
            cells[cell] = model(cells[cell], int(first[lane]), int(second[lane]), self.bits) & (1 << self.bits) - 1
        return old, cells

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"<u{self.bits // 8}")

    @property
    def memory(self) -> np.ndarray:
        return np.array(self.cells, self.dtype)


def _check_old(vgpr: np.ndarray, first: int, bits: int, old: np.ndarray, mask: int, before: np.ndarray) -> None:
    active = np.isin(np.arange(LANES), lanes_of(mask))
    np.testing.assert_array_equal(_results(vgpr, first, bits), np.where(active, old, before))


def _run_ds(
    rig: MemoryRig,
    executor: str,
    text: str,
    shared: _Shared,
    first: np.ndarray,
    second: np.ndarray,
    mode: int = DEFAULT_MODE,
) -> tuple[np.ndarray, np.ndarray]:
    """(vgprs, cells) after a DS atomic."""
    bits, base = shared.bits, 128
    rig.lds[:] = 0
    rig.lds[base + 64 : base + 64 + shared.memory.nbytes] = shared.memory.view(np.uint8)
    vgprs = {0: base + shared.where * (bits // 8), **_registers(20, first, bits), **_registers(24, second, bits)}
    run = rig.run(executor, text, vgprs, exec_mask=shared.mask, mode=mode)
    return run.vgpr, rig.lds[base + 64 : base + 64 + shared.memory.nbytes].copy().view(shared.dtype)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("name", "bits", "returning"), DS_CASES)
def test_lds_integers(rig: MemoryRig, executor: str, name: str, bits: int, returning: bool) -> None:
    shared = _Shared(bits, _data(bits, 1)[:CELLS], MASK)
    first, second = _data(bits, 2), _data(bits, 3)
    vgpr, cells = _run_ds(rig, executor, _ds_integer_text(name, bits, returning), shared, first, second)
    old, expected = shared.expect(INTEGER[name], first, second)
    assert [int(c) for c in cells] == expected
    before = _results(filler(), 8, bits)
    _check_old(vgpr, 8, bits, old if returning else before, MASK, before)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("mnemonic", "name", "bits"), DS_RETURNING)
def test_lds_exchange_and_wrap(rig: MemoryRig, executor: str, mnemonic: str, name: str, bits: int) -> None:
    shared = _Shared(bits, _data(bits, 4)[:CELLS], MASK)
    first, second = _data(bits, 5), _data(bits, 6)
    text = _ds_text(mnemonic, bits // 32, returning=True, second=name in TWO_OPERANDS)
    vgpr, cells = _run_ds(rig, executor, text, shared, first, second)
    old, expected = shared.expect(INTEGER[name], first, second)
    assert [int(c) for c in cells] == expected
    _check_old(vgpr, 8, bits, old, MASK, _results(filler(), 8, bits))


def _run_vector(
    rig: MemoryRig,
    executor: str,
    family: str,
    text: str,
    shared: _Shared,
    data: list[np.ndarray],
    mode: int = DEFAULT_MODE,
) -> tuple[np.ndarray, np.ndarray]:
    """(vgprs, cells) after an atomic on device memory."""
    bits, before = shared.bits, 64
    address = rig.buffer(np.concatenate([np.zeros(before + 16, np.uint8), shared.memory.view(np.uint8)]))
    rig.forget_hits()
    offsets = before + shared.where * (bits // 8)
    low, high = pair(address + offsets.astype(np.uint64))
    vgprs: dict[int, np.ndarray] = {0: offsets.astype(np.uint32)} if family == "buffer" else {0: low, 1: high}
    for k, values in enumerate(data):
        vgprs |= _registers(20 + k * bits // 32, values, bits)
    resource = {4: address & 0xFFFFFFFF, 5: address >> 32, 6: 4096, 7: 0x00027000}
    run = rig.run(executor, text, vgprs, sgprs=resource, exec_mask=shared.mask, mode=mode)
    cells = rig.bytes_at(address + before + 16, shared.memory.nbytes).copy().view(shared.dtype)
    rig.vram.free(address)
    return run.vgpr, cells


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("family", "name", "returning"), VECTOR_CASES)
def test_device_memory_integers(rig: MemoryRig, executor: str, family: str, name: str, returning: bool) -> None:
    bits = 64 if name.endswith("_x2") else 32
    shared = _Shared(bits, _data(bits, 7)[:CELLS], MASK)
    first, second = _data(bits, 8), _data(bits, 9)
    compares = name.startswith("cmpswap")
    text = _vector_text(family, name, returning)
    vgpr, cells = _run_vector(rig, executor, family, text, shared, [first, second] if compares else [first])
    old, expected = shared.expect(INTEGER[name.removesuffix("_x2")], first, second)
    assert [int(c) for c in cells] == expected
    result = 20 if family == "buffer" else 8
    before = first if family == "buffer" else _results(filler(), 8, bits)
    _check_old(vgpr, result, bits, old if returning else before, MASK, before)


# --- floating point -------------------------------------------------------------------------------------------------------

EDGES_32 = (
    0x0,
    0x80000000,
    0x1,
    0x807FFFFF,
    0x3F800000,
    0xBF800001,
    0x7F800000,
    0xFF800000,
    0x7FC01234,
    0x7F812345,
    0x4B800000,
)
EDGES_64 = (
    0x0, 1 << 63, 0x1, 0x3FF << 52, 0xBFF0000000000001, 0x7FF << 52, 0xFFF << 52, 0x7FF8000000001234, 0x7FF0000000000001,
)  # fmt: skip


def _is_nan(pattern: int, bits: int) -> bool:
    infinity = 0x7F800000 if bits == 32 else 0x7FF << 52
    return pattern & ((1 << (bits - 1)) - 1) > infinity


def _quiet_bit(bits: int) -> int:
    return 1 << (22 if bits == 32 else 51)


def _number(pattern: int, bits: int) -> np.floating:
    return np.array([pattern], f"<u{bits // 8}").view(f"<f{bits // 8}")[0]


def _pattern(x: np.floating) -> int:
    return int(np.array([x]).view(f"<u{x.dtype.itemsize}")[0])


def _add(m: int, d: int, _: int, bits: int) -> int:
    """The first NaN, quieted; an invalid sum gives the default NaN, which is negative."""
    for x in (m, d):
        if _is_nan(x, bits):
            return x | _quiet_bit(bits)
    with np.errstate(all="ignore"):
        total = _number(m, bits) + _number(d, bits)
    return _pattern(-abs(total)) if np.isnan(total) else _pattern(total)


def _select(m: int, d: int, bits: int, *, smaller: bool) -> int:
    """The ISA's order: signalling NaNs first (quieted), numbers before quiet NaNs, -0 below +0."""
    for x in (m, d):
        if _is_nan(x, bits) and not x & _quiet_bit(bits):
            return x | _quiet_bit(bits)
    if _is_nan(m, bits) or _is_nan(d, bits):
        return d if _is_nan(m, bits) else m

    def key(x: int) -> tuple[float, bool]:
        return float(_number(x, bits)), not x >> (bits - 1)

    return min(m, d, key=key) if smaller else max(m, d, key=key)


def _swap_if_equal(m: int, d: int, e: int, bits: int) -> int:
    return e if _number(m, bits) == _number(d, bits) else m


FLOAT: dict[str, Model] = {
    "add": _add,
    "min": lambda m, d, _, n: _select(m, d, n, smaller=True),
    "max": lambda m, d, _, n: _select(m, d, n, smaller=False),
    "cmpst": _swap_if_equal,
}


def _edges(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Two uint64 [lanes] arrays of edge patterns in many combinations."""
    edges = np.array(EDGES_32 if bits == 32 else EDGES_64, np.uint64)
    lanes = np.arange(LANES)
    return edges[lanes % len(edges)], edges[(lanes // len(edges) + lanes) % len(edges)]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", [name for name in FLOAT_DS if not name.startswith("pk")])
def test_lds_floats(rig: MemoryRig, executor: str, name: str) -> None:
    bits = int(name[-2:])
    first, second = _edges(bits)
    shared = _Shared(bits, np.roll(first, 5), ALL_LANES)
    vgpr, cells = _run_ds(rig, executor, _float_ds_text(name), shared, first, second)
    old, expected = shared.expect(FLOAT[name.split("{")[0]], first, second)
    assert [hex(int(c)) for c in cells] == [hex(c) for c in expected]
    np.testing.assert_array_equal(_results(vgpr, 8, bits), old)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_lds_floats_follow_the_denormal_mode(rig: MemoryRig, executor: str) -> None:
    """A sum flushes sources and result, min and max compare flushed values but keep the bits, f64 sums flush nothing."""

    def once(name: str, bits: int, memory: int, first: int, second: int = 0) -> int:
        shared = _Shared(bits, np.array([memory], np.uint64), 1)
        data = [np.full(LANES, x, np.uint64) for x in (first, second)]
        return int(_run_ds(rig, executor, _float_ds_text(name), shared, data[0], data[1], FLUSH_ALL)[1][0])

    assert once("add{}_f32", 32, 0x00400000, 0x00400000) == 0
    assert once("add{}_f32", 32, 0x3F800000, 0x807FFFFF) == 0x3F800000
    assert once("add{}_f64", 64, 1, 1) == 2
    assert once("max{}_f32", 32, 0x00000002, 0x00000001) == 0x00000002
    assert once("min{}_f32", 32, 0x00000001, 0x80000001) == 0x80000001
    assert once("cmpst{}_f32", 32, 0x00000001, 0x80000000, 0x3F800000) == 0x3F800000


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["global", "flat", "buffer"])
@pytest.mark.parametrize("name", ["add_f32", "add_f64", "min_f64", "max_f64"])
def test_device_memory_floats(rig: MemoryRig, executor: str, family: str, name: str) -> None:
    bits = int(name[-2:])
    first, second = _edges(bits)
    shared = _Shared(bits, second, ALL_LANES)
    vgpr, cells = _run_vector(rig, executor, family, _vector_text(family, name, True), shared, [first])
    old, expected = shared.expect(FLOAT[name[:3]], first, second)
    assert [hex(int(c)) for c in cells] == [hex(c) for c in expected]
    np.testing.assert_array_equal(_results(vgpr, 20 if family == "buffer" else 8, bits), old)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["global", "flat", "buffer"])
def test_device_memory_floats_keep_denormals_in_every_mode(rig: MemoryRig, executor: str, family: str) -> None:
    shared = _Shared(32, np.array([0x00400000], np.uint64), 1)
    data = [np.full(LANES, 0x00000003, np.uint64)]
    _, cells = _run_vector(rig, executor, family, _vector_text(family, "add_f32", True), shared, data, FLUSH_ALL)
    assert int(cells[0]) == 0x00400003


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("rounding", [1, 2, 3])
def test_sums_round_to_nearest_even_in_every_mode(rig: MemoryRig, executor: str, rounding: int) -> None:
    """1 plus half of its last place is a tie, 1 plus three quarters of it is above one."""
    mode = DEFAULT_MODE | rounding | rounding << 2
    for data, total in ((0x33800000, 0x3F800000), (0x33C00000, 0x3F800001)):
        shared = _Shared(32, np.array([0x3F800000], np.uint64), 1)
        added = np.full(LANES, data, np.uint64)
        _, lds = _run_ds(rig, executor, _float_ds_text("add{}_f32"), shared, added, added, mode)
        _, cells = _run_vector(rig, executor, "global", _vector_text("global", "add_f32", True), shared, [added], mode)
        assert [int(lds[0]), int(cells[0])] == [total, total]


def _packed(name: str) -> Model:
    """Sums of halves, each correctly rounded: numpy's float16; bfloat16 by way of exact float64 sums."""
    import ml_dtypes

    dtype = np.dtype(np.float16) if name.endswith("_f16") else np.dtype(ml_dtypes.bfloat16)

    def model(m: int, d: int, _: int, bits: int) -> int:
        halves = [np.array([x], np.uint32).view(dtype).astype(np.float64) for x in (m, d)]
        with np.errstate(all="ignore"):
            return int((halves[0] + halves[1]).astype(dtype).view(np.uint32)[0])

    return model


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["ds", "global", "flat", "buffer"])
@pytest.mark.parametrize("name", ["pk_add_f16", "pk_add_bf16"])
def test_packed_sums(rig: MemoryRig, executor: str, family: str, name: str) -> None:
    generator = np.random.default_rng(17)
    # Exponents around 1 and denormals of both formats; no infinities or NaNs.
    patterns = (generator.integers(0, 1 << 15, (3, LANES)) & 0x3FFF | generator.integers(0, 2, (3, LANES)) << 15).astype(
        np.uint64
    )
    cells, first = patterns[0] << np.uint64(16) | patterns[1], patterns[2] << np.uint64(16) | patterns[0][::-1]
    shared = _Shared(32, cells[:CELLS], MASK)
    if family == "ds":
        text = _float_ds_text(name.replace("add", "add{}"))
        vgpr, after = _run_ds(rig, executor, text, shared, first, first)
    else:
        vgpr, after = _run_vector(rig, executor, family, _vector_text(family, name, True), shared, [first])
    old, expected = shared.expect(_packed(name), first, first)
    assert [hex(int(c)) for c in after] == [hex(c) for c in expected]
    active = lanes_of(MASK)
    result = _results(vgpr, 20 if family == "buffer" else 8, 32)
    np.testing.assert_array_equal(result[active], old[active])


# --- the odd ones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_condxchg32_replaces_the_dwords_whose_top_bit_is_set(rig: MemoryRig, executor: str) -> None:
    rig.lds[:] = np.random.default_rng(19).integers(0, 256, LDS_BYTES, dtype=np.uint8)
    before = rig.lds.copy().view(np.uint32)
    addresses = np.random.default_rng(20).permutation(LANES).astype(np.uint32) * 8 + 5
    data = np.random.default_rng(21).integers(0, 1 << 32, (2, LANES), dtype=np.uint32)
    run = rig.run(
        executor,
        "ds_condxchg32_rtn_b64 v[8:9], v0, v[20:21] offset:8",
        {0: addresses, 20: data[0], 21: data[1]},
        exec_mask=MASK,
    )
    expected = before.copy()
    for lane in lanes_of(MASK):
        for k in range(2):
            word = (int(addresses[lane]) + 8) // 8 * 2 + k
            assert run.vgpr[8 + k, lane] == before[word]
            if data[k, lane] >> 31:
                expected[word] = data[k, lane] & 0x7FFFFFFF
    np.testing.assert_array_equal(rig.lds.view(np.uint32), expected)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["ds", "global"])
def test_a_misaligned_atomic_faults_before_any_lane_acts(rig: MemoryRig, executor: str, family: str) -> None:
    offsets = np.arange(LANES, dtype=np.uint64) * 4
    offsets[[7, 30]] += np.uint64(2)
    address = rig.buffer(np.zeros(512, np.uint8))
    rig.lds[:] = 0
    rig.forget_hits()
    if family == "ds":
        run = rig.run(executor, _ds_integer_text("add", 32, False), {0: offsets, 20: 1})
        where = int(offsets[7]) + 64
    else:
        low, high = pair(offsets + np.uint64(address))
        run = rig.run(executor, _vector_text("global", "add", False), {0: low, 1: high, 20: 1})
        where = int(offsets[7]) + address + 16
    assert run.fault is not None
    assert (run.fault.misaligned, run.fault.access, run.fault.lane) == (True, "atomic", 7)
    assert (run.fault.address, run.fault.nbytes) == (where, 4)
    assert not rig.lds.any()
    assert not rig.bytes_at(address, 512).any()
    rig.vram.free(address)
