"""LLVM IR kernels through rjemu.integrations.llvm_ir, the shipped example, and kernels that read hidden arguments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.assemble import compile_hip, link

import rjemu
from rjemu.cli.main import main as rjemu_command
from rjemu.errors import CodeObjectError, UsageError
from rjemu.examples.gemm.run import Problem, code_object
from rjemu.integrations.llvm_ir import compile_ir


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


KERNELS = """
@table = internal addrspace(4) constant [4 x i32] [i32 5, i32 -3, i32 1000, i32 7]

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()

define i32 @weight(i32 %x) noinline {
  %i = and i32 %x, 3
  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %i
  %v = load i32, ptr addrspace(4) %p
  ret i32 %v
}

; out[i] = the 128-bit product of a[i] and b[i], squared, as bits 64..127
define amdgpu_kernel void @wide(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %out) {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr i64, ptr addrspace(1) %a, i32 %item
  %pb = getelementptr i64, ptr addrspace(1) %b, i32 %item
  %x = load i64, ptr addrspace(1) %pa
  %y = load i64, ptr addrspace(1) %pb
  %x128 = zext i64 %x to i128
  %y128 = zext i64 %y to i128
  %product = mul i128 %x128, %y128
  %square = mul i128 %product, %product
  %high = lshr i128 %square, 64
  %result = trunc i128 %high to i64
  %po = getelementptr i64, ptr addrspace(1) %out, i32 %item
  store i64 %result, ptr addrspace(1) %po
  ret void
}

; out[i] = a function's value, chosen by a switch
define amdgpu_kernel void @choose(ptr addrspace(1) %out) {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %which = urem i32 %item, 5
  switch i32 %which, label %other [ i32 0, label %zero  i32 1, label %one  i32 2, label %two ]
zero:
  %v0 = call i32 @weight(i32 %group)
  br label %join
one:
  %v1 = mul i32 %item, %item
  br label %join
two:
  %negated = sub i32 0, %item
  %v2 = call i32 @weight(i32 %negated)
  br label %join
other:
  %v3 = xor i32 %item, -1
  br label %join
join:
  %value = phi i32 [ %v0, %zero ], [ %v1, %one ], [ %v2, %two ], [ %v3, %other ]
  %start = shl i32 %group, 6
  %i = add i32 %start, %item
  %po = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %value, ptr addrspace(1) %po
  ret void
}
"""


@pytest.mark.parametrize("optimise", [0, 3])
def test_wide_integers(gpu: rjemu.Machine, optimise: int) -> None:
    a, b = np.random.default_rng(1).integers(0, (1 << 64) - 1, (2, 64), np.uint64, endpoint=True)
    out = gpu.zeros(64, np.uint64)
    module = gpu.load(compile_ir(KERNELS, gpu.config.target, optimise=optimise))
    module["wide"].launch(1, 64, [gpu.to_device(a), gpu.to_device(b), out])
    squares = [(int(x) * int(y)) ** 2 for x, y in zip(a, b, strict=True)]
    assert out.to_host().tolist() == [square >> 64 & (1 << 64) - 1 for square in squares]


@pytest.mark.parametrize("optimise", [0, 3])
def test_switch_calls_and_constant_data(gpu: rjemu.Machine, optimise: int) -> None:
    out = gpu.zeros((6, 64), np.int32)
    module = gpu.load(compile_ir(KERNELS, gpu.config.target, optimise=optimise))
    module["choose"].launch(6, 64, [out])
    table = [5, -3, 1000, 7]
    expected = [
        [(table[group & 3], item * item, table[-item & 3], ~item, ~item)[item % 5] for item in range(64)]
        for group in range(6)
    ]
    assert out.to_host().tolist() == expected


@pytest.mark.parametrize(
    ("text", "target", "error", "message"),
    [
        (KERNELS, "gfx951x", UsageError, "'gfx951x' is no AMD GPU target"),
        (KERNELS, "sm_90", CodeObjectError, "'sm_90' is no target id"),
        ("define void @f() { ret i32 1 }", "gfx950", UsageError, "not valid LLVM IR"),
        ("nonsense", "gfx950", UsageError, "not valid LLVM IR"),
    ],
)
def test_what_cannot_be_compiled(text: str, target: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_ir(text, target)


def test_optimisation_levels_are_llvms() -> None:
    with pytest.raises(UsageError, match="expected 0 to 3"):
        compile_ir(KERNELS, "gfx950", optimise=4)


def test_target_features_reach_the_code_object() -> None:
    with rjemu.Machine("gfx942_cdna3", local_mem_size=1 << 24) as gpu:
        module = gpu.load(compile_ir(KERNELS, "gfx942:sramecc+:xnack-"))
    assert str(module.code.target_id) == "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (256, 128, 192)])
def test_example_matrix_multiplication(m: int, n: int, k: int) -> None:
    """Whole numbers, so exact, on matrices that are not square."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-16, 17, (rows, k)).astype(np.float16) for rows in (m, n))
    with rjemu.Machine("gfx950_mi355x", local_mem_size=1 << 28) as gpu:
        c = gpu.to_device(np.full((m, n), np.nan, np.float32))
        args = [gpu.to_device(a), gpu.to_device(b), c, np.int32(n), np.int32(k)]
        gpu.load(code_object())["gemm"].launch((n // 128, m // 128), 256, args)
        assert np.array_equal(c.to_host(), a.astype(np.float32) @ b.astype(np.float32).T)


def test_example_command_checks_itself() -> None:
    command = [sys.executable, "-m", "rjemu.examples.gemm", "--size", "128", "--repeat", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "128 x 128 x 128, correct" in done.stdout
    assert "numpy time / rjemu time" in done.stdout


def test_example_exports_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "rjemu.examples.gemm", "--size", "128", "--export", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert rjemu_command(["run", str(tmp_path / "job.toml")]) == 0
    assert "c: ok, 16384 elements" in capsys.readouterr().out
    expected = Problem.random(128).expected
    assert np.allclose(np.load(tmp_path / "c.npy"), expected, rtol=1e-4, atol=1e-3)


HIDDEN = """
typedef unsigned int u32;
typedef unsigned short u16;
#define CONSTANT const __attribute__((address_space(4)))
#define IMPLICIT(type, offset) (*(CONSTANT type *)((CONSTANT char *)__builtin_amdgcn_implicitarg_ptr() + offset))
extern "C" __attribute__((global)) void geometry(u32 *out) {
  u32 group = __builtin_amdgcn_workgroup_id_x(), count = IMPLICIT(u32, 0);
  u32 size = group < count ? IMPLICIT(u16, 12) : IMPLICIT(u16, 18);
  u32 i = group * IMPLICIT(u16, 12) + __builtin_amdgcn_workitem_id_x();
  out[4 * i] = i;
  out[4 * i + 1] = size;
  out[4 * i + 2] = count;
  out[4 * i + 3] = __builtin_amdgcn_grid_size_x();
}
"""
"""Offsets: LLVM's AMDGPUUsage, "Code Object V5 Metadata": block counts at 0, group sizes at 12, remainders at 18."""


def test_hidden_arguments_and_dispatch_packet(gpu: rjemu.Machine) -> None:
    """A partial last workgroup, which the kernel tells from the full ones by its hidden arguments."""
    kernel = gpu.load(link(compile_hip(HIDDEN, gpu.config.target)))["geometry"]
    out = gpu.zeros((1024, 4), np.uint32)
    kernel.launch(args=[out], global_size=700, block=192)
    found = out.to_host()
    assert np.array_equal(found[:700, 0], np.arange(700))
    assert np.array_equal(found[:700, 1], np.where(np.arange(700) < 576, 192, 124))
    assert np.all(found[:700, 2:] == [3, 700])
    assert np.all(found[700:] == 0)
