"""What an atomic writes back: memory's new bits from the old ones and the lane's data (`Context.atomic`)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.exec.numpy_lanes import NumpyLanes
from rjemu.isa.atomics import float_combine
from rjemu.isa.lanes import TYPES, FpMode

Combine = Callable[[int, int, int, int], int]
"""(old, data, compare, bits) -> new, all unsigned patterns."""


def _signed(pattern: int, bits: int) -> int:
    return pattern - (1 << bits) if pattern >> (bits - 1) else pattern


INTEGER: dict[str, Combine] = {
    "add": lambda old, data, _, bits: old + data,
    "sub": lambda old, data, _, bits: old - data,
    "rsub": lambda old, data, _, bits: data - old,
    "umin": lambda old, data, _, bits: min(old, data),
    "umax": lambda old, data, _, bits: max(old, data),
    "smin": lambda old, data, _, bits: min(old, data, key=lambda x: _signed(x, bits)),
    "smax": lambda old, data, _, bits: max(old, data, key=lambda x: _signed(x, bits)),
    "and": lambda old, data, _, bits: old & data,
    "or": lambda old, data, _, bits: old | data,
    "xor": lambda old, data, _, bits: old ^ data,
    "swap": lambda old, data, _, bits: data,
    "cmpswap": lambda old, data, compare, bits: data if old == compare else old,
    "inc": lambda old, data, _, bits: 0 if old >= data else old + 1,
    "dec": lambda old, data, _, bits: data if old == 0 or old > data else old - 1,
    "mskor": lambda old, data, other, bits: (old & ~data) | other,
    "wrap": lambda old, data, other, bits: old - data if old >= data else old + other,
}


def combine(op: str, type_name: str, old: int, data: int, compare: int, fp: FpMode) -> int:
    """The new memory pattern of one lane's atomic."""
    type_ = TYPES[type_name]
    if op in INTEGER:
        return INTEGER[op](old, data, compare, type_.bits) & ((1 << type_.bits) - 1)
    lanes = NumpyLanes(1, fp)
    new = float_combine(lanes, op, *(lanes.const_bits(type_name, pattern) for pattern in (old, data, compare)))
    return int(new.bits(f"u{type_.bits}").data[0])
