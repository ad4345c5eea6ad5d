"""Typed reading of TOML tables, with errors that name the file, the table and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rjemu.errors import UsageError


class Table:
    """One table of a job file. Every `take` removes its key; `finish` refuses what is left over."""

    def __init__(self, file: Path, place: str, data: Any) -> None:
        self.file = file
        self.place = place
        if not isinstance(data, Mapping):
            self.fail(f"must be a table, not {data!r}")
        self._rest = dict(data)
        self._known: list[str] = []

    def take(self, key: str, *kinds: type, default: Any = None) -> Any:
        """The value of an optional key, of one of `kinds` (bool is no int)."""
        self._known.append(key)
        if key not in self._rest:
            return default
        value = self._rest.pop(key)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(_TOML_NAMES[kind] for kind in kinds)
            self.fail(f"{key} must be {names}, not {value!r}")
        return value

    def require(self, key: str, *kinds: type) -> Any:
        """The value of a key that must be there."""
        if key not in self._rest:
            self.fail(f"{key} is missing")
        return self.take(key, *kinds)

    def path(self, key: str) -> Path | None:
        """An optional file name, relative to the job file's folder."""
        name = self.take(key, str)
        return None if name is None else self.file.parent / name

    def tables(self, key: str) -> list[Table]:
        """An optional array of tables."""
        return [Table(self.file, f"{key}[{index}]", entry) for index, entry in enumerate(self.take(key, list, default=[]))]

    def rest(self) -> dict[str, Any]:
        """The keys not taken, which count as taken from now on."""
        rest, self._rest = self._rest, {}
        return rest

    def finish(self) -> None:
        """Refuses keys that nothing has asked for."""
        for key in self._rest:
            self.fail(f"has no key {key!r}; there are {', '.join(self._known)}")

    def extent(self, key: str) -> Sequence[int] | None:
        """An optional size: a whole number, or a list of them."""
        value = self.take(key, int, list)
        if value is None:
            return None
        sizes = value if isinstance(value, list) else [value]
        if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes):
            self.fail(f"{key} must be whole numbers, not {value!r}")
        return sizes

    def fail(self, problem: str) -> NoReturn:
        where = f"{self.place}: " if self.place else ""
        raise UsageError(f"{self.file}: {where}{problem}")


_TOML_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}
