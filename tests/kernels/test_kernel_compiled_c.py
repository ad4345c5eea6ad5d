"""C programs compiled for the GPU and for the host: every work-item computes what the host does.

The programs of tests/support/c_programs define `u64 program(u64 seed)`. Without optimisation everything lives in scratch;
with it, in registers. Floating-point contraction is off on both sides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.assemble import compile_hip, compile_host, link

import rjemu

PROGRAMS = Path(__file__).parent.parent / "support" / "c_programs"
PRELUDE = """
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define NOINLINE __attribute__((noinline))
"""
GPU_PRELUDE = (
    PRELUDE
    + """
#define DEVICE static __attribute__((device))
#define CONSTANT __attribute__((constant))
"""
)
HOST_PRELUDE = (
    PRELUDE
    + """
#define DEVICE static
#define CONSTANT
"""
)
GPU_MAIN = """
extern "C" __attribute__((global)) void run(u64 *results, u64 first, u32 count) {
  u32 i = __builtin_amdgcn_workgroup_id_x() * 96 + __builtin_amdgcn_workitem_id_x();
  if (i < count) results[i] = program(first + i * 0x9e3779b97f4a7c15u);
}
"""
HOST_MAIN = """
void run(u64 *results, u64 first, u32 count) {
  for (u32 i = 0; i < count; i++) results[i] = program(first + i * 0x9e3779b97f4a7c15u);
}
"""
COUNT, FIRST = 230, 12345


@pytest.fixture(scope="module", params=["gfx950_mi355x", "gfx942_cdna3"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine(request.param, local_mem_size=1 << 28) as machine:
        yield machine


def on_host(program: str, directory: Path) -> np.ndarray:
    library = directory / "program.so"
    library.write_bytes(compile_host(HOST_PRELUDE + program + HOST_MAIN))
    results = np.zeros(COUNT, np.uint64)
    pointer = results.ctypes.data_as(ctypes.c_void_p)
    ctypes.CDLL(str(library)).run(pointer, ctypes.c_uint64(FIRST), ctypes.c_uint32(COUNT))
    return results


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.c")))
def test_same_results_as_on_the_host(gpu: rjemu.Machine, name: str, optimisation: str, tmp_path: Path) -> None:
    program = (PROGRAMS / f"{name}.c").read_text()
    flags = (optimisation, "-ffp-contract=off")
    code = link(compile_hip(GPU_PRELUDE + program + GPU_MAIN, gpu.config.target, flags))
    results = gpu.to_device(np.zeros(COUNT, np.uint64))
    gpu.load(code)["run"].launch(-(-COUNT // 96), 96, [results, np.uint64(FIRST), np.uint32(COUNT)], timeout=120)
    assert np.array_equal(results.to_host(), on_host(program, tmp_path))
