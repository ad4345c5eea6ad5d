"""The registry of instruction semantics: one entry per mnemonic, run by both executors.

Most instructions are a signature and a function of values:

    define("v_add_f32", "f32 = f32 f32", lambda b, x, y: b.fadd(x, y))

Tokens left of `=` are results, right of it sources; they bind to the instruction's operands in order (destinations to
destinations, sources to sources):
    u32 i32 f32 u16 f16 u64 ...  a register or constant of that type, with the encoding's modifiers
    +f32 ...                     (source) the destination's old value
    mask                         a b1 vector held as 64 bits in a scalar operand, or VCC where none is left
    scc                          SCC, a b1 scalar
    simm16                       (source) the 16-bit immediate as i32
    exec                         EXEC as a u64 scalar
`custom(name, ...)` registers a function that does everything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rjemu.isa.context import Context, Semantic
from rjemu.isa.instruction import POPS_EXITING_WAVE_ID, Instruction, Operand
from rjemu.isa.lanes import TYPES, Value
from rjemu.isa.operands import (
    output_modifiers,
    raw_source,
    source,
    write_lane_bits,
    write_scalar,
    write_vector,
)

Function = Callable[..., Any]

_REGISTRY: dict[str, Semantic] = {}


def register(name: str, semantic: Semantic) -> None:
    """Add one instruction; a second registration of a name is a mistake."""
    if name in _REGISTRY:
        raise ValueError(f"{name} is defined twice")
    _REGISTRY[name] = semantic


def lookup(name: str) -> Semantic | None:
    """The semantics of a mnemonic, None if it has none."""
    return _REGISTRY.get(name)


def semantic_of(instr: Instruction) -> Semantic | None:
    """The semantics of an instruction; None if it has none, or reads POPS_EXITING_WAVE_ID, which only pixel shaders have."""
    if any(op.kind == "special" and op.index == POPS_EXITING_WAVE_ID for op in instr.operands):
        return None
    return _REGISTRY.get(instr.name)


def names() -> Iterable[str]:
    return _REGISTRY.keys()


def custom(*mnemonics: str) -> Callable[[Semantic], Semantic]:
    """Decorator: register a function of the context alone under one or more mnemonics."""

    def add(fn: Semantic) -> Semantic:
        for name in mnemonics:
            register(name, fn)
        return fn

    return add


def define(name: str, signature: str, fn: Function, *, keep_high: bool = False, modifiers: bool = True) -> None:
    """Register `name` with a signature (see the module's docstring) and a function (b, *sources) -> result(s).

    keep_high: a 16-bit result leaves the destination's high half alone (else it is zeroed).
    modifiers: apply omod and clamp to a float result (off where the function does it itself).
    """
    outs, ins = (part.split() for part in signature.split("="))
    register(name, lambda b: _run(b, outs, ins, fn, keep_high, modifiers))


def _run(b: Context, outs: list[str], ins: list[str], fn: Function, keep_high: bool, modifiers: bool) -> None:
    dsts = [op for op in b.instr.operands if op.is_dst]
    sources = iter([op for op in b.instr.operands if not op.is_dst])
    values = [_read(b, token, sources, dsts) for token in ins]
    result = fn(b, *values)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(outs):
        raise TypeError(f"{b.instr.name}: {len(results)} results for {outs}")
    free = iter(dsts)
    writes = [
        (token, value, None if token in ("scc", "exec") else next(free, None))
        for token, value in zip(outs, results, strict=True)
    ]
    for token, value, op in writes:
        _write(b, token, value, op, keep_high, modifiers)


def _read(b: Context, token: str, sources: Any, dsts: list[Operand]) -> Value:
    if token == "scc":
        return b.scc()
    if token == "exec":
        return b.exec()
    if token == "simm16":
        return b.imm("simm16")
    if token == "mask":
        op = next(sources, None)
        return b.lane_mask(b.vcc() if op is None else raw_source(b, op, "u64"))
    if token.startswith("+"):
        return raw_source(b, dsts[0], token[1:])
    op = next(sources)
    return source(b, op, token)


def _write(b: Context, token: str, value: Value, op: Operand | None, keep_high: bool, modifiers: bool) -> None:
    if token == "scc":
        b.set_scc(value)
        return
    if token == "exec":
        b.set_exec(value)
        return
    if token == "mask":
        write_lane_bits(b, op, value)
        return
    assert op is not None, f"{b.instr.name} has no operand for {token}"
    if value.type != TYPES[token]:
        raise TypeError(f"{b.instr.name}: result {value.type.name} where the signature says {token}")
    if op.kind == "v":
        if modifiers and value.type.is_float:
            value = output_modifiers(b, value)
        write_vector(b, op, value, keep_high=keep_high)
    else:
        write_scalar(b, op, value)
