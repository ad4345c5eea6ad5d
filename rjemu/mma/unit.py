"""The matrix unit: what the semantics of matrix instructions need beyond lane vectors.

The semantics describe a matrix instruction as a `Product` of `Input`s. Both executors have a `MatrixUnit` that unpacks the
operands into scratch arrays with one row per k, multiplies them and writes D: `numpy_unit` at once, `native_unit` as LLVM
IR.

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

from rjemu.isa.context import Context
from rjemu.isa.instruction import Operand
from rjemu.mma.formats import Decoder
from rjemu.mma.geometry import SCALE_BLOCK, InputLayout, OutputLayout

CANONICAL_NAN = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}
"""The bits of a NaN result. Which payload hardware delivers is not documented."""

LARGEST_F32 = 0x7F7FFFFF


@dataclass(frozen=True, slots=True)
class Input:
    """An operand to unpack: the element [block, index, k] of its layout goes to row k, column index + dim * block of an
    array [k][dim * blocks] of `type_name`.

    element: the elements' format, "" for what is no element of a matrix. lanes: the lane whose registers each lane of the
    layout takes; none for each its own.
    """

    operand: Operand
    layout: InputLayout
    type_name: str
    decoder: Decoder
    element: str = ""
    lanes: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Scales:
    """Exponents of A [k / 32][M] and B [k / 32][N] as f32 numbers, NaN where the scale is NaN."""

    a: Input
    b: Input


@dataclass(frozen=True, slots=True)
class Product:
    """One multiplication. a: [steps][M * blocks], b: [k][N * blocks], f32 or f64 numbers (i8 elements are f32 too).

    result: f32, f64 or i32. c: registers or a constant, the same type as the result; negate_c: -C instead.
    selected: for a sparse A, u32 like a: the k, so the row of b, of each element of a.
    """

    layout: OutputLayout
    result: str
    a: Input
    b: Input
    c: Operand
    d: Operand
    negate_c: bool = False
    selected: Input | None = None
    scales: Scales | None = None

    @property
    def steps(self) -> int:
        """Multiply-adds for each element of D."""
        return self.a.layout.k

    @property
    def scale_blocks(self) -> int:
        return self.steps // SCALE_BLOCK


class MatrixUnit(ABC):
    """Executes products in one instruction of one context."""

    @abstractmethod
    def multiply(self, product: Product) -> None:
        """D = A * B + C; see the module's docstring."""


@singledispatch
def matrix_unit(b: Context) -> MatrixUnit:
    """The matrix unit of an executor's context."""
    raise TypeError(f"{type(b).__name__} has no matrix unit")
