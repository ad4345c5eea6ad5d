"""`rjemu checkpoint info`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.interrupted import SHORT_SLICES, WORKS, save_after

import rjemu
from rjemu.cli.main import main


def test_a_launch_under_way_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine"
    save_after(WORKS["barriers"], 0.03, path, workers="inline", **SHORT_SLICES)
    assert main(["checkpoint", "info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "checkpoint of gfx950_mi355x, format version 1" in text
    assert "kernel on GPU 0, [3072, 1, 1] work-items in workgroups of [256, 1, 1]" in text
    assert "0 workgroups completed, 12 resident" in text
    assert main(["checkpoint", "info", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["file_bytes"] == path.stat().st_size
    assert sum(facts["launches"][0]["waves"].values()) == 48


def test_bytes_and_pages_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rjemu.Machine(workers=(1, 2)) as gpu:
        array = gpu.zeros(1 << 20, np.float32)
        gpu.vram.view(array.address, 4)[:] = 1
        gpu.save(tmp_path / "machine")
    assert main(["checkpoint", "info", str(tmp_path / "machine"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["machine"]["workers"] == [1, 2]
    assert facts["allocations"]["bytes"] >= 4 << 20
    assert facts["memory"]["pages_bytes"] <= 3 * 4096


@pytest.mark.parametrize("content, message", [(b"text", "no checkpoint"), (None, "cannot read")])
def test_a_file_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert main(["checkpoint", "info", str(tmp_path / "file")]) == 2
    found = capsys.readouterr()
    assert message in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""
