"""The decoder: bytes of machine code to `Instruction`s.

One pass over the table row's operand specs: each spec's kind says how to read the encoding's field of that name, the
encoding says which modifiers there are, and the row's flags which of them the instruction takes. Bits that the
instruction does not use are ignored, as hardware does; what hardware does not define (reserved codes, misaligned register
tuples, two different SGPRs on the constant bus of a vector instruction) is a DecodeError.
"""

from __future__ import annotations

from dataclasses import dataclass

from rjemu.errors import DecodeError
from rjemu.isa.constants import inline_constant, literal_constant
from rjemu.isa.encodings import (
    AGPR,
    DPP,
    ENCODINGS,
    FIRST_TTMP,
    FIRST_VGPR_CODE,
    LAST_SCALAR,
    LAST_SGPR,
    LAST_TTMP,
    LITERAL,
    MFMA_SCALE_PREFIX,
    SDWA,
    VOP3P_PREFIX,
    Encoding,
    identify,
)
from rjemu.isa.instruction import EXEC, M0, VCC, Instruction, Operand, OperandSpec, Row
from rjemu.isa.modifiers import modifiers
from rjemu.isa.tables import IMMEDIATE_KINDS, tables

_OFF = 127
"""A scalar address field of GLOBAL and SCRATCH that names no register."""

_FREE_OVERLAP_BITS = 128
"""Results of matrix instructions up to this size may overlap the accumulator in any way."""

_GPR_IDX_BITS = 15
"""The bits of s_set_gpr_idx_on's and s_set_gpr_idx_mode's immediate that count."""

SPECIALS = {235, 236, 237, 238, 239, 251, 252, 253}
"""Codes of read-only hardware values: apertures, POPS_EXITING_WAVE_ID, VCCZ, EXECZ, SCC."""

F8F6F4_BITS = {0: 256, 1: 256, 2: 192, 3: 192, 4: 128}
"""cbsz or blgp of a f8f6f4 multiplication -> bits of 32 elements: fp8, bf8, fp6, bf6, fp4."""

F8F6F4_FORMATS = {0: "pk32_fp8", 1: "pk32_bf8", 2: "pk32_fp6", 3: "pk32_bf6", 4: "pk32_fp4"}


@dataclass(frozen=True, slots=True)
class _Fetched:
    """An instruction's bits with its encoding and row. literal is None where no literal belongs to the instruction."""

    encoding: Encoding
    row: Row
    word: int
    literal: int | None

    def get(self, name: str) -> int:
        return self.encoding.get(self.word, name)


class Decoder:
    """Decodes the machine code of one target ("gfx942" or "gfx950")."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._tables = tables(target)

    def decode(self, code: bytes | memoryview, offset: int = 0) -> Instruction:
        """The instruction at a byte offset. Raises DecodeError if there is none of this target."""
        fetched, size = self._fetch(code, offset)
        row = fetched.row
        operands = _operands(fetched)
        _check_constant_bus(fetched, operands)
        _check_accumulator(fetched, operands)
        mods, imms = modifiers(fetched.encoding, row, fetched.word)
        return Instruction(row.name, fetched.encoding.name, size, operands, row, mods, _immediates(fetched) | imms)

    def _fetch(self, code: bytes | memoryview, offset: int) -> tuple[_Fetched, int]:
        word = _read(code, offset, 4)
        name = identify(word)
        if name is None:
            raise DecodeError(f"{word:#010x} starts no encoding of {self.target}")
        name = self._form(name, word)
        if name == "VOP3P" and ENCODINGS["VOP3P"].get(word, "op") == MFMA_SCALE_PREFIX:
            name = "VOP3PX2"
        encoding = ENCODINGS[name]
        if encoding.size > 4:
            word = _read(code, offset, encoding.size)
        opcode = encoding.get(word, "op")
        if name == "VOP3PX2" and not self._is_scaled(encoding, word):
            raise DecodeError(f"{word & 0xFFFFFFFF:#010x}: a scale prefix without its matrix instruction")
        row = self._row(name, opcode, word)
        encoding = ENCODINGS[row.encoding]
        size = encoding.size
        literal = None
        if _has_literal(encoding, row, word):
            literal = _read(code, offset + size, 4)
            size += 4
        return _Fetched(encoding, row, word, literal), size

    def _is_scaled(self, encoding: Encoding, word: int) -> bool:
        """Whether the second half of a VOP3PX2 is one of its matrix instructions, with ABID's lowest bit set."""
        second, opcode, abid = (encoding.get(word, field) for field in ("second_encoding", "op", "abid"))
        return second == VOP3P_PREFIX and opcode in self._tables.get("VOP3PX2", {}) and bool(abid & 1)

    def _form(self, name: str, word: int) -> str:
        """VOP1, VOP2 and VOPC by what their src0 announces."""
        if name not in ("VOP1", "VOP2", "VOPC"):
            return name
        announced = ENCODINGS[name].get(word, "src0")
        form = {SDWA: name + "_SDWA", DPP: name + "_DPP"}.get(announced, name)
        if form not in ENCODINGS:
            raise DecodeError(f"{word:#010x}: {name} has no DPP form on {self.target}")
        return form

    def _row(self, name: str, opcode: int, word: int) -> Row:
        candidates = {"VOP3": ("VOP3", "VOP3SD"), "VOP3P": ("VOP3P", "VOP3P_MFMA")}.get(name, (name,))
        for encoding in candidates:
            row = self._tables.get(encoding, {}).get(opcode)
            if row is not None:
                break
        else:
            raise DecodeError(f"{word & 0xFFFFFFFF:#010x}: {self.target} has no {name} opcode {opcode}")
        return row


def _read(code: bytes | memoryview, offset: int, size: int) -> int:
    data = bytes(code[offset : offset + size])
    if len(data) < size:
        raise DecodeError(f"truncated: {len(data)} bytes left of an instruction of at least {size}")
    return int.from_bytes(data, "little")


def _has_literal(encoding: Encoding, row: Row, word: int) -> bool:
    for spec in row.operands:
        if spec.kind == "literal" or (spec.kind in ("ssrc", "src") and encoding.get(word, spec.name) == LITERAL):
            return encoding.size == 4
    return False


# --- operands -----------------------------------------------------------------------------------------------------------


def _operands(fetched: _Fetched) -> tuple[Operand, ...]:
    row = fetched.row
    if row.encoding == "SMEM":
        return _smem_operands(fetched)
    if row.encoding in ("MUBUF", "MTBUF"):
        return _buffer_operands(fetched)
    if row.encoding in ("FLAT", "GLOBAL", "SCRATCH"):
        return _flat_operands(fetched)
    return tuple(_operand(fetched, spec) for spec in row.operands if spec.kind not in IMMEDIATE_KINDS)


def _operand(fetched: _Fetched, spec: OperandSpec) -> Operand:
    """Read one operand by the kind of its spec."""
    kind = spec.kind
    if kind == "vcc":
        return _make(spec, "s", VCC)
    if kind == "literal":
        return _literal(fetched, spec)
    if kind.startswith("sdwa"):
        return _sdwa_operand(fetched, spec)
    code = fetched.get(spec.name)
    if kind == "vgpr":
        return _vector(spec, code)
    if kind == "vgpr_even":
        if code % 2:
            raise DecodeError(f"v{code} as {spec.name}: the register number must be even")
        return _vector(spec, code)
    if kind == "agpr":
        return _vector(spec, code + AGPR)
    if kind == "av":
        return _vector(spec, code + AGPR * fetched.get("acc_cd" if "acc_cd" in fetched.encoding.fields else "acc"))
    if kind in ("ssrc", "ssrc_nolit"):
        return _scalar_source(fetched, spec, code, literal=kind == "ssrc")
    if kind in ("sreg", "sdata"):
        return _scalar(spec, code)
    return _vector_source(fetched, spec, code)


def _vector_source(fetched: _Fetched, spec: OperandSpec, code: int) -> Operand:
    """A nine-bit source field."""
    kind = spec.kind
    if code < FIRST_VGPR_CODE:
        if kind == "src_av_const":
            return _accumulator_constant(spec, code)
        if kind != "src":
            raise DecodeError(f"operand code {code} as {spec.name}: a vector register is required")
        return _scalar_source(fetched, _mix_format(fetched, spec), code, literal=fetched.encoding.size == 4)
    number = code - FIRST_VGPR_CODE
    if kind == "src_agpr":
        return _vector(spec, number + AGPR)
    if kind == "src_av":
        return _vector(_f8f6f4_size(fetched, spec), number + AGPR * fetched.get(f"acc_{spec.name}"))
    if kind == "src_av_const":
        return _vector(spec, number + AGPR * fetched.get("acc_cd"))
    return _vector(_mix_format(fetched, spec), number)


def _mix_format(fetched: _Fetched, spec: OperandSpec) -> OperandSpec:
    """v_fma_mix*: op_sel_hi says for each source whether it is f16 or f32."""
    if not fetched.row.name.startswith("v_fma_mix"):
        return spec
    index = int(spec.name[3])
    half = fetched.get("op_sel_hi2") if index == 2 else fetched.get("op_sel_hi") >> index & 1
    return OperandSpec(spec.name, 16, "f16", spec.kind) if half else OperandSpec(spec.name, 32, "f32", spec.kind)


def _f8f6f4_size(fetched: _Fetched, spec: OperandSpec) -> OperandSpec:
    if "f8f6f4" not in fetched.row.flags:
        return spec
    field = "cbsz" if spec.name == "src0" else "blgp"
    form = fetched.get(field)
    if form not in F8F6F4_BITS:
        raise DecodeError(f"{fetched.row.name}: {field}:{form} is no data format")
    return OperandSpec(spec.name, F8F6F4_BITS[form], F8F6F4_FORMATS[form], spec.kind)


def _sdwa_operand(fetched: _Fetched, spec: OperandSpec) -> Operand:
    code = fetched.get(spec.name)
    if spec.kind == "sdwa_sdst":
        return _scalar(spec, code) if fetched.get("sd") else _make(spec, "s", VCC)
    if fetched.get("s0" if spec.name == "src0" else "s1"):
        return _scalar_source(fetched, spec, code, literal=False)
    return _vector(spec, code)


def _scalar_source(fetched: _Fetched, spec: OperandSpec, code: int, *, literal: bool) -> Operand:
    """A scalar register, an inline constant, a literal or a special value, from an operand code below 256."""
    if code < 128:
        return _scalar(spec, code)
    if code == LITERAL and literal:
        return _literal(fetched, spec)
    if code in SPECIALS:
        return _make(spec, "special", code)
    value = inline_constant(code, spec.bits, spec.fmt)
    if value is None:
        raise DecodeError(f"operand code {code} as {spec.name} is reserved")
    return Operand(spec.name, "k", code, spec.bits, spec.fmt, value)


def _literal(fetched: _Fetched, spec: OperandSpec) -> Operand:
    if fetched.literal is None:
        raise DecodeError(f"a literal as {spec.name}, which the encoding does not allow")
    return Operand(
        spec.name, "k", LITERAL, spec.bits, spec.fmt, literal_constant(fetched.literal, spec.bits, spec.fmt), True
    )


def _accumulator_constant(spec: OperandSpec, code: int) -> Operand:
    """The constant C of a matrix instruction. Its value is that of one element, and every element has it."""
    element = spec.fmt.rpartition("_")[2]
    value = inline_constant(code, int(element[1:]), element)
    if value is None:
        raise DecodeError(f"operand code {code} as {spec.name}: a vector register or an inline constant is required")
    return Operand(spec.name, "k", code, spec.bits, spec.fmt, value)


def _make(spec: OperandSpec, kind: str, index: int) -> Operand:
    return Operand(spec.name, kind, index, spec.bits, spec.fmt, 0, False, spec.is_dst)  # type: ignore[arg-type]


def _vector(spec: OperandSpec, number: int) -> Operand:
    """Vector register tuples of 64 bits and more start at an even register (gfx90a and later)."""
    dwords = (spec.bits + 31) // 32
    file, first = ("a", number - AGPR) if number >= AGPR else ("v", number)
    if dwords > 1 and first % 2:
        raise DecodeError(f"{file}[{first}:{first + dwords - 1}] as {spec.name}: the tuple must start at an even register")
    if first + dwords > 256:
        raise DecodeError(f"{file}[{first}:{first + dwords - 1}] as {spec.name}: past the last register")
    return _make(spec, "v", number)


def _scalar(spec: OperandSpec, code: int) -> Operand:
    """Scalar tuples of two start at an even register, larger ones at a multiple of four, and stay in one file."""
    dwords = (spec.bits + 31) // 32
    last = code + dwords - 1
    if code > LAST_SCALAR:
        raise DecodeError(f"operand code {code} as {spec.name}: a scalar register is required")
    if code > LAST_SGPR and code % 2 == 0 and code < FIRST_TTMP:
        fits = dwords <= 2
    elif code <= LAST_SGPR:
        fits = last <= LAST_SGPR
    elif FIRST_TTMP <= code <= LAST_TTMP:
        fits = last <= LAST_TTMP
    elif code == EXEC:
        fits = dwords <= 2
    else:
        fits = dwords == 1 and code != M0 + 1
    if not fits:
        raise DecodeError(f"scalar register code {code} as {spec.name}: no register of {spec.bits} bits")
    base = code - FIRST_TTMP if FIRST_TTMP <= code <= LAST_TTMP else code
    if base % min(4, 1 if dwords == 1 else 2 if dwords == 2 else 4):
        raise DecodeError(f"scalar registers {code} to {last} as {spec.name}: misaligned for {spec.bits} bits")
    if spec.kind == "sdata" and code >= M0:
        raise DecodeError(f"scalar register code {code} as {spec.name}: scalar memory instructions cannot name M0 or EXEC")
    return _make(spec, "s", code)


# --- memory -------------------------------------------------------------------------------------------------------------

_SOFFSET = OperandSpec("soffset", 32, "b32", "sreg")


def _smem_operands(fetched: _Fetched) -> tuple[Operand, ...]:
    """sdata, sbase (counted in pairs), soffset where the instruction has one."""
    operands = []
    for spec in fetched.row.operands:
        if spec.kind in IMMEDIATE_KINDS:
            continue
        if spec.name == "sbase":
            operands.append(_scalar(spec, fetched.get("sbase") << 1))
        elif spec.kind != "smem_offset":
            if spec.is_dst is False and fetched.get("glc") and "atomic" in fetched.row.flags:
                bits = spec.bits // 2 if "cmpswap" in fetched.row.name else spec.bits
                operands.append(_scalar(OperandSpec("sdst", bits, f"b{bits}", "sdata", True), fetched.get("sdata")))
            operands.append(_scalar(spec, fetched.get("sdata")))
        elif fetched.get("soffset_en"):
            operands.append(_scalar(_SOFFSET, fetched.get("soffset")))
        elif not fetched.get("imm"):
            operands.append(_scalar(_SOFFSET, fetched.get("offset_sgpr")))
    return tuple(operands)


def _buffer_operands(fetched: _Fetched) -> tuple[Operand, ...]:
    """vdst (a returning atomic's result), vdata, vaddr, srsrc (counted in fours), soffset."""
    row, operands = fetched.row, []
    to_lds = fetched.encoding.name == "MUBUF" and fetched.get("lds") and "lds" in row.flags
    for spec in row.operands:
        if spec.name == "vdst":
            if fetched.get("sc0"):
                operands.append(_vector(spec, fetched.get("vdata") + AGPR * fetched.get("acc")))
        elif spec.name == "vdata":
            if not to_lds:
                operands.append(_operand(fetched, spec))
        elif spec.name == "vaddr":
            operands.append(_buffer_address(fetched, spec))
        elif spec.name == "srsrc":
            operands.append(_scalar(spec, fetched.get("srsrc") << 2))
        else:
            operands.append(_operand(fetched, spec))
    return tuple(operands)


def _buffer_address(fetched: _Fetched, spec: OperandSpec) -> Operand:
    """The index, the offset, both (index first), or nothing."""
    dwords = fetched.get("idxen") + fetched.get("offen")
    if dwords == 0:
        return Operand("vaddr", "off", 0, 0, "b0")
    return _vector(OperandSpec("vaddr", 32 * dwords, f"b{32 * dwords}", "vgpr"), fetched.get("vaddr"))


def _flat_operands(fetched: _Fetched) -> tuple[Operand, ...]:
    """vdst, addr, data, saddr. An atomic has vdst where sc0 asks for the old value."""
    row, operands = fetched.row, []
    for spec in row.operands:
        if spec.name == "vdst" and "atomic" in row.flags and not fetched.get("sc0"):
            continue
        if spec.name == "addr":
            operands.append(_flat_address(fetched, spec))
        elif spec.name == "saddr":
            operands.append(_scalar_base(fetched, spec))
        else:
            operands.append(_operand(fetched, spec))
    return tuple(operands)


def _scalar_base(fetched: _Fetched, spec: OperandSpec) -> Operand:
    code = fetched.get("saddr")
    if code == _OFF:
        return Operand("saddr", "off", 0, 0, "b0")
    if fetched.row.encoding == "GLOBAL" and code == EXEC:
        raise DecodeError(f"{fetched.row.name}: EXEC is no base address")
    return _scalar(spec, code)


def _flat_address(fetched: _Fetched, spec: OperandSpec) -> Operand:
    """GLOBAL with a scalar base has a 32-bit offset; SCRATCH has an address if its sve bit is set."""
    if fetched.row.encoding == "SCRATCH" and not fetched.get("sve"):
        return Operand("addr", "off", 0, 0, "b0")
    if fetched.row.encoding == "GLOBAL" and fetched.get("saddr") != _OFF:
        spec = OperandSpec("addr", 32, "b32", "vgpr")
    return _vector(spec, fetched.get("addr"))


# --- immediates and rules -----------------------------------------------------------------------------------------------


def _immediates(fetched: _Fetched) -> dict[str, int]:
    """simm16 is sign-extended where it is an i16 (a number, a branch distance), else unsigned (hwreg, waitcnt, masks)."""
    imms = {}
    for spec in fetched.row.operands:
        if spec.kind in IMMEDIATE_KINDS:
            value = fetched.get(spec.name)
            if spec.kind == "gpr_idx":
                value &= _GPR_IDX_BITS
            imms[spec.name] = value - 0x10000 if spec.fmt == "i16" and value >> 15 else value
    return imms


def _check_constant_bus(fetched: _Fetched, operands: tuple[Operand, ...]) -> None:
    """A vector ALU instruction of gfx9 reads at most one scalar register (tuple) or literal. M0 as v_writelane's lane
    selector does not count."""
    if not fetched.encoding.name.startswith("VOP"):
        return
    values: set[tuple[str, int, int]] = {("s", VCC, 2)} if "vcc" in fetched.row.reads else set()
    for op in operands:
        if fetched.row.name == "v_writelane_b32" and op.name == "src1" and op.index == M0:
            continue
        if op.kind in ("s", "special") and not op.is_dst:
            values.add((op.kind, op.index, op.dwords))
        elif op.literal:
            values.add(("literal", 0, 1))
    if len(values) > 1:
        raise DecodeError(f"{fetched.row.name}: more than one scalar value on the constant bus")


def _check_accumulator(fetched: _Fetched, operands: tuple[Operand, ...]) -> None:
    """C and D of a matrix instruction with more than four registers each are the same registers or share none."""
    if "mfma" not in fetched.row.flags:
        return
    dst = operands[0]
    acc = next(op for op in operands if op.name == "src2")
    if acc.kind == "v" and dst.bits > _FREE_OVERLAP_BITS and 0 < abs(acc.index - dst.index) < dst.dwords:
        raise DecodeError(f"{fetched.row.name}: src2 overlaps a part of vdst")
