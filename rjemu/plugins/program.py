"""A kernel's code as far as it can be read without running it."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.plugins.contract import Step

MOST_INSTRUCTIONS = 65536
"""What looks like code may be data: bounds what that costs."""

_ENDS = frozenset({"s_endpgm", "s_branch", "s_setpc_b64", "s_endpgm_saved"})


def reachable(decoder: Decoder, code: Callable[[int], bytes | None], entry: int) -> list[Step]:
    """The instructions that straight lines and direct branches reach from `entry`, in address order.

    code: the bytes of one instruction at most from a GPU address on, None outside all code.
    """
    found: dict[int, Step] = {}
    work = [entry]
    while work and len(found) < MOST_INSTRUCTIONS:
        pc = work.pop()
        while pc not in found and (content := code(pc)) is not None:
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
