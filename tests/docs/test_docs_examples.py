"""The examples of README and docs/ run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rjemu.cli.main import COMMANDS
from rjemu.config import preset_names
from rjemu.jobs import load_job

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[Any]:
    """The fenced blocks of a language, as test parameters; Python without an import is no program."""
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL))
        if language != "python" or "import" in text
    ]


@pytest.mark.parametrize("text", blocks("python"))
def test_python_blocks_run(text: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(text)
    command = [sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", blocks("toml"))
def test_job_blocks_are_valid(text: str, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(text)
    assert load_job(job).dispatches


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_command_and_preset_is_documented() -> None:
    commands = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"rjemu {name}" not in commands] == []
    configurations = (ROOT / "docs" / "configuration.md").read_text()
    assert [name for name in preset_names() if name not in configurations] == []
