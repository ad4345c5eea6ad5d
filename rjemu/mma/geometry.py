"""Matrix instructions of CDNA3 and CDNA4 as data: their sizes, and which register, lane and bit holds which element.

An instruction computes, for every block b, D[b,i,j] = C[b,i,j] + sum over k of A[b,i,k] * B[b,k,j]. The mnemonic says
all of its sizes. Sources: CDNA3 and CDNA4 ISA, "Matrix Arithmetic Instructions" (general input and output layout,
layouts of 8-bit and smaller elements, sparse matrices).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WAVE = 64

BITS = {
    "f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8,
    "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4,
}  # fmt: skip
"""Element formats of A and B and their bits. fp8 and bf8 are e4m3 and e5m2, fp6 and bf6 e2m3 and e3m2, fp4 e2m1."""

F8F6F4_FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")
"""What cbsz (for A) and blgp (for B) select in the f8f6f4 instructions."""

SCALE_BLOCK = 32
"""Consecutive k that share one scale."""

_HALF_K_REGISTERS = 4
"""An operand of eight registers holds the first half of K in its first four, the second half in the others."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an element lies: register from the operand's first, lane, and lowest bit in the register (a 64-bit element
    goes on in the next register, a 6-bit one may)."""

    register: int
    lane: int
    bit: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """One instruction: M, N, K, blocks, the formats of A and B ("" where cbsz and blgp select them), the result's type
    (f32, f64, i32), whether A is 4:2 sparse, and whether blocks of A and B carry scales."""

    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    result: str
    sparse: bool
    scaled: bool

    @property
    def result_bits(self) -> int:
        return 64 if self.result == "f64" else 32

    def a_layout(self, element: str) -> InputLayout:
        """A's layout with elements of that format. A sparse A holds the k/2 elements that are not zero."""
        return InputLayout(self.m, self.blocks, self.k // 2 if self.sparse else self.k, BITS[element])

    def b_layout(self, element: str) -> InputLayout:
        return InputLayout(self.n, self.blocks, self.k, BITS[element])

    @property
    def d_layout(self) -> OutputLayout:
        return OutputLayout(self.m, self.n, self.blocks, self.result_bits)


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Layout of A or B. `dim` is M or N: the index i of A[i,k], or j of B[k,j].

    A lane holds `items` elements of one i (or j), one after another in its registers; the `groups` lane groups of
    dim * blocks lanes share K among them.
    """

    dim: int
    blocks: int
    k: int
    bits: int

    @property
    def columns(self) -> int:
        """Lanes that hold one k."""
        return self.dim * self.blocks

    @property
    def groups(self) -> int:
        return WAVE // self.columns

    @property
    def items(self) -> int:
        return self.k // self.groups

    @property
    def registers(self) -> int:
        return max(self.items * self.bits // 32, 1)

    @property
    def run(self) -> int:
        """Consecutive k that a lane holds before the next lane group goes on."""
        return self.items // 2 if self.registers > _HALF_K_REGISTERS and self.bits >= 8 else self.items

    def k_of(self, item: int, group: int) -> int:
        """The k of a lane group's item."""
        return item // self.run * self.run * self.groups + group * self.run + item % self.run

    def place(self, block: int, index: int, k: int) -> Place:
        """Where A[block, index, k] or B[block, k, index] lies."""
        group = k // self.run % self.groups
        item = k // (self.run * self.groups) * self.run + k % self.run
        return Place(item * self.bits // 32, index + self.dim * (block + self.blocks * group), item * self.bits % 32)


@dataclass(frozen=True, slots=True)
class Tile:
    """Result rows that are computed together: rows of N lanes of one block, at fixed distances from a first one.

    register, lane: of the first row's first element; a_column: its column in A's panel (i + M * block); b_column: of
    the block's first column in B's panel.
    """

    register: int
    lane: int
    a_column: int
    b_column: int


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """Layout of C and D."""

    m: int
    n: int
    blocks: int
    bits: int

    @property
    def height(self) -> int:
        """Consecutive rows that one lane holds."""
        return 1 if self.bits == 64 else 4

    @property
    def registers(self) -> int:
        return self.m * self.n * self.blocks // WAVE * self.bits // 32

    def place(self, block: int, i: int, j: int) -> Place:
        """Where C[block, i, j] and D[block, i, j] lie."""
        height = self.height
        blocks_per_item = -(-WAVE * height // (self.n * self.m))
        rows_per_item = WAVE // blocks_per_item // self.n
        row_groups = self.m // (height * rows_per_item)
        item = i % height + height * (i // (height * rows_per_item) + row_groups * (block // blocks_per_item))
        lane = j + self.n * (i // height % rows_per_item + rows_per_item * (block % blocks_per_item))
        return Place(item * self.bits // 32, lane)

    def tiles(self, rows: int) -> list[Tile]:
        """The result in tiles of `rows` rows each, in block order."""
        out = []
        for block in range(self.blocks):
            for i in range(0, self.m, rows):
                first = self.place(block, i, 0)
                out.append(Tile(first.register, first.lane, i + self.m * block, self.n * block))
        return out

    def tile_rows(self, rows: int) -> list[Place]:
        """Where the first elements of a tile's rows lie, from its first row. The same for every tile."""
        return [self.place(0, i, 0) for i in range(rows)]


_NAME = re.compile(
    r"v_(?P<sparse>s?)mfmac?_(?P<scaled>scale_)?(?P<result>[a-z0-9]+)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(_(?P<blocks>\d+)b)?_(?P<a>[a-z0-9]+)(_(?P<b>[a-z0-9]+))?"
)

_CDNA3_AND_4 = """
v_mfma_f32_32x32x1_2b_f32    v_mfma_f32_16x16x1_4b_f32    v_mfma_f32_4x4x1_16b_f32
v_mfma_f32_32x32x2_f32       v_mfma_f32_16x16x4_f32
v_mfma_f32_32x32x4_2b_f16    v_mfma_f32_16x16x4_4b_f16    v_mfma_f32_4x4x4_16b_f16
v_mfma_f32_32x32x8_f16       v_mfma_f32_16x16x16_f16
v_mfma_f32_32x32x4_2b_bf16   v_mfma_f32_16x16x4_4b_bf16   v_mfma_f32_4x4x4_16b_bf16
v_mfma_f32_32x32x8_bf16      v_mfma_f32_16x16x16_bf16
v_mfma_i32_32x32x4_2b_i8     v_mfma_i32_16x16x4_4b_i8     v_mfma_i32_4x4x4_16b_i8
v_mfma_i32_32x32x16_i8       v_mfma_i32_16x16x32_i8
v_mfma_f64_16x16x4_f64       v_mfma_f64_4x4x4_4b_f64
v_mfma_f32_16x16x32_bf8_bf8  v_mfma_f32_32x32x16_bf8_bf8
v_mfma_f32_16x16x32_bf8_fp8  v_mfma_f32_32x32x16_bf8_fp8
v_mfma_f32_16x16x32_fp8_bf8  v_mfma_f32_32x32x16_fp8_bf8
v_mfma_f32_16x16x32_fp8_fp8  v_mfma_f32_32x32x16_fp8_fp8
v_smfmac_f32_16x16x32_f16    v_smfmac_f32_32x32x16_f16
v_smfmac_f32_16x16x32_bf16   v_smfmac_f32_32x32x16_bf16
v_smfmac_i32_16x16x64_i8     v_smfmac_i32_32x32x32_i8
v_smfmac_f32_16x16x64_bf8_bf8  v_smfmac_f32_32x32x32_bf8_bf8
v_smfmac_f32_16x16x64_bf8_fp8  v_smfmac_f32_32x32x32_bf8_fp8
v_smfmac_f32_16x16x64_fp8_bf8  v_smfmac_f32_32x32x32_fp8_bf8
v_smfmac_f32_16x16x64_fp8_fp8  v_smfmac_f32_32x32x32_fp8_fp8
"""

_CDNA3_ONLY = """
v_mfma_f32_16x16x8_xf32      v_mfma_f32_32x32x4_xf32
"""

_CDNA4_ONLY = """
v_mfma_f32_16x16x32_f16      v_mfma_f32_32x32x16_f16
v_mfma_f32_16x16x32_bf16     v_mfma_f32_32x32x16_bf16
v_mfma_i32_16x16x64_i8       v_mfma_i32_32x32x32_i8
v_mfma_f32_16x16x128_f8f6f4  v_mfma_f32_32x32x64_f8f6f4
v_mfma_scale_f32_16x16x128_f8f6f4  v_mfma_scale_f32_32x32x64_f8f6f4
v_smfmac_f32_16x16x64_f16    v_smfmac_f32_32x32x32_f16
v_smfmac_f32_16x16x64_bf16   v_smfmac_f32_32x32x32_bf16
v_smfmac_i32_16x16x128_i8    v_smfmac_i32_32x32x64_i8
v_smfmac_f32_16x16x128_bf8_bf8  v_smfmac_f32_32x32x64_bf8_bf8
v_smfmac_f32_16x16x128_bf8_fp8  v_smfmac_f32_32x32x64_bf8_fp8
v_smfmac_f32_16x16x128_fp8_bf8  v_smfmac_f32_32x32x64_fp8_bf8
v_smfmac_f32_16x16x128_fp8_fp8  v_smfmac_f32_32x32x64_fp8_fp8
"""

INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "gfx942": (*_CDNA3_AND_4.split(), *_CDNA3_ONLY.split()),
    "gfx950": (*_CDNA3_AND_4.split(), *_CDNA4_ONLY.split()),
}
"""The matrix instructions of each target, by LLVM's mnemonics."""


@lru_cache(maxsize=256)
def shape_of(mnemonic: str) -> Shape:
    """The shape that a matrix instruction's name states. Raises ValueError for any other name."""
    found = _NAME.fullmatch(mnemonic)
    if not found:
        raise ValueError(f"{mnemonic} is no matrix instruction")
    m, n, k, blocks = (int(found[part] or 1) for part in ("m", "n", "k", "blocks"))
    a = "" if found["a"] == "f8f6f4" else found["a"]
    return Shape(
        m, n, k, blocks, a, found["b"] or a, found["result"], sparse=bool(found["sparse"]), scaled=bool(found["scaled"])
    )


def a_source_lanes(cbsz: int, abid: int) -> list[int]:
    """The lane whose A values each lane of A's layout takes: with cbsz, one of 2^cbsz lane blocks serves all of them.

    More blocks than the instruction has, or than lanes (cbsz 7), are undefined; here the same formula goes on.
    """
    size = max(WAVE >> cbsz, 1)
    return [(lane % size + size * abid) % WAVE if cbsz else lane for lane in range(WAVE)]


def b_source_lanes(blgp: int) -> list[int]:
    """The lane whose B values each lane of B's layout takes (CDNA3 ISA, "BLGP")."""
    if blgp == 0:
        return list(range(WAVE))
    if blgp == 3:
        return [(lane + 16) % WAVE for lane in range(WAVE)]
    size, first = (32, 32 * (blgp - 1)) if blgp < 3 else (16, 16 * (blgp - 4))
    return [lane % size + first for lane in range(WAVE)]
