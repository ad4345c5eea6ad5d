"""How errors and results travel: as names, numbers and texts, from which only classes of `rjemu.errors` are made."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from rjemu import errors
from rjemu.errors import FaultPlace, ProtocolError, RjemuError
from rjemu.exec.dispatch import DispatchResult

MAX_MESSAGE = 1 << 16

_CLASSES: Mapping[str, type[RjemuError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RjemuError)
}

_FACTS = {"address": int, "space": str, "access": str}
"""Attributes of errors that travel as they are; `place` does as a list."""

_log = logging.getLogger("rjemu.daemon")


def encode_error(error: BaseException) -> list[Any]:
    """[class, message, attributes]. What is no RjemuError is a mistake in the daemon: it is logged there."""
    if not isinstance(error, RjemuError):
        _log.error("a request failed", exc_info=error)
        return ["RjemuError", f"the daemon could not do this: {type(error).__name__}: {error}"[:MAX_MESSAGE], {}]
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _CLASSES)
    facts = {key: getattr(error, key) for key in _FACTS if hasattr(error, key)}
    place = getattr(error, "place", None)
    if place is not None:
        facts["place"] = [
            place.kernel, list(place.workgroup), place.wave, place.lane, place.pc, place.instruction
        ]  # fmt: skip
    return [name, str(error)[:MAX_MESSAGE], facts]


def decode_error(encoded: Any) -> RjemuError:
    """The error that `encode_error` was given. ProtocolError (raised) if it was not."""
    try:
        name, message, facts = encoded
        # Not by the class's __init__: the message already tells what that would put into it.
        error = _CLASSES[name].__new__(_CLASSES[name], str(message))
        attributes = {key: kind(facts[key]) for key, kind in _FACTS.items() if key in facts}
        if issubclass(_CLASSES[name], errors.KernelFault):
            attributes["place"] = _place(facts["place"]) if "place" in facts else None
    except (KeyError, TypeError, ValueError) as problem:
        raise ProtocolError(f"an error that is none: {problem!r}") from None
    vars(error).update(attributes)
    return error


def _place(encoded: Any) -> FaultPlace:
    kernel, (x, y, z), wave, lane, pc, instruction = encoded
    return FaultPlace(str(kernel), (int(x), int(y), int(z)), int(wave), lane, int(pc), str(instruction))


def encode_result(result: DispatchResult) -> list[Any]:
    return [result.wave_instructions, result.seconds, _plain(result.stats)]


def decode_result(encoded: Any) -> DispatchResult:
    """ProtocolError if it is none."""
    try:
        instructions, seconds, stats = encoded
        return DispatchResult(int(instructions), float(seconds), dict(stats))
    except (TypeError, ValueError) as problem:
        raise ProtocolError(f"a result that is none: {problem!r}") from None


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's; TypeError for what is neither a number nor a text nor made of them."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is not None and not isinstance(plain, bool | int | float | str):
        raise TypeError(f"{type(value).__name__} in the statistics of a launch")
    return plain
