"""Triton kernels: compiled for an AMD GPU without one, and launched on a machine.

    compiled = compile_kernel(add, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"BLOCK": 1024}, "gfx950", num_warps=4)
    with rjemu.Machine("gfx950_mi355x") as gpu:
        x, y = gpu.to_device(...), gpu.empty(...)
        load(gpu, compiled).launch((n // 1024,), [x, y, n])

Triton is imported by `compile_kernel` only: `load` takes what `triton.compile` returned in this or another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rjemu.errors import UsageError
from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.geometry import Extent
from rjemu.vm.machine import Machine
from rjemu.vm.module import LoadedKernel, Progress


def compile_kernel(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    target: str,
    *,
    divisible_by_16: Iterable[str] = (),
    **options: Any,
) -> Any:
    """`triton.compile` of a `@triton.jit` function: the compiled kernel, which `load` takes.

    signature: names of the run-time arguments -> Triton types ("*fp16", "i32"). constants: the `tl.constexpr` arguments.
    target: "gfx950". divisible_by_16: arguments (addresses and sizes) that Triton may assume to be multiples of 16, which
    its own launcher finds out by looking; the kernel is wrong for others.
    options: num_warps, num_stages, matrix_instr_nonkdim, ... of Triton's AMD back end. Multiplications and additions are
    fused unless enable_fp_fusion=False.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    places = {name: (index,) for index, name in enumerate(function.arg_names)}
    unknown = sorted({*signature, *constants, *divisible_by_16} - set(places))
    if unknown:
        raise UsageError(f"{function.__name__} has no argument {unknown[0]!r}; there are {', '.join(places)}")
    source = ASTSource(
        function,
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs={places[name]: value for name, value in constants.items()},
        attrs={places[name]: [["tt.divisibility", 16]] for name in divisible_by_16},
    )
    wave_size = 64 if target.startswith("gfx9") else 32
    options = {"enable_fp_fusion": True, **options}
    return triton.compile(source, target=GPUTarget("hip", target, wave_size), options=options)


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """A Triton kernel in a machine. block: work-items per program; lds_bytes: what each program takes."""

    kernel: LoadedKernel
    block: int
    lds_bytes: int

    def launch(
        self, grid: Extent, args: Sequence[Any], *, timeout: float | None = None, progress: Progress | None = None
    ) -> DispatchResult:
        """Runs `grid` programs (up to three dimensions). Errors are those of `LoadedKernel.launch`.

        args: the run-time arguments in the function's order, constants left out. The pointers to Triton's own scratch
        memory, which end every kernel's argument list, are null.
        """
        return self.kernel.launch(grid, self.block, args, lds_bytes=self.lds_bytes, timeout=timeout, progress=progress)


def load(machine: Machine, compiled: Any) -> TritonKernel:
    """Loads what `triton.compile` returned; CodeObjectError if it is for another target than the machine's."""
    metadata = compiled.metadata
    if "hsaco" not in compiled.asm:
        raise UsageError(f"{metadata.name} was not compiled for an AMD GPU: there is no hsaco in it")
    if getattr(metadata, "global_scratch_size", 0):
        raise UsageError(f"{metadata.name} needs global scratch memory of Triton's own launcher")
    module = machine.load(compiled.asm["hsaco"])
    return TritonKernel(module[metadata.name], metadata.num_warps * metadata.warp_size, metadata.shared)
