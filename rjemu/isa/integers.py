"""Integer arithmetic that several instruction families share: saturation under the clamp modifier, carries, bit fields."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.lanes import TYPES, Lanes, Value

IntegerFunction = Callable[..., Value]


def saturate(b: Lanes, exact: Value, type_name: str) -> Value:
    """The nearest number that the type can hold to `exact` (i64)."""
    type_ = TYPES[type_name]
    low = -(1 << (type_.bits - 1)) if type_.kind == "i" else 0
    high = (1 << (type_.bits - (type_.kind == "i"))) - 1
    return b.max(b.min(exact, high), low).to(type_name)


def clamped(type_name: str, fn: IntegerFunction) -> IntegerFunction:
    """fn in the arithmetic of a type of at most 32 bits: it wraps, or saturates where the instruction carries clamp.

    fn is written with operators, so that it serves both: on sources converted to the type, and on i64, in which no
    integer instruction of gfx9 on such types overflows.
    """

    def run(b: Context, *sources: Value) -> Value:
        if not b.instr.mod("clamp"):
            return fn(*(x.to(type_name) for x in sources))
        return saturate(b, fn(*(x.to("i64") for x in sources)), type_name)

    return run


def add_carry(b: Context, x: Value, y: Value, carry: Value | None = None) -> tuple[Value, Value]:
    """(x + y + carry, carry out) of unsigned values; clamp limits the sum to the largest number."""
    total = x + y
    out = total < x
    if carry is not None:
        partial, total = total, total + carry.to(x.type.name)
        out = out | (total < partial)
    if b.instr.mod("clamp"):
        total = b.select(out, -1, total)
    return total, out


def subtract_borrow(b: Context, x: Value, y: Value, borrow: Value | None = None) -> tuple[Value, Value]:
    """(x - y - borrow, borrow out) of unsigned values; clamp limits the difference to 0."""
    difference = x - y
    out = x < y
    if borrow is not None:
        step = borrow.to(x.type.name)
        out = out | (difference < step)
        difference = difference - step
    if b.instr.mod("clamp"):
        difference = b.select(out, 0, difference)
    return difference, out


def multiply_high(x: Value, y: Value) -> Value:
    """The upper 32 bits of a 32 x 32 bit product, by the sign of the type."""
    name = x.type.name
    wide = name[0] + "64"
    return ((x.to(wide) * y.to(wide)) >> 32).to(name)


def mask_of(b: Lanes, width: Value) -> Value:
    """The `width` lowest bits set, for a width modulo the type's."""
    return (b.const(width.type.name, 1) << width) - 1


def first_or_none(b: Lanes, count: Value) -> Value:
    """A count of leading or trailing zeros as i32, -1 where there was no one at all."""
    return b.select(count == count.type.bits, -1, count.to("i32"))


def leading_sign_bits(b: Lanes, x: Value) -> Value:
    """Position from the top of the first bit that differs from the sign (x signed), as i32; -1 if all are alike."""
    return first_or_none(b, b.clz((x ^ (x >> (x.type.bits - 1))).bits(f"u{x.type.bits}")))
