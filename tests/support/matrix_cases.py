"""One matrix instruction in a test: its registers, its assembly text, filling a wave and reading operands back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from support.matrix_oracle import WIDTH, dtype_of, input_matrix, lane_elements, result_matrix, words_from_elements
from support.matrix_runs import span

from rjemu.exec.wave import WaveState
from rjemu.mma.geometry import F8F6F4_FORMATS, INSTRUCTIONS, Shape, shape_of

AGPR = 256
D, C, A, B, SCALE_A, SCALE_B, INDEX = 0, 32, 64, 80, 100, 101, 102


@dataclass(frozen=True)
class Case:
    """An instruction and its element formats. accumulators: C and D in AGPRs; agpr_inputs: A and B too."""

    target: str
    name: str
    a: str
    b: str
    accumulators: bool = False
    agpr_inputs: bool = False

    @property
    def shape(self) -> Shape:
        return shape_of(self.name)

    @property
    def result(self) -> str:
        return self.shape.result

    @property
    def d_registers(self) -> int:
        return self.shape.m * self.shape.n * self.shape.blocks // 64 * (2 if self.result == "f64" else 1)

    def input_registers(self, name: str) -> int:
        shape = self.shape
        if name == "a":
            return max(shape.m * shape.k * shape.blocks * WIDTH[self.a] // (2 if shape.sparse else 1) // 2048, 1)
        return max(shape.n * shape.k * shape.blocks * WIDTH[self.b] // 2048, 1)

    def line(self, *, c: str | None = None, modifiers: str = "", d_first: int = D, c_first: int = C) -> str:
        """Assembly text. c: a constant in place of C's registers."""
        acc, inputs = "a" if self.accumulators else "v", "a" if self.agpr_inputs else "v"
        source = span("v", INDEX, 1) if self.shape.sparse else c or span(acc, c_first, self.d_registers)
        operands = [
            span(acc, d_first, self.d_registers),
            span(inputs, A, self.input_registers("a")),
            span(inputs, B, self.input_registers("b")),
            source,
        ]
        if self.shape.scaled:
            operands += [span("v", SCALE_A, 1), span("v", SCALE_B, 1)]
        formats = []
        if not self.shape.a:
            formats = [f"cbsz:{F8F6F4_FORMATS.index(self.a)}", f"blgp:{F8F6F4_FORMATS.index(self.b)}"]
        return " ".join([f"{self.name} {', '.join(operands)}", modifiers, *formats])

    # --- the wave ---

    def rows(self, role: str) -> slice:
        """Which vector registers hold A, B, C or D. A sparse instruction's C is its D."""
        if role in "ab":
            first = (A if role == "a" else B) + (AGPR if self.agpr_inputs else 0)
            return slice(first, first + self.input_registers(role))
        first = (C if role == "c" and not self.shape.sparse else D) + (AGPR if self.accumulators else 0)
        return slice(first, first + self.d_registers)

    def elements(self, state: WaveState, role: str) -> np.ndarray:
        """[64, items] of A or B."""
        return lane_elements(state.vgpr[self.rows(role)], self.a if role == "a" else self.b, self.target)

    def matrix(self, state: WaveState, role: str) -> np.ndarray:
        """A as [blocks, m, k (compressed where sparse)], B as [blocks, n, k], C and D as [blocks, m, n]."""
        shape = self.shape
        if role in "ab":
            return input_matrix(self.elements(state, role), shape.m if role == "a" else shape.n, shape.blocks)
        return result_matrix(state.vgpr[self.rows(role)], shape.m, shape.n, shape.blocks, self.result)

    def dense_k(self, state: WaveState, *, chosen_set: int = 0) -> np.ndarray:
        """[m, k / 2]: the k of each element of a sparse A."""
        shape = self.shape
        groups, items = 64 // shape.m, shape.k // 2 // (64 // shape.m)
        digits = np.unpackbits(state.vgpr[INDEX][:, None].view(np.uint8), axis=1, bitorder="little").reshape(64, 16, 2)
        indices = digits[:, :, 0] + 2 * digits[:, :, 1].astype(int)
        mine = indices[:, items * chosen_set : items * (chosen_set + 1)]
        by_row = mine.reshape(groups, shape.m, items).transpose(1, 0, 2).reshape(shape.m, shape.k // 2)
        return by_row + 4 * (np.arange(shape.k // 2) // 2)

    def fill_integers(self, state: WaveState, rng: np.random.Generator) -> None:
        """Small whole numbers in A, B and C, or any bits in formats that hold no others than small numbers."""
        for role, element in (("a", self.a), ("b", self.b)):
            rows = self.rows(role)
            if WIDTH[element] >= 8:
                count = (rows.stop - rows.start) * 32 // WIDTH[element]
                values = rng.integers(-3, 4, (64, count)).astype(np.float32).astype(dtype_of(element, self.target))
                state.vgpr[rows] = words_from_elements(values)
        dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[self.result]
        rows = self.rows("c")
        values = rng.integers(-99, 100, (64, self.d_registers * 4 // np.dtype(dtype).itemsize)).astype(dtype)
        state.vgpr[rows] = words_from_elements(values)
        if self.shape.sparse:
            state.vgpr[INDEX] = legal_indices(rng)


def legal_indices(rng: np.random.Generator) -> np.ndarray:
    """A sparse index register: in every four bits two different places, in ascending order."""
    pairs = np.array([first | second << 2 for second in range(4) for first in range(second)], np.uint32)
    chosen = pairs[rng.integers(0, len(pairs), (64, 8))]
    return np.bitwise_or.reduce(chosen << (4 * np.arange(8, dtype=np.uint32)), axis=1).astype(np.uint32)


def expand(a: np.ndarray, dense_k: np.ndarray, k: int) -> np.ndarray:
    """A sparse A [m, k / 2] as [m, k] of float64."""
    out = np.zeros((len(a), k))
    np.put_along_axis(out, dense_k, a.astype(np.float64), axis=1)
    return out


def product(case: Case, state: WaveState, *, chosen_set: int = 0) -> np.ndarray:
    """A * B as [blocks, m, n] of float64: exact for small numbers."""
    a, b = case.matrix(state, "a").astype(np.float64), case.matrix(state, "b").astype(np.float64)
    if case.shape.sparse:
        a = expand(a[0], case.dense_k(state, chosen_set=chosen_set), case.shape.k)[None]
    return np.einsum("bik,bjk->bij", a, b)


def all_cases() -> Iterator[Case]:
    """Every instruction of both targets, with one format pair where it takes several."""
    for target, names in INSTRUCTIONS.items():
        for name in names:
            shape = shape_of(name)
            yield Case(target, name, shape.a or "fp8", shape.b or "fp4")


def different_cases() -> Iterator[Case]:
    """Of the instructions that both targets have, and with the same meaning, one target's only."""
    for case in all_cases():
        fnuz = case.target == "gfx942" and "8" in case.a[2:] + case.b[2:] and case.result == "f32"
        if case.target == "gfx950" or fnuz or case.name not in INSTRUCTIONS["gfx950"]:
            yield case
