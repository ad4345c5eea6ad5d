"""Opcode tables: one `Row` per (encoding, opcode) of a target.

The rows come from a generated JSON file per instruction-set family (scripts/generate_isa_tables.py), parsed on first use.
The DPP and SDWA forms of a VOP1, VOP2 or VOPC row are derived here.

Kinds of an OperandSpec, that is, what the operand's field may name:

    vgpr, agpr        an 8-bit field: VGPR or AGPR            vgpr_even    VGPR of an even number
    av                an 8-bit field, AGPR if the encoding's acc bit is set
    src               a 9-bit field: VGPR, scalar register, inline constant; a literal in VOP1, VOP2 and VOPC
    src_vgpr, src_agpr, src_av, src_av_const                  a 9-bit field restricted to those
    ssrc, ssrc_nolit  scalar register or inline constant, with and without a literal
    sreg              scalar register                         sdata        the same without M0 and EXEC
    sdwa              VGPR, or scalar register or constant as the encoding's s0/s1 bit says
    vcc               VCC, named by no field                  literal      the 32-bit literal
    sdwa_sdst         scalar register, or VCC without the encoding's sd bit
    smem_offset       the register and immediate offset of SMEM
    simm16, label, hwreg, sendmsg, waitcnt, gpr_idx, imm7     an immediate, by how it prints
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources

from rjemu.isa.instruction import OperandSpec, Row

FAMILIES = {"gfx942": "cdna", "gfx950": "cdna"}
"""Target -> the family whose file holds its rows."""

IMMEDIATE_KINDS = frozenset({"simm16", "label", "hwreg", "sendmsg", "waitcnt", "gpr_idx", "imm7"})

Tables = Mapping[str, Mapping[int, Row]]
"""Encoding -> opcode -> row."""


@functools.cache
def tables(target: str) -> Tables:
    """All rows of a target. KeyError for a target without tables."""
    result: dict[str, dict[int, Row]] = defaultdict(dict)
    for row, targets in _family(FAMILIES[target]):
        if target in targets:
            for form in (row, *_derived(row)):
                result[form.encoding][form.opcode] = form
    return dict(result)


def _family(name: str) -> Iterator[tuple[Row, list[str]]]:
    text = resources.files(__package__).joinpath(f"{name}.json").read_text()
    for encoding, opcode, mnemonic, specs, reads, writes, tied, flags, targets in json.loads(text)["rows"]:
        operands = tuple(_spec(*spec) for spec in specs)
        yield Row(mnemonic, encoding, opcode, operands, tuple(reads), tuple(writes), bool(tied), frozenset(flags)), targets


@functools.cache
def _spec(name: str, bits: int, fmt: str, kind: str, is_dst: int) -> OperandSpec:
    return OperandSpec(name, bits, fmt, kind, bool(is_dst))


def _derived(row: Row) -> Iterator[Row]:
    """The row's DPP and SDWA forms. Their modifiers are the flags with that prefix."""
    if "dpp" in row.flags:
        flags = _prefixed(row.flags, "dpp_")
        if any(spec.bits == 64 and spec.kind != "vcc" for spec in row.operands):
            flags |= {"dpp64"}
        yield replace(row, encoding=row.encoding + "_DPP", operands=_sources_as(row, "vgpr"), flags=flags)
    if "sdwa" in row.flags:
        specs = _sources_as(row, "sdwa")
        if row.encoding == "VOPC":
            specs = (replace(specs[0], kind="sdwa_sdst"), *specs[1:])
        yield replace(row, encoding=row.encoding + "_SDWA", operands=specs, flags=_prefixed(row.flags, "sdwa_"))


def _prefixed(flags: frozenset[str], prefix: str) -> frozenset[str]:
    return frozenset(flag.removeprefix(prefix) for flag in flags if flag.startswith(prefix))


def _sources_as(row: Row, kind: str) -> tuple[OperandSpec, ...]:
    def change(spec: OperandSpec) -> OperandSpec:
        return replace(spec, kind=kind) if spec.name in ("src0", "src1") else spec

    return tuple(change(spec) for spec in row.operands)


def row_names(target: str) -> list[str]:
    """Every mnemonic of the target, sorted."""
    return sorted({row.name for rows in tables(target).values() for row in rows.values()})
