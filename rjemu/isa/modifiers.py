"""Modifiers and offsets of an encoded instruction: `Instruction.mods` and the offsets among `Instruction.imms`."""

from __future__ import annotations

import functools

from rjemu.errors import DecodeError
from rjemu.isa.encodings import Encoding
from rjemu.isa.instruction import Row

DWORD = 6
"""SDWA selection of the whole dword."""

QUAD_PERM_LAST = 0xFF
ROW_NEWBCAST = range(0x150, 0x160)
DPP_CONTROLS = (
    *range(QUAD_PERM_LAST + 1),
    *range(0x101, 0x110),
    *range(0x111, 0x120),
    *range(0x121, 0x130),
    *(0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143),
    *ROW_NEWBCAST,
)
"""quad_perm, row_shl, row_shr, row_ror, wave_shl, wave_rol, wave_shr, wave_ror, row_mirror, row_half_mirror, row_bcast
15 and 31, row_newbcast."""

Numbers = dict[str, int]


def modifiers(encoding: Encoding, row: Row, word: int) -> tuple[Numbers, Numbers]:
    """(mods, imms) of the encoded instruction. Zero modifiers are left out, but a DPP instruction always has dpp_ctrl,
    row_mask and bank_mask, an SDWA one its selections."""
    kind = encoding.name
    mods: Numbers = {}
    imms: Numbers = {}
    if kind in ("VOP3", "VOP3SD"):
        mods = _vop3(encoding, row, word)
    elif kind == "VOP3P":
        mods = _vop3p(encoding, row, word)
    elif kind in ("VOP3P_MFMA", "VOP3PX2"):
        mods = _matrix(encoding, row, word)
    elif kind.endswith("_DPP"):
        return _dpp(encoding, row, word), {}
    elif kind.endswith("_SDWA"):
        return _sdwa(encoding, row, word), {}
    elif kind == "SMEM":
        mods, imms = _smem(encoding, row, word)
    elif kind == "DS":
        mods, imms = _ds(encoding, row, word)
    elif kind in ("FLAT", "GLOBAL", "SCRATCH"):
        mods = _present(encoding, word, "sc0", "sc1", "nt")
        offset = encoding.get(word, "offset")
        imms = {"offset": offset if kind == "FLAT" else _signed(offset, 13)}
        if "lds" in row.flags:
            mods["lds"] = 1
    elif kind in ("MUBUF", "MTBUF"):
        if not row.operands:  # cache control: buffer_inv, buffer_wbl2
            mods = _present(encoding, word, "sc0", "sc1")
            return {name: value for name, value in mods.items() if value}, {}
        mods = _present(encoding, word, "offen", "idxen", "sc0", "sc1", "nt")
        if kind == "MTBUF":
            mods |= _present(encoding, word, "dfmt", "nfmt")
        elif "lds" in row.flags and encoding.get(word, "lds"):
            mods["lds"] = 1
        imms = {"offset": encoding.get(word, "offset")}
    return {name: value for name, value in mods.items() if value}, imms


@functools.cache
def allowed(flags: frozenset[str], name: str) -> int:
    """Bit mask of the sources (and bit 3 for a destination) for which the row takes the modifier."""
    return sum(1 << i for i in range(4) if f"{name}{i}" in flags)


def _present(encoding: Encoding, word: int, *names: str) -> Numbers:
    return {name: encoding.get(word, name) for name in names}


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _vop3(encoding: Encoding, row: Row, word: int) -> Numbers:
    flags = row.flags
    if "bitop3" in flags:
        # The truth table lies where neg, omod and abs would: bits 2:0, 7:6 and 5:3.
        table = encoding.get(word, "neg") | encoding.get(word, "abs") << 3 | encoding.get(word, "omod") << 6
        return {"bitop3": table, "op_sel": encoding.get(word, "op_sel") & allowed(flags, "op_sel")}
    if "fi" in flags:
        return {"fi": encoding.get(word, "op_sel") & 1, "bound_ctrl": encoding.get(word, "op_sel") >> 1 & 1}
    mods = {"neg": encoding.get(word, "neg") & allowed(flags, "neg")}
    if encoding.name == "VOP3":
        mods["abs"] = encoding.get(word, "abs") & allowed(flags, "abs")
        mods["op_sel"] = encoding.get(word, "op_sel") & allowed(flags, "op_sel")
    for name in ("clamp", "omod"):
        if name in flags:
            mods[name] = encoding.get(word, name)
    return mods


def _vop3p(encoding: Encoding, row: Row, word: int) -> Numbers:
    flags = row.flags
    op_sel_hi = encoding.get(word, "op_sel_hi") | encoding.get(word, "op_sel_hi2") << 2
    mods = {
        "op_sel": encoding.get(word, "op_sel") & allowed(flags, "op_sel"),
        "op_sel_hi": op_sel_hi & allowed(flags, "op_sel_hi"),
    }
    if allowed(flags, "neg"):  # v_fma_mix*: neg and abs of whole sources
        mods["neg"] = encoding.get(word, "neg_lo") & allowed(flags, "neg")
        mods["abs"] = encoding.get(word, "neg_hi") & allowed(flags, "abs")
    else:
        mods["neg_lo"] = encoding.get(word, "neg_lo") & allowed(flags, "neg_lo")
        mods["neg_hi"] = encoding.get(word, "neg_hi") & allowed(flags, "neg_hi")
    if "clamp" in flags:
        mods["clamp"] = encoding.get(word, "clamp")
    return mods


def _matrix(encoding: Encoding, row: Row, word: int) -> Numbers:
    """op_sel and op_sel_hi of VOP3PX2 choose the scale byte: bit i of each, for scale i, is its bit 0 and bit 1."""
    mods: Numbers = {name: encoding.get(word, name) for name in ("cbsz", "abid", "blgp") if name in row.flags}
    if "neg" in row.flags:
        mods["neg"] = encoding.get(word, "blgp")
    if encoding.name == "VOP3PX2":
        mods["op_sel"] = encoding.get(word, "op_sel")
        mods["op_sel_hi"] = encoding.get(word, "op_sel_hi")
    return mods


def _source_modifiers(encoding: Encoding, row: Row, word: int) -> Numbers:
    mods = {}
    for name in ("neg", "abs"):
        value = sum(encoding.get(word, f"{name}{i}") << i for i in (0, 1)) & allowed(row.flags, name)
        if value:
            mods[name] = value
    return mods


def _dpp(encoding: Encoding, row: Row, word: int) -> Numbers:
    control = encoding.get(word, "dpp_ctrl")
    if control not in DPP_CONTROLS:
        raise DecodeError(f"{row.name}: dpp_ctrl {control:#x} is reserved")
    if "dpp64" in row.flags and control not in ROW_NEWBCAST:
        raise DecodeError(f"{row.name}: 64-bit operands allow row_newbcast only, not dpp_ctrl {control:#x}")
    return _present(encoding, word, "dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl") | _source_modifiers(
        encoding, row, word
    )


def _sdwa(encoding: Encoding, row: Row, word: int) -> Numbers:
    mods = _source_modifiers(encoding, row, word)
    sources = [spec.name for spec in row.operands if spec.kind == "sdwa"]
    for name in sources:
        mods[f"{name}_sel"] = _selection(row, encoding.get(word, f"{name}_sel"))
        if f"sext{name[3]}" in row.flags:
            mods[f"{name}_sext"] = encoding.get(word, f"{name}_sext")
    if encoding.name == "VOPC_SDWA":
        return mods
    for name in ("clamp", "omod"):
        if name in row.flags:
            mods[name] = encoding.get(word, name)
    if "dst_sel" in row.flags:
        unused = encoding.get(word, "dst_unused")
        if unused == 3:
            raise DecodeError(f"{row.name}: dst_unused 3 is reserved")
        return mods | {"dst_sel": _selection(row, encoding.get(word, "dst_sel")), "dst_unused": unused}
    return mods | {"dst_sel": DWORD} if sources else mods


def _selection(row: Row, value: int) -> int:
    if value > DWORD:
        raise DecodeError(f"{row.name}: SDWA selection {value} is reserved")
    return value


def _smem(encoding: Encoding, row: Row, word: int) -> tuple[Numbers, Numbers]:
    mods = _present(encoding, word, "glc") if "glc" in row.flags else {}
    has_offset = any(spec.kind == "smem_offset" for spec in row.operands)
    if not has_offset:
        return mods, {}
    offset = _signed(encoding.get(word, "offset"), 21) if encoding.get(word, "imm") else 0
    if offset < 0 and row.name.startswith(("s_buffer", "s_atc_probe_buffer")):
        raise DecodeError(f"{row.name}: negative offset {offset} into a buffer")
    return mods, {"offset": offset}


def _ds(encoding: Encoding, row: Row, word: int) -> tuple[Numbers, Numbers]:
    """gds is what ds_gws_* state and nothing else may (gfx90a and later have no GDS)."""
    gds = encoding.get(word, "gds")
    if gds != ("gds" in row.flags):
        raise DecodeError(f"{row.name} {'in' if gds else 'outside'} GDS")
    if not row.operands:
        return {"gds": gds}, {}
    names = ("offset0", "offset1") if "two_offsets" in row.flags else ("offset",)
    return {"gds": gds}, _present(encoding, word, *names)
