"""The scoreboard's native functions as Python calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

_WORD, _LONG, _PTR = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class HandoffCalls:
    """See `exec.handoff`, `exec.helper_job` and `exec.async_turn` for what the functions do; all addresses are host's."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        def function(name: str, result: type | None, *arguments: type) -> ctypes._FuncPointer:
            return ctypes.CFUNCTYPE(result, *arguments)(addresses[name])

        self.run_job, self._run_job_traced = addresses["run_job"], addresses["run_job_traced"]
        self._reserve = function("reserve", _WORD, _PTR, _WORD, _WORD)
        self._give_back = function("give_back", None, _PTR, _WORD)
        self._serve = function("serve", _WORD, _PTR, _PTR, _PTR)
        self._round_trips = function("round_trips", _LONG, _PTR, _LONG)
        self._ring = function("ring", None, _PTR)
        self._ticks = function("ticks", _LONG)
        self._repeat = function("repeat", None, _PTR, _PTR, _PTR, _PTR, _LONG)
        self._attend = function("attend", _WORD, _PTR, _PTR, _WORD, _WORD, _PTR)
        self._drain = function("drain", None, _PTR, _PTR)
        self._drain_slots = function("drain_slots", None, _PTR, _PTR, _LONG, _LONG, _LONG)

    def reserve(self, board: int, prefer: int) -> int:
        """A free helper's number, or NOBODY."""
        return int(self._reserve(board, prefer, prefer & 63))

    def give_back(self, board: int, helper: int) -> None:
        self._give_back(board, helper)

    def serve(self, slot: int, env: int, *, traced: bool = False) -> int:
        """SERVE_BELL or SERVE_IDLE."""
        return int(self._serve(slot, self._run_job_traced if traced else self.run_job, env))

    def round_trips(self, slot: int, n: int) -> None:
        self._round_trips(slot, n)

    def ring(self, slot: int) -> None:
        self._ring(slot)

    def ticks(self) -> int:
        return int(self._ticks())

    def repeat(self, code: int, context: int, wave: int, record: int, n: int) -> None:
        self._repeat(code, context, wave, record, n)

    def attend(self, context: int, wave: int, row: int, site: int, note: int) -> int:
        """What becomes of an instruction: 0, SKIP, START_HELPERS or WAIT (`exec.async_turn`)."""
        return int(self._attend(context, wave, row, site, note))

    def drain(self, context: int, wave: int) -> None:
        self._drain(context, wave)

    def drain_slots(self, context: int, slots: int, stride: int, waves_offset: int, count: int) -> None:
        self._drain_slots(context, slots, stride, waves_offset, count)
