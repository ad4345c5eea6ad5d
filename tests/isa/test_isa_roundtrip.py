"""Every table row against LLVM's assembler: text to bytes, decoded, printed, and assembled to the same bytes again."""

from __future__ import annotations

import pytest
from support.assembler_lines import Assembled, Rejected, assemble_lines
from support.isa_samples import samples

from rjemu.isa.decoder import Decoder
from rjemu.isa.disasm import format_instruction
from rjemu.isa.tables import tables

TARGETS = ("gfx942", "gfx950")

TEXT_DIFFERS = {
    "v_nop": "LLVM writes all forms alike, so that its text does not assemble to the same bytes",
    "v_clrexcp": "the same",
    "v_pk_fmac_f16": "LLVM prints op_sel that it does not encode, and leaves out SDWA's neg that it does encode",
    "v_div_scale_f32": "LLVM takes |src1|, whose bit is part of sdst",
    "v_div_scale_f64": "the same",
    "buffer_wbl2": "LLVM prints nt, but does not encode it",
    "buffer_inv": "the same",
    "ds_swizzle_b32": "LLVM writes a pattern that does not assemble to the same offset",
    "s_waitcnt": "LLVM leaves out the unused bits",
    **dict.fromkeys(
        (f"{space}_atomic_{op}_f64" for space in ("flat", "global") for op in ("add", "min", "max")),
        "LLVM prints sc1, but does not encode it where data is in AGPRs",
    ),
}
"""Instructions that may print otherwise than LLVM, and why. Their text still has to assemble to the same bytes."""


def accepted(target: str, every: int) -> list[Assembled]:
    """The assembler's results for all base lines and each `every`th other line. Every base line must be accepted."""
    lines: dict[str, bool] = {}
    for i, (_, line, is_base) in enumerate(samples(target)):
        if is_base or i % every == 0:
            lines[line] = lines.get(line, False) or is_base
    results = assemble_lines(list(lines), target)
    refused = [r for r in results if isinstance(r, Rejected) and lines[r.source]]
    assert not refused
    return [r for r in results if isinstance(r, Assembled)]


def check(target: str, every: int) -> None:
    decoder = Decoder(target)
    lines = accepted(target, every)
    texts = []
    for line in lines:
        instr = decoder.decode(line.code)
        assert instr.size == len(line.code), line
        texts.append(format_instruction(instr))
        if texts[-1] != line.text:
            assert instr.name in TEXT_DIFFERS, (line, texts[-1])
    for line, again in zip(lines, assemble_lines(texts, target), strict=True):
        assert isinstance(again, Assembled), (line, again)
        assert again.code == line.code, (line, again)


@pytest.mark.parametrize("target", TARGETS)
def test_every_row_round_trips(target: str) -> None:
    check(target, every=4 if target == "gfx950" else 12)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_every_sample_round_trips(target: str) -> None:
    check(target, every=1)


@pytest.mark.parametrize("target", TARGETS)
def test_instructions_of_the_other_target_are_absent(target: str) -> None:
    """The assembler takes no line of a row that only the other target has."""
    other = next(t for t in TARGETS if t != target)
    foreign = [
        line for row, line, is_base in samples(other) if is_base and row.opcode not in tables(target).get(row.encoding, {})
    ]
    assert foreign
    assert all(isinstance(result, Rejected) for result in assemble_lines(foreign, target))
