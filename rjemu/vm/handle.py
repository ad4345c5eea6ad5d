"""Objects that stand for something of a machine."""

from __future__ import annotations

from typing import NoReturn


class Handle:
    """What belongs to a machine of this process: a copy would free it twice, and another process could not use it.
    Copying and pickling are TypeErrors."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be copied or pickled: it belongs to a machine of this process")
