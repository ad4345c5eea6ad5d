"""Reading sources and writing results of ALU instructions: the modifiers, in one place for both executors.

Order of effects on a source (CDNA3 ISA, "VOP3", "SDWA", "DPP"): DPP lane movement, SDWA or op_sel selection with sign
extension, then abs, then neg. On a float result: omod, then clamp, then placement (op_sel, SDWA) under EXEC.
"""

from __future__ import annotations

from rjemu.isa.apertures import APERTURE_BYTES, LDS_APERTURE, SCRATCH_APERTURE
from rjemu.isa.context import Context
from rjemu.isa.dpp import dpp_enabled_lanes, dpp_sources
from rjemu.isa.instruction import EXECZ, SCC, VCCZ, Operand
from rjemu.isa.lanes import TYPES, Value

SOURCE_INDEX = {"src0": 0, "src1": 1, "src2": 2}
_SDWA_DWORD = 6
_APERTURES = {
    235: LDS_APERTURE,
    236: LDS_APERTURE + APERTURE_BYTES - 1,
    237: SCRATCH_APERTURE,
    238: SCRATCH_APERTURE + APERTURE_BYTES - 1,
}
"""src_shared_base, src_shared_limit, src_private_base, src_private_limit by operand code."""


def raw_source(b: Context, op: Operand, type_name: str) -> Value:
    """The operand's bits as a value of that type, without modifiers: a vector for a VGPR, else a scalar."""
    bits = TYPES[type_name].bits
    if op.kind == "k":
        return b.constant(op, 64 if bits == 64 else 32).to(f"u{bits}").bits(type_name)
    if op.kind == "special":
        return _special(b, op).to(f"u{bits}").bits(type_name)
    read = b.vgpr if op.kind == "v" else b.scalar
    word = read(op, 0)
    if bits == 64:
        return b.join64(word, read(op, 1)).bits(type_name)
    return word.to(f"u{bits}").bits(type_name)


def _special(b: Context, op: Operand) -> Value:
    """A read-only hardware value; apertures are 64 bits."""
    if op.index == SCC:
        return b.scc().to("u32")
    if op.index == VCCZ:
        return (b.vcc() == 0).to("u32")
    if op.index == EXECZ:
        return (b.exec() == 0).to("u32")
    return b.const("u64", _APERTURES[op.index])


def source(b: Context, op: Operand, type_name: str) -> Value:
    """The operand as the instruction sees it: selection and modifiers applied."""
    instr = b.instr
    type_ = TYPES[type_name]
    index = SOURCE_INDEX.get(op.name)
    if index is None:
        return raw_source(b, op, type_name)
    if "dst_sel" in instr.mods or f"src{index}_sel" in instr.mods:
        value = _sdwa_source(b, op, type_name, index)
    elif type_.bits == 16 and instr.mod("op_sel") >> index & 1 and op.kind != "k":
        value = (_moved(b, op, index) >> 16).to("u16").bits(type_name)
    elif index == 0 and "dpp_ctrl" in instr.mods:
        value = _dpp_source(b, op, type_name)
    else:
        value = raw_source(b, op, type_name)
    if type_.is_float:
        if instr.mod("abs") >> index & 1:
            value = b.fabs(value)
        if instr.mod("neg") >> index & 1:
            value = b.fneg(value)
    return value


def _moved(b: Context, op: Operand, index: int) -> Value:
    """The operand's first dword after DPP movement."""
    if index == 0 and "dpp_ctrl" in b.instr.mods:
        return _dpp_word(b, op, 0)
    return raw_source(b, op, "u32")


def _dpp_word(b: Context, op: Operand, k: int) -> Value:
    """Register k of the operand after DPP movement; 0 where the source lane is missing and bound_ctrl is set."""
    lanes = dpp_sources(b.instr.mod("dpp_ctrl"), b.wave)
    moved = b.shuffle(b.vgpr(op, k), [max(lane, 0) for lane in lanes])
    if not b.instr.mod("bound_ctrl"):
        return moved  # lanes without a source are not written
    return b.select(b.lane_mask(_dpp_valid(b, lanes)), moved, b.const("u32", 0))


def _dpp_valid(b: Context, lanes: list[int]) -> Value:
    """u64 scalar: the lanes whose source lane exists and is active in EXEC."""
    existing = b.const("u64", sum(1 << i for i, lane in enumerate(lanes) if lane >= 0))
    everywhere = (1 << b.wave) - 1

    def active() -> Value:
        return b.ballot(b.shuffle(b.exec_lanes(), [max(lane, 0) for lane in lanes])) & existing

    return b.unlikely((b.exec() & everywhere) != everywhere, existing, active)


def _dpp_source(b: Context, op: Operand, type_name: str) -> Value:
    bits = TYPES[type_name].bits
    word = _dpp_word(b, op, 0)
    if bits == 64:
        return b.join64(word, _dpp_word(b, op, 1)).bits(type_name)
    return word.to(f"u{bits}").bits(type_name)


def _sdwa_source(b: Context, op: Operand, type_name: str, index: int) -> Value:
    word = raw_source(b, op, "u32")
    return sdwa_select(b, word, b.instr.mod(f"src{index}_sel"), bool(b.instr.mod(f"src{index}_sext")), type_name)


def sdwa_select(b: Context, word: Value, select: int, sext: bool, type_name: str) -> Value:
    """One SDWA selection of a dword: 0-3 a byte, 4-5 a half, 6 the dword; zero or sign extended to the type's width."""
    bits = TYPES[type_name].bits
    if select == _SDWA_DWORD:
        part = word
    else:
        width, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4))
        part = (word >> shift).to(f"u{width}")
        part = part.bits(f"i{width}").to("i32").bits("u32") if sext else part.to("u32")
    return part.to(f"u{bits}").bits(type_name)


def write_mask(b: Context) -> Value:
    """b1 vector: the lanes that a vector ALU instruction writes: EXEC less what DPP switches off.

    DPP switches off the lanes that its row and bank masks leave out and, without bound_ctrl, those without a source lane.
    """
    instr = b.instr
    if "dpp_ctrl" not in instr.mods:
        return b.exec_lanes()
    written = b.exec()
    enabled = dpp_enabled_lanes(instr.mod("row_mask"), instr.mod("bank_mask"), b.wave)
    if enabled != (1 << b.wave) - 1:
        written = written & enabled
    if not instr.mod("bound_ctrl"):
        written = written & _dpp_valid(b, dpp_sources(instr.mod("dpp_ctrl"), b.wave))
    return b.lane_mask(written)


def output_modifiers(b: Context, value: Value) -> Value:
    """omod and clamp of a float result.

    omod (CDNA3 ISA, "Instruction Outputs") has no effect in IEEE mode or where denormal results are kept; it turns -0
    into +0. clamp limits to 0..1.
    """
    instr = b.instr
    omod = instr.mod("omod")
    if omod and not b.fp.ieee and not b.fp.denorm(value.type.bits) & 2:
        scaled = b.fmul(value, {1: 2.0, 2: 4.0, 3: 0.5}[omod])
        value = b.select(scaled == 0.0, b.const(value.type.name, 0.0), scaled)
    if instr.mod("clamp"):
        value = clamp01(b, value)
    return value


def clamp01(b: Context, value: Value) -> Value:
    """Limit a float to 0..1; -0 becomes +0, NaN too where DX10_CLAMP is set, else it stays."""
    name = value.type.name
    zero, one = b.const(name, 0.0), b.const(name, 1.0)
    limited = b.select(value > zero, value, zero)
    limited = b.select(limited > one, one, limited)
    return limited if b.fp.dx10_clamp else b.select(b.isnan(value), value, limited)


def write_vector(b: Context, op: Operand, value: Value, *, keep_high: bool = False, mask: Value | None = None) -> None:
    """Write a result (any 16, 32 or 64-bit type) to a VGPR operand under EXEC.

    16-bit results go to the half that op_sel bit 3 says; a plain write to the low half zeroes the high half unless
    keep_high (LLVM: zeroesHigh16BitsOfDest on gfx9). SDWA destinations follow dst_sel and dst_unused.
    """
    instr = b.instr
    mask = write_mask(b) if mask is None else mask
    bits = value.type.bits
    if bits == 64:
        wide = value.bits("u64")
        b.set_vgpr(op, 0, b.vector(wide.to("u32")), mask)
        b.set_vgpr(op, 1, b.vector((wide >> 32).to("u32")), mask)
        return
    word = b.vector(value.bits(f"u{bits}").to("u32"))
    if "dst_sel" in instr.mods:
        word = _sdwa_place(b, op, word, value)
    elif bits == 16 and instr.mod("op_sel") >> 3 & 1:
        word = (b.vgpr(op, 0) & 0xFFFF) | (word << 16)
    elif bits == 16 and keep_high:
        word = (b.vgpr(op, 0) & 0xFFFF0000) | word
    b.set_vgpr(op, 0, word, mask)


def _sdwa_place(b: Context, op: Operand, word: Value, value: Value) -> Value:
    select, unused = b.instr.mod("dst_sel"), b.instr.mod("dst_unused")
    if select == _SDWA_DWORD:
        return word
    width, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4))
    field = ((1 << width) - 1) << shift
    placed = (word << shift) & field
    if unused == 2:
        return placed | (b.vgpr(op, 0) & (0xFFFFFFFF ^ field))
    if unused == 1:
        above = (placed << (32 - width - shift)).bits("i32") >> (32 - width - shift)
        return above.bits("u32") & (0xFFFFFFFF ^ ((1 << shift) - 1))
    return placed


def write_scalar(b: Context, op: Operand, value: Value) -> None:
    """Write a 32 or 64-bit scalar result to a scalar operand."""
    if value.type.bits == 64:
        wide = value.bits("u64")
        b.set_scalar(op, 0, wide.to("u32"))
        b.set_scalar(op, 1, (wide >> 32).to("u32"))
    else:
        b.set_scalar(op, 0, value.bits("u32") if value.type.bits == 32 else value.to("u32"))


def write_lane_bits(b: Context, op: Operand | None, condition: Value, *, mask: Value | None = None) -> None:
    """Write a b1 vector as a 64-bit mask, with 0 for lanes that are not written, to a scalar operand or (None) to VCC."""
    lanes = write_mask(b) if mask is None else mask
    bits = b.ballot(b.vector(condition) & lanes)
    if op is None:
        b.set_vcc(bits)
    else:
        write_scalar(b, op, bits)
