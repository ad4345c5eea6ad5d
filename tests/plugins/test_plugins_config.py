"""Plugins in configurations: finding them, their settings, their sinks."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.asm_kernels import run_assembly
from support.plugin_recorder import DispatchRecorder

from rjemu import Machine
from rjemu.cli.main import main
from rjemu.errors import ConfigError, MemoryFault
from rjemu.exec.native import NativeExecutor
from rjemu.plugins.registry import find_plugin
from rjemu.plugins.sinks import Sinks

PLAIN = "support.plugin_recorder:DispatchRecorder"
NEEDY = "support.plugin_recorder:Needy"
STORES = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v0, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ({"nonesuch": {}}, "plugins.nonesuch: no plugin of that name; there are .*logging"),
        ({"support.plugin_recorder:Absent": {}}, "cannot import support.plugin_recorder:Absent"),
        ({"no.such.module:Plugin": {}}, "cannot import no.such.module:Plugin"),
        ({"../no:Plugin": {}}, "cannot import ../no:Plugin"),
        ({":": {}}, "cannot import :"),
        ({"support.plugin_recorder:": {}}, "cannot import support.plugin_recorder:"),
        ({"json:JSONDecoder": {}}, "is no subclass of rjemu.plugins.Plugin"),
        ({PLAIN: []}, "must be an object, not \\[\\]"),
        ({PLAIN: {"colour": 1}}, "colour is no setting of the plugin; it has label, limit, loud, level"),
        ({"logging": {"colour": 1}}, "plugins.logging.colour is no setting of the plugin; it has none"),
        ({PLAIN: {"label": 1}}, "label must be a string, not 1"),
        ({PLAIN: {"limit": "3"}}, "limit must be a number, not '3'"),
        ({PLAIN: {"limit": True}}, "limit must be a number, not True"),
        ({PLAIN: {"loud": 1}}, "loud must be a boolean, not 1"),
        ({PLAIN: {"level": "middle"}}, "level must be one of 'low', 'high', not 'middle'"),
        ({NEEDY: {}}, "path is missing: where to put it"),
    ],
)
def test_what_does_not_fit(plugins: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Machine(plugins=plugins, workers="inline")


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ([], "sinks must be an object"),
        ({"kind": "file"}, "sinks.kind is no setting of sinks; there are types, dir"),
        ({"types": "stderr"}, "sinks.types must be a list of some of stderr, stdout, file, not 'stderr'"),
        ({"types": []}, "sinks.types must be a list"),
        ({"types": ["printer"]}, "sinks.types must be a list of some of"),
        ({"types": ["file"]}, "sinks.dir is missing"),
        ({"types": ["file"], "dir": 3}, "sinks.dir must be a string, not 3"),
        ({"types": ["file"], "dir": "/dev/null/x"}, "sinks.dir: cannot write .*Not a directory"),
    ],
)
def test_sinks_that_cannot_be(sinks: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Machine(plugins={"logging": {}}, sinks=sinks, workers="inline")


def test_settings_have_their_defaults() -> None:
    Machine(plugins={PLAIN: {"limit": 2.5}}, workers="inline").close()
    assert DispatchRecorder.made[-1].settings == {"label": "none", "limit": 2.5, "loud": False, "level": "low"}


def test_every_sink_gets_every_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sinks = {"types": ["stdout", "file", "stderr"], "dir": str(tmp_path / "deep" / "er")}
    with Machine(plugins={PLAIN: {}, "logging": {}}, sinks=sinks, workers="inline") as gpu:
        run_assembly(gpu, "s_endpgm", 1, 64)
        run_assembly(gpu, "s_endpgm", 1, 64)
    lines = ["begin kernel", "begin kernel", "close"]
    assert (tmp_path / "deep" / "er" / "support.plugin_recorder_DispatchRecorder.log").read_text().splitlines() == lines
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert [line for line in text.splitlines() if not line.startswith("[logging]")] == lines
    assert "kernel kernel at" in (tmp_path / "deep" / "er" / "logging.log").read_text()


def test_plugins_cannot_share_a_file(tmp_path: Path) -> None:
    sinks = Sinks({"types": ["file"], "dir": str(tmp_path)})
    with (
        closing(sinks.open("module:Class")),
        pytest.raises(ConfigError, match="module:Class and module_Class would both write"),
    ):
        sinks.open("module_Class")


@pytest.mark.parametrize(
    "text", ["def f(:", "1 / 0", "raise RuntimeError('no')", "import nowhere", "Plugin = 5", "x = '\\u'"]
)
def test_modules_that_do_not_import(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plugin_module", raising=False)
    with pytest.raises(ConfigError, match=r"plugins\.broken_plugin_module:Plugin: "):
        Machine(plugins={"broken_plugin_module:Plugin": {}}, workers="inline")


def test_the_default_sink_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Machine(plugins={PLAIN: {}}, workers="inline").close()
    assert capsys.readouterr() == ("", "close\n")


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "probe_plugin.py").write_text(
        "from rjemu.plugins import Plugin, Setting\n\n\nclass Probe(Plugin):\n"
        '    """Probes."""\n\n    SETTINGS = {"depth": Setting("number", "how deep")}\n'
    )
    distribution = tmp_path / "probe-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(
        "[rjemu.plugins]\nprobe = probe_plugin:Probe\nbroken = no_such_module:Plugin\nlogging = probe_plugin:Probe\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "probe_plugin", raising=False)
    assert find_plugin("probe").__name__ == "Probe"
    assert find_plugin("logging").__module__ == "rjemu.plugins.logging"
    assert main(["plugins", "--json"]) == 0
    listed = {plugin["name"]: plugin for plugin in json.loads(capsys.readouterr().out)}
    assert listed["probe"]["settings"] == {"depth": {"type": "number", "description": "how deep", "required": True}}
    assert "cannot import" in listed["broken"]["error"]
    assert main(["plugins"]) == 0
    assert "probe: Probes.\n  depth (number, required): how deep\n" in capsys.readouterr().out


def test_dispatch_hooks_leave_the_native_executor_alone() -> None:
    with Machine(plugins={PLAIN: {}}, workers="inline") as gpu:
        assert isinstance(gpu._executor._inner, NativeExecutor)  # type: ignore[attr-defined]
        out = gpu.zeros(64, np.uint32)
        result = run_assembly(gpu, STORES, 1, 64, out)
        assert (out.to_host() == np.arange(64)).all()
    (_, dispatch), (_, ended, outcome), _ = DispatchRecorder.made[-1].events
    assert dispatch is ended
    assert (dispatch.number, dispatch.kernel, dispatch.grid, dispatch.block) == (0, "kernel", (1, 1, 1), (64, 1, 1))
    assert (outcome.error, outcome.wave_instructions) == (None, result.wave_instructions)
    assert outcome.seconds >= result.seconds > 0


def test_dispatches_on_worker_processes() -> None:
    with Machine(plugins={PLAIN: {}}, workers=(1, 1)) as gpu:
        out = gpu.zeros(64, np.uint32)
        run_assembly(gpu, STORES, 1, 64, out)
        assert (out.to_host() == np.arange(64)).all()
    assert [event[0] for event in DispatchRecorder.made[-1].events] == ["begin", "end", "close"]


def test_a_faulting_dispatch_ends_too() -> None:
    with Machine(plugins={PLAIN: {}}, workers="inline") as gpu, pytest.raises(MemoryFault):
        run_assembly(gpu, STORES, 1, 64, 0)
    outcome = DispatchRecorder.made[-1].events[1][2]
    assert outcome.error.startswith("MemoryFault: store of 4 bytes")
    assert (outcome.stats, list(outcome.executed)) == ({}, [])


def test_a_plugin_that_raises_ends_the_launch_not_the_machine() -> None:
    with Machine(plugins={PLAIN: {}}, workers="inline") as gpu:
        recorder = DispatchRecorder.made[-1]
        recorder.sink = None
        with pytest.raises(AttributeError):
            run_assembly(gpu, "s_endpgm", 1, 64)
        del recorder.__dict__["sink"]
        recorder.sink = type("Quiet", (), {"line": lambda self, text: None, "close": lambda self: None})()
        run_assembly(gpu, "s_endpgm", 1, 64)
    assert [event[0] for event in recorder.events] == ["begin", "begin", "end", "close"]
