"""Integer compares in all forms, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.integer_ops import edge_numbers
from support.vector_runs import LANES, mask_of, prepare, run

from rjemu.isa.instruction import EXEC, VCC

TYPES = ("i16", "u16", "i32", "u32", "i64", "u64")
RELATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "f": lambda x, y: np.zeros(LANES, bool),
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "t": lambda x, y: np.ones(LANES, bool),
}
ACTIVE = 0xF0F0_1234_5678_9ABD


def operands(type_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of edge numbers, some equal, as uint64 [LANES]."""
    rng = np.random.default_rng(4)
    edges = np.array(edge_numbers(int(type_name[1:])), np.uint64)
    x, y = rng.choice(edges, LANES), rng.choice(edges, LANES)
    return x, np.where(np.arange(LANES) % 5 == 0, x, y)


def registers(file: str, first: int, bits: int) -> str:
    return f"{file}[{first}:{first + 1}]" if bits == 64 else f"{file}{first}"


def sources(type_name: str) -> str:
    bits = int(type_name[1:])
    return f"{registers('v', 2, bits)}, {registers('v', 4, bits)}"


def expected_mask(relation: str, type_name: str, active: int) -> int:
    dtype = np.dtype({"i": "int", "u": "uint"}[type_name[0]] + type_name[1:])
    x, y = (v.astype(f"uint{type_name[1:]}").view(dtype) for v in operands(type_name))
    holds = RELATIONS[relation](x, y)
    return sum(1 << lane for lane in range(LANES) if holds[lane] and active >> lane & 1)


def contents(type_name: str) -> dict[int, np.ndarray]:
    x, y = operands(type_name)
    low, high = np.uint64(0xFFFF_FFFF), np.uint64(32)
    beside = np.uint64(0xABCD_0000 if type_name.endswith("16") else 0)
    return {2: x & low | beside, 3: x >> high, 4: y & low | beside, 5: y >> high}


@pytest.fixture(scope="module", autouse=True)
def _assembled() -> None:
    prepare(
        [
            f"v_{kind}_{relation}_{t}{form}{sources(t)}"
            for kind in ("cmp", "cmpx")
            for relation in RELATIONS
            for t in TYPES
            for form in ("_e32 vcc, ", "_e64 s[10:11], ")
        ],
        "gfx950",
    )


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_compare(relation: str, type_name: str) -> None:
    want = expected_mask(relation, type_name, ACTIVE)
    for form, code in (("_e32 vcc, ", VCC), ("_e64 s[10:11], ", 10)):
        state = run(
            f"v_cmp_{relation}_{type_name}{form}{sources(type_name)}",
            contents(type_name),
            exec_mask=ACTIVE,
            vcc=(1 << 64) - 1,
        )
        assert mask_of(state, code) == want
        assert mask_of(state, EXEC) == ACTIVE


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_compare_and_narrow_exec(relation: str, type_name: str) -> None:
    want = expected_mask(relation, type_name, ACTIVE)
    for form, code in (("_e32 vcc, ", VCC), ("_e64 s[10:11], ", 10)):
        text = f"v_cmpx_{relation}_{type_name}{form}{sources(type_name)}"
        state = run(text, contents(type_name), exec_mask=ACTIVE)
        assert (mask_of(state, code), mask_of(state, EXEC)) == (want, want)


def test_compare_of_selected_bytes() -> None:
    state = run("v_cmp_lt_i32_sdwa s[10:11], sext(v1), v2 src0_sel:BYTE_1 src1_sel:WORD_1", {1: 0x8000, 2: [0x0001_0000]})
    assert mask_of(state, 10) == (1 << 64) - 1
    state = run(
        "v_cmpx_gt_u32_sdwa vcc, v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_0", {1: np.arange(64), 2: 61}, exec_mask=3 << 61
    )
    assert (mask_of(state, VCC), mask_of(state, EXEC)) == (1 << 62, 1 << 62)
