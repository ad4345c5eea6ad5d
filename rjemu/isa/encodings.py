"""Encoding layouts of CDNA3 and CDNA4: how a dword says which encoding it is, and where each encoding keeps its fields.

Field positions are from AMD's machine-readable ISA specification. Bits count from 0 at the least significant bit of the
first dword; encodings of 64 and 128 bits go on upward. An operand's field carries the operand's role (`src0`, `vdst`,
`sdata`), whatever the specification calls it in that encoding (`ssrc0`, `vsrc1`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

SDWA, DPP, LITERAL = 249, 250, 255
"""Values of an encoding's `src0` field that announce a second dword of that kind."""

LAST_SGPR, FIRST_TTMP, LAST_TTMP, LAST_SCALAR = 101, 108, 123, 127
"""Operand codes that bound the SGPRs, the trap handler's registers, and all scalar registers."""

FIRST_VGPR_CODE = 256
"""Nine-bit operand codes from here on are vector registers."""

AGPR = 256
"""Number of the first AGPR among the vector registers."""

MFMA_SCALE_PREFIX = 44
"""VOP3P opcode of the first half of a VOP3PX2 (a scaled matrix multiplication, 16 bytes)."""


@dataclass(frozen=True)
class Encoding:
    """One encoding: its name, its size in bytes without a literal, and field name -> (highest bit, lowest bit)."""

    name: str
    size: int
    layout: dict[str, tuple[int, int]]

    @cached_property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Field name -> (shift, mask), ready for extraction."""
        return {name: (low, (1 << (high - low + 1)) - 1) for name, (high, low) in self.layout.items()}

    def get(self, word: int, name: str) -> int:
        """The field's value in an encoded instruction."""
        shift, mask = self.fields[name]
        return (word >> shift) & mask


_VOP1 = {"op": (16, 9), "vdst": (24, 17), "sdst": (24, 17), "src0": (8, 0)}
_VOP2 = {"op": (30, 25), "vdst": (24, 17), "src0": (8, 0), "src1": (16, 9)}
_VOPC = {"op": (24, 17), "src0": (8, 0), "src1": (16, 9)}

_DPP = {
    "src0": (39, 32),
    "dpp_ctrl": (48, 40),
    "bound_ctrl": (51, 51),
    "neg0": (52, 52),
    "abs0": (53, 53),
    "neg1": (54, 54),
    "abs1": (55, 55),
    "bank_mask": (59, 56),
    "row_mask": (63, 60),
}
_SDWA_SOURCES = {
    "src0": (39, 32),
    "src0_sel": (50, 48),
    "src0_sext": (51, 51),
    "neg0": (52, 52),
    "abs0": (53, 53),
    "s0": (55, 55),
    "src1_sel": (58, 56),
    "src1_sext": (59, 59),
    "neg1": (60, 60),
    "abs1": (61, 61),
    "s1": (63, 63),
}
_SDWA = _SDWA_SOURCES | {"dst_sel": (42, 40), "dst_unused": (44, 43), "clamp": (45, 45), "omod": (47, 46)}
_SDWA_SDST = _SDWA_SOURCES | {"sdst": (46, 40), "sd": (47, 47)}

_VOP3_SOURCES = {"op": (25, 16), "clamp": (15, 15), "src0": (40, 32), "src1": (49, 41), "src2": (58, 50)}
_VOP3P_SOURCES = {"op": (22, 16), "vdst": (7, 0), "src0": (40, 32), "src1": (49, 41), "src2": (58, 50)}
_FLAT = {
    "op": (24, 18),
    "offset": (12, 0),
    "sve": (13, 13),
    "sc0": (16, 16),
    "nt": (17, 17),
    "sc1": (25, 25),
    "addr": (39, 32),
    "data": (47, 40),
    "saddr": (54, 48),
    "acc": (55, 55),
    "vdst": (63, 56),
}
_BUFFER = {
    "offset": (11, 0),
    "offen": (12, 12),
    "idxen": (13, 13),
    "sc0": (14, 14),
    "vaddr": (39, 32),
    "vdata": (47, 40),
    "srsrc": (52, 48),
    "acc": (55, 55),
    "soffset": (63, 56),
}

ENCODINGS: dict[str, Encoding] = {
    encoding.name: encoding
    for encoding in (
        Encoding("SOP1", 4, {"op": (15, 8), "sdst": (22, 16), "src0": (7, 0)}),
        Encoding("SOP2", 4, {"op": (29, 23), "sdst": (22, 16), "src0": (7, 0), "src1": (15, 8)}),
        Encoding("SOPC", 4, {"op": (22, 16), "src0": (7, 0), "src1": (15, 8), "gpr_idx": (15, 8)}),
        Encoding("SOPK", 4, {"op": (27, 23), "sdst": (22, 16), "src0": (22, 16), "simm16": (15, 0), "simm32": (63, 32)}),
        Encoding("SOPP", 4, {"op": (22, 16), "simm16": (15, 0)}),
        Encoding(
            "SMEM",
            8,
            {
                "op": (25, 18),
                "sbase": (5, 0),
                "sdata": (12, 6),
                "soffset_en": (14, 14),
                "nv": (15, 15),
                "glc": (16, 16),
                "imm": (17, 17),
                "offset": (52, 32),
                "offset_sgpr": (38, 32),
                "soffset": (63, 57),
            },
        ),
        Encoding("VOP1", 4, _VOP1),
        Encoding("VOP2", 4, _VOP2),
        Encoding("VOPC", 4, _VOPC),
        Encoding("VOP1_DPP", 8, _VOP1 | _DPP),
        Encoding("VOP2_DPP", 8, _VOP2 | _DPP),
        Encoding("VOP1_SDWA", 8, _VOP1 | _SDWA),
        Encoding("VOP2_SDWA", 8, _VOP2 | _SDWA),
        Encoding("VOPC_SDWA", 8, _VOPC | _SDWA_SDST),
        Encoding(
            "VOP3",
            8,
            _VOP3_SOURCES
            | {"vdst": (7, 0), "sdst": (7, 0), "abs": (10, 8), "op_sel": (14, 11), "omod": (60, 59), "neg": (63, 61)},
        ),
        Encoding("VOP3SD", 8, _VOP3_SOURCES | {"vdst": (7, 0), "sdst": (14, 8), "omod": (60, 59), "neg": (63, 61)}),
        Encoding(
            "VOP3P",
            8,
            _VOP3P_SOURCES
            | {
                "neg_hi": (10, 8),
                "op_sel": (13, 11),
                "op_sel_hi2": (14, 14),
                "clamp": (15, 15),
                "op_sel_hi": (60, 59),
                "neg_lo": (63, 61),
            },
        ),
        Encoding(
            "VOP3P_MFMA",
            8,
            _VOP3P_SOURCES
            | {
                "cbsz": (10, 8),
                "abid": (14, 11),
                "acc_cd": (15, 15),
                "acc_src0": (59, 59),
                "acc_src1": (60, 60),
                "blgp": (63, 61),
            },
        ),
        Encoding(
            "VOP3PX2",
            16,
            {
                "op_sel": (12, 11),
                "scale_src0": (40, 32),
                "scale_src1": (49, 41),
                "op_sel_hi": (60, 59),
                "vdst": (71, 64),
                "cbsz": (74, 72),
                "abid": (78, 75),
                "acc_cd": (79, 79),
                "op": (86, 80),
                "second_encoding": (95, 87),
                "src0": (104, 96),
                "src1": (113, 105),
                "src2": (122, 114),
                "acc_src0": (123, 123),
                "acc_src1": (124, 124),
                "blgp": (127, 125),
            },
        ),
        Encoding(
            "DS",
            8,
            {
                "offset": (15, 0),
                "offset0": (7, 0),
                "offset1": (15, 8),
                "gds": (16, 16),
                "op": (24, 17),
                "acc": (25, 25),
                "addr": (39, 32),
                "data0": (47, 40),
                "data1": (55, 48),
                "vdst": (63, 56),
            },
        ),
        Encoding("FLAT", 8, _FLAT | {"offset": (11, 0)}),
        Encoding("GLOBAL", 8, _FLAT),
        Encoding("SCRATCH", 8, _FLAT),
        Encoding("MUBUF", 8, _BUFFER | {"op": (24, 18), "sc1": (15, 15), "lds": (16, 16), "nt": (17, 17)}),
        Encoding(
            "MTBUF", 8, _BUFFER | {"op": (18, 15), "dfmt": (22, 19), "nfmt": (25, 23), "sc1": (53, 53), "nt": (54, 54)}
        ),
    )
}

_BY_TOP_SIX = {48: "SMEM", 54: "DS", 56: "MUBUF", 58: "MTBUF"}
_BY_TOP_NINE = {381: "SOP1", 382: "SOPC", 383: "SOPP"}
_FLAT_SEGMENTS = ("FLAT", "SCRATCH", "GLOBAL")
VOP3P_PREFIX = 423
"""The top nine bits of VOP3P and of both halves of VOP3PX2."""


def identify(word: int) -> str | None:
    """Name of the encoding whose first dword this is, None if the dword starts no encoding.

    VOP1, VOP2 and VOPC stand for their DPP and SDWA forms too, VOP3 for VOP3SD, VOP3P for VOP3P_MFMA and VOP3PX2: those
    are told apart by operand and opcode.
    """
    if word >> 31 == 0:
        top = word >> 25
        return "VOPC" if top == 62 else "VOP1" if top == 63 else "VOP2"
    if word >> 28 == 11:
        return _BY_TOP_NINE.get(word >> 23, "SOPK")
    if word >> 30 == 2:
        return "SOP2"
    top = word >> 26
    if top == 52:
        return "VOP3P" if word >> 23 == VOP3P_PREFIX else "VOP3"
    if top == 55:
        segment = (word >> 14) & 3
        return _FLAT_SEGMENTS[segment] if segment < len(_FLAT_SEGMENTS) else None
    return _BY_TOP_SIX.get(top)
