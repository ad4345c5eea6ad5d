"""Scalar instructions on lane masks: EXEC saved and combined, whole quads, quad masks, replicated bits."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import define
from rjemu.isa.semantics.scalar_alu import LOGIC

Binary = Callable[[Value, Value], Value]

SAVEEXEC: dict[str, Binary] = {
    **LOGIC,
    "andn1": lambda x, y: ~x & y,
    "orn1": lambda x, y: ~x | y,
}


def _save(fn: Binary) -> Callable[..., tuple[Value, Value, Value]]:
    """EXEC becomes fn(source, EXEC); the destination gets the old EXEC; SCC says whether a lane is left."""

    def run(b: Context, x: Value, old: Value) -> tuple[Value, Value, Value]:
        new = fn(x, old)
        return new, old, new != 0

    return run


def _write(fn: Binary) -> Callable[..., tuple[Value, Value, Value]]:
    """The same with the new EXEC in the destination."""

    def run(b: Context, x: Value, old: Value) -> tuple[Value, Value, Value]:
        new = fn(x, old)
        return new, new, new != 0

    return run


for _name, _fn in SAVEEXEC.items():
    define(f"s_{_name}_saveexec_b64", "exec u64 scc = u64 exec", _save(_fn))
for _name in ("andn1", "andn2"):
    define(f"s_{_name}_wrexec_b64", "exec u64 scc = u64 exec", _write(SAVEEXEC[_name]))

# --- quads ------------------------------------------------------------------------------------------------------------

_FIRST_OF_QUAD = 0x1111_1111_1111_1111


def _occupied_quads(x: Value) -> Value:
    """Bit 4 i of a u64: whether quad i of the mask has a bit set."""
    pairs = x | (x >> 1)
    return (pairs | (pairs >> 2)) & _FIRST_OF_QUAD


def _whole_quads(b: Context, x: Value) -> tuple[Value, Value]:
    mask = (_occupied_quads(x.to("u64")) * 15).to(x.type.name)
    return mask, mask != 0


def _quad_mask(b: Context, x: Value) -> tuple[Value, Value]:
    """Bit i: whether quad i is occupied. The bits are drawn together by halves."""
    packed = _occupied_quads(x.to("u64"))
    for shift, keep in ((3, 0x0303_0303_0303_0303), (6, 0x000F_000F_000F_000F), (12, 0x0000_00FF_0000_00FF), (24, 0xFFFF)):
        packed = (packed | (packed >> shift)) & keep
    mask = packed.to(x.type.name)
    return mask, mask != 0


def _replicate(b: Context, x: Value) -> Value:
    """Every bit twice. The bits are spread apart by halves."""
    spread = x.to("u64")
    for shift, keep in (
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ):
        spread = (spread | (spread << shift)) & keep
    return spread | (spread << 1)


for _bits in (32, 64):
    define(f"s_wqm_b{_bits}", f"u{_bits} scc = u{_bits}", _whole_quads)
    define(f"s_quadmask_b{_bits}", f"u{_bits} scc = u{_bits}", _quad_mask)
define("s_bitreplicate_b64_b32", "u64 = u32", _replicate)
