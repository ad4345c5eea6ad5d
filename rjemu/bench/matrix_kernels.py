"""Benchmark kernels of nothing but matrix instructions, in LLVM IR: MXFP4 MFMAs of CDNA4 in a loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScaledMfma:
    """A scaled MFMA: its sizes in LLVM's names, and the f32 registers of its result."""

    sizes: str
    result: int


MFMA_32 = ScaledMfma("32x32x64", 16)
MFMA_16 = ScaledMfma("16x16x128", 4)


def independent_loop(mfma: ScaledMfma, accumulators: int) -> str:
    """A kernel `loop(ptr out, i32 rounds)`: in each round every accumulator gets one product added."""
    return _loop(mfma, accumulators, chained=False)


def dependent_loop(mfma: ScaledMfma, length: int) -> str:
    """The same with one accumulator, which gets `length` products added, one after another."""
    return _loop(mfma, length, chained=True)


def _loop(mfma: ScaledMfma, count: int, *, chained: bool) -> str:
    kind = f"<{mfma.result} x float>"
    name = f"@llvm.amdgcn.mfma.scale.f32.{mfma.sizes}.f8f6f4.v4i32.v4i32"
    carried = [0] if chained else list(range(count))
    phis, calls = [], []
    for k in range(count):
        last = count - 1 if chained else k
        if k in carried:
            phis.append(f"  %c{k} = phi {kind} [ zeroinitializer, %entry ], [ %d{last}, %loop ]")
        source = f"%d{k - 1}" if chained and k else f"%c{k}"
        formats = "i32 4, i32 4, i32 0, i32 %item, i32 0, i32 %item"
        calls.append(f"  %d{k} = call {kind} {name}(<4 x i32> %a, <4 x i32> %b, {kind} {source}, {formats})")
    results = [count - 1] if chained else carried
    stores = [f"  %p{k} = getelementptr {kind}, ptr addrspace(1) %lane, i32 {k}" for k in results]
    stores += [f"  store {kind} %d{k}, ptr addrspace(1) %p{k}" for k in results]
    return _LOOP.format(
        declaration=f"declare {kind} {name}(<4 x i32>, <4 x i32>, {kind}, i32, i32, i32, i32, i32, i32)",
        phis="\n".join(phis),
        calls="\n".join(calls),
        stores="\n".join(stores),
        stride=4 * mfma.result * count,
    )


_LOOP = """
{declaration}
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @loop(ptr addrspace(1) %out, i32 %rounds) #0 {{
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %a0 = insertelement <4 x i32> splat (i32 572662306), i32 %item, i32 0
  %a = add <4 x i32> %a0, splat (i32 1)
  %b = xor <4 x i32> %a0, splat (i32 286331153)
  br label %loop
loop:
  %round = phi i32 [ 0, %entry ], [ %next, %loop ]
{phis}
{calls}
  %next = add i32 %round, 1
  %more = icmp ult i32 %next, %rounds
  br i1 %more, label %loop, label %end
end:
  %offset = mul i32 %item, {stride}
  %lane = getelementptr i8, ptr addrspace(1) %out, i32 %offset
{stores}
  ret void
}}
attributes #0 = {{ "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" "amdgpu-waves-per-eu"="1,1" }}
"""
