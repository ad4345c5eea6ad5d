"""Small kernels for the tests of worker processes, and the processes of this one's machines."""

from __future__ import annotations

import os

import numpy as np
import psutil
from support.assemble import build, kernel_text

import rjemu

KERNARG = {"user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8}

ENDLESS = kernel_text("loop:\n  s_branch loop\n")

FILL = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32 v2, 5
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
    directives=KERNARG,
)
"""Stores 5 in 64 dwords."""

COUNT = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_mov_b64 exec, 1
  v_mov_b32 v1, 0
  v_mov_b32 v2, 1
  s_waitcnt lgkmcnt(0)
  global_atomic_add v1, v2, s[4:5]
  s_endpgm
""",
    directives=KERNARG,
)
"""Every wave adds 1 to a dword."""


SQUARES = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_lshl_b32 s6, s2, 6
  v_add_u32 v2, s6, v0
  v_mul_lo_u32 v3, v2, v2
  v_lshlrev_b32 v1, 2, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v3, s[4:5]
  v_mov_b32 v4, 0
  v_mov_b32 v5, 1
  global_atomic_add v4, v5, s[4:5] offset:-4
  s_endpgm
""",
    directives=KERNARG,
)
"""Stores the squares of the work-items' numbers, and counts these in the dword before."""

CHAIN = kernel_text(
    """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_lshl_b32 s6, s2, 2
  v_mov_b32 v1, s6
  v_mov_b32 v2, 1
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s2, 23
  s_cbranch_scc1 set
spin:
  global_load_dword v3, v1, s[4:5] offset:4 sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s7, v3
  s_cmp_eq_u32 s7, 0
  s_cbranch_scc1 spin
  v_add_u32 v2, 1, v3
set:
  global_store_dword v1, v2, s[4:5] sc1
  s_endpgm
""",
    directives=KERNARG,
)
"""Workgroup k waits for the flag of workgroup k + 1: 24 must be resident together, wherever they run."""


def pointer(address: int) -> bytes:
    """An address as a kernarg segment."""
    return np.uint64(address).tobytes()


def check_fill(gpu: rjemu.Machine) -> None:
    """A small launch writes what it should."""
    out = gpu.zeros(64, np.uint32)
    module = gpu.load(build(FILL, "gfx950"))
    module["kernel"].launch(1, 64, kernarg=np.uint64(out.address).tobytes(), timeout=60)
    assert (out.to_host() == 5).all()
    module.unload()


def fork_server() -> psutil.Process:
    """The server that this process's workers are forked from."""
    return next(
        child for child in psutil.Process().children() if any("multiprocess.forkserver" in word for word in cmdline(child))
    )


def worker_processes() -> list[psutil.Process]:
    """The workers of this process's machines, in the order in which they were started."""
    children = [child for child in psutil.Process().children(recursive=True) if _parent(child) not in (None, os.getpid())]
    return sorted(children, key=lambda process: process.pid)


def workers_of(gpu: rjemu.Machine) -> list[psutil.Process]:
    """The running workers of one machine, in order."""
    records = gpu._executor._control.workers  # type: ignore[attr-defined]
    return [psutil.Process(record.word("pid")) for record in records if record.word("ready")]


def cmdline(process: psutil.Process) -> list[str]:
    """A process's command line, nothing if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _parent(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.ppid())
    except psutil.NoSuchProcess:
        return None
