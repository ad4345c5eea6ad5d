"""Runs matrix instructions on both executors, and says which registers they name."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from support.vector_runs import DEFAULT_MODE, decode, prepare

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.exec.compiler import Loader, compile_object, host_features
from rjemu.exec.handlers import write_handler
from rjemu.exec.ir import Module
from rjemu.exec.layout import CTX, RECORD_BYTES, WAVE_BYTES, class_key
from rjemu.exec.memory import FlatMemory
from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.records import HandlerKey, encode_record, handler_key
from rjemu.exec.wave import WaveState
from rjemu.isa.instruction import EXEC, Instruction
from rjemu.isa.semantics.registry import lookup

__all__ = ["decode", "moved", "new_wave", "prepare", "run_both", "run_instruction", "run_native", "run_reference", "span"]

_LOADER = Loader()
_FEATURES = host_features()


def span(prefix: str, first: int, count: int) -> str:
    """Assembler's name of consecutive registers: v[4:7], a3."""
    return f"{prefix}{first}" if count == 1 else f"{prefix}[{first}:{first + count - 1}]"


def new_wave(seed: int, *, exec_mask: int = (1 << 64) - 1, mode: int = DEFAULT_MODE) -> WaveState:
    """A wave with random vector registers, in 64-byte aligned memory as the native code needs it."""
    raw = np.zeros(WAVE_BYTES + 64, np.uint8)
    start = -raw.ctypes.data % 64
    state = WaveState(raw[start : start + WAVE_BYTES], 64)
    state.vgpr[:] = np.random.default_rng(seed).integers(0, 1 << 32, state.vgpr.shape, np.uint32)
    state.scalars[EXEC : EXEC + 2] = np.array([exec_mask], np.uint64).view(np.uint32)
    state.set_word("mode", mode)
    return state


def run_reference(instr: Instruction, state: WaveState, target: str) -> None:
    semantic = lookup(instr.name)
    assert semantic is not None, instr.name
    NumpyContext(state, FlatMemory({}, np.zeros(0, np.uint8)), target).execute(instr, semantic)


def run_native(instr: Instruction, state: WaveState, target: str, features: frozenset[str] = _FEATURES) -> None:
    """features: those that the handler may be written for."""
    key = handler_key(instr, target, 64, class_key(state.word("mode")))
    context = np.zeros(CTX["end"], np.uint8)
    record = np.frombuffer(encode_record(instr, 0, 64), np.uint8).copy()
    after = _handler(key, _Example(instr), features)(context.ctypes.data, state.memory.ctypes.data, record.ctypes.data)
    assert after == record.ctypes.data + instr.size // 4 * RECORD_BYTES


class _Example:
    """An instruction that does not count in a cache key."""

    def __init__(self, instr: Instruction) -> None:
        self.instr = instr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Example)

    def __hash__(self) -> int:
        return 0


@cache
def _handler(key: HandlerKey, example: _Example, features: frozenset[str]) -> Any:
    module = Module(features)
    write_handler(module, example.instr, key, key.symbol)
    address = _LOADER.load(compile_object(module.text()), [key.symbol])[key.symbol]
    return ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)(address)


def run_both(line: str, state: WaveState, target: str) -> None:
    """Execute one line of assembly text on the wave. Both executors must agree on the whole wave."""
    run_instruction(decode(line, target), state, target)


def run_instruction(instr: Instruction, state: WaveState, target: str) -> None:
    native = new_wave(0)
    native.memory[:] = state.memory
    run_native(instr, native, target)
    run_reference(instr, state, target)
    different = np.argwhere(native.vgpr != state.vgpr)
    assert not len(different), f"{instr.name}: executors differ in {len(different)} words, first {different[0]}"
    assert np.array_equal(native.memory, state.memory), f"{instr.name}: executors differ in scalar state"


def moved(instr: Instruction, first: Mapping[str, int]) -> Instruction:
    """The instruction with some vector operands at other first registers, also where the assembler refuses them."""
    operands = tuple(replace(op, index=first[op.name]) if op.name in first else op for op in instr.operands)
    return replace(instr, operands=operands)
