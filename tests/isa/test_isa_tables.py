"""The opcode tables themselves: complete, unambiguous, and of known kinds."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources

import pytest

from rjemu.isa.encodings import ENCODINGS
from rjemu.isa.tables import FAMILIES, IMMEDIATE_KINDS, row_names, tables

FIELD_KINDS = {
    *("vgpr", "vgpr_even", "agpr", "av", "src", "src_vgpr", "src_agpr", "src_av", "src_av_const", "ssrc", "ssrc_nolit"),
    *("sreg", "sdata", "sdwa", "sdwa_sdst"),
}
FIXED_KINDS = {"vcc", "literal", "smem_offset"}


@pytest.mark.parametrize("target", FAMILIES)
def test_no_two_rows_share_an_opcode(target: str) -> None:
    rows = json.loads(resources.files("rjemu.isa.tables").joinpath(f"{FAMILIES[target]}.json").read_text())["rows"]
    keys = Counter((encoding, opcode) for encoding, opcode, *_, targets in rows if target in targets)
    keys += Counter(("VOP3", opcode) for encoding, opcode, *_, targets in rows if encoding == "VOP3SD" and target in targets)
    keys += Counter(
        ("VOP3P", opcode) for encoding, opcode, *_, targets in rows if encoding == "VOP3P_MFMA" and target in targets
    )
    assert max(keys.values()) == 1


@pytest.mark.parametrize("target", FAMILIES)
def test_every_operand_is_of_a_known_kind_and_has_its_field(target: str) -> None:
    for encoding, rows in tables(target).items():
        fields = ENCODINGS[encoding].fields
        for row in rows.values():
            for spec in row.operands:
                assert spec.kind in FIELD_KINDS | FIXED_KINDS | IMMEDIATE_KINDS, (row.name, spec)
                returned = encoding == "MUBUF" and spec.name == "vdst"  # in vdata's field
                assert spec.kind in FIXED_KINDS or returned or spec.name in fields, (row.name, spec)


def test_the_targets_have_what_their_isa_documents_list() -> None:
    cdna3, cdna4 = set(row_names("gfx942")), set(row_names("gfx950"))
    assert cdna3 - cdna4 == {"v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"}
    added = cdna4 - cdna3
    assert {
        "v_prng_b32",
        "v_permlane32_swap_b32",
        "ds_read_b64_tr_b16",
        "v_bitop3_b32",
        "buffer_atomic_pk_add_bf16",
    } <= added
    assert all(name.startswith(("v_", "ds_read_", "global_load_lds_", "buffer_atomic_")) for name in added)


def test_unknown_targets_have_no_tables() -> None:
    with pytest.raises(KeyError):
        tables("gfx000")
