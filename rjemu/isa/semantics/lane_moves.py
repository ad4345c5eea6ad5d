"""Moves between lanes (v_permlane*_swap, ds_permute, ds_bpermute, ds_swizzle) and between VGPRs and AGPRs
(CDNA3 and CDNA4 ISA, VOP1, VOP3P-MAI and LDS instructions)."""

from __future__ import annotations

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import custom, define

# --- AGPRs ------------------------------------------------------------------------------------------------------------

define("v_accvgpr_read_b32", "u32 = u32", lambda b, x: x)
define("v_accvgpr_write_b32", "u32 = u32", lambda b, x: x)
define("v_accvgpr_mov_b32", "u32 = u32", lambda b, x: x)

# --- rows of two registers exchanged ----------------------------------------------------------------------------------


def _swap(b: Context, rows: int) -> None:
    """Exchange vdst's lanes that have lane-number bit `rows` set with src0's lanes that have it clear.

    A partner lane that EXEC disables counts as the missing source of a DPP operand does: with bound_ctrl it reads as 0,
    else the lane is not written; fi reads it all the same.
    """
    vdst, src0 = b.instr.operand("vdst"), b.instr.operand("src0")
    upper, lower = b.vgpr(vdst), b.vgpr(src0)
    partner = [lane ^ rows for lane in range(b.wave)]
    to_upper, to_lower = b.shuffle(lower, partner), b.shuffle(upper, partner)
    written = b.exec_lanes()
    if not b.instr.mod("fi"):
        active = b.shuffle(written, partner)
        if b.instr.mod("bound_ctrl"):
            to_upper, to_lower = b.select(active, to_upper, 0), b.select(active, to_lower, 0)
        else:
            written = written & active
    is_upper = b.lane_mask(b.const("u64", sum(1 << lane for lane in range(b.wave) if lane & rows)))
    b.set_vgpr(vdst, 0, to_upper, written & is_upper)
    b.set_vgpr(src0, 0, to_lower, written & ~is_upper)


@custom("v_permlane16_swap_b32")
def _permlane16_swap(b: Context) -> None:
    _swap(b, 16)


@custom("v_permlane32_swap_b32")
def _permlane32_swap(b: Context) -> None:
    _swap(b, 32)


# --- moves by way of the LDS hardware; LDS itself is not touched ------------------------------------------------------


def _named_lane(b: Context) -> Value:
    """u32: the lane that addr and the offset name, in bytes of four a lane; higher bits do not count."""
    return ((b.vgpr(b.instr.operand("addr")) + b.imm("offset").bits("u32")) >> 2) & (b.wave - 1)


@custom("ds_bpermute_b32")
def _pull(b: Context) -> None:
    lanes = b.exec_lanes()
    lane = _named_lane(b)
    data = b.select(lanes, b.vgpr(b.instr.operand("data0")), 0)  # disabled sources give 0
    b.set_vgpr(b.instr.operand("vdst"), 0, b.permute(data, lane), lanes)


@custom("ds_permute_b32")
def _push(b: Context) -> None:
    lanes = b.exec_lanes()
    moved = b.scatter(b.vgpr(b.instr.operand("data0")), _named_lane(b), lanes)
    b.set_vgpr(b.instr.operand("vdst"), 0, moved, lanes)


def _swizzle_source(b: Context, offset: Value) -> Value:
    """u32: the lane that each lane reads for ds_swizzle_b32's 16-bit offset, within its 32 lanes.

    offset below 0x8000: and, or and xor masks of five bits each; below 0xc000: a choice within each four lanes; below
    0xe000: rotation by offset[9:5], to the right with offset[10], where the mask offset[4:0] is 0; above: FFT order.
    """
    lane = b.lane_ids()
    group = lane & 0x20
    usual = ((((lane & 0x1F) & offset) | (offset >> 5)) ^ (offset >> 10)) & 0x1F | group

    def others() -> Value:
        choice = (lane & ~b.const("u32", 3)) | ((offset >> ((lane & 3) << 1)) & 3)
        mask = offset & 0x1F
        distance = (offset >> 5) & 0x1F
        distance = b.select((offset & 0x400) != 0, 0 - distance, distance)
        rotated = ((lane & mask) | ((lane + distance) & ~mask)) & 0x1F | group
        reversed_ = b.bit_reverse(lane & 0x1F) >> 27
        fft = (reversed_ >> b.popcount(mask)) | (lane & mask) | group
        source = b.select(offset >= 0xC000, b.select(offset >= 0xE000, fft, rotated), choice)
        return b.select(offset >= 0x8000, source, usual)

    return b.unlikely(offset >= 0x8000, usual, others)


@custom("ds_swizzle_b32")
def _swizzle(b: Context) -> None:
    lanes = b.exec_lanes()
    lane = _swizzle_source(b, b.imm("offset").bits("u32") & 0xFFFF)
    data = b.select(lanes, b.vgpr(b.instr.operand("addr")), 0)
    b.set_vgpr(b.instr.operand("vdst"), 0, b.permute(data, lane), lanes)
