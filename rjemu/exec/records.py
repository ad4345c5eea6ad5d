"""Micro-op records: a decoded instruction as numbers, and the key of the handler that runs it.

Two instructions with the same key run the same native code: register numbers, constants and immediates are in the record.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

from rjemu.exec.layout import (
    GPR_IDX_KEY,
    MAX_IMMS,
    MAX_OPERANDS,
    RECORD_BYTES,
    RECORD_HANDLER,
    RECORD_IMMS,
    RECORD_STEP,
    VSKIP_KEY,
    WAVE,
    class_key,
    class_mode,
    operand_slot,
)
from rjemu.isa.instruction import Instruction
from rjemu.isa.lanes import FpMode
from rjemu.isa.skipping import is_skippable

_FLOAT_NAME = re.compile(r"_(f16|f32|f64|bf16|fp8|bf8)|mix|_pk_.*f|scale|mfma")
DEFAULT_MODE_KEY = class_key(FpMode().register())


@dataclass(frozen=True, slots=True)
class HandlerKey:
    """What a handler's code depends on. mode_key: the MODE bits (`layout.class_key`) where the instruction follows them."""

    name: str
    encoding: str
    operands: tuple[tuple[str, str, int, int, bool], ...]
    mods: tuple[tuple[str, int], ...]
    imms: tuple[str, ...]
    target: str
    wave: int
    mode_key: int

    @property
    def symbol(self) -> str:
        """The name of the handler's function."""
        return "h_" + hashlib.sha1(repr(self).encode()).hexdigest()[:24]

    @property
    def fp(self) -> FpMode:
        return FpMode.from_register(class_mode(self.mode_key))

    @property
    def gpr_idx(self) -> bool:
        return bool(self.mode_key & GPR_IDX_KEY)

    @property
    def skips(self) -> bool:
        """Whether the handler does nothing, as VSKIP asks for."""
        return bool(self.mode_key & VSKIP_KEY)


def handler_key(instr: Instruction, target: str, wave: int, mode_key: int = DEFAULT_MODE_KEY) -> HandlerKey:
    """The key of the handler that runs `instr` under a MODE (`layout.class_key`)."""
    if mode_key & VSKIP_KEY and is_skippable(instr):
        return HandlerKey("skipped", "", (), (), (), target, wave, VSKIP_KEY | DEFAULT_MODE_KEY)
    mode_key &= ~VSKIP_KEY
    effective = mode_key if _FLOAT_NAME.search(instr.name) else (mode_key & GPR_IDX_KEY) | DEFAULT_MODE_KEY
    if not any(op.kind == "v" for op in instr.operands):
        effective &= ~GPR_IDX_KEY
    operands = tuple(
        (op.name, op.kind, op.bits, op.index if op.kind == "special" else 0, op.is_dst) for op in instr.operands
    )
    return HandlerKey(
        instr.name,
        instr.encoding,
        operands,
        tuple(sorted(instr.mods.items())),
        tuple(sorted(instr.imms)),
        target,
        wave,
        effective,
    )


def encode_record(instr: Instruction, handler: int, wave: int) -> bytes:
    """The record of an instruction: RECORD_BYTES bytes."""
    record = bytearray(RECORD_BYTES)
    struct.pack_into("<I", record, RECORD_HANDLER, handler)
    struct.pack_into("<I", record, RECORD_STEP, instr.size // 4 * RECORD_BYTES)
    if len(instr.operands) > MAX_OPERANDS or len(instr.imms) > MAX_IMMS:
        raise ValueError(f"{instr.name} does not fit a record")
    for position, name in enumerate(sorted(instr.imms)):
        struct.pack_into("<i", record, RECORD_IMMS + 4 * position, instr.imms[name])
    for position, op in enumerate(instr.operands):
        slot = operand_slot(position)
        if op.kind == "v":
            struct.pack_into("<Q", record, slot, op.index * wave * 4)
        elif op.kind == "s":
            struct.pack_into("<Q", record, slot, WAVE["scalars"] + 4 * op.index)
        elif op.kind == "k":
            struct.pack_into("<Q", record, slot, op.value & 0xFFFFFFFFFFFFFFFF)
    return bytes(record)
