"""Assembly lines for every row of the opcode tables: operand kinds and modifiers, each varied with the others at rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from rjemu.isa.instruction import OperandSpec, Row
from rjemu.isa.tables import tables

FIRST = {
    "vdst": 10,
    "src0": 20,
    "src1": 96,
    "src2": 160,
    "addr": 4,
    "vaddr": 4,
    "data": 40,
    "data0": 40,
    "data1": 60,
    "vdata": 40,
}
FIRST_SCALAR = {
    "sdst": 8,
    "vdst": 8,
    "src0": 16,
    "src1": 32,
    "src2": 24,
    "sdata": 64,
    "sbase": 4,
    "srsrc": 12,
    "saddr": 6,
    "soffset": 3,
}
INLINE = ("0", "64", "-16", "0.5", "-4.0", "1.0")

SPECIALS = ("src_scc", "src_vccz", "src_execz", "src_shared_limit", "src_private_base", "src_pops_exiting_wave_id")

CONTROLS = (
    *("quad_perm:[3,1,0,2]", "row_shl:1", "row_shr:15", "row_ror:7", "wave_shl:1", "wave_rol:1", "wave_shr:1"),
    *("wave_ror:1", "row_mirror", "row_half_mirror", "row_bcast:15", "row_bcast:31", "row_newbcast:9"),
)
SELECTIONS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def tuple_text(prefix: str, first: int, bits: int) -> str:
    count = (bits + 31) // 32
    return f"{prefix}{first}" if count == 1 else f"{prefix}[{first}:{first + count - 1}]"


def samples(target: str) -> Iterator[tuple[Row, str, bool]]:
    """(row, line, whether the line is the row's base line, which the assembler must accept)."""
    for rows in tables(target).values():
        for row in rows.values():
            yield row, _line(row), True
            for line in _variants(row):
                yield row, line, False


def _mnemonic(row: Row) -> str:
    for suffix in ("_DPP", "_SDWA"):
        if row.encoding.endswith(suffix):
            return row.name + suffix.lower()
    if row.encoding in ("VOP3", "VOP3SD") and row.flags & {"e32", "e64"}:
        return row.name + "_e64"
    return row.name


def _base(row: Row, spec: OperandSpec) -> str | None:
    """The operand's text in the base line, None if it has none there."""
    kind = spec.kind
    if kind == "vcc" or kind == "sdwa_sdst":
        return "vcc"
    if spec.name == "vdst" and row.encoding == "MUBUF":
        return None
    if spec.name == "vdst" and "atomic" in row.flags and row.encoding in ("FLAT", "GLOBAL"):
        return None
    if spec.name in ("saddr", "vaddr"):
        return "off"
    fixed = {
        "literal": "0x7654",
        "smem_offset": "0x10",
        "imm7": "7",
        "simm16": "3",
        "label": "4",
        "hwreg": "hwreg(HW_REG_MODE, 2, 5)",
        "sendmsg": "sendmsg(MSG_INTERRUPT)",
        "waitcnt": "vmcnt(3)",
        "gpr_idx": "gpr_idx(SRC0,DST)",
    }
    if kind in fixed:
        return fixed[kind]
    if kind in ("sreg", "sdata", "ssrc", "ssrc_nolit"):
        if row.name == "v_writelane_b32" and spec.name == "src1":
            return "5"
        return tuple_text("s", FIRST_SCALAR[spec.name], spec.bits)
    first = FIRST[spec.name] if not spec.name.startswith("scale") else 200 + int(spec.name[-1])
    return tuple_text("a" if kind in ("agpr", "src_agpr") else "v", first, spec.bits)


def _line(row: Row, suffix: str = "", **changes: str) -> str:
    texts = []
    for spec in row.operands:
        text = _base(row, spec)
        if spec.name in changes:
            text = changes[spec.name].replace("{}", text or "")
        if text is not None:
            texts.append(text)
    line = _mnemonic(row) + (" " + ", ".join(texts) if texts else "")
    if row.encoding.endswith("_DPP") and "row_mask" not in suffix:
        suffix = (" row_newbcast:2" if "dpp64" in row.flags else " row_shl:2") + suffix
    return line + (" gds" if "gds" in row.flags else "") + suffix


def _variants(row: Row) -> Iterator[str]:
    for spec in row.operands:
        for text in _operand_variants(row, spec):
            yield _line(row, **{spec.name: text})
    encoding = row.encoding
    if encoding in ("VOP3", "VOP3SD", "VOP3P"):
        yield from _vop3_modifiers(row)
    elif encoding in ("VOP3P_MFMA", "VOP3PX2"):
        yield from _matrix_modifiers(row)
    elif encoding.endswith("_DPP"):
        yield from _dpp(row)
    elif encoding.endswith("_SDWA"):
        yield from _sdwa(row)
    elif encoding == "SMEM":
        yield from _smem(row)
    elif encoding in ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF"):
        yield from _memory(row)


def _operand_variants(row: Row, spec: OperandSpec) -> Iterator[str]:
    kind = spec.kind
    if kind in ("src", "ssrc", "ssrc_nolit", "src_av_const", "sdwa"):
        yield from INLINE
        yield "0.15915494309189532" if spec.bits == 64 else "0.15915494"
    if kind in ("src", "ssrc"):
        yield "0x7fedcba9" if spec.bits > 16 else "0x7abc"
        yield "0x98765432" if spec.bits > 16 else "0x8abc"
        if not row.encoding.startswith("VOP3") and all(other.kind != "literal" for other in row.operands):
            yield "lit(0x5)"
    if kind in ("src", "ssrc", "ssrc_nolit", "sreg", "sdata", "sdwa", "sdwa_sdst"):
        yield from _scalars(spec.bits)
    if kind in ("src", "ssrc", "ssrc_nolit", "sdwa"):
        yield from SPECIALS if spec.bits <= 32 else ("src_shared_base", "src_private_limit")
    if kind in ("src", "src_vgpr", "src_av", "src_av_const", "av", "sdwa"):
        yield tuple_text("v", 250 - (spec.bits // 32) // 2 * 2 if spec.bits > 160 else 250, spec.bits)
    if kind in ("av", "src_av", "src_av_const", "agpr", "src_agpr"):
        yield tuple_text("a", 30, spec.bits)
    if kind == "hwreg":
        yield from (f"hwreg({i})" for i in range(32))
    if kind == "sendmsg":
        yield from ("sendmsg(MSG_GS, GS_OP_EMIT, 1)", "sendmsg(MSG_GS_DONE, GS_OP_NOP)", "17", "0xabcd", "0")
        yield from (f"sendmsg({i}, {j}, 0)" for i in range(16) for j in range(5))
    if kind == "waitcnt":
        yield from ("0", "vmcnt(63)", "expcnt(1)", "lgkmcnt(7) vmcnt(18)", "0xffff", "0x1080")
    if kind == "gpr_idx":
        yield from (str(i) for i in range(16))
    if kind == "simm16":
        yield from ("0", "64", "65", "0xffff", "0x8000")
    if kind == "label":
        yield from ("-1", "-32768", "32767")


def _scalars(bits: int) -> Iterator[str]:
    if bits <= 32:
        yield from (
            "s0",
            "s101",
            "vcc_lo",
            "vcc_hi",
            "exec_lo",
            "exec_hi",
            "m0",
            "ttmp15",
            "flat_scratch_lo",
            "xnack_mask_hi",
        )
    elif bits == 64:
        yield from ("s[100:101]", "vcc", "exec", "ttmp[14:15]", "flat_scratch", "xnack_mask")
    elif bits == 128:
        yield from ("s[96:99]", "ttmp[4:7]")
    else:
        yield tuple_text("s", 80 if bits == 512 else 92, bits)
        yield tuple_text("ttmp", 0, bits)


def _vop3_modifiers(row: Row) -> Iterator[str]:
    sources = {spec.name: spec.kind for spec in row.operands if re.fullmatch(r"src\d", spec.name)}
    for name, kind in sources.items():
        for form in ("-{}", "|{}|", "-|{}|"):
            yield _line(row, **{name: form})
            if kind == "src":
                yield from (_line(row, **{name: form.replace("{}", constant)}) for constant in ("1.0", "-1"))
        if kind == "src":
            yield from (_line(row, **{name: f"neg({constant})"}) for constant in ("1.0", "-1"))
    yield from (_line(row, suffix) for suffix in (" clamp", " mul:2", " mul:4", " div:2", " clamp div:2"))
    for name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        taken = any(flag.startswith(name) for flag in row.flags)
        for count in sorted({len(sources), len(sources) + 1, 4}):
            for bits in product((0, 1), repeat=count):
                if taken or sum(bits) == 1:
                    yield _line(row, f" {name}:[{','.join(map(str, bits))}]")
    if "fi" in row.flags:
        yield from (_line(row, suffix) for suffix in (" bound_ctrl:1", " fi:1", " bound_ctrl:1 fi:1"))
    if "bitop3" in row.flags:
        yield from (_line(row, f" bitop3:{1 << i}") for i in range(8))
        yield _line(row, " bitop3:0xe7")


def _matrix_modifiers(row: Row) -> Iterator[str]:
    last_format = 5 if "f8f6f4" in row.flags else 8
    yield from (_line(row, f" cbsz:{i}") for i in range(last_format))
    yield from (_line(row, f" abid:{i}") for i in range(16))
    yield from (_line(row, f" blgp:{i}") for i in range(last_format))
    yield from (_line(row, f" neg:[{a},{b},{c}]") for a, b, c in product((0, 1), repeat=3))
    yield _line(row, vdst="a" + (_base(row, row.operands[0]) or "")[1:], src2="a" + (_base(row, row.operands[3]) or "")[1:])
    if "f8f6f4" in row.flags:
        sizes = (8, 8, 6, 6, 4)
        for a, b in product(range(5), repeat=2):
            operands = {"src0": tuple_text("v", 20, 32 * sizes[a]), "src1": tuple_text("a", 96, 32 * sizes[b])}
            yield _line(row, f" cbsz:{a} blgp:{b}", **operands)
    if row.encoding == "VOP3PX2":
        for low, high in product(product((0, 1), repeat=2), repeat=2):
            yield _line(row, f" op_sel:[{low[0]},{low[1]},0] op_sel_hi:[{high[0]},{high[1]},0]")


def _dpp(row: Row) -> Iterator[str]:
    for control in CONTROLS:
        yield _line(row, f" {control} row_mask:0xa bank_mask:0x5")
    yield _line(row, " row_mirror row_mask:0x0 bank_mask:0x0 bound_ctrl:1")
    yield _line(row, " row_newbcast:3 row_mask:0x3 bank_mask:0xf bound_ctrl:1")
    for spec in row.operands:
        if spec.kind == "vgpr" and spec.name.startswith("src"):
            yield from (_line(row, **{spec.name: form}) for form in ("-{}", "|{}|", "-|{}|"))


def _sdwa(row: Row) -> Iterator[str]:
    sources = [spec.name for spec in row.operands if spec.kind == "sdwa"]
    for name in sources:
        yield from (_line(row, **{name: form}) for form in ("-{}", "|{}|", "-|{}|", "sext({})"))
        yield from (_line(row, f" {name}_sel:{selection}") for selection in SELECTIONS)
    yield from (_line(row, f" dst_sel:{selection} dst_unused:{unused}") for selection, unused in product(SELECTIONS, UNUSED))
    yield from (_line(row, suffix) for suffix in (" clamp", " mul:2", " clamp div:2"))


def _smem(row: Row) -> Iterator[str]:
    for offset in ("0x0", "0xfffff", "-0x100000", "s7", "vcc_hi", "m0", "s7 offset:0x123", "ttmp3 offset:-0x8"):
        yield _line(row, soffset=offset)
        yield _line(row, " glc", soffset=offset)


def _memory(row: Row) -> Iterator[str]:
    encoding = row.encoding
    if encoding == "DS":
        if "two_offsets" in row.flags:
            yield from (_line(row, f" offset0:{a} offset1:{b}") for a, b in ((0, 1), (255, 0), (255, 254)))
        else:
            yield from (_line(row, f" offset:{i}") for i in (1, 65535))
        return
    bounds = {"FLAT": (1, 4095), "GLOBAL": (-4096, 4095), "SCRATCH": (-4096, 4095)}.get(encoding, (1, 4095))
    yield from (_line(row, f" offset:{offset}") for offset in bounds)
    returned = next((spec for spec in row.operands if spec.name == "vdst"), None)
    for flags in (" sc0", " sc1", " nt", " sc0 nt sc1"):
        yield _line(row, flags)
        if returned is not None and "atomic" in row.flags:
            yield _line(row, flags, vdst=tuple_text("v", 12, returned.bits))
            yield _line(row, flags, vdst=tuple_text("a", 12, returned.bits), data=tuple_text("a", 40, _data_bits(row)))
    if encoding == "GLOBAL":
        yield from (_line(row, " offset:8", addr="v9", saddr=saddr) for saddr in ("s[6:7]", "vcc", "ttmp[2:3]"))
    if encoding == "SCRATCH":
        yield from (
            _line(row, " offset:8", addr=addr, saddr=saddr)
            for addr, saddr in product(("v9", "off"), ("s7", "off", "vcc_hi"))
        )
    if encoding in ("MUBUF", "MTBUF"):
        addresses = (("off", ""), ("v9", " offen"), ("v9", " idxen"), ("v[8:9]", " idxen offen"))
        for (vaddr, suffix), more in product(addresses, ("", " offset:4095", " sc0 nt sc1")):
            yield _line(row, suffix + more, vaddr=vaddr)
            if "lds" in row.flags:
                yield _lds_line(row, vaddr, suffix + more)
    if encoding == "MTBUF":
        yield from (_line(row, f" format:{i}") for i in range(128))


def _data_bits(row: Row) -> int:
    return next((spec.bits for spec in row.operands if spec.name == "data"), 32)


def _lds_line(row: Row, vaddr: str, suffix: str) -> str:
    operands = [vaddr, *(_base(row, spec) or "" for spec in row.operands if spec.name in ("srsrc", "soffset"))]
    return f"{row.name} {', '.join(operands)}{suffix} lds"
