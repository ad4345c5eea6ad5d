"""The commands as a shell sees them: output, one-line errors, exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.assemble import build, compile_hip, kernel_text, link
from support.launchers import kill_unguarded, run_python

from rjemu.cli import clean
from rjemu.cli.main import COMMANDS, main
from rjemu.shm.orphans import find_orphans

HIP = """
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 128)))
void scale(float *data, float factor, int count) {
  int i = __builtin_amdgcn_workgroup_id_x() * 128 + __builtin_amdgcn_workitem_id_x();
  if (i < count) data[i] *= factor;
}
extern "C" __attribute__((global)) void nothing() {}
"""


@pytest.fixture
def hsaco(tmp_path: Path) -> Path:
    path = tmp_path / "scale.hsaco"
    path.write_bytes(link(compile_hip(HIP, "gfx950")))
    return path


def rjemu(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "rjemu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, **options)  # type: ignore[call-overload]


def test_info_lists_kernels_arguments_and_resources(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(hsaco)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("gfx950, code object V")
    assert "at most 128 work-items per workgroup" in output
    assert "by_value" in output


def test_info_json(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(hsaco), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["target"].startswith("gfx950")
    kernels = {kernel["name"]: kernel for kernel in facts["kernels"]}
    assert set(kernels) == {"scale", "nothing"}
    explicit = [arg for arg in kernels["scale"]["arguments"] if not arg["kind"].startswith("hidden")]
    assert [(arg["offset"], arg["size"], arg["kind"]) for arg in explicit] == [
        (0, 8, "global_buffer"),
        (8, 4, "by_value"),
        (12, 4, "by_value"),
    ]
    assert kernels["scale"]["wave_size"] == 64
    assert kernels["scale"]["max_workgroup_size"] == 128


def test_disasm_prints_what_was_assembled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.hsaco"
    text = kernel_text("v_add_f32_e32 v1, v2, v3\ns_mov_b32 s5, 0x12345678\ns_endpgm", name="first")
    path.write_bytes(build(text + kernel_text("s_nop 3\ns_endpgm", name="second"), "gfx950"))
    assert main(["disasm", str(path), "--kernel", "first"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "first:"
    assert [" ".join(line.split("//")[0].split()) for line in lines[1:4]] == [
        "v_add_f32_e32 v1, v2, v3",
        "s_mov_b32 s5, 0x12345678",
        "s_endpgm",
    ]
    assert lines[2].endswith(": be8500ff 12345678")
    assert main(["disasm", str(path), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert set(listing) == {"first", "second"}
    assert listing["second"][0]["text"] == "s_nop 3"
    assert listing["second"][0]["bytes"] == "030080bf"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"rjemu {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "absent.hsaco"], "absent.hsaco: no such file"),
        (["disasm", "absent.hsaco"], "no such file"),
        (["run", "absent.toml"], "cannot read absent.toml: No such file"),
        (["info", __file__], "rjemu: "),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rjemu: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_missing_kernel_names_those_there_are(hsaco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(hsaco), "--kernel", "scales"]) == 2
    assert "scale" in capsys.readouterr().err


def test_command_line_errors_are_status_2() -> None:
    for arguments in ([], ["walk"], ["info"], ["run", "a", "b"]):
        done = rjemu(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: rjemu" in done.stderr
        assert "Traceback" not in done.stderr


def test_closed_pipe_is_no_error(hsaco: Path) -> None:
    script = f"set -o pipefail; {sys.executable} -m rjemu disasm {hsaco} | head -1"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_does_not_load_the_machine() -> None:
    code = (
        "import sys, rjemu\nfrom rjemu.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'llvmlite', 'rich'} & set(sys.modules), sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_clean_removes_what_a_killed_process_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = run_python(
        "from rjemu.shm.segment import Segment\ns = Segment.create('left', 4096)\nprint(s.name, flush=True)\ninput()"
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    kill_unguarded(child)
    # Tests that run beside this one leave orphans of their own, and look for them.
    monkeypatch.setattr(clean, "find_orphans", lambda: [orphan for orphan in find_orphans() if orphan.name == name])
    assert main(["clean", "--dry-run", "--json"]) == 0
    assert [orphan["name"] for orphan in json.loads(capsys.readouterr().out)] == [name]
    assert Path("/dev/shm", name).exists()
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == f"removed {name}, 0 bytes\nremoved 1 segments\n"
    assert not Path("/dev/shm", name).exists()
