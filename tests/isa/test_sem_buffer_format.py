"""Typed buffer loads and stores: every data and numeric format against conversions written with exact fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from support.memory_runs import EXECUTORS, MemoryRig, lanes_of, memory_rig
from support.vector_runs import LANES, filler, prepare

MASK = 0x7F31_FFFF_0001_8421
ELEMENT = 16
"""Distance of the lanes' elements in memory."""

FORMATS = {
    1: (8,), 2: (16,), 3: (8, 8), 4: (32,), 5: (16, 16), 6: (11, 11, 10), 7: (10, 11, 11), 8: (2, 10, 10, 10),
    9: (10, 10, 10, 2), 10: (8, 8, 8, 8), 11: (32, 32), 12: (16, 16, 16, 16), 13: (32, 32, 32), 14: (32, 32, 32, 32),
}  # fmt: skip
"""DFMT -> component widths from the least significant bit (LLVM's BUF_DATA_FORMAT names list them from the other end)."""

NUMERIC = {"unorm": 0, "snorm": 1, "uscaled": 2, "sscaled": 3, "uint": 4, "sint": 5, "float": 7}
COMPONENTS = ("x", "xy", "xyz", "xyzw")


def _valid(dfmt: int, numeric: str) -> bool:
    """Combinations that hardware defines: no 8 or 2-bit floats, no packed 10/11-bit number but floats and integers."""
    widths = FORMATS[dfmt]
    if numeric == "float":
        return not {8, 2} & set(widths)
    return True


IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9
"""DST_SEL of components in their own places."""

TYPED_SAMPLES = [(1, "snorm"), (3, "uint"), (6, "float"), (9, "unorm"), (12, "float"), (13, "uint")]
"""Formats in the instruction's own fields; the descriptor's then do not count."""

CASES = [(dfmt, numeric) for dfmt in FORMATS for numeric in NUMERIC if _valid(dfmt, numeric)]


FORMS = [*((dfmt, numeric, False) for dfmt, numeric in CASES), *((dfmt, numeric, True) for dfmt, numeric in TYPED_SAMPLES)]
"""(dfmt, numeric format, whether the instruction states them itself)."""


def _tuple(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _registers(components: str, d16: bool) -> int:
    return (len(components) + 1) // 2 if d16 else len(components)


def _text(operation: str, components: str, d16: bool, dfmt: int, nfmt: int) -> str:
    register = 8 if operation == "load" else 20
    data, middle = _tuple(register, _registers(components, d16)), "d16_" if d16 else ""
    name = f"tbuffer_{operation}_format_{middle}{components}"
    return f"{name} {data}, v0, s[4:7], 0 format:{dfmt | nfmt << 4} offen"


def _mubuf_text(operation: str, components: str, d16: bool) -> str:
    register = 8 if operation == "load" else 20
    data, middle = _tuple(register, _registers(components, d16)), "d16_" if d16 else ""
    return f"buffer_{operation}_format_{middle}{components} {data}, v0, s[4:7], 0 offen"


@pytest.fixture(scope="module")
def rig() -> Iterator[MemoryRig]:
    prepare(
        [
            *(
                _text(operation, "xyzw", d16, dfmt, NUMERIC[numeric])
                for operation in ("load", "store")
                for d16 in (False, True)
                for dfmt, numeric in TYPED_SAMPLES
            ),
            *(
                _mubuf_text(operation, components, d16)
                for operation in ("load", "store")
                for components in COMPONENTS
                for d16 in (False, True)
            ),
            "buffer_load_format_d16_hi_x v8, v0, s[4:7], 0 offen",
            "buffer_store_format_d16_hi_x v20, v0, s[4:7], 0 offen",
            "buffer_load_format_x v0, s[4:7], 0 offen lds",
        ],
        "gfx950",
    )
    with memory_rig() as one:
        yield one


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    """uint8: the lanes' elements: random, and in the first lanes all zeros, all ones and single bits."""
    raw = np.random.default_rng(5).integers(0, 256, (LANES, ELEMENT), dtype=np.uint8)
    raw[0], raw[16] = 0, 0xFF
    raw[5] = np.frombuffer(np.array([0x80000000, 0x80008000, 0x00800080, 0x3C003C00], np.uint32).tobytes(), np.uint8)
    return raw.reshape(-1)


@pytest.fixture
def address(rig: MemoryRig, data: np.ndarray) -> Iterator[int]:
    rig.forget_hits()
    start = rig.buffer(data)
    yield start
    rig.vram.free(start)


def _resource(
    address: int, num_records: int = 1 << 16, dst_sel: int = IDENTITY, dfmt: int = 4, nfmt: int = 4
) -> dict[int, int]:
    """s[4:7] of a raw buffer."""
    return {4: address & 0xFFFFFFFF, 5: address >> 32, 6: num_records, 7: dst_sel | nfmt << 12 | dfmt << 15}


def _form(operation: str, d16: bool, dfmt: int, numeric: str, typed: bool, address: int) -> tuple[str, dict[int, int]]:
    """(instruction, its V#). A typed instruction gets a descriptor of another format whose selects would give zeros."""
    if typed:
        return _text(operation, "xyzw", d16, dfmt, NUMERIC[numeric]), _resource(address, dst_sel=0)
    return _mubuf_text(operation, "xyzw", d16), _resource(address, dst_sel=IDENTITY, dfmt=dfmt, nfmt=NUMERIC[numeric])


OFFSETS = np.arange(LANES, dtype=np.uint32) * ELEMENT


# --- the conversions, again --------------------------------------------------------------------------------------------


def _f32(x: Fraction) -> int:
    """The f32 pattern of a fraction, correctly rounded (by way of f64, far finer than the quotients here can tie at)."""
    return int(np.float32(float(x)).view(np.uint32))


def _f16(pattern32: int) -> int:
    with np.errstate(all="ignore"):
        return int(np.array([pattern32], np.uint32).view(np.float32).astype(np.float16).view(np.uint16)[0])


def _signed(raw: int, bits: int) -> int:
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def _from_half(pattern16: int) -> int:
    return int(np.array([pattern16], np.uint16).view(np.float16).astype(np.float32).view(np.uint32)[0])


def _loaded(raw: int, bits: int, numeric: str, d16: bool) -> int:
    """The register component of a stored one."""
    if bits == 32:
        return raw if not d16 else _f16(raw) if numeric == "float" else raw & 0xFFFF
    if numeric in ("uint", "sint"):
        value = _signed(raw, bits) if numeric == "sint" else raw
        return value & (0xFFFF if d16 else 0xFFFFFFFF)
    wide = {
        "unorm": lambda: _f32(Fraction(raw, (1 << bits) - 1)),
        "snorm": lambda: _f32(max(Fraction(_signed(raw, bits), (1 << (bits - 1)) - 1), Fraction(-1))),
        "uscaled": lambda: _f32(Fraction(raw)),
        "sscaled": lambda: _f32(Fraction(_signed(raw, bits))),
        "float": lambda: _from_half(raw if bits == 16 else raw << (15 - bits)),
    }[numeric]()
    return _f16(wide) if d16 else wide


def _same(got: int, want: int, d16: bool, numeric: str) -> bool:
    """Equal bits; a NaN need only be one with the same upper payload, quieted."""
    quiet, infinity, magnitude = (0x0200, 0x7C00, 0x7FFF) if d16 else (0x00400000, 0x7F800000, 0x7FFFFFFF)
    if numeric == "float" and want & magnitude > infinity:
        return got | quiet == want | quiet
    return got == want


def _element(raw: np.ndarray, dfmt: int) -> list[tuple[int, int]]:
    """(bits of the component, width) in an element's bytes."""
    number, out, position = int.from_bytes(raw.tobytes(), "little"), [], 0
    for width in FORMATS[dfmt]:
        out.append((number >> position & (1 << width) - 1, width))
        position += width
    return out


def _components(vgpr: np.ndarray, lane: int, register: int, count: int, d16: bool) -> list[int]:
    if not d16:
        return [int(vgpr[register + c, lane]) for c in range(count)]
    return [int(vgpr[register + c // 2, lane]) >> (16 * (c % 2)) & 0xFFFF for c in range(count)]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("d16", [False, True])
@pytest.mark.parametrize(("dfmt", "numeric", "typed"), FORMS)
def test_loads_convert(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, d16: bool, dfmt: int, numeric: str, typed: bool
) -> None:
    text, resource = _form("load", d16, dfmt, numeric, typed, address)
    run = rig.run(executor, text, {0: OFFSETS}, sgprs=resource, exec_mask=MASK)
    for lane in lanes_of(MASK):
        got = _components(run.vgpr, lane, 8, 4, d16)
        want = [_loaded(raw, bits, numeric, d16) for raw, bits in _element(data[lane * ELEMENT :][:ELEMENT], dfmt)]
        for c in range(4):
            assert _same(got[c], want[c] if c < len(want) else 0, d16, numeric), (lane, c, hex(got[c]))
    registers = _registers("xyzw", d16)
    idle = [lane for lane in range(LANES) if not MASK >> lane & 1]
    np.testing.assert_array_equal(run.vgpr[8 : 8 + registers, idle], filler()[8 : 8 + registers, idle])


def _value(pattern: int, d16: bool) -> Fraction | None:
    """The number in a register component; None for NaN, and a huge one for infinity."""
    bits, dtype = (np.uint16, np.float16) if d16 else (np.uint32, np.float32)
    x = float(np.array([pattern], bits).view(dtype)[0])
    if np.isnan(x):
        return None
    return Fraction(x) if np.isfinite(x) else Fraction(10**60 if x > 0 else -(10**60))


def _clamp(x: Fraction | int, low: int, high: int) -> Fraction:
    return max(Fraction(low), min(Fraction(high), Fraction(x)))


def _stored(component: int, bits: int, numeric: str, d16: bool) -> int:
    """The bits that a register component becomes in memory."""
    ones, top = (1 << bits) - 1, (1 << (bits - 1)) - 1
    if numeric == "uint" or (bits == 32 and numeric not in ("sint", "float")):
        return component if bits == 32 else min(component, ones)
    if numeric == "sint":
        return int(_clamp(_signed(component, 16 if d16 else 32), -top - 1, top)) & ones
    if numeric == "float":
        wide = _from_half(component) if d16 else component
        if bits == 32:
            return wide
        half = component if d16 else _f16(component)
        if bits == 16:
            return half
        nan = half & 0x7FFF > 0x7C00
        return (half & 0x7FFF if nan or not half >> 15 else 0) >> (15 - bits)
    value = _value(component, d16)
    if value is None:
        value = Fraction(0)
    if numeric == "unorm":
        return _scaled(_clamp(value, 0, 1), ones)
    if numeric == "snorm":
        return _scaled(_clamp(value, -1, 1), top) & ones
    if numeric == "uscaled":
        return int(_clamp(value, 0, ones))
    return int(_clamp(int(value), -top - 1, top)) & ones


def _scaled(x: Fraction, scale: int) -> int:
    """x * scale rounded to f32, then to the nearest integer."""
    product = np.float32(float(x)) * np.float32(scale)
    return round(Fraction(float(product)))


STORE_VALUES = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        0.25,
        -0.75,
        1.5,
        2.0,
        3.0,
        100.7,
        -100.7,
        255.0,
        300.0,
        65504.0,
        70000.0,
        1e10,
        -1e10,
        1e-3,
        1e-8,
    ],
    np.float32,
)


def _store_data(d16: bool, numeric: str) -> np.ndarray:
    """uint32 [4, lanes] register components: floats of many sizes, infinities and NaN, or integers."""
    generator = np.random.default_rng(13)
    if numeric in ("uint", "sint"):
        values = generator.integers(0, 1 << 32, (4, LANES), dtype=np.uint32) >> generator.integers(
            0, 32, (4, LANES), dtype=np.uint32
        )
        return values & np.uint32(0xFFFF) if d16 else values
    floats = generator.choice(np.concatenate([STORE_VALUES, np.float32([np.inf, -np.inf, np.nan])]), (4, LANES))
    with np.errstate(all="ignore"):
        return floats.astype(np.float16).view(np.uint16).astype(np.uint32) if d16 else floats.view(np.uint32)


def _store_inputs(components: np.ndarray, d16: bool) -> dict[int, np.ndarray]:
    if not d16:
        return {20 + c: components[c] for c in range(4)}
    return {20: components[0] | components[1] << np.uint32(16), 21: components[2] | components[3] << np.uint32(16)}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("d16", [False, True])
@pytest.mark.parametrize(("dfmt", "numeric", "typed"), FORMS)
def test_stores_convert(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, d16: bool, dfmt: int, numeric: str, typed: bool
) -> None:
    components = _store_data(d16, numeric)
    text, resource = _form("store", d16, dfmt, numeric, typed, address)
    rig.run(executor, text, {0: OFFSETS, **_store_inputs(components, d16)}, sgprs=resource, exec_mask=MASK)
    after, expected = rig.bytes_at(address, len(data)).reshape(LANES, ELEMENT), data.copy().reshape(LANES, ELEMENT)
    nbytes = sum(FORMATS[dfmt]) // 8
    for lane in range(LANES):
        np.testing.assert_array_equal(after[lane, nbytes:], expected[lane, nbytes:])
        if not MASK >> lane & 1:
            np.testing.assert_array_equal(after[lane], expected[lane])
            continue
        for c, (got, bits) in enumerate(_element(after[lane], dfmt)):
            want = _stored(int(components[c, lane]), bits, numeric, d16)
            if numeric == "float" and _value(int(components[c, lane]), d16) is None:
                continue
            assert got == want, (lane, c, hex(int(components[c, lane])), hex(got), hex(want))


# --- what only the descriptor's formats have -------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("d16", [False, True])
@pytest.mark.parametrize("components", COMPONENTS)
def test_descriptor_formats_select_their_components(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str, d16: bool, components: str
) -> None:
    """Selects: x = A, y = 1, z = 0, w = R. The elements of the upper lanes are out of range: only the 1 remains."""
    count, limit = len(components), 40
    resource = _resource(address, limit * ELEMENT + 3, 7 | 1 << 3 | 0 << 6 | 4 << 9, dfmt=10, nfmt=4)
    run = rig.run(executor, _mubuf_text("load", components, d16), {0: OFFSETS}, sgprs=resource, exec_mask=MASK)
    for lane in lanes_of(MASK):
        element = data[lane * ELEMENT :][:4] if lane < limit else np.zeros(4, np.uint8)
        want = [int(element[3]), 1, 0, int(element[0])][:count]
        assert _components(run.vgpr, lane, 8, count, d16) == want
        if d16 and count % 2:
            last = 8 + count // 2
            assert run.vgpr[last, lane] >> 16 == filler()[last, lane] >> 16


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("nfmt", "one"), [(4, 1), (5, 1), (0, 0x3F800000), (7, 0x3F800000)])
def test_a_constant_one_has_the_register_type(rig: MemoryRig, address: int, executor: str, nfmt: int, one: int) -> None:
    resource = _resource(address, dst_sel=1, dfmt=5, nfmt=nfmt)
    run = rig.run(executor, _mubuf_text("load", "x", False), {0: OFFSETS}, sgprs=resource)
    assert set(run.vgpr[8]) == {one}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_stores_put_components_where_the_descriptor_selects_them(
    rig: MemoryRig, data: np.ndarray, address: int, executor: str
) -> None:
    """x goes to G and y to R; B and A get nothing, which is zero."""
    resource = _resource(address, dst_sel=5 | 4 << 3, dfmt=10, nfmt=4)
    inputs = {0: OFFSETS, 20: np.arange(LANES), 21: np.arange(LANES) + 100}
    rig.run(executor, _mubuf_text("store", "xy", False), inputs, sgprs=resource)
    after = rig.bytes_at(address, len(data)).reshape(LANES, ELEMENT)
    for lane in range(LANES):
        assert list(after[lane, :4]) == [lane + 100, lane, 0, 0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_d16_hi_forms_use_the_upper_half(rig: MemoryRig, data: np.ndarray, address: int, executor: str) -> None:
    resource = _resource(address, dfmt=2, nfmt=4)
    run = rig.run(executor, "buffer_load_format_d16_hi_x v8, v0, s[4:7], 0 offen", {0: OFFSETS}, sgprs=resource)
    loaded = data.reshape(LANES, ELEMENT)[:, :2].copy().view(np.uint16)[:, 0].astype(np.uint32)
    np.testing.assert_array_equal(run.vgpr[8], loaded << 16 | filler()[8] & 0xFFFF)
    rig.run(executor, "buffer_store_format_d16_hi_x v20, v0, s[4:7], 0 offen", {0: OFFSETS}, sgprs=resource)
    after = rig.bytes_at(address, len(data)).reshape(LANES, ELEMENT)[:, :2].copy().view(np.uint16)[:, 0]
    np.testing.assert_array_equal(after, filler()[20] >> 16)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_format_loads_to_lds_store_one_dword_per_lane(rig: MemoryRig, data: np.ndarray, address: int, executor: str) -> None:
    resource = _resource(address, dfmt=1, nfmt=5)
    rig.run(executor, "buffer_load_format_x v0, s[4:7], 0 offen lds", {0: OFFSETS}, sgprs=resource, m0=512)
    want = data.reshape(LANES, ELEMENT)[:, 0].view(np.int8).astype(np.int32)
    np.testing.assert_array_equal(rig.lds[512 : 512 + 4 * LANES].copy().view(np.int32), want)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("dfmt", [0, 15])
def test_invalid_formats_load_zero(rig: MemoryRig, address: int, executor: str, dfmt: int) -> None:
    run = rig.run(executor, _mubuf_text("load", "xy", False), {0: OFFSETS}, sgprs=_resource(address, dfmt=dfmt))
    assert not run.vgpr[8:10].any()
