"""Machines with helpers for tests: kernels that end by storing every register, and plans that always give away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from support.asm_kernels import kernarg, load_assembly
from support.assemble import assemble, text_section

import rjemu
from rjemu.isa.decoder import Decoder
from rjemu.mma import plan_cache
from rjemu.mma.admission import HandoffCost, MmaCost
from rjemu.workers.helpers import HelperPool

PRESET = "gfx950_mi355x"
ACCUM_OFFSET = 128
VGPRS, AGPRS = 128, 128
REGISTERS = VGPRS + AGPRS
OUT_WORDS = REGISTERS * 64
SCRATCH_WORDS = 1 << 12
STORE_ADDRESS, STORE_VALUE, FIRST_FREE = 126, 125, 3
"""v126 is the byte offset of what is stored next, v125 a scratch register; v0-v2 belong to the frame around a body."""


def helpers_of(gpu: rjemu.Machine) -> HelperPool:
    executor: Any = gpu._executor
    executor = getattr(executor, "_inner", executor)  # behind plugins
    pool: HelperPool = executor._helpers
    return pool


def fresh_helpers(gpu: rjemu.Machine) -> None:
    """Forget what helpers have cost, as they do on a busy host."""
    board = helpers_of(gpu).board
    for helper in range(board.helpers):
        board.set_long(helper, "credit", 1 << 40)


@contextmanager
def always_admitted() -> Iterator[None]:
    """Every group is given away, whatever it costs: to one helper all but the last, to more the same in equal shares."""

    def shares(costs: Sequence[MmaCost], handoff: HandoffCost, following: float) -> list[tuple[int, ...]]:
        given = min(len(costs) - 1, 8)
        return [tuple(given // n + (k < given % n) for k in range(n)) for n in range(1, given + 1)]

    with mock.patch.object(plan_cache, "shares", shares):
        yield


def frame(body: str, *, registers: Sequence[int] = range(FIRST_FREE, 64), agprs: Sequence[int] = range(64)) -> str:
    """A kernel: registers start with a pattern of their own (small floats in every format), then the body, then all of
    them go to the array at the kernarg's first pointer. s[8:9]: that pointer; s[10:11]: the second one. agprs: those that
    are set and stored."""
    lines = ["v_mul_u32_u24 v1, 0x9e37, v0", "v_add_u32 v1, 0x1234567, v1"]
    for k in registers:
        lines += [f"s_mov_b32 s12, 0x{2 * k + 0x3B9ACA01:x}", f"v_mul_lo_u32 v{k}, v1, s12"]
        lines += [f"v_and_b32 v{k}, 0x3c3cbc3c, v{k}"]
    lines += [f"v_accvgpr_write_b32 a{k}, v{FIRST_FREE + k % 40}" for k in agprs]
    lines += ["s_load_dwordx4 s[8:11], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", body]
    lines += [
        "v_lshrrev_b32 v2, 6, v0",
        f"s_mov_b32 s12, {REGISTERS * 256}",
        "v_mul_lo_u32 v2, v2, s12",
        "v_and_b32 v1, 63, v0",
    ]
    lines += [f"v_lshl_add_u32 v{STORE_ADDRESS}, v1, 2, v2"]
    for k in registers:
        lines += _store(f"v{k}")
    for k in agprs:
        lines += [f"v_accvgpr_read_b32 v{STORE_VALUE}, a{k}", *_store(f"v{STORE_VALUE}")]
    return "\n".join([*lines, "s_endpgm"])


def _store(register: str) -> list[str]:
    step = f"v_add_u32 v{STORE_ADDRESS}, 0x100, v{STORE_ADDRESS}"
    return [f"global_store_dword v{STORE_ADDRESS}, {register}, s[8:9]", step]


def run(gpu: rjemu.Machine, text: str, *, waves: int = 1) -> tuple[np.ndarray, Any]:
    """(everything that the kernel of a `frame` stored, its result): one workgroup."""
    kernel = load(gpu, text)
    found = launch(gpu, kernel, waves=waves)
    kernel.module.unload()
    return found


def load(gpu: rjemu.Machine, text: str) -> rjemu.LoadedKernel:
    return load_assembly(gpu, text, next_free_vgpr=ACCUM_OFFSET + AGPRS, accum_offset=ACCUM_OFFSET)


def launch(gpu: rjemu.Machine, kernel: rjemu.LoadedKernel, rounds: int = 0, *, waves: int = 1) -> tuple[np.ndarray, Any]:
    """As `run`, of a kernel that is loaded. rounds: the kernarg's third word."""
    out = gpu.zeros(OUT_WORDS * waves, np.uint32)
    scratch = gpu.to_device(np.arange(SCRATCH_WORDS, dtype=np.uint32))
    arguments = kernarg(out, scratch, rounds)
    result = kernel.launch(1, 64 * waves, kernarg=arguments, lds_bytes=4096, timeout=60)
    stored = np.concatenate([out.to_host(), scratch.to_host()])
    out.free()
    scratch.free()
    return stored, result


class Loop:
    """A kernel on one machine that repeats a body, which is written into its code from launch to launch."""

    NOP = (0xBF800000).to_bytes(4, "little")
    ROOM = 512

    def __init__(self, gpu: rjemu.Machine) -> None:
        lines = ["s_load_dword s15, s[0:1], 0x10", "s_mov_b32 s12, 0", "s_waitcnt lgkmcnt(0)", "loop:"]
        lines += ["s_nop 0"] * self.ROOM
        lines += ["s_add_u32 s12, s12, 1", "s_cmp_lt_u32 s12, s15", "s_cbranch_scc1 loop"]
        self._gpu = gpu
        self._kernel = load(gpu, frame("\n".join(lines)))
        (start, end), *_ = self._kernel.module.code.image.text_ranges
        self._code = gpu.vram.view(self._kernel.module.address + start, end - start)
        self._place = self._code.tobytes().index(self.NOP * self.ROOM)

    def run(self, body: bytes, rounds: int) -> tuple[np.ndarray, Any]:
        padded = body + self.NOP * (self.ROOM - len(body) // 4)
        self._code[self._place : self._place + len(padded)] = np.frombuffer(padded, np.uint8)
        return launch(self._gpu, self._kernel, rounds)


def encodings(entries: Sequence[str]) -> list[bytes]:
    """The code of each entry, which may have several lines."""
    code = text_section(assemble("\n".join(entries) + "\n", "gfx950"))
    decoder, offset, out = Decoder("gfx950"), 0, []
    for entry in entries:
        start = offset
        for _ in entry.splitlines():
            offset += decoder.decode(code, offset).size
        out.append(code[start:offset])
    return out
