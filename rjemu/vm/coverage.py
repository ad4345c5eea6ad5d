"""Which instructions of a target execute."""

from __future__ import annotations

from dataclasses import dataclass

import rjemu.isa.semantics
import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.errors import UsageError
from rjemu.isa.semantics.registry import lookup
from rjemu.isa.tables import FAMILIES, row_names

__all__ = ["TARGETS", "Coverage", "coverage"]

TARGETS = tuple(FAMILIES)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Mnemonics of a target's opcode tables: those that execute, and those that raise UnsupportedInstruction."""

    target: str
    total: int
    executed: tuple[str, ...]
    unsupported: tuple[str, ...]


def coverage(target: str) -> Coverage:
    """The coverage of a target; UsageError for one that rjemu has no tables of."""
    if target not in FAMILIES:
        raise UsageError(f"no tables for {target!r}: expected one of {', '.join(TARGETS)}")
    names = row_names(target)
    executed = tuple(name for name in names if lookup(name) is not None)
    return Coverage(target, len(names), executed, tuple(name for name in names if lookup(name) is None))
