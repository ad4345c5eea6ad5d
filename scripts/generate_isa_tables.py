"""Generate rjemu/isa/tables/cdna.json: the opcode tables of gfx942 and gfx950.

    python scripts/generate_isa_tables.py FACTS.json [--output rjemu/isa/tables/cdna.json]

FACTS.json lists encodings, opcodes and operands of an instruction-set family (AMD's machine-readable ISA specification).
cdna_overrides.py adds what it lacks. Everything else is asked of LLVM's assembler (the ziglang wheel), so that the tables
hold LLVM's names and only what LLVM accepts: the mnemonic and opcode of each row, the targets that have it, and which
modifiers it takes (flags). A row that no target's assembler accepts ends the run with an error.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import cdna_overrides as overrides

sys.path.insert(0, str(Path(__file__).parents[1]))

from rjemu.isa.encodings import ENCODINGS

TARGETS = ("gfx942", "gfx950")
ASSEMBLER = (
    sys.executable,
    "-m",
    "ziglang",
    "clang",
    "-cc1as",
    "-triple",
    "amdgcn-amd-amdhsa",
    "-filetype",
    "asm",
    "-show-encoding",
)

ROLES = {"ssrc0": "src0", "ssrc1": "src1", "vsrc1": "src1"}
TEXT_ORDER = (
    "vdst", "sdst", "sdata", "src0", "simm32", "src1", "src2", "scale_src0", "scale_src1",
    "addr", "vdata", "data0", "data1", "data", "vaddr", "saddr", "srsrc", "sbase", "soffset", "simm16", "gpr_idx",
)  # fmt: skip

KINDS = {
    "VGPR": "vgpr",
    "VGPR_EVEN": "vgpr_even",
    "ACCVGPR": "agpr",
    "VGPR_OR_ACCVGPR": "av",
    "SRC": "src",
    "SRC_NOLDS": "src",
    "SRC_NOLIT": "src",
    "SRC_SIMPLE": "src",
    "SRC_VGPR": "src_vgpr",
    "VGPR_OR_LDS": "src_vgpr",
    "SRC_ACCVGPR": "src_agpr",
    "SRC_VGPR_OR_ACCVGPR": "src_av",
    "SRC_VGPR_OR_ACCVGPR_OR_CONST": "src_av_const",
    "SSRC": "ssrc",
    "SSRC_NOLIT": "ssrc_nolit",
    "SSRC_LANESEL": "ssrc_nolit",
    "SREG": "sreg",
    "SREG_NOVCC": "sreg",
    "SDST": "sreg",
    "SMEM_OFFSET": "smem_offset",
    "SIMM4": "gpr_idx",
    "SIMM8": "imm7",
    "SIMM16": "simm16",
    "GPR_IDX": "gpr_idx",
    "LABEL": "label",
    "HWREG": "hwreg",
    "SENDMSG": "sendmsg",
    "WAITCNT": "waitcnt",
    "LITERAL": "literal",
}
"""Operand kind of the facts file -> kind of an OperandSpec (see rjemu.isa.tables)."""

ENCODING_OF = {
    "SOP1Op": "SOP1", "SOP2Op": "SOP2", "SOPCOp": "SOPC", "SOPKOp": "SOPK", "SOPPOp": "SOPP", "SMEMOp": "SMEM",
    "VOP1Op": "VOP1", "VOP2Op": "VOP2", "VOPCOp": "VOPC", "VOP3Op": "VOP3", "VOP3SDOp": "VOP3SD", "VOP3POp": "VOP3P",
    "VOP3PX2Op": "VOP3PX2", "DSOp": "DS", "FLATOp": "FLAT", "GLOBALOp": "GLOBAL", "SCRATCHOp": "SCRATCH",
    "MUBUFOp": "MUBUF", "MTBUFOp": "MTBUF",
}  # fmt: skip

VECTOR_MEMORY = {"DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF"}
FLOAT_FORMAT = re.compile(r"^(pk\d*_)?(f16|bf16|f32|f64|fp8|bf8|fp6|bf6|fp4|xf32)$")


@dataclass
class Spec:
    name: str
    bits: int
    fmt: str
    kind: str
    is_dst: bool = False


@dataclass
class Candidate:
    """A row in the making. flags: of all targets. probed: target -> the flags found by asking that target's assembler."""

    name: str
    encoding: str
    opcode: int
    specs: list[Spec]
    mnemonic: str
    flags: set[str] = field(default_factory=set)
    targets: list[str] = field(default_factory=list)
    probed: dict[str, set[str]] = field(default_factory=dict)

    @property
    def sources(self) -> list[Spec]:
        return [s for s in self.specs if re.fullmatch(r"src\d", s.name) and s.kind != "vcc"]


# --- from the facts -----------------------------------------------------------------------------------------------------


def format_name(fact: str, bits: int) -> str:
    """NUM_PK2_F16 -> pk_f16, NUM_PK16_F32 -> pk16_f32, NUM_M64 -> b64, ANY and descriptors -> b<bits>."""
    name = fact.removeprefix("NUM_").lower()
    if not fact.startswith("NUM_") or name == "m64":
        return f"b{bits}"
    return re.sub(r"^pk2_", "pk_", name)


def operand_size(bits: int, kind: str) -> int:
    """Scalar sources below 32 bits, and vector sources below 16, are fetched as dwords: the selection within them is the
    instruction's business."""
    if kind.startswith("ssrc"):
        return max(bits, 32)
    return 32 if kind.startswith("src") and bits in (4, 8, 24) else bits


def make_specs(encoding: str, name: str, facts: dict[str, list]) -> list[Spec]:
    specs = []
    for fact_role, (fmt, bits, fact_kind) in facts.items():
        role, kind = ROLES.get(fact_role, fact_role), KINDS[fact_kind]
        if encoding == "VOP3PX2" and role.startswith("scale"):
            kind = KINDS[overrides.SCALE_OPERANDS]
        if role == "vdst" and kind == "sreg":
            role = "sdst"
        bits = operand_size(bits, kind)
        specs.append(Spec(role, bits, format_name(fmt, bits), kind, role in ("vdst", "sdst")))
    specs.sort(key=lambda s: TEXT_ORDER.index(s.name))
    arrange = {"SOPK": arrange_sopk, "SMEM": arrange_smem, "VOP2": arrange_vop2, "VOPC": arrange_vopc}
    if encoding in arrange:
        specs = arrange[encoding](name, specs)
    elif encoding in VECTOR_MEMORY:
        specs = arrange_memory(encoding, name, specs)
    elif encoding == "VOP3P" and name.startswith("v_smfmac"):
        specs = [s if s.name != "src2" else Spec("src2", 32, "b32", "src_vgpr") for s in specs]
    if name in overrides.SWAPS:
        next(s for s in specs if s.name == "src0").is_dst = True
    return specs


def arrange_sopk(name: str, specs: list[Spec]) -> list[Spec]:
    """Comparisons, s_setreg and s_cbranch_i_fork read their only register."""
    if name.startswith(("s_cmpk", "s_setreg", "s_cbranch")):
        specs = [Spec("src0", s.bits, s.fmt, s.kind) if s.name == "sdst" else s for s in specs]
    if name.startswith("s_setreg"):
        specs.sort(key=lambda s: s.name != "simm16")
    return specs


def arrange_smem(name: str, specs: list[Spec]) -> list[Spec]:
    for s in specs:
        if s.name == "sdata" and s.kind == "sreg":
            s.kind = "sdata"
            s.is_dst = "load" in name or "time" in name
    return specs


def arrange_vop2(name: str, specs: list[Spec]) -> list[Spec]:
    """VCC as the carry or the selector is an operand, as it is in the VOP3 form and in the text."""
    if "_co_" in name:
        specs.insert(1, Spec("sdst", 64, "b64", "vcc", True))
    if re.match(r"v_(addc|subb|subbrev)_co_|v_cndmask", name):
        specs.append(Spec("src2", 64, "b64", "vcc"))
    if constant := re.match(r"v_(fma|mad)(m|a)k_(f\d\d)", name):
        literal = Spec("simm32", int(constant[3][1:]), constant[3], "literal")
        specs.insert(2 if constant[2] == "m" else 3, literal)
    return specs


def arrange_vopc(name: str, specs: list[Spec]) -> list[Spec]:
    return [Spec("sdst", 64, "b64", "vcc", True), *specs]


def arrange_memory(encoding: str, name: str, specs: list[Spec]) -> list[Spec]:
    by_name = {s.name: s for s in specs}
    if encoding == "DS":
        return [by_name[r] for r in ("vdst", "addr", "data0", "data1") if r in by_name]
    if "_lds_" in name:
        by_name.pop("vdst", None)
    if encoding in ("MUBUF", "MTBUF"):
        data = by_name.get("vdata")
        if data is None:
            return []
        data.is_dst = "_load_" in name
        order = [data, *(by_name[r] for r in ("vaddr", "srsrc", "soffset"))]
        if "_atomic_" in name:
            bits = data.bits // 2 if "cmpswap" in name else data.bits
            order.insert(0, Spec("vdst", bits, f"b{bits}", "av", True))
        return order
    if encoding == "FLAT":
        by_name.pop("saddr", None)
    return [by_name[r] for r in ("vdst", "addr", "data", "saddr") if r in by_name]


def candidates(facts: dict) -> list[Candidate]:
    rows = []
    for enumeration, encoding in ENCODING_OF.items():
        names: dict[str, tuple[int, dict]] = {
            name: (opcode, overrides.OPERANDS.get((enumeration, name), facts["operands"][enumeration].get(name) or {}))
            for name, opcode in facts["opcodes"][enumeration].items()
            if name not in overrides.OMITTED
        }
        names |= overrides.ADDED.get(enumeration, {})
        for fact_name, (opcode, operands) in names.items():
            mnemonic = overrides.RENAMED.get(fact_name, fact_name.lower())
            name = re.sub(r"_e(32|64)$", "", mnemonic)
            row_encoding = "VOP3P_MFMA" if encoding == "VOP3P" and re.match(r"v_s?mfmac?_[fi]", name) else encoding
            specs = make_specs(encoding, name, operands)
            rows.append(Candidate(name, row_encoding, opcode, specs, mnemonic))
    return rows


# --- texts for the assembler --------------------------------------------------------------------------------------------

FIRST_REGISTER = {
    "vdst": 64, "src0": 2, "src1": 96, "src2": 128, "addr": 200, "vaddr": 200, "data0": 210, "data1": 220, "data": 210,
    "vdata": 64, "scale_src0": 1, "scale_src1": 3, "sdst": 8, "sdata": 16, "sbase": 4, "srsrc": 12, "soffset": 3, "saddr": 4,
}  # fmt: skip
SCALAR_SOURCE = {"src0": 4, "src1": 12, "src2": 20}


def registers(prefix: str, first: int, bits: int) -> str:
    count = (bits + 31) // 32
    return f"{prefix}{first}" if count == 1 else f"{prefix}[{first}:{first + count - 1}]"


def operand_text(row: Candidate, spec: Spec) -> str:
    fixed = {
        "vcc": "vcc", "literal": "0x1234", "smem_offset": "0x10", "gpr_idx": "gpr_idx(SRC0)", "imm7": "7", "simm16": "1",
        "label": "1", "hwreg": "hwreg(HW_REG_MODE)", "sendmsg": "sendmsg(MSG_INTERRUPT)", "waitcnt": "vmcnt(0)",
    }  # fmt: skip
    if spec.kind in fixed:
        return fixed[spec.kind]
    if spec.name == "saddr" or spec.name == "vaddr":
        return "off"
    if spec.kind in ("sreg", "ssrc", "sdata", "ssrc_nolit"):
        if row.name == "v_writelane_b32" and spec.name == "src1":
            return "3"
        return registers(
            "s", FIRST_REGISTER[spec.name] if spec.name not in SCALAR_SOURCE else SCALAR_SOURCE[spec.name], spec.bits
        )
    prefix = "a" if spec.kind in ("agpr", "src_agpr") else "v"
    return registers(prefix, FIRST_REGISTER[spec.name], spec.bits)


def line(row: Candidate, suffix: str = "", form: str = "", change: dict[str, str] | None = None) -> str:
    """The row's base line with a modifier suffix, in another form (_dpp, _sdwa), or with operands changed ({}: its text)."""
    mnemonic = re.sub(r"_e(32|64)$", "", row.mnemonic) + form if form else row.mnemonic
    operands = []
    for spec in row.specs:
        if row.encoding == "MUBUF" and spec.name == "vdst":
            continue
        operands.append((change or {}).get(spec.name, "{}").format(operand_text(row, spec)))
    tail = (
        {"DS": " gds"}
        if row.name.startswith("ds_gws")
        else {"FLAT": " sc0", "GLOBAL": " sc0"}
        if "_atomic_" in row.name
        else {}
    )
    return f"{mnemonic} {', '.join(operands)}{tail.get(row.encoding, '')}{suffix}"


OP_SEL_PROBE = "op_sel:"
"""Prefix of the probes whose flags are the op_sel bits that the assembler sets: the text has fewer entries than bits."""

DPP_TAIL, DPP64_TAIL = " row_shl:1", " row_newbcast:1"


def probes(row: Candidate) -> dict[str, str]:
    """Flag -> the line that the assembler accepts if the row has it."""
    lines: dict[str, str] = {}
    sources = row.sources

    def vector(prefix: str, *values: int) -> str:
        return f" {prefix}:[{','.join(map(str, values))}]"

    def one_hot(prefix: str, count: int, i: int, rest: int = 0) -> str:
        return vector(prefix, *(1 if j == i else rest for j in range(count)))

    if row.encoding in ("VOP3", "VOP3SD") or row.name.startswith("v_fma_mix"):
        for s in sources:
            i = int(s.name[3])
            if not operand_text(row, s).isdigit():
                lines[f"neg{i}"] = line(row, change={s.name: "-{}"})
            if row.encoding != "VOP3SD":  # its sdst lies where abs would
                lines[f"abs{i}"] = line(row, change={s.name: "|{}|"})
        lines["clamp"] = line(row, " clamp")
        lines["omod"] = line(row, " mul:2")
        lines["bitop3"] = line(row, " bitop3:0x27")
        count = len(sources)
        if row.encoding == "VOP3":
            for length in {count, count + 1, 4}:
                for i in range(length):
                    lines[f"{OP_SEL_PROBE}{length}:{i}"] = line(row, one_hot("op_sel", length, i))
            lines["fi"] = line(row, " fi:1")
    if row.encoding == "VOP3P":
        count = len(sources)
        for modifier, rest in (("op_sel", 0), ("op_sel_hi", 1), ("neg_lo", 0), ("neg_hi", 0)):
            for i in range(count):
                text = vector(modifier, *((1 - rest) if j == i else rest for j in range(count)))
                lines[f"{modifier}{i}"] = line(row, text)
        lines["clamp"] = line(row, " clamp")
    if row.encoding in ("VOP3P_MFMA", "VOP3PX2"):
        lines["cbsz"], lines["abid"], lines["blgp"] = line(row, " cbsz:1"), line(row, " abid:1"), line(row, " blgp:1")
        lines["neg"] = line(row, " neg:[1,0,0]")
    if row.encoding in ("VOP1", "VOP2", "VOPC"):
        wide = any(s.bits == 64 and s.kind != "vcc" for s in row.specs)
        tail = DPP64_TAIL if wide else DPP_TAIL
        lines["dpp"] = line(row, tail, "_dpp")
        if wide:
            lines["dpp_any"] = line(row, DPP_TAIL, "_dpp")
        for s in sources:
            i = int(s.name[3])
            lines[f"dpp_neg{i}"] = line(row, tail, "_dpp", {s.name: "-{}"})
            lines[f"dpp_abs{i}"] = line(row, tail, "_dpp", {s.name: "|{}|"})
        selections = "".join(f" src{i}_sel:DWORD" for i in range(len(sources)))
        whole = " dst_sel:DWORD dst_unused:UNUSED_PAD" + selections
        lines["sdwa"] = line(row, selections, "_sdwa")
        lines["sdwa_dst_sel"] = line(row, whole, "_sdwa")
        for s in sources:
            i = int(s.name[3])
            lines[f"sdwa_neg{i}"] = line(row, selections, "_sdwa", {s.name: "-{}"})
            lines[f"sdwa_abs{i}"] = line(row, selections, "_sdwa", {s.name: "|{}|"})
            lines[f"sdwa_sext{i}"] = line(row, selections, "_sdwa", {s.name: "sext({})"})
        lines["sdwa_clamp"] = line(row, " clamp" + selections, "_sdwa")
        lines["sdwa_omod"] = line(row, " mul:2" + selections, "_sdwa")
    if row.encoding == "MUBUF" and row.specs:
        operands = ", ".join(operand_text(row, s) for s in row.specs if s.name not in ("vdata", "vdst"))
        lines["lds"] = f"{row.mnemonic} {operands} lds"
    if row.encoding == "SMEM":
        lines["glc"] = line(row, " glc")
    return lines


# --- asking the assembler -----------------------------------------------------------------------------------------------


def assemble(lines: list[str], target: str) -> list[tuple[bytes, str] | None]:
    """Bytes and LLVM's own text of each line, None for a rejected one."""
    with tempfile.NamedTemporaryFile("w", suffix=".s") as source:
        source.write("\n".join(lines) + "\n")
        source.flush()
        done = subprocess.run([*ASSEMBLER, "-target-cpu", target, "-o", "-", source.name], capture_output=True, text=True)
    rejected = {int(m[1]) - 1 for m in re.finditer(r"^\S+?:(\d+):\d+: error: ", done.stderr, re.M)}
    accepted = iter(re.findall(r"^\t(.*?)\s*; encoding: \[(.*)\]", done.stdout, re.M))
    results: list[tuple[bytes, str] | None] = []
    for i in range(len(lines)):
        if i in rejected:
            results.append(None)
        else:
            text, encoding = next(accepted)
            results.append((bytes(int(byte, 16) for byte in encoding.split(",")), text))
    return results


def prove(rows: list[Candidate]) -> None:
    """Fill each row's targets and check name and opcode; SystemExit on a row that nothing accepts or that is another's."""
    lines = [line(row) for row in rows]
    for target in TARGETS:
        for row, result in zip(rows, assemble(lines, target), strict=True):
            if result is None:
                continue
            code, text = result
            opcode = ENCODINGS[row.encoding].get(int.from_bytes(code, "little"), "op")
            name = re.sub(r"_e(32|64)$", "", text.split()[0])
            if (name, opcode) != (row.name, row.opcode):
                raise SystemExit(f"{row.encoding} {row.name} {row.opcode}: the assembler makes {name} {opcode}")
            row.targets.append(target)
            if text.split()[0].endswith("_e32"):
                row.flags.add("e32")
    short_forms = {row.name for row in rows if row.encoding in ("VOP1", "VOP2", "VOPC")}
    for row in rows:
        if row.encoding in ("VOP3", "VOP3SD") and row.name in short_forms:
            row.flags.add("e64")
    unknown = [f"{row.encoding} {row.name}: {text}" for row, text in zip(rows, lines, strict=True) if not row.targets]
    if unknown:
        raise SystemExit("rejected by the assembler:\n" + "\n".join(unknown))


def probe(rows: list[Candidate]) -> None:
    """Fill each row's `probed` flags."""
    for target in TARGETS:
        asked = [(row, flag, text) for row in rows if target in row.targets for flag, text in probes(row).items()]
        for (row, flag, _), result in zip(asked, assemble([text for _, _, text in asked], target), strict=True):
            flags = row.probed.setdefault(target, set())
            if result is None:
                continue
            if flag.startswith(OP_SEL_PROBE):
                op_sel = ENCODINGS["VOP3"].get(int.from_bytes(result[0], "little"), "op_sel")
                flags.update(f"op_sel{i}" for i in range(4) if op_sel >> i & 1)
            else:
                flags.add(flag)


# --- side effects -------------------------------------------------------------------------------------------------------


def side_effects(row: Candidate) -> tuple[list[str], list[str], bool]:
    """Implicit reads, implicit writes, tied."""
    name = row.name
    reads, writes = list(overrides.READS.get(name, ())), list(overrides.WRITES.get(name, ()))
    vector = row.encoding.startswith("VOP") or row.encoding in VECTOR_MEMORY
    if (
        vector
        and row.encoding not in ("VOP3P_MFMA", "VOP3PX2")
        and name not in overrides.NO_EXEC
        and not name.startswith("ds_gws")
    ):
        reads.append("exec")
    if row.encoding.startswith("VOP") and any(FLOAT_FORMAT.match(s.fmt) for s in row.specs):
        reads.append("mode")
    if any(s.kind == "vcc" and not s.is_dst for s in row.specs):
        reads.append("vcc")
    if any(s.kind == "vcc" and s.is_dst for s in row.specs):
        writes.append("vcc")
    if "saveexec" in name or "wrexec" in name:
        reads.append("exec")
        writes.append("exec")
    if name.startswith("v_cmpx"):
        writes.append("exec")
    if name.startswith(("s_cmp_", "s_cmpk_", "s_bitcmp")):
        writes.append("scc")
    if row.encoding == "SOPP" and "branch" in name:
        reads.append("pc")
        writes.append("pc")
    if "_load_lds_" in name:
        reads.append("m0")
    if row.encoding in ("FLAT", "SCRATCH") or name.startswith("s_scratch"):
        reads.append("flat_scratch")
    tied = name in overrides.TIED or bool(re.search(overrides.TIED_PATTERN, name))
    return sorted(set(reads)), sorted(set(writes)), tied and any(s.is_dst for s in row.specs)


def semantic_flags(row: Candidate) -> set[str]:
    name, flags = row.name, set()
    if row.encoding in VECTOR_MEMORY | {"SMEM"}:
        if "_atomic_" in name:
            flags.add("atomic")
        if re.search(r"_(read|write|wrxchg)2(st64)?_", name):
            flags.add("two_offsets")
        if "_load_lds_" in name:
            flags.add("lds")
        if name.startswith("ds_gws"):
            flags.add("gds")
    if row.encoding in ("VOP3P_MFMA", "VOP3PX2"):
        flags.add("smfmac" if "smfmac" in name else "mfma")
        if "f8f6f4" in name:
            flags.add("f8f6f4")
    return flags


# --- output -------------------------------------------------------------------------------------------------------------


def document(rows: list[Candidate]) -> str:
    """JSON with one row per line: [encoding, opcode, name, operands, reads, writes, tied, flags, targets].

    An instruction whose modifiers differ between targets has a row for each.
    """
    lines = []
    for row in rows:
        reads, writes, tied = side_effects(row)
        specs = [[s.name, s.bits, s.fmt, s.kind, int(s.is_dst)] for s in row.specs]
        by_flags: dict[tuple[str, ...], list[str]] = {}
        for target in row.targets:
            flags = row.flags | row.probed.get(target, set()) | semantic_flags(row)
            by_flags.setdefault(tuple(sorted(flags)), []).append(target)
        for names, targets in by_flags.items():
            fields = [row.encoding, row.opcode, row.name, specs, reads, writes, int(tied), names, targets]
            lines.append(json.dumps(fields, separators=(",", ":")))
    head = '{"generated_by": "scripts/generate_isa_tables.py", "rows": [\n'
    return head + ",\n".join(lines) + "\n]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("facts", type=Path)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "rjemu/isa/tables/cdna.json")
    arguments = parser.parse_args()
    rows = candidates(json.loads(arguments.facts.read_text()))
    prove(rows)
    probe(rows)
    rows.sort(key=lambda row: (list(ENCODINGS).index(row.encoding), row.opcode))
    arguments.output.write_text(document(rows))
    print(f"{len(rows)} rows for {', '.join(TARGETS)} in {arguments.output}")


if __name__ == "__main__":
    main()
