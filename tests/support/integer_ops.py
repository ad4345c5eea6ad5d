"""Checks integer vector instructions lane by lane against functions of Python's integers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from support.vector_runs import ALL_LANES, LANES, filler, mask_of, prepare, run

Function = Callable[..., int | tuple[int, bool]]
"""Sources (signed numbers for i types) -> the exact result, or (result, bit of the mask result)."""

DESTINATION, SOURCES = 10, (20, 96, 160)
CARRY_OUT, CARRY_IN = 40, 50
ACTIVE = (ALL_LANES, 0x8000_F0F3_1234_5679, 0)
"""Values of EXEC that every check goes through."""


@dataclass(frozen=True)
class Operation:
    """signature: result and source types as "u32 = u32 i16"; `mask` is a lane mask in SGPRs, +u32 the old destination.

    keeps_high: a 16-bit result leaves the upper half of its register alone, else it is cleared.
    """

    name: str
    signature: str
    function: Function
    keeps_high: bool = False
    target: str = "gfx950"

    @property
    def results(self) -> list[str]:
        return self.signature.split("=")[0].split()

    @property
    def sources(self) -> list[str]:
        return self.signature.split("=")[1].split()

    def line(self, modifiers: str = "") -> str:
        operands = [_registers("v", DESTINATION, _bits(self.results[0]))]
        if "mask" in self.results:
            operands.append(_registers("s", CARRY_OUT, 64))
        registers = iter(SOURCES)
        for token in self.sources:
            if token == "mask":
                operands.append(_registers("s", CARRY_IN, 64))
            elif not token.startswith("+"):
                operands.append(_registers("v", next(registers), _bits(token)))
        return f"{self.name} {', '.join(operands)} {modifiers}".strip()


def _bits(token: str) -> int:
    return int(token.lstrip("+")[1:])


def _registers(file: str, first: int, bits: int) -> str:
    return f"{file}{first}" if bits <= 32 else f"{file}[{first}:{first + bits // 32 - 1}]"


def edge_numbers(bits: int) -> list[int]:
    """Patterns at which integer arithmetic of that width changes its behaviour."""
    top = 1 << (bits - 1)
    small = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33]
    return [v & ((1 << bits) - 1) for v in (*small, top - 1, top, top + 1, -1, -2, -7, 0x7F80, 0xFFFF, 0x10000)]


def operand_lanes(token: str, rng: np.random.Generator) -> list[int]:
    """A pattern for every lane: half of them edges."""
    bits = _bits(token)
    edges = edge_numbers(bits)
    random = [int(v) & ((1 << bits) - 1) for v in rng.integers(0, 1 << 64, LANES, dtype=np.uint64)]
    return [edges[rng.integers(len(edges))] if rng.random() < 0.5 else value for value in random]


def number(pattern: int, token: str) -> int:
    """The number that a pattern stands for."""
    token = token.lstrip("+")
    bits = _bits(token)
    return pattern - (1 << bits) if token[0] == "i" and pattern >> (bits - 1) else pattern


def fit(exact: int, token: str, *, clamp: bool) -> int:
    """The pattern of an exact result: wrapped, or saturated to the type."""
    bits, signed = _bits(token), token[0] == "i"
    if clamp:
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        exact = max(low, min(high, exact))
    return exact & ((1 << bits) - 1)


def _place(token: str, register: int, lanes: list[int], rng: np.random.Generator) -> dict[int, list[int]]:
    """Register contents; the bits beside a 16-bit operand are random."""
    bits = _bits(token)
    if bits == 64:
        return {register: [v & 0xFFFF_FFFF for v in lanes], register + 1: [v >> 32 for v in lanes]}
    beside = rng.integers(0, 1 << 16, LANES) << 16 if bits == 16 else np.zeros(LANES, int)
    return {register: [v | int(extra) for v, extra in zip(lanes, beside, strict=True)]}


def check(operation: Operation, *, clamp: bool = False) -> None:
    """Runs the instruction on random lanes and edges, under several EXEC masks, and compares all it writes."""
    line = operation.line("clamp" if clamp else "")
    prepare([line], operation.target)
    rng = np.random.default_rng(zlib.crc32(line.encode()))
    for exec_mask in ACTIVE:
        carry_in = int(rng.integers(0, 1 << 63))
        vgprs: dict[int, list[int]] = {}
        arguments: list[list[int]] = []
        registers = iter(SOURCES)
        for token in operation.sources:
            if token == "mask":
                arguments.append([carry_in >> lane & 1 for lane in range(LANES)])
                continue
            lanes = operand_lanes(token, rng)
            vgprs |= _place(token, DESTINATION if token.startswith("+") else next(registers), lanes, rng)
            arguments.append([number(v, token) for v in lanes])
        state = run(
            line,
            vgprs,
            target=operation.target,
            exec_mask=exec_mask,
            sgprs={CARRY_IN: carry_in & 0xFFFF_FFFF, CARRY_IN + 1: carry_in >> 32},
        )
        before = filler()
        for register, values in vgprs.items():
            before[register] = values
        compare(operation, state, before, exec_mask, arguments, clamp)


def compare(operation: Operation, state, before: np.ndarray, exec_mask: int, arguments, clamp: bool) -> None:
    token = operation.results[0]
    expected, carries = before.copy(), 0
    for lane in range(LANES):
        if not exec_mask >> lane & 1:
            continue
        result = operation.function(*(argument[lane] for argument in arguments))
        exact, carry = result if isinstance(result, tuple) else (result, False)
        carries |= int(carry) << lane
        pattern = fit(exact, token, clamp=clamp)
        if _bits(token) == 64:
            expected[DESTINATION, lane], expected[DESTINATION + 1, lane] = pattern & 0xFFFF_FFFF, pattern >> 32
        elif _bits(token) == 16 and operation.keeps_high:
            expected[DESTINATION, lane] = int(before[DESTINATION, lane]) & 0xFFFF_0000 | pattern
        else:
            expected[DESTINATION, lane] = pattern
    wrong = np.argwhere(state.vgpr != expected)
    assert not len(wrong), _explain(operation, wrong[0], arguments, state.vgpr, expected)
    if "mask" in operation.results:
        assert mask_of(state, CARRY_OUT) == carries, operation.name


def _explain(operation: Operation, place: np.ndarray, arguments, got: np.ndarray, expected: np.ndarray) -> str:
    register, lane = place
    sources = ", ".join(hex(argument[lane]) for argument in arguments)
    return f"{operation.name}({sources}): v{register} is {got[register, lane]:#x}, not {expected[register, lane]:#x}"
