"""`rjemu isa-coverage`."""

from __future__ import annotations

import json

import pytest

from rjemu.cli.main import main

UNSUPPORTED = {
    *("ds_gws_init", "ds_gws_barrier", "ds_gws_sema_v", "ds_gws_sema_p", "ds_gws_sema_br", "ds_gws_sema_release_all"),
    *("s_endpgm_ordered_ps_done", "v_screen_partition_4se_b32"),
}
"""Global wave sync and pixel shaders: everything else must execute."""


@pytest.mark.parametrize(("target", "total"), [("gfx950", 1247), ("gfx942", 1151)])
def test_everything_but_graphics_executes(target: str, total: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa-coverage", "--target", target, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["unsupported"]) == UNSUPPORTED
    assert found["total"] == total == len(found["executed"]) + len(UNSUPPORTED)


def test_text_names_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa-coverage", "--target", "gfx950"]) == 0
    out = capsys.readouterr().out
    assert "1239 of 1247 instructions execute" in out
    assert "v_screen_partition_4se_b32" in out
