"""Benchmark kernels in LLVM IR, written by Python: they need no compiler besides llvmlite."""

from __future__ import annotations

from collections.abc import Callable, Iterator

REGISTERS = 200
"""Live vector registers of the ALU loop."""

ALU_OPERATIONS = REGISTERS // 5 * 6
"""Vector instructions of a round: one for each register, two where it is compared and selected."""

EMPTY = 'define amdgpu_kernel void @empty() #0 {\n  ret void\n}\nattributes #0 = { "amdgpu-no-implicitarg-ptr" }\n'
"""A kernel whose waves end at once."""


def alu_loop(registers: int = REGISTERS) -> str:
    """A kernel `alu(ptr out, i32 rounds)` that only computes: in each round, every register is replaced by an operation
    on itself and its neighbours, one of fma, add, xor, shift, compare with select, in turn."""
    start = [f"  %x{i} = add i32 %item, {i * 40503}" for i in range(registers)]
    phis = [f"  %p{i} = phi i32 [ %x{i}, %entry ], [ %n{i}, %loop ]" for i in range(registers)]
    body: list[str] = []
    for i in range(registers):
        # Registers before i have their new value already, so that no value lives in two registers at once.
        near = [f"%{'p' if i + step < registers else 'n'}{(i + step) % registers}" for step in range(3)]
        body += _OPERATIONS[i % len(_OPERATIONS)](i, near)
    fold = [f"  %s{i} = xor i32 %{f's{i - 1}' if i else 'item'}, %n{i}" for i in range(registers)]
    return _ALU.format(
        start="\n".join(start), phis="\n".join(phis), body="\n".join(body), fold="\n".join(fold), last=registers - 1
    )


def _fma(i: int, x: list[str]) -> Iterator[str]:
    yield from (f"  %f{i}.{k} = bitcast i32 {name} to float" for k, name in enumerate(x))
    yield f"  %r{i} = call float @llvm.fma.f32(float %f{i}.0, float %f{i}.1, float %f{i}.2)"
    yield f"  %n{i} = bitcast float %r{i} to i32"


def _add(i: int, x: list[str]) -> Iterator[str]:
    yield from (f"  %f{i}.{k} = bitcast i32 {name} to float" for k, name in enumerate(x[:2]))
    yield f"  %r{i} = fadd float %f{i}.0, %f{i}.1"
    yield f"  %n{i} = bitcast float %r{i} to i32"


def _xor(i: int, x: list[str]) -> Iterator[str]:
    yield f"  %n{i} = xor i32 {x[0]}, {x[1]}"


def _shift(i: int, x: list[str]) -> Iterator[str]:
    yield f"  %n{i} = call i32 @llvm.fshr.i32(i32 {x[0]}, i32 {x[1]}, i32 7)"


def _select(i: int, x: list[str]) -> Iterator[str]:
    yield f"  %c{i} = icmp ult i32 {x[0]}, {x[1]}"
    yield f"  %n{i} = select i1 %c{i}, i32 {x[2]}, i32 {x[0]}"


_OPERATIONS: tuple[Callable[[int, list[str]], Iterator[str]], ...] = (_fma, _add, _xor, _shift, _select)

_ALU = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
declare i32 @llvm.fshr.i32(i32, i32, i32)

define amdgpu_kernel void @alu(ptr addrspace(1) %out, i32 %rounds) #0 {{
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
{start}
  br label %loop
loop:
  %round = phi i32 [ 0, %entry ], [ %next, %loop ]
{phis}
{body}
  %next = add i32 %round, 1
  %more = icmp ult i32 %next, %rounds
  br i1 %more, label %loop, label %done
done:
{fold}
  %place = getelementptr i32, ptr addrspace(1) %out, i32 %item
  store i32 %s{last}, ptr addrspace(1) %place
  ret void
}}
attributes #0 = {{ "amdgpu-no-implicitarg-ptr" "amdgpu-waves-per-eu"="1,1" "amdgpu-flat-work-group-size"="64,64" }}
"""
