"""What matrix instructions do, written once for both executors: operands into panels, the product, D.

Sources: CDNA3 and CDNA4 ISA, "Matrix Arithmetic Instructions": cbsz, abid and blgp, block scales, sparse matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.isa.context import Context
from rjemu.isa.instruction import Instruction, Operand
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import register
from rjemu.mma.formats import Decode, Decoder, decoder
from rjemu.mma.geometry import (
    BITS,
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
from rjemu.mma.unit import MatrixUnit, Panel, Product, Scales, matrix_unit

_INDEX_BITS = 2
"""A sparse A's element has a 2-bit index: its place among the four k of its group."""
_SCALE_BIAS = 127
_NAN_SCALE = 0xFF


def element_formats(instr: Instruction, shape: Shape) -> tuple[str, str]:
    """The formats of A's and B's elements."""
    if shape.a:
        return shape.a, shape.b
    return F8F6F4_FORMATS[instr.mod("cbsz")], F8F6F4_FORMATS[instr.mod("blgp")]


def matrix_instruction(b: Context) -> None:
    """The semantics of every instruction of `geometry.INSTRUCTIONS`."""
    shape = shape_of(b.instr.name)
    unit = matrix_unit(b)
    a_format, b_format = element_formats(b.instr, shape)
    a_lanes, b_lanes = _lane_sources(b.instr, shape)
    negate = b.instr.mod("neg")
    a = _operand_panel(b, unit, "src0", shape.a_layout(a_format), a_format, a_lanes, bool(negate & 1))
    other = _operand_panel(b, unit, "src1", shape.b_layout(b_format), b_format, b_lanes, bool(negate & 2))
    d = b.instr.operand("vdst")
    product = Product(
        layout=shape.d_layout,
        result=shape.result,
        a=a,
        b=other,
        c=d if shape.sparse else b.instr.operand("src2"),
        d=d,
        negate_c=bool(negate & 4),
        selected=_selected(b, unit, shape) if shape.sparse else None,
        scales=_scales(b, unit, shape) if shape.scaled else None,
    )
    unit.multiply(product)


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


def _operand_panel(
    b: Context, unit: MatrixUnit, name: str, layout: InputLayout, element: str, lanes: list[int] | None, negate: bool
) -> Panel:
    panel = unit.panel("f64" if element == "f64" else "f32", layout.k, layout.columns)
    plain = decoder(b, element)
    source = Decoder(plain.registers, lambda words: [b.fneg(x) for x in plain.decode(words)]) if negate else plain
    unit.fill(panel, b.instr.operand(name), layout, source, lanes)
    return panel


def _selected(b: Context, unit: MatrixUnit, shape: Shape) -> Panel:
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

    panel = unit.panel("u32", layout.k, layout.columns)
    unit.fill(panel, b.instr.operand("src2"), layout, Decoder(1, decode))
    return panel


def _scales(b: Context, unit: MatrixUnit, shape: Shape) -> Scales:
    """Both operands' scales. Lane i + M * n holds that of row i and the n-th 32 k; likewise for B's columns."""
    blocks = shape.k // SCALE_BLOCK
    panels = []
    for index, dim in enumerate((shape.m, shape.n)):
        operand = b.instr.operand(f"scale_src{index}")
        panel = unit.panel("f32", blocks, dim)
        unit.fill(panel, operand, InputLayout(dim, 1, blocks, BITS["f32"]), Decoder(1, _scale_decoder(b, operand, index)))
        panels.append(panel)
    return Scales(*panels)


def _scale_decoder(b: Context, operand: Operand, index: int) -> Decode:
    """E8M0: op_sel_hi and op_sel choose the byte, 255 is NaN. Of an inline constant the float's exponent counts."""
    byte = (b.instr.mod("op_sel") >> index & 1) | (b.instr.mod("op_sel_hi") >> index & 1) << 1
    shift = 23 if operand.kind == "k" else 8 * byte

    def decode(words: Sequence[Value]) -> list[Value]:
        code = words[0] >> shift & 0xFF
        exponent = (code.bits("i32") - _SCALE_BIAS).to("f32")
        return [b.select(code == _NAN_SCALE, b.default_nan("f32"), exponent)]

    return decode


for _name in sorted(set(INSTRUCTIONS["gfx942"]) | set(INSTRUCTIONS["gfx950"])):
    register(_name, matrix_instruction)
