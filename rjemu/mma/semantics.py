"""What matrix instructions do, written once for both executors: which elements they multiply, and how they read them.

Sources: CDNA3 and CDNA4 ISA, "Matrix Arithmetic Instructions": cbsz, abid and blgp, block scales, sparse matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.isa.context import Context
from rjemu.isa.instruction import Instruction
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import register
from rjemu.mma.formats import Decoder, decoder
from rjemu.mma.geometry import (
    F8F6F4_FORMATS,
    INSTRUCTIONS,
    SCALE_BLOCK,
    WAVE,
    InputLayout,
    Shape,
    a_source_lanes,
    b_source_lanes,
    shape_of,
)
from rjemu.mma.unit import Input, Product, Scales, matrix_unit

_INDEX_BITS = 2
"""A sparse A's element has a 2-bit index: its place among the four k of its group."""
_SCALE_BIAS = 127
_NAN_SCALE = 0xFF
_F32_EXPONENT = 23
"""The lowest bit of an f32's exponent."""


def element_formats(instr: Instruction, shape: Shape) -> tuple[str, str]:
    """The formats of A's and B's elements."""
    if shape.a:
        return shape.a, shape.b
    return F8F6F4_FORMATS[instr.mod("cbsz")], F8F6F4_FORMATS[instr.mod("blgp")]


def matrix_instruction(b: Context) -> None:
    """The semantics of every instruction of `geometry.INSTRUCTIONS`."""
    shape = shape_of(b.instr.name)
    a_format, b_format = element_formats(b.instr, shape)
    a_lanes, b_lanes = _lane_sources(b.instr, shape)
    negate = b.instr.mod("neg")
    d = b.instr.operand("vdst")
    product = Product(
        layout=shape.d_layout,
        result=shape.result,
        a=_matrix(b, "src0", shape.a_layout(a_format), a_format, a_lanes, bool(negate & 1)),
        b=_matrix(b, "src1", shape.b_layout(b_format), b_format, b_lanes, bool(negate & 2)),
        c=d if shape.sparse else b.instr.operand("src2"),
        d=d,
        negate_c=bool(negate & 4),
        selected=_selected(b, shape) if shape.sparse else None,
        scales=Scales(_scale(b, 0, shape.m, shape.k), _scale(b, 1, shape.n, shape.k)) if shape.scaled else None,
    )
    matrix_unit(b).multiply(product)


def _lane_sources(instr: Instruction, shape: Shape) -> tuple[list[int] | None, list[int] | None]:
    """What cbsz, abid and blgp make of the source lanes of A and B, where they mean that: not for f64 (neg instead),
    sparse matrices (index sets) and f8f6f4 (formats)."""
    cbsz, blgp = instr.mod("cbsz"), instr.mod("blgp")
    if shape.sparse or shape.result == "f64" or not shape.a:
        return None, None
    return (
        a_source_lanes(cbsz, instr.mod("abid")) if cbsz else None,
        b_source_lanes(blgp) if blgp else None,
    )


def _matrix(b: Context, name: str, layout: InputLayout, element: str, lanes: list[int] | None, negate: bool) -> Input:
    """A or B."""
    plain = decoder(b, element)
    source = Decoder(plain.registers, lambda words: [b.fneg(x) for x in plain.decode(words)]) if negate else plain
    return Input(b.instr.operand(name), layout, "f64" if element == "f64" else "f32", source, element, lanes)


def _selected(b: Context, shape: Shape) -> Input:
    """The k of each element of a sparse A: four times its group's number plus its index.

    The indices lie in src2, in the lanes of their elements. Where a lane's take up less than the register, abid selects
    among the sets in it, if cbsz is 0.
    """
    layout = InputLayout(shape.m, 1, shape.k // 2, _INDEX_BITS)
    set_bits = layout.items * _INDEX_BITS
    chosen = b.instr.mod("abid") % (32 // set_bits) if b.instr.mod("cbsz") & 3 == 0 else 0
    first_k = b.lane_constants("u32", [lane // shape.m * 2 * layout.items for lane in range(WAVE)])

    def decode(words: Sequence[Value]) -> list[Value]:
        starts = [chosen * set_bits + _INDEX_BITS * item for item in range(layout.items)]
        return [(words[0] >> start & 3) + first_k + 4 * (item // 2) for item, start in enumerate(starts)]

    return Input(b.instr.operand("src2"), layout, "u32", Decoder(1, decode))


def _scale(b: Context, index: int, dim: int, k: int) -> Input:
    """A's (index 0) or B's (1) scales: lane i + dim * n holds that of row or column i and the n-th 32 k.

    A scale is E8M0: op_sel_hi and op_sel choose the byte, 255 is NaN. Of an inline constant the float's exponent counts.
    """
    operand = b.instr.operand(f"scale_src{index}")
    byte = (b.instr.mod("op_sel") >> index & 1) | (b.instr.mod("op_sel_hi") >> index & 1) << 1
    shift = _F32_EXPONENT if operand.kind == "k" else 8 * byte

    def decode(words: Sequence[Value]) -> list[Value]:
        code = words[0] >> shift & 0xFF
        exponent = (code.bits("i32") - _SCALE_BIAS).to("f32")
        return [b.select(code == _NAN_SCALE, b.default_nan("f32"), exponent)]

    return Input(operand, InputLayout(dim, 1, k // SCALE_BLOCK, 32), "f32", Decoder(1, decode))


for _name in sorted(set(INSTRUCTIONS["gfx942"]) | set(INSTRUCTIONS["gfx950"])):
    register(_name, matrix_instruction)
