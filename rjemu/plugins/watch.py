"""The hooks on waves under the native executor, which is then in the launcher."""

from __future__ import annotations

import numpy as np

from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.wave import WaveState
from rjemu.plugins.contract import Size3, Wave
from rjemu.plugins.host import PluginHost


class WaveHooks:
    """Tells plugins of one dispatch's waves: `exec.runner.Watcher`."""

    def __init__(self, host: PluginHost, spec: DispatchSpec) -> None:
        self._host = host
        self._dispatch = host.dispatch_of(spec)
        self._waves: dict[tuple[Size3, int], Wave] = {}

    def started(self, workgroup: Size3, state: WaveState, lds: np.ndarray) -> None:
        number = state.word("wave_in_group")
        wave = self._waves[workgroup, number] = Wave(self._dispatch, workgroup, number, state, lds)
        self._host.call("on_wave_start", wave)

    def halted(self, workgroup: Size3, state: WaveState, lds: np.ndarray) -> None:
        number = state.word("wave_in_group")
        # A wave that a checkpoint has put back started before it.
        wave = self._waves.pop((workgroup, number), None) or Wave(self._dispatch, workgroup, number, state, lds)
        self._host.call("on_wave_halt", wave)
