"""Waves whose matrix instructions helpers may be executing: what hooks can look at, and when."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from rjemu.errors import UsageError
from rjemu.exec.wave import WaveState
from rjemu.plugins.contract import Dispatch, Size3, Wave


class SharedWave(Wave):
    """A wave of a dispatch with helpers. Its vector registers can be looked at when it starts and when it has halted; in
    between helpers change them, before and after the instructions in whose order they do so."""

    __slots__ = ("_running",)

    def __init__(self, dispatch: Dispatch, workgroup: Size3, number: int, state: WaveState, lds: np.ndarray) -> None:
        super().__init__(dispatch, workgroup, number, state, lds)
        self._running = False

    def run(self) -> None:
        """Instructions are executed from now on."""
        self._running = True

    def rest(self) -> None:
        """No helper has a job of the wave any more."""
        self._running = False

    @property
    def state(self) -> WaveState:
        if self._running:
            raise UsageError(
                "a wave's vector registers cannot be looked at where helpers execute matrix instructions: a plugin that "
                "needs them must not support asynchronous instructions"
            )
        return self._state


class IssuedWave(Wave):
    """The wave of an instruction that a helper executes, in the register hooks of that instruction: which one it is, until
    the hooks return. Any later use is a UsageError, and so is any attempt to look at its registers or memory."""

    __slots__ = ()

    def __init__(self, dispatch: Dispatch, workgroup: Size3, number: int) -> None:
        self.dispatch, self.workgroup, self.number = dispatch, workgroup, number

    def expire(self) -> None:
        """The hooks have returned."""
        del self.dispatch, self.workgroup, self.number

    def __getattr__(self, name: str) -> NoReturn:
        """For what it never had, or has not any more."""
        if name in ("dispatch", "workgroup", "number"):
            raise UsageError(f"the wave of an asynchronous instruction has no {name} after the hook that it was given to")
        if name in ("_state", "_lds"):
            raise UsageError(
                "nothing of a wave can be looked at for an instruction that a helper executes: it may be changing it now"
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
