"""The decoded instruction: what the decoder makes and everything above it reads.

Register numbering follows the hardware's operand codes (CDNA3/CDNA4 ISA documents, "Scalar operands"): a scalar
register is named by its 7-bit code, so SGPRs, FLAT_SCRATCH (102), XNACK_MASK (104), VCC (106), TTMP0-15 (108-123),
M0 (124) and EXEC (126) live in one array of 128 words. AGPR n is vector register 256 + n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["v", "s", "k", "special", "off"]
"""v: vector register; s: scalar register by hardware code; k: constant; special: a read-only hardware value;
off: an operand that the encoding leaves out (`off`)."""

VCC, M0, EXEC = 106, 124, 126
FLAT_SCRATCH = 102
POPS_EXITING_WAVE_ID, VCCZ, EXECZ, SCC = 239, 251, 252, 253


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. `name` is its role (vdst, sdst, src0, src1, src2, addr, data0, vdata, srsrc, soffset ...).

    index: first register (vector register 0-511 where 256-511 are AGPRs; scalar hardware code; special's code).
    bits: size that the instruction accesses from `index` on. fmt: the data format, e.g. "f32", "u64", "pk_f16", "b128".
    value: for kind k, the constant as the instruction sees it, extended to `bits` bits (unsigned; op_sel not applied); for
    the constant accumulator of a matrix instruction, one element, which every element has.
    literal: the constant is a 32-bit literal of the encoding (for printing). is_dst: written (a destination that is
    also read has a source operand of its own, or the table row lists it in `tied`).
    """

    name: str
    kind: Kind
    index: int
    bits: int
    fmt: str
    value: int = 0
    literal: bool = False
    is_dst: bool = False

    @property
    def dwords(self) -> int:
        return (self.bits + 31) // 32


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a table row: role, size in bits, data format, and which register files the field may name."""

    name: str
    bits: int
    fmt: str
    kind: str
    is_dst: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an opcode table: an (encoding, opcode) pair of a target.

    reads, writes: implicit registers, as a tuple of "exec", "vcc", "scc", "m0", "mode", "flat_scratch", "pc". VCC as the
      carry, selector or result of a VOP1, VOP2 or VOPC instruction is in them and is an operand too, as in the VOP3 form.
    tied: the destination is also read (v_fmac, d16 loads that keep the other half, v_writelane ...).
    flags: modifiers that the instruction takes ("neg0" for neg on src0, "clamp", "op_sel3", "cbsz" ...), how LLVM writes it
      ("e32", "e64"), and what it is ("atomic", "mfma", "smfmac", "f8f6f4", "lds", "two_offsets", "gds").
    """

    name: str
    encoding: str
    opcode: int
    operands: tuple[OperandSpec, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    tied: bool = False
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decoded instruction.

    name: LLVM's mnemonic without _e32/_e64/_dpp/_sdwa (so v_add_f32 whatever the encoding).
    encoding: "SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM", "VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P",
      "VOP3P_MFMA", "VOP3PX2", "VOP1_DPP", "VOP2_DPP", "VOP1_SDWA", "VOP2_SDWA", "VOPC_SDWA", "DS", "FLAT", "GLOBAL",
      "SCRATCH", "MUBUF", "MTBUF".
    size: bytes, literal included.
    operands: destinations first, then sources, in the order of LLVM's text.
    mods: what specialises the instruction's code: neg, abs, neg_lo, neg_hi, op_sel, op_sel_hi (bit i for source i; bit 3 of
      op_sel for the destination), clamp, omod, the DPP fields (dpp_ctrl, row_mask, bank_mask, bound_ctrl), the SDWA fields
      (dst_sel, dst_unused, src0_sel, src1_sel, src0_sext, src1_sext), cbsz, abid, blgp, bitop3, sc0, sc1, nt, glc, gds,
      offen, idxen, lds, dfmt, nfmt, ... Absent means 0.
    imms: numbers that vary freely and do not specialise the code: offset (sign-extended), offset0, offset1, simm16
      (sign-extended where it is a number or a distance, unsigned where it is a bit field), gpr_idx.
    """

    name: str
    encoding: str
    size: int
    operands: tuple[Operand, ...]
    row: Row
    mods: Mapping[str, int] = field(default_factory=dict)
    imms: Mapping[str, int] = field(default_factory=dict)

    def operand(self, name: str) -> Operand:
        """The operand of that role; KeyError if the instruction has none."""
        for op in self.operands:
            if op.name == name:
                return op
        raise KeyError(f"{self.name} has no operand {name}")

    def has(self, name: str) -> bool:
        return any(op.name == name for op in self.operands)

    def mod(self, name: str) -> int:
        """The modifier's value, 0 where the instruction does not carry it."""
        return self.mods.get(name, 0)

    def imm(self, name: str) -> int:
        return self.imms.get(name, 0)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: Any) -> bool:
        return self is other
