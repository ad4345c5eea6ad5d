"""Decoded programs: a code range of device memory as micro-op records in shared memory, decoded as it is reached."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rjemu.errors import DecodeError
from rjemu.exec.layout import RECORD_BYTES, RECORD_HANDLER, SENTINELS, SITE_FLAG
from rjemu.exec.plans import ProgramNotes
from rjemu.exec.records import encode_record
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import Instruction
from rjemu.isa.semantics.registry import semantic_of
from rjemu.shm.segment import Segment

DECODE_AHEAD = 4096
"""Instructions decoded at most from one point reached: bounds what data that looks like code can cost."""

_ENDS = frozenset({"s_endpgm", "s_branch", "s_setpc_b64", "s_endpgm_saved"})
_RESERVED_AT_ONCE = 64 * 1024
"""Bytes of records: a page at a time would cost more."""


class Program:
    """One executable range. records: uint8 [dwords + sentinels, RECORD_BYTES] in a shared segment; `address` is the
    records' host address, `base` and `nbytes` the range's GPU address and size."""

    def __init__(
        self, target: str, base: int, code: np.ndarray, wave: int, registers: Callable[[Instruction], tuple[int, int]] | None
    ) -> None:
        """code: uint8 view of the range in device memory, read again whenever something is decoded. registers: what an
        instruction reads and writes, as sets of vector registers; with it, the program has notes (`exec.plans`)."""
        self.base = base
        self.nbytes = len(code)
        self._code = code
        self.wave_size = wave
        self._registers = registers
        self._decoder = Decoder(target)
        self._dwords = self.nbytes // 4
        self._segment = Segment.create("program", (self._dwords + SENTINELS) * RECORD_BYTES)
        self.records = self._segment.array(np.uint8, (self._dwords + SENTINELS, RECORD_BYTES))
        self.address = self._segment.address
        self.segment_name = self._segment.name
        self._reserved: set[int] = set()
        self.notes = None if registers is None else ProgramNotes(self._dwords + SENTINELS)
        self._snapshot = b""
        self.instructions: dict[int, Instruction] = {}

    @property
    def notes_segment(self) -> str:
        """The name of the notes' segment, "" if there are none."""
        return "" if self.notes is None else self.notes.segment_name

    @property
    def notes_addresses(self) -> tuple[int, int]:
        """Host addresses of the sites and notes, 0 if there are none."""
        return (0, 0) if self.notes is None else self.notes.addresses

    def contains(self, pc: int) -> bool:
        return self.base <= pc < self.base + self.nbytes

    def instruction(self, pc: int) -> Instruction:
        """The instruction at a GPU address, from the bytes as they are now. DecodeError if there is none."""
        return self._decoder.decode(self._code.tobytes(), pc - self.base)

    def code_at(self, pc: int, nbytes: int) -> bytes:
        """The bytes of code at an address, as they are now."""
        return self._code[pc - self.base : pc - self.base + nbytes].tobytes()

    def row(self, pc: int) -> int:
        """The number of the record of an address."""
        return (pc - self.base) // 4

    def record_at(self, pc: int) -> bytes:
        """The record of a decoded instruction, as one that has no site."""
        record = self.records[self.row(pc)].copy()
        record[RECORD_HANDLER : RECORD_HANDLER + 4].view(np.uint32)[0] = self.handler_at(pc)
        return record.tobytes()

    def handler_at(self, pc: int) -> int:
        """The handler number of a decoded record, 0 where nothing is decoded."""
        return int(self._handler_word(pc)[0]) & ~SITE_FLAG

    def _handler_word(self, pc: int) -> np.ndarray:
        """uint32 [1]: the handler's number and SITE_FLAG."""
        return self.records[self.row(pc), RECORD_HANDLER : RECORD_HANDLER + 4].view(np.uint32)

    def set_site(self, pc: int, site: int) -> None:
        """Say what there is to know of a decoded matrix instruction (`exec.plans`), 0 for another one."""
        assert self.notes is not None, "programs without helpers have no sites"
        self.notes.sites[self.row(pc)] = site
        word = self._handler_word(pc)
        word[0] = self.handler_at(pc) | (SITE_FLAG if site else 0)

    def handlers(self) -> list[int]:
        """The handler numbers of everything decoded."""
        return sorted({self.handler_at(pc) for pc in self.instructions})

    def decode(self, pc: int, number: Callable[[Instruction], int]) -> list[int]:
        """Decode what is reachable from pc by straight lines and direct branches; gives the handler numbers met.

        Raises DecodeError if pc itself holds no instruction. Instructions further on that cannot be decoded, or have no
        semantics, stay undecoded and are met again if they are ever executed.
        """
        code = self._code.tobytes()
        self._snapshot = code
        found: list[int] = []
        work = [pc]
        first = True
        while work and len(found) < DECODE_AHEAD:
            at = work.pop()
            while self.contains(at) and at not in self.instructions and len(found) < DECODE_AHEAD:
                try:
                    instr = self._decoder.decode(code, at - self.base)
                except DecodeError:
                    if first:
                        raise
                    break
                first = False
                if semantic_of(instr) is None:
                    break
                found.append(self._place(at, instr, number(instr)))
                if instr.name.startswith(("s_branch", "s_cbranch")):
                    work.append(at + 4 + 4 * instr.imm("simm16"))
                at += instr.size
                if instr.name in _ENDS:
                    break
        return found

    def _place(self, pc: int, instr: Instruction, number: int) -> int:
        row = self.row(pc)
        self._reserve(row * RECORD_BYTES)
        if self.notes is not None and self._registers is not None:
            self.notes.note(row, *self._registers(instr))
        record = encode_record(self._bounded(pc, instr), number, self.wave_size)
        self.records[row] = np.frombuffer(record, np.uint8)
        self.instructions[pc] = instr
        return number

    def _reserve(self, offset: int) -> None:
        """OutOfMemory if there is no shared memory left for the record at an offset."""
        block = offset // _RESERVED_AT_ONCE
        if block not in self._reserved:
            start = block * _RESERVED_AT_ONCE
            self._segment.reserve(start, min(_RESERVED_AT_ONCE, self._segment.size - start), "decoded code")
            self._reserved.add(block)

    def _bounded(self, pc: int, instr: Instruction) -> Instruction:
        """A direct branch out of the range goes to the sentinels instead, whose records end the wave with a fault."""
        if not instr.name.startswith(("s_branch", "s_cbranch", "s_call")):
            return instr
        if self.contains(pc + 4 + 4 * instr.imm("simm16")):
            return instr
        distance = self._dwords + 1 - (pc - self.base) // 4 - 1
        return Instruction(
            instr.name, instr.encoding, instr.size, instr.operands, instr.row, instr.mods, {**instr.imms, "simm16": distance}
        )

    def refresh(self) -> bool:
        """Forget everything decoded if the code's bytes have changed since; whether they had."""
        if not self.instructions or self._code.tobytes() == self._snapshot:
            return False
        self.records[:] = 0
        if self.notes is not None:
            self.notes.clear()
        self.instructions.clear()
        return True

    def close(self) -> None:
        if self.notes is not None:
            self.notes.close()
        del self.records, self._code
        self._segment.close()
