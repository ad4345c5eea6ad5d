"""Floating-point vector compares (VOPC and their VOP3 and SDWA forms). v_cmpx also makes the result the new EXEC."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.floats import in_class
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import define

Relation = Callable[[Context, Value, Value], Value]

RELATIONS: dict[str, Relation] = {
    "f": lambda b, x, y: b.const("b1", 0),
    "lt": lambda b, x, y: x < y,
    "eq": lambda b, x, y: x == y,
    "le": lambda b, x, y: x <= y,
    "gt": lambda b, x, y: x > y,
    "lg": lambda b, x, y: (x < y) | (x > y),
    "ge": lambda b, x, y: x >= y,
    "o": lambda b, x, y: ~(b.isnan(x) | b.isnan(y)),
    "u": lambda b, x, y: b.isnan(x) | b.isnan(y),
    "nge": lambda b, x, y: ~(x >= y),
    "nlg": lambda b, x, y: ~((x < y) | (x > y)),
    "ngt": lambda b, x, y: ~(x > y),
    "nle": lambda b, x, y: ~(x <= y),
    "neq": lambda b, x, y: x != y,
    "nlt": lambda b, x, y: ~(x < y),
    "tru": lambda b, x, y: b.const("b1", 1),
}


def _of_sources(relation: Relation) -> Relation:
    """The relation of what the denormal mode lets an instruction see."""
    return lambda b, x, y: relation(b, b.flush_input(x), b.flush_input(y))


def _narrowing(relation: Relation) -> Callable[..., tuple[Value, Value]]:
    """The relation, and EXEC cut down to the lanes in which it holds."""

    def run(b: Context, x: Value, y: Value) -> tuple[Value, Value]:
        holds = b.vector(relation(b, x, y))
        return holds, b.ballot(holds) & b.exec()

    return run


def _in_class(b: Context, x: Value, classes: Value) -> Value:
    return in_class(b, x, classes.to("u32"))


def _define(name: str, sources: str, relation: Relation) -> None:
    define(f"v_cmp_{name}", f"mask = {sources}", relation)
    define(f"v_cmpx_{name}", f"mask exec = {sources}", _narrowing(relation))


for _type, _mask in (("f16", "u16"), ("f32", "u32"), ("f64", "u32")):
    for _name, _relation in RELATIONS.items():
        _define(f"{_name}_{_type}", f"{_type} {_type}", _of_sources(_relation))
    _define(f"class_{_type}", f"{_type} {_mask}", _in_class)
