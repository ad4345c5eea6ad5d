"""The table of matrix instructions against the opcode tables, and every layout as a one-to-one map."""

from __future__ import annotations

import pytest

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.isa.semantics.registry import lookup
from rjemu.isa.tables import tables
from rjemu.mma.geometry import F8F6F4_FORMATS, INSTRUCTIONS, InputLayout, OutputLayout, shape_of

NAMES = sorted({name for names in INSTRUCTIONS.values() for name in names})


@pytest.mark.parametrize("target", sorted(INSTRUCTIONS))
def test_no_instruction_is_missing(target: str) -> None:
    rows = {row.name: row for form in tables(target).values() for row in form.values() if row.flags & {"mfma", "smfmac"}}
    assert set(rows) == set(INSTRUCTIONS[target])
    assert all(lookup(name) for name in rows)
    for name, row in rows.items():
        shape = shape_of(name)
        sizes = {spec.name: spec.bits for spec in row.operands}
        assert sizes["src0"] == 32 * shape.a_layout(shape.a or "fp8").registers
        assert sizes["src1"] == 32 * shape.b_layout(shape.b or "fp8").registers
        assert sizes["vdst"] == 32 * shape.d_layout.registers


def layouts(name: str) -> list[InputLayout]:
    shape = shape_of(name)
    formats = [(shape.a, shape.b)] if shape.a else [(element, element) for element in F8F6F4_FORMATS]
    return [layout for a, b in formats for layout in (shape.a_layout(a), shape.b_layout(b))]


@pytest.mark.parametrize("name", NAMES)
def test_every_place_holds_one_element(name: str) -> None:
    for layout in layouts(name):
        places = {}
        for block in range(layout.blocks):
            for index in range(layout.dim):
                for k in range(layout.k):
                    place = layout.place(block, index, k)
                    places[place.lane, 32 * place.register + place.bit] = (block, index, k)
                    item, group = (32 * place.register + place.bit) // layout.bits, place.lane // layout.columns
                    assert layout.k_of(item, group) == k
        assert len(places) == layout.blocks * layout.dim * layout.k == 32 * layout.registers * 64 // layout.bits


@pytest.mark.parametrize("name", NAMES)
def test_tiles_cover_the_result(name: str) -> None:
    """Every row of every block lies where its tile and its row in the tile say, for each tile height."""
    layout = shape_of(name).d_layout
    for rows in (1, 2, 4, 8, 16):
        if rows <= layout.m:
            check_tiles(layout, rows)


def check_tiles(layout: OutputLayout, rows: int) -> None:
    covered = set()
    for tile in layout.tiles(rows):
        block, first = divmod(tile.a_column, layout.m)
        assert tile.b_column == block * layout.n
        for r, row in enumerate(layout.tile_rows(rows)):
            place = layout.place(block, first + r, 0)
            assert (tile.register + row.register, tile.lane + row.lane) == (place.register, place.lane)
            covered.add((block, first + r))
    assert len(covered) == layout.blocks * layout.m


def test_a_name_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="v_fma_f32"):
        shape_of("v_fma_f32")
