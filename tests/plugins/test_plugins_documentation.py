"""docs/plugins.md against the plugins, the contract, and what its example prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rjemu.plugins import Plugin
from rjemu.plugins.contract import ISSUE_HOOKS, STEP_HOOKS, WAVE_HOOKS
from rjemu.plugins.registry import BUILT_IN, find_plugin

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugins.md").read_text()


def test_the_example_prints_what_it_says(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    program = tmp_path / "example.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{example}")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    [said] = re.findall(r"^prints `(.*?)`", TEXT, re.MULTILINE)
    assert done.stdout.splitlines() == [said]


def test_every_hook_is_listed() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`((?:on|before|after)_\w+)`", row.split("|")[1])}
    assert listed == {name for name in dir(Plugin) if name.startswith(("on_", "before_", "after_"))}
    assert set(WAVE_HOOKS + ISSUE_HOOKS + STEP_HOOKS) | {"on_dispatch_begin", "on_dispatch_end"} == listed


def test_every_built_in_plugin_is_listed_with_its_settings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", TEXT, re.MULTILINE))
    assert {name for name in rows if not name.startswith(("on_", "before_", "after_"))} == set(BUILT_IN)
    for name in BUILT_IN:
        settings = find_plugin(name).SETTINGS
        assert all(f"`{key}`" in rows[name] for key in settings) if settings else rows[name] == "none"
