"""The disassembler: instructions in LLVM's syntax, such that LLVM's assembler makes the same bytes of the text."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from rjemu.errors import DecodeError
from rjemu.isa.constants import (
    FIRST_FLOAT,
    FIRST_INTEGER,
    FLOATS,
    INVERSE_2PI,
    LAST_POSITIVE,
    inline_constant,
    inline_integer,
)
from rjemu.isa.decoder import Decoder
from rjemu.isa.encodings import AGPR, FIRST_TTMP, LAST_SGPR, LAST_TTMP
from rjemu.isa.immediates import format_immediate, format_swizzle
from rjemu.isa.instruction import EXEC, FLAT_SCRATCH, M0, VCC, Instruction, Operand, OperandSpec
from rjemu.isa.modifiers import allowed
from rjemu.isa.tables import IMMEDIATE_KINDS

SCALAR_PAIRS = {FLAT_SCRATCH: "flat_scratch", 104: "xnack_mask", VCC: "vcc", EXEC: "exec"}

SPECIAL_NAMES = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
}

SDWA_SELECTIONS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
SDWA_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
OMOD = ("", " mul:2", " mul:4", " div:2")

DATA_FORMATS = (
    *("INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10", "8_8_8_8"),
    *("32_32", "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"),
)
NUMBER_FORMATS = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT")
DEFAULT_DATA_FORMAT, DEFAULT_NUMBER_FORMAT = 1, 0


def disassemble(code: bytes, target: str, base: int = 0) -> Iterator[tuple[int, bytes, str]]:
    """(address, bytes, text) of each instruction from the start of `code`, which lies at `base`.

    A dword that is no instruction of the target comes as `.long 0x...`, fewer than four bytes at the end as `.byte ...`.
    """
    decoder = Decoder(target)
    offset = 0
    while offset < len(code):
        try:
            instr = decoder.decode(code, offset)
        except DecodeError:
            piece = code[offset : offset + 4]
            if len(piece) == 4:
                text = f".long {int.from_bytes(piece, 'little'):#010x}"
            else:
                text = ".byte " + ", ".join(f"{byte:#04x}" for byte in piece)
        else:
            piece = code[offset : offset + instr.size]
            text = format_instruction(instr, base + offset)
        yield base + offset, piece, text
        offset += len(piece)


def format_instruction(instr: Instruction, pc: int | None = None, symbols: Mapping[int, str] | None = None) -> str:
    """The instruction as text. With its address `pc`, a branch to an address in `symbols` names that symbol."""
    operands = _operand_texts(instr, pc, symbols or {})
    text = f"{_mnemonic(instr)} {', '.join(operands)}" if operands else _mnemonic(instr)
    return text + _modifier_text(instr)


def _mnemonic(instr: Instruction) -> str:
    for suffix in ("_DPP", "_SDWA"):
        if instr.encoding.endswith(suffix):
            return instr.name + suffix.lower()
    for suffix in ("e32", "e64"):
        if suffix in instr.row.flags:
            return f"{instr.name}_{suffix}"
    return instr.name


# --- operands -----------------------------------------------------------------------------------------------------------


def _operand_texts(instr: Instruction, pc: int | None, symbols: Mapping[int, str]) -> list[str]:
    """Operands and immediates in the order of the row. Operands that the text leaves out are skipped."""
    present = {op.name: op for op in instr.operands}
    texts = []
    for spec in instr.row.operands:
        if spec.kind in IMMEDIATE_KINDS:
            texts.append(
                _branch_target(instr, spec, pc, symbols) or format_immediate(instr.name, spec, instr.imms[spec.name])
            )
        elif spec.kind == "smem_offset":
            texts.append(_smem_offset(instr))
        elif spec.name == "vdst" and instr.encoding == "MUBUF":
            continue  # a returning atomic's result goes where its data came from
        elif spec.name == "vdata" and spec.name not in present:
            continue  # a load to LDS
        elif spec.name == "vaddr" and present["vaddr"].kind == "off" and instr.mod("lds"):
            texts.append("off")
        elif spec.name in present:
            texts.append(_with_modifiers(instr, present[spec.name]))
    return texts


def _branch_target(instr: Instruction, spec: OperandSpec, pc: int | None, symbols: Mapping[int, str]) -> str | None:
    if spec.kind != "label" or pc is None:
        return None
    return symbols.get(pc + 4 + 4 * instr.imms[spec.name])


def _smem_offset(instr: Instruction) -> str:
    offset = instr.imm("offset")
    if not instr.has("soffset"):
        return f"{offset:#x}"
    register = format_operand(instr.operand("soffset"))
    return f"{register} offset:{offset:#x}" if offset else register


def _with_modifiers(instr: Instruction, op: Operand) -> str:
    """The operand within neg, abs and sext."""
    text = format_operand(op)
    if not (op.name.startswith("src") and op.name[3:].isdigit()):
        return text
    index = int(op.name[3:])
    if instr.encoding in ("VOP3P_MFMA", "VOP3PX2"):
        return text
    if instr.mod(f"{op.name}_sext"):
        return f"sext({text})"
    absolute, negative = instr.mod("abs") >> index & 1, instr.mod("neg") >> index & 1
    if absolute:
        text = f"|{text}|"
    if negative:
        # A minus before a number would be read as part of it.
        text = f"neg({text})" if op.kind == "k" and not absolute else f"-{text}"
    return text


def format_operand(op: Operand) -> str:
    """A register, constant or special value as LLVM writes it."""
    if op.kind == "off":
        return "off"
    if op.kind == "special":
        return SPECIAL_NAMES[op.index]
    if op.kind == "k":
        return _literal(op) if op.literal else _constant(op)
    if op.kind == "v":
        return _tuple("a", op.index - AGPR, op.dwords) if op.index >= AGPR else _tuple("v", op.index, op.dwords)
    return _scalar_register(op.index, op.dwords)


def _tuple(prefix: str, first: int, count: int) -> str:
    return f"{prefix}{first}" if count == 1 else f"{prefix}[{first}:{first + count - 1}]"


def _scalar_register(code: int, dwords: int) -> str:
    if code <= LAST_SGPR:
        return _tuple("s", code, dwords)
    if FIRST_TTMP <= code <= LAST_TTMP:
        return _tuple("ttmp", code - FIRST_TTMP, dwords)
    if code == M0:
        return "m0"
    pair = SCALAR_PAIRS[code & ~1]
    if dwords == 2:
        return pair
    return pair + ("_hi" if code & 1 else "_lo")


def _constant(op: Operand) -> str:
    integer = inline_integer(op.index)
    if integer is not None:
        return str(integer)
    if op.index == INVERSE_2PI:
        double = op.fmt.endswith("f64") or (op.bits == 64 and not op.fmt.startswith("pk"))
        return "0.15915494309189532" if double else "0.15915494"
    return str(FLOATS[op.index])


def _literal(op: Operand) -> str:
    """A literal that the assembler would take for an inline constant must say that it is none."""
    value = op.value >> 32 if op.fmt == "f64" else op.value & 0xFFFFFFFF
    inline = op.value in _inline_values(op.bits, op.fmt) or value <= LAST_POSITIVE - FIRST_INTEGER
    return f"lit({value:#x})" if inline and op.name != "simm32" else f"{value:#x}"


@functools.cache
def _inline_values(bits: int, fmt: str) -> frozenset[int]:
    values = (inline_constant(code, bits, fmt) for code in range(FIRST_FLOAT + 16))
    return frozenset(value for value in values if value is not None)


# --- modifiers ----------------------------------------------------------------------------------------------------------


def _modifier_text(instr: Instruction) -> str:
    encoding = instr.encoding
    if encoding.endswith("_DPP"):
        return _dpp(instr)
    if encoding.endswith("_SDWA"):
        return _sdwa(instr)
    if encoding in ("VOP3", "VOP3SD"):
        return _vop3(instr)
    if encoding == "VOP3P":
        return _vop3p(instr)
    if encoding in ("VOP3P_MFMA", "VOP3PX2"):
        return _matrix(instr)
    if encoding == "SMEM":
        return " glc" if instr.mod("glc") else ""
    if encoding in ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF"):
        return _memory(instr)
    return ""


def _bits(name: str, value: int, count: int) -> str:
    return f" {name}:[{','.join(str(value >> i & 1) for i in range(count))}]"


def _source_count(instr: Instruction) -> int:
    return sum(op.name in ("src0", "src1", "src2") for op in instr.operands)


def _clamp_omod(instr: Instruction) -> str:
    return (" clamp" if instr.mod("clamp") else "") + OMOD[instr.mod("omod")]


def _vop3(instr: Instruction) -> str:
    table = instr.mod("bitop3")
    text = f" bitop3:{table if table < 10 else hex(table)}" if table else ""
    if instr.mod("op_sel"):
        text += _op_sel(instr)
    text += " bound_ctrl:1" if instr.mod("bound_ctrl") else ""
    text += " fi:1" if instr.mod("fi") else ""
    return text + _clamp_omod(instr)


def _op_sel(instr: Instruction) -> str:
    """One entry per source, and one for the destination (bit 3). Where bit 2 is not src2's, it has an entry of its own."""
    bits = list(range(_source_count(instr)))
    known = allowed(instr.row.flags, "op_sel")
    bits += [i for i in (2, 3) if i not in bits and known >> i & 1]
    return " op_sel:[" + ",".join(str(instr.mod("op_sel") >> i & 1) for i in bits) + "]"


def _vop3p(instr: Instruction) -> str:
    """op_sel_hi defaults to all ones, but to zeros for v_fma_mix*."""
    count, text = _source_count(instr), ""
    if instr.mod("op_sel"):
        text += _bits("op_sel", instr.mod("op_sel"), count)
    mask = allowed(instr.row.flags, "op_sel_hi")
    default = 0 if instr.name.startswith("v_fma_mix") else mask
    if instr.mod("op_sel_hi") != default:
        text += _bits("op_sel_hi", instr.mod("op_sel_hi"), count)
    for name in ("neg_lo", "neg_hi"):
        if instr.mod(name):
            text += _bits(name, instr.mod(name), count)
    return text + (" clamp" if instr.mod("clamp") else "")


def _matrix(instr: Instruction) -> str:
    text = ""
    if instr.encoding == "VOP3PX2":
        if instr.mod("op_sel"):
            text += _bits("op_sel", instr.mod("op_sel"), 3)
        text += _bits("op_sel_hi", instr.mod("op_sel_hi"), 3)
    for name in ("cbsz", "abid", "blgp"):
        if instr.mod(name):
            text += f" {name}:{instr.mod(name)}"
    if instr.mod("neg"):
        text += _bits("neg", instr.mod("neg"), 3)
    return text


def _dpp(instr: Instruction) -> str:
    text = (
        f" {_dpp_control(instr.mod('dpp_ctrl'))} row_mask:{instr.mod('row_mask'):#x} bank_mask:{instr.mod('bank_mask'):#x}"
    )
    return text + (" bound_ctrl:1" if instr.mod("bound_ctrl") else "")


def _dpp_control(control: int) -> str:
    fixed = {
        0x130: "wave_shl:1",
        0x134: "wave_rol:1",
        0x138: "wave_shr:1",
        0x13C: "wave_ror:1",
        0x140: "row_mirror",
        0x141: "row_half_mirror",
        0x142: "row_bcast:15",
        0x143: "row_bcast:31",
    }
    if control < 0x100:
        return "quad_perm:[" + ",".join(str(control >> shift & 3) for shift in (0, 2, 4, 6)) + "]"
    if control in fixed:
        return fixed[control]
    kind = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_newbcast"}[control & 0x1F0]
    return f"{kind}:{control & 15}"


def _sdwa(instr: Instruction) -> str:
    text = _clamp_omod(instr)
    if "dst_sel" in instr.row.flags:
        text += f" dst_sel:{SDWA_SELECTIONS[instr.mod('dst_sel')]} dst_unused:{SDWA_UNUSED[instr.mod('dst_unused')]}"
    for name in ("src0", "src1"):
        if f"{name}_sel" in instr.mods or instr.has(name):
            text += f" {name}_sel:{SDWA_SELECTIONS[instr.mod(f'{name}_sel')]}"
    return text


def _memory(instr: Instruction) -> str:
    text = _buffer_format(instr) if instr.encoding == "MTBUF" else ""
    for name in ("idxen", "offen"):
        text += f" {name}" if instr.mod(name) else ""
    for name in ("offset", "offset0", "offset1"):
        value = instr.imm(name)
        if value:
            text += f" {name}:{format_swizzle(value) if instr.name == 'ds_swizzle_b32' else value}"
    for name in ("gds", "sc0", "nt", "sc1"):
        text += f" {name}" if instr.mod(name) else ""
    return text + (" lds" if instr.encoding == "MUBUF" and instr.mod("lds") else "")


def _buffer_format(instr: Instruction) -> str:
    names = []
    if instr.mod("dfmt") != DEFAULT_DATA_FORMAT:
        names.append(f"BUF_DATA_FORMAT_{DATA_FORMATS[instr.mod('dfmt')]}")
    if instr.mod("nfmt") != DEFAULT_NUMBER_FORMAT:
        names.append(f"BUF_NUM_FORMAT_{NUMBER_FORMATS[instr.mod('nfmt')]}")
    return f" format:[{','.join(names)}]" if names else ""
