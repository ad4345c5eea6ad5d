"""Jobs whose launches have state that must not be lost: GEMM, atomics, barriers, and flags between workgroups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.assemble import build, kernel_text
from support.interrupted import ADD, FLAGS, KERNARG, TURNS

from rjemu.examples.gemm.run import code_object

SPIN = kernel_text("again:\ns_branch again\ns_endpgm")
"""It never ends."""

_ADD_AFTER = """
  s_mov_b32 s6, {rounds}
loop:
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 loop
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v1, 0
  v_mov_b32 v2, 1
  s_waitcnt lgkmcnt(0)
  global_atomic_add v1, v2, s[4:5]
  s_endpgm
"""

SLOW = kernel_text(_ADD_AFTER.format(rounds=0x4000000), directives=KERNARG)
"""Every work-item adds 1 to a dword, after half a second or so."""

BRIEF = kernel_text(_ADD_AFTER.format(rounds=15_000), directives=KERNARG)
"""The same, within a time slice."""

ROWS, DEPTH = 256, 2048

JOB = f"""\
time_slice = 64
code = "gemm.o"

[[buffers]]
name = "a"
file = "inputs.npz"
key = "a"

[[buffers]]
name = "b"
file = "b.raw"
dtype = "float16"
shape = [{ROWS}, {DEPTH}]
offset = 64

[[buffers]]
name = "c"
dtype = "float32"
shape = [{ROWS}, {ROWS}]
fill = "nan"

[[buffers]]
name = "sum"
dtype = "uint32"
shape = 1

[[buffers]]
name = "turns"
dtype = "uint32"
shape = [{12 * 256}]

[[buffers]]
name = "flags"
dtype = "uint32"
shape = [24]

[[dispatches]]
kernel = "gemm"
grid = [{ROWS // 128}, {ROWS // 128}]
block = 256
args = ["a", "b", "c", {{ i32 = {ROWS} }}, {{ i32 = {DEPTH} }}]
repeat = 2

[[dispatches]]
kernel = "kernel"
code = "atomics.o"
grid = 20
block = 256
kernarg = ["sum"]
repeat = 2

[[dispatches]]
kernel = "kernel"
code = "barriers.o"
grid = 12
block = 256
kernarg = ["turns"]

[[dispatches]]
kernel = "kernel"
code = "flags.o"
grid = 24
block = 64
kernarg = ["flags"]

[[outputs]]
buffer = "c"
file = "c.npy"
expect = "expected.npz"
expect_key = "c"
rtol = 1e-3
atol = 1e-2

[[outputs]]
buffer = "sum"
file = "sum.npy"
expect = "expected.npz"
expect_key = "sum"
exact = true

[[outputs]]
buffer = "turns"
file = "turns.npy"

[[outputs]]
buffer = "flags"
file = "flags.npy"
expect = "expected.npz"
expect_key = "flags"
exact = true
"""

OUTPUTS = ("c.npy", "sum.npy", "turns.npy", "flags.npy")


def make_job(folder: Path) -> Path:
    """A job of several dispatches that takes about a second; its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gemm.o").write_bytes(code_object())
    for name, text in (("atomics", ADD), ("barriers", TURNS), ("flags", FLAGS)):
        (folder / f"{name}.o").write_bytes(build(text, "gfx950"))
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((ROWS, DEPTH)).astype(np.float16) for _ in range(2))
    np.savez(folder / "inputs.npz", a=a, unused=np.zeros(3))
    (folder / "b.raw").write_bytes(bytes(64) + b.tobytes())
    total = 2 * 3000 * 20 * sum(range(1, 257)) % 2**32
    np.savez(
        folder / "expected.npz",
        c=a.astype(np.float64) @ b.astype(np.float64).T,
        sum=np.array([total], np.uint32),
        flags=np.full(24, 1000, np.uint32),
    )
    path = folder / "job.toml"
    path.write_text(JOB)
    return path


def make_small_job(folder: Path, code: str, *, workgroups: int = 2, more: str = "") -> Path:
    """A job of one kernel that is given the address of the dword `out`; more: further lines of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.o").write_bytes(build(code, "gfx950"))
    path = folder / "job.toml"
    path.write_text(
        f"""\
code = "kernel.o"
{more}
[[buffers]]
name = "out"
dtype = "uint32"
shape = 1
[[dispatches]]
kernel = "kernel"
grid = {workgroups}
block = 64
kernarg = ["out"]
[[outputs]]
buffer = "out"
file = "out.npy"
"""
    )
    return path


def output_bytes(folder: Path, names: Sequence[str] = OUTPUTS) -> list[bytes]:
    """What the files that a job writes hold."""
    return [(folder / name).read_bytes() for name in names]


def start_rjemu(*arguments: object, group: bool = False, folder: Path | None = None) -> subprocess.Popen[str]:
    """The command, as a process; with `group`, the leader of a process group of its own. folder: where it works."""
    command = [sys.executable, "-m", "rjemu", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=group, cwd=folder, **pipes)


def leftovers(pid: int) -> list[str]:
    """What a process has left in shared memory."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"rjemu-{pid}-")]
