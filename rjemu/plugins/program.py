"""The code that a machine has loaded, and a kernel's as far as it can be read without running it."""

from __future__ import annotations

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.plugins.contract import Step
from rjemu.shm.vram import Vram

MOST_INSTRUCTIONS = 65536
"""What looks like code may be data: bounds what that costs."""

_LONGEST_INSTRUCTION = 24
_ENDS = frozenset({"s_endpgm", "s_branch", "s_setpc_b64", "s_endpgm_saved"})


class LoadedCode:
    """The code ranges of a machine, as their bytes are now."""

    def __init__(self, vram: Vram) -> None:
        self._vram = vram
        self._ranges: dict[int, int] = {}

    def add(self, address: int, nbytes: int) -> None:
        self._ranges[address] = nbytes

    def remove(self, address: int) -> None:
        self._ranges.pop(address, None)

    def whole(self, address: int) -> bytes:
        """The range that starts at a GPU address; nothing if it has been removed."""
        nbytes = self._ranges.get(address, 0)
        return self._vram.view(address, nbytes).tobytes() if nbytes else b""

    def at(self, pc: int) -> bytes | None:
        """The bytes of one instruction at most from a GPU address on, None outside all code."""
        for start, nbytes in list(self._ranges.items()):
            if start <= pc < start + nbytes and pc % 4 == 0:
                return self._vram.view(pc, min(_LONGEST_INSTRUCTION, start + nbytes - pc)).tobytes()
        return None


def reachable(decoder: Decoder, code: LoadedCode, entry: int) -> list[Step]:
    """The instructions that straight lines and direct branches reach from `entry`, in address order."""
    found: dict[int, Step] = {}
    work = [entry]
    while work and len(found) < MOST_INSTRUCTIONS:
        pc = work.pop()
        while pc not in found and (content := code.at(pc)) is not None:
            try:
                instr = decoder.decode(content)
            except DecodeError:
                break
            found[pc] = Step(pc, instr)
            if instr.name.startswith(("s_branch", "s_cbranch")):
                work.append(pc + 4 + 4 * instr.imm("simm16"))
            if instr.name in _ENDS:
                break
            pc += instr.size
    return [found[pc] for pc in sorted(found)]
