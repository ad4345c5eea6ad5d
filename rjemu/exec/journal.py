"""What a process must do to run what the launcher has decoded and compiled: entries in order, each applied once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewClass:
    """Journal entry: a class for a MODE setting (`layout.class_key`); classes are numbered in order."""

    mode_key: int


@dataclass(frozen=True, slots=True)
class NewObject:
    """Journal entry: object code and the functions in it."""

    code: bytes
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewBindings:
    """Journal entry: handler numbers of a class and their functions."""

    mode_class: int
    symbols: dict[int, str]


@dataclass(frozen=True, slots=True)
class NewProgram:
    """Journal entry: program `index` is this code range, its records in the named segment, its notes (`exec.plans`) in
    another, "" if there are none."""

    index: int
    segment: str
    base: int
    nbytes: int
    notes: str


@dataclass(frozen=True, slots=True)
class DropProgram:
    """Journal entry: program `index` is gone."""

    index: int


Entry = NewClass | NewObject | NewBindings | NewProgram | DropProgram
