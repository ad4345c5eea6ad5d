"""The matrix unit: what the semantics of matrix instructions need beyond lane vectors.

A matrix instruction unpacks its operands into panels (scratch arrays with one row per k), multiplies them and writes D.
Both executors have a `MatrixUnit`: `numpy_unit` works at once on arrays, `native_unit` writes LLVM IR.

The arithmetic, the same bits in both (CDNA4 ISA, "Floating-point handling details"): rounding is to nearest even and
no denormal is flushed, whatever MODE says; EXEC is ignored; all operands are read before D is written.
    f32, f64   d = c, then d = fma(a, b, d) for k = 0, 1, ...
    i32        d = c + the exact sum of products, modulo 2^32
    scaled     d = c, then for each block of 32 k: d = d + s * 2^(scale of a + scale of b), where s is the sum of the block's
               products, made like f32's from zero on (the ISA applies scales after the dot product of a block); s is
               scaled with one rounding
    NaN        every NaN in D is CANONICAL_NAN
    MODE.FP16_OVFL   infinities in an f32 D become the largest finite number of their sign, an i32 sum saturates
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from rjemu.isa.context import Context
from rjemu.isa.instruction import Operand
from rjemu.mma.formats import Decoder
from rjemu.mma.geometry import SCALE_BLOCK, InputLayout, OutputLayout

CANONICAL_NAN = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}
"""The bits of a NaN result. Which payload hardware delivers is not documented."""

LARGEST_F32 = 0x7F7FFFFF


@dataclass(frozen=True, slots=True)
class Panel:
    """A scratch array [rows][columns] of a `Lanes` type; data belongs to the executor."""

    type_name: str
    rows: int
    columns: int
    data: Any


@dataclass(frozen=True, slots=True)
class Scales:
    """Exponents of A [k / 32][M] and B [k / 32][N] as f32 numbers, NaN where the scale is NaN."""

    a: Panel
    b: Panel


@dataclass(frozen=True, slots=True)
class Product:
    """One multiplication. a: panel [steps][M * blocks], b: panel [k][N * blocks], f32 or f64 (i8 elements are f32 too).

    result: f32, f64 or i32. c: registers or a constant, the same type as the result; negate_c: -C instead.
    selected: for a sparse A, u32 panel like a: the k, so the row of b, of each element of a.
    """

    layout: OutputLayout
    result: str
    a: Panel
    b: Panel
    c: Operand
    d: Operand
    negate_c: bool = False
    selected: Panel | None = None
    scales: Scales | None = None

    @property
    def steps(self) -> int:
        return self.a.rows

    @property
    def scale_blocks(self) -> int:
        return self.steps // SCALE_BLOCK


class MatrixUnit(ABC):
    """Panels and multiplication for one instruction of one context."""

    @abstractmethod
    def panel(self, type_name: str, rows: int, columns: int) -> Panel:
        """A panel of undefined content."""

    @abstractmethod
    def fill(
        self, panel: Panel, operand: Operand, layout: InputLayout, decoder: Decoder, lanes: Sequence[int] | None = None
    ) -> None:
        """Unpack an operand of that layout: row k, column i + dim * block gets the element [block, i, k].

        lanes: the lane whose registers each lane of the layout takes; none for each its own.
        """

    @abstractmethod
    def multiply(self, product: Product) -> None:
        """D = A * B + C; see the module's docstring."""


@singledispatch
def matrix_unit(b: Context) -> MatrixUnit:
    """The matrix unit of an executor's context."""
    raise TypeError(f"{type(b).__name__} has no matrix unit")
