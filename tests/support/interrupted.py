"""Kernels that are interrupted at any moment, saved, restored and gone on with: each has state that must not be lost."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.assemble import build, kernel_text
from support.triton_objects import compile_triton

import rjemu
from rjemu.errors import LaunchSuspended
from rjemu.examples.gemm.run import code_object

KERNARG = {"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8}

SHORT_SLICES = {"time_slice": 64}
"""Makes many workgroups resident at once: each makes way for the next after so many instructions."""

ADD = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_movk_i32 s6, 3000
  v_mov_b32 v1, 0
  v_add_u32 v2, 1, v0
  s_waitcnt lgkmcnt(0)
loop:
  global_atomic_add v1, v2, s[4:5]
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 loop
  s_endpgm
""",
    directives=KERNARG,
)
"""Every work-item adds its number within the workgroup to one dword, 3000 times."""

TURNS = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_movk_i32 s6, 20000
  s_mov_b32 s9, 0x10003
  v_lshlrev_b32 v1, 2, v0
  v_add_u32 v2, s2, v0
  s_lshl_b32 s7, s2, 10
  v_add_u32 v5, 4, v1
  v_and_b32 v5, 0x3ff, v5
loop:
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v5
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_mul_lo_u32 v3, v3, s9
  v_add3_u32 v2, v2, v3, s6
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 loop
  v_add_u32 v1, s7, v1
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
    directives={**KERNARG, "group_segment_fixed_size": 1024},
)
"""Four waves hand values round in LDS, with two barriers a time, 20000 times."""

FLAGS = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_lshl_b32 s6, s2, 2
  v_mov_b32 v1, s6
  s_mov_b32 s8, 1
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
round:
  v_mov_b32 v2, s8
  s_cmp_eq_u32 s2, 23
  s_cbranch_scc1 set
spin:
  global_load_dword v3, v1, s[4:5] offset:4 sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s7, v3
  s_cmp_lt_u32 s7, s8
  s_cbranch_scc1 spin
set:
  global_store_dword v1, v2, s[4:5] sc1
  s_add_u32 s8, s8, 1
  s_cmp_le_u32 s8, 1000
  s_cbranch_scc1 round
  s_endpgm
""",
    directives=KERNARG,
)
"""1000 times: workgroup k of 24 waits for the flag of workgroup k + 1, then sets its own. All must be resident together."""

PRIVATE = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_movk_i32 s6, 10000
  s_mov_b32 s9, 0x10003
  s_lshl_b32 s7, s2, 6
  v_add_u32 v2, s7, v0
  v_lshlrev_b32 v1, 2, v2
  scratch_store_dword off, v2, off offset:8
loop:
  scratch_load_dword v3, off, off offset:8
  s_waitcnt vmcnt(0)
  v_mul_lo_u32 v3, v3, s9
  v_add_u32 v3, s6, v3
  scratch_store_dword off, v3, off offset:8
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 loop
  scratch_load_dword v3, off, off offset:8
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dword v1, v3, s[4:5]
  s_endpgm
""",
    directives={**KERNARG, "private_segment_fixed_size": 16, "enable_private_segment": 1},
)
"""A number per work-item goes through scratch 10000 times."""


@dataclass(frozen=True)
class Work:
    """A launch: what it is given, what must come out. build: the code object; out: shape and dtype of the array that it
    writes; prepare: the launch's shape and arguments, from the machine and that array."""

    build: Callable[[], bytes]
    out: tuple[tuple[int, ...], Any]
    prepare: Callable[[rjemu.Machine, rjemu.DeviceArray], dict[str, Any]]
    kernel: str = "kernel"

    def start(self, gpu: rjemu.Machine) -> tuple[rjemu.DeviceArray, rjemu.LoadedKernel, dict[str, Any]]:
        """The output array, the kernel, and what to launch it with."""
        out = gpu.zeros(*self.out)
        return out, gpu.load(self.build())[self.kernel], self.prepare(gpu, out)


def _assembly(text: str, grid: int, block: int, words: int) -> Work:
    def prepare(gpu: rjemu.Machine, out: rjemu.DeviceArray) -> dict[str, Any]:
        return {"grid": grid, "block": block, "kernarg": np.uint64(out.address).tobytes()}

    return Work(lambda: build(text, "gfx950"), ((words,), np.uint32), prepare)


def _gemm(gpu: rjemu.Machine, out: rjemu.DeviceArray) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    a, b = (gpu.to_device(rng.standard_normal((GEMM_SIZE, GEMM_DEPTH)).astype(np.float16)) for _ in range(2))
    sizes = np.int32(GEMM_SIZE), np.int32(GEMM_DEPTH)
    return {"grid": (GEMM_SIZE // 128, GEMM_SIZE // 128), "block": 256, "args": [a, b, out, *sizes]}


@functools.cache
def _attention_kernel() -> Any:
    """tests/support/triton_kernels.py's, compiled."""
    from support import triton_kernels

    pointers = dict.fromkeys(("q", "k", "v", "out"), "*fp16")
    return compile_triton(
        triton_kernels.attention,
        {**pointers, "length": "i32", "scale": "fp32"},
        {"CAUSAL": True, "D": 64, "BM": 64, "BN": 32},
        "gfx950",
        divisible_by_16=[*pointers, "length"],
    )


def _attention(gpu: rjemu.Machine, out: rjemu.DeviceArray) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    inputs = [gpu.to_device(rng.standard_normal(ATTENTION_SHAPE).astype(np.float16)) for _ in range(3)]
    heads, length, _ = ATTENTION_SHAPE
    metadata = _attention_kernel().metadata
    return {
        "grid": (length // 64, heads),
        "block": metadata.num_warps * metadata.warp_size,
        "args": [*inputs, out, np.int32(length), np.float32(0.18), 0, 0],
        "lds_bytes": metadata.shared,
    }


ATTENTION_SHAPE = (4, 256, 64)
GEMM_SIZE, GEMM_DEPTH = 512, 4096

WORKS = {
    "gemm": Work(code_object, ((GEMM_SIZE, GEMM_SIZE), np.float32), _gemm, "gemm"),
    "attention": Work(lambda: _attention_kernel().asm["hsaco"], (ATTENTION_SHAPE, np.float16), _attention, "attention"),
    "atomics": _assembly(ADD, 60, 256, 1),
    "barriers": _assembly(TURNS, 12, 256, 12 * 256),
    "flags": _assembly(FLAGS, 24, 64, 24),
    "scratch": _assembly(PRIVATE, 60, 64, 60 * 64),
}


def uninterrupted(work: Work, **options: Any) -> np.ndarray:
    """What the launch gives when nothing interrupts it."""
    with rjemu.Machine(workers="inline", **options) as gpu:
        out, kernel, launch = work.start(gpu)
        kernel.launch(**launch, timeout=300)
        return out.to_host()


def save_after(work: Work, seconds: float, path: Path, *, stop: bool = True, **options: Any) -> np.ndarray | None:
    """Launches in a thread, and saves so long after; the launch's result if it has ended rather than been suspended."""
    with rjemu.Machine(**options) as gpu:
        out, kernel, launch = work.start(gpu)
        gpu.start()
        ended = threading.Event()

        def run() -> None:
            with contextlib.suppress(LaunchSuspended):
                kernel.launch(**launch, timeout=300)
                ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        while not gpu._gate._inside and not ended.is_set():  # on a busy host it may take a while
            time.sleep(0.0005)
        time.sleep(seconds)
        gpu.save(path, stop=stop, data={"out": out.address})
        thread.join()
        return out.to_host() if ended.is_set() else None


def resumed(path: Path, **options: Any) -> tuple[int, np.ndarray]:
    """(workgroups that were resident, the result) of a machine that is restored and goes on."""
    with rjemu.restore(path, **options) as gpu:
        resident = sum(len(launch.suspended.slots) for launch in gpu.pending)
        gpu.resume(timeout=300)
        assert not gpu.pending
        return resident, gpu.arrays[gpu.data["out"]].to_host()
