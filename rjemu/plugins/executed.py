"""How often a dispatch has executed each instruction, summed up without looking at every instruction every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from weakref import WeakKeyDictionary

import numpy as np

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.isa.instruction import Instruction

Classify = Callable[[Instruction], str]
OVERWRITTEN = "overwritten"
"""The class of what was executed and has been overwritten since by what is no instruction."""

_NOT_KNOWN = -1


class CodeRange:
    """The instructions of a code range, decoded as they are asked for, and their classes. code: its bytes."""

    def __init__(self, decoder: Decoder, base: int, code: bytes) -> None:
        self.base = base
        self.code = code
        self._decoder = decoder
        self._instructions: dict[int, Instruction | None] = {}
        self._classes: WeakKeyDictionary[Classify, tuple[list[str], np.ndarray]] = WeakKeyDictionary()

    def instruction(self, row: int) -> Instruction | None:
        """The instruction at dword `row`, None if there is none."""
        if row not in self._instructions:
            try:
                self._instructions[row] = self._decoder.decode(self.code, 4 * row)
            except DecodeError:
                self._instructions[row] = None
        return self._instructions[row]

    def totals(self, counts: np.ndarray, classify: Classify) -> dict[str, int]:
        """The sums of the counts, int64 [dwords], by class."""
        empty = np.full(len(counts), _NOT_KNOWN, np.int64)
        names, numbers = self._classes.setdefault(classify, ([], empty))
        rows = np.flatnonzero(counts)
        for row in rows[numbers[rows] == _NOT_KNOWN].tolist():
            instr = self.instruction(row)
            name = OVERWRITTEN if instr is None else classify(instr)
            if name not in names:
                names.append(name)
            numbers[row] = names.index(name)
        sums = np.zeros(len(names), np.int64)
        np.add.at(sums, numbers[rows], counts[rows])
        return {name: total for name, total in zip(names, sums.tolist(), strict=True) if total}


class Executed:
    """What a dispatch has executed; iteration gives (GPU address, instruction, executions by waves) in address order."""

    def __init__(self, ranges: Mapping[CodeRange, np.ndarray]) -> None:
        """ranges: int64 [dwords] executions of each code range."""
        self._ranges = ranges

    def __iter__(self) -> Iterator[tuple[int, Instruction, int]]:
        for part in sorted(self._ranges, key=lambda part: part.base):
            for row in np.flatnonzero(self._ranges[part]).tolist():
                instr = part.instruction(row)
                if instr is not None:
                    yield part.base + 4 * row, instr, int(self._ranges[part][row])

    def totals(self, classify: Classify) -> Counter[str]:
        """Executions by what `classify` says of the instructions. The answers are remembered as long as it lives."""
        out: Counter[str] = Counter()
        for part, counts in self._ranges.items():
            out.update(part.totals(counts, classify))
        return out


class CodeRanges:
    """The code ranges that have been counted in. read: a range's bytes as they are now by its GPU address."""

    def __init__(self, decoder: Decoder, read: Callable[[int], bytes]) -> None:
        self._decoder = decoder
        self._read = read
        self._ranges: dict[int, CodeRange] = {}

    def executed(self, counts: Mapping[int, np.ndarray]) -> Executed:
        """From executions by dword of the ranges at GPU addresses."""
        return Executed({self._range(base): array for base, array in counts.items()})

    def _range(self, base: int) -> CodeRange:
        code = self._read(base)
        known = self._ranges.get(base)
        if known is None or known.code != code:
            known = self._ranges[base] = CodeRange(self._decoder, base, code)
        return known
