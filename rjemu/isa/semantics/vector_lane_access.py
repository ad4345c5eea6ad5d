"""Single lanes of a vector register, and counts of lanes below one's own: readlane, writelane, mbcnt."""

from __future__ import annotations

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, write_scalar
from rjemu.isa.semantics.registry import custom, define


@custom("v_readlane_b32")
def _read_lane(b: Context) -> None:
    lane = raw_source(b, b.instr.operand("src1"), "u32")
    write_scalar(b, b.instr.operand("sdst"), b.read_lane(b.vgpr(b.instr.operand("src0")), lane))


@custom("v_readfirstlane_b32")
def _read_first_lane(b: Context) -> None:
    """The lowest active lane; lane 0 if none is, because lane numbers are taken modulo the wave's size."""
    lane = b.ctz(b.exec()).to("u32")
    write_scalar(b, b.instr.operand("sdst"), b.read_lane(b.vgpr(b.instr.operand("src0")), lane))


@custom("v_writelane_b32")
def _write_lane(b: Context) -> None:
    """Whatever EXEC is."""
    vdst = b.instr.operand("vdst")
    scalar = raw_source(b, b.instr.operand("src0"), "u32")
    lane = raw_source(b, b.instr.operand("src1"), "u32")
    every_lane = b.vector(b.const("b1", 1))
    b.set_vgpr(vdst, 0, b.write_lane(b.vgpr(vdst), lane, scalar), every_lane)


def _lanes_below(b: Context, shift: int) -> Value:
    """u32 vector: the mask of lanes `shift` to `shift` + 31 that are below each lane."""
    return b.lane_constants("u32", [((1 << lane) - 1) >> shift & 0xFFFF_FFFF for lane in range(b.wave)])


def _masked_count(b: Context, mask: Value, addend: Value, shift: int) -> Value:
    return b.popcount(b.vector(mask) & _lanes_below(b, shift)) + b.vector(addend)


define("v_mbcnt_lo_u32_b32", "u32 = u32 u32", lambda b, mask, addend: _masked_count(b, mask, addend, 0))
define("v_mbcnt_hi_u32_b32", "u32 = u32 u32", lambda b, mask, addend: _masked_count(b, mask, addend, 32))
