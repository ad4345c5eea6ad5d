"""Integer vector compares (VOPC and their VOP3 and SDWA forms). v_cmpx also makes the result the new EXEC."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import define

Relation = Callable[[Context, Value, Value], Value]

RELATIONS: dict[str, Relation] = {
    "f": lambda b, x, y: b.const("b1", 0),
    "lt": lambda b, x, y: x < y,
    "eq": lambda b, x, y: x == y,
    "le": lambda b, x, y: x <= y,
    "gt": lambda b, x, y: x > y,
    "ne": lambda b, x, y: x != y,
    "ge": lambda b, x, y: x >= y,
    "t": lambda b, x, y: b.const("b1", 1),
}


def _narrowing(relation: Relation) -> Callable[..., tuple[Value, Value]]:
    """The relation, and EXEC cut down to the lanes in which it holds."""

    def run(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
        holds = b.vector(relation(b, x, y))
        return holds, b.ballot(holds) & b.exec()

    return run


for _type in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _relation in RELATIONS.items():
        define(f"v_cmp_{_name}_{_type}", f"mask = {_type} {_type}", _relation)
        define(f"v_cmpx_{_name}_{_type}", f"mask exec = {_type} {_type}", _narrowing(_relation))
