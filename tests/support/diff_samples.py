"""Decoded samples of every instruction, for the differential tests: assembled once per target and kept on disk."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from support.assembler_lines import Assembled, assemble_lines
from support.isa_samples import samples

from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import Instruction
from rjemu.isa.semantics.registry import semantic_of

PER_INSTRUCTION = 12
"""Samples kept of one mnemonic in one encoding, spread over its variants."""


@functools.cache
def sample_instructions(target: str) -> tuple[tuple[str, Instruction], ...]:
    """(assembly text, instruction) pairs: every registered mnemonic in every encoding that the assembler accepts."""
    lines = list(dict.fromkeys(line for _, line, _ in samples(target)))
    decoder = Decoder(target)
    by_kind: dict[tuple[str, str], list[tuple[str, Instruction]]] = {}
    for result in assemble_lines(lines, target):
        if isinstance(result, Assembled):
            instr = decoder.decode(result.code)
            if semantic_of(instr) is not None:
                by_kind.setdefault((instr.name, instr.encoding), []).append((result.source, instr))
    return tuple(pair for group in by_kind.values() for pair in _spread(group))


def _spread(group: list[tuple[str, Instruction]]) -> Iterator[tuple[str, Instruction]]:
    step = max(len(group) / PER_INSTRUCTION, 1.0)
    count = min(len(group), PER_INSTRUCTION)
    return (group[int(k * step)] for k in range(count))
