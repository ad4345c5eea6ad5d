"""The plugins of one machine: made from its configuration, and told what its dispatches do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rjemu.exec.dispatch import DispatchResult, DispatchSpec
from rjemu.isa.decoder import Decoder
from rjemu.plugins.contract import ISSUE_HOOKS, STEP_HOOKS, WAVE_HOOKS, Dispatch, Outcome, Plugin
from rjemu.plugins.executed import CodeRanges, Executed
from rjemu.plugins.issue import AsyncIssue, IssueFacts
from rjemu.plugins.program import LoadedCode, reachable
from rjemu.plugins.registry import find_plugin
from rjemu.plugins.schema import resolve
from rjemu.plugins.sinks import Sink, Sinks


class PluginHost:
    """Makes the plugins of a configuration, in its order, and calls their hooks. ConfigError for what does not fit."""

    def __init__(self, plugins: Mapping[str, Any], sinks: Mapping[str, Any], target: str) -> None:
        """plugins, sinks: the configuration's objects of these names."""
        makes = Sinks(sinks)
        # All are checked before the first one is made: it may open files.
        chosen = [(name, kind, resolve(name, kind.SETTINGS, given)) for name, kind, given in _classes(plugins)]
        self._plugins: list[Plugin] = []
        self._sinks: dict[str, Sink] = {}
        self._decoder = Decoder(target)
        self._lock = threading.RLock()
        self._dispatches = 0
        self._under_way: dict[int, Dispatch] = {}
        try:
            for name, kind, settings in chosen:
                sink = makes.open(name)
                self._sinks[name] = sink
                try:
                    self._plugins.append(kind(settings, sink))
                except BaseException:
                    sink.close()
                    raise
        except BaseException:
            self.close()
            raise
        self._heard = {hook: self._listeners(hook) for hook in WAVE_HOOKS + ISSUE_HOOKS + STEP_HOOKS}

    def _listeners(self, hook: str) -> list[Callable[..., None]]:
        """The methods of that name that are more than the base class's."""
        return [
            getattr(plugin, hook) for plugin in self._plugins if getattr(type(plugin), hook) is not getattr(Plugin, hook)
        ]

    def attach(self, code: LoadedCode) -> None:
        """Before the first dispatch: the machine's code."""
        self._code = code
        self._ranges = CodeRanges(self._decoder, code.whole)

    @property
    def steps(self) -> bool:
        """Whether some plugin has hooks that need the step executor."""
        return any(self._heard[hook] for hook in STEP_HOOKS)

    @property
    def watches_waves(self) -> bool:
        """Whether some plugin has hooks on waves."""
        return any(self._heard[hook] for hook in WAVE_HOOKS)

    @property
    def watches_issues(self) -> bool:
        """Whether some plugin wants to be told of what helpers are given."""
        return any(self._heard[hook] for hook in ISSUE_HOOKS)

    @property
    def counts(self) -> bool:
        """Whether some plugin wants executed instructions counted."""
        return any(plugin.counts_instructions for plugin in self._plugins)

    @property
    def supports_async_instructions(self) -> bool:
        """Whether every plugin allows helpers to execute matrix instructions."""
        return all(plugin.supports_async_instructions() for plugin in self._plugins)

    def hears(self, hook: str) -> bool:
        """Whether some plugin has that hook of WAVE_HOOKS or STEP_HOOKS."""
        return bool(self._heard[hook])

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of WAVE_HOOKS or STEP_HOOKS of all plugins that have it, in the configuration's order."""
        for method in self._heard[hook]:
            method(*arguments)

    def issued(self, facts: IssueFacts) -> None:
        """Call `on_async_issue` of all plugins that have it. Dispatches of several threads may be under way."""
        with self._lock:
            for method in self._heard["on_async_issue"]:
                issue = AsyncIssue(facts)
                try:
                    method(issue)
                finally:
                    issue.expire()

    def dispatch_of(self, spec: DispatchSpec) -> Dispatch:
        """What `run` has told the plugins of a dispatch that is under way."""
        return self._under_way[id(spec)]

    def run(self, spec: DispatchSpec, execute: Callable[[], DispatchResult]) -> DispatchResult:
        """Carry a dispatch out between its two hooks. Raises what that raises, or what a plugin does."""
        with self._lock:
            dispatch = self._described(spec)
            self._dispatches += 1
            for plugin in self._plugins:
                plugin.on_dispatch_begin(dispatch)
            self._under_way[id(spec)] = dispatch
        started = time.perf_counter()
        result, error = None, None
        try:
            result = execute()
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            seconds = time.perf_counter() - started
            with self._lock:
                del self._under_way[id(spec)]
                outcome = self._outcome(result, seconds, error)
                for plugin in self._plugins:
                    plugin.on_dispatch_end(dispatch, outcome)
        return result

    def _described(self, spec: DispatchSpec) -> Dispatch:
        return Dispatch(
            number=self._dispatches,
            kernel=spec.kernel,
            target=spec.target,
            device=spec.device,
            entry=spec.entry,
            wave_size=spec.wave_size,
            grid=spec.grid,
            block=spec.block,
            workgroups=spec.workgroups,
            waves_per_workgroup=spec.waves_per_workgroup,
            vgprs=spec.vgprs,
            agprs=spec.agprs,
            sgprs=spec.sgprs,
            lds_bytes=spec.lds_bytes,
            scratch_bytes=spec.scratch_bytes,
            _read_code=lambda: reachable(self._decoder, self._code, spec.entry),
        )

    def _outcome(self, result: DispatchResult | None, seconds: float, error: str | None) -> Outcome:
        if result is None:
            return Outcome(0, seconds, {}, error, Executed({}))
        return Outcome(result.wave_instructions, seconds, result.stats, None, self._ranges.executed(result.executed))

    @property
    def lines(self) -> dict[str, tuple[int, list[str]]]:
        """What the plugins have written, by their names: the number of lines, and the first ones. Also after `close`."""
        return {name: (sink.written, list(sink.kept)) for name, sink in self._sinks.items()}

    def close(self) -> None:
        """Let the plugins finish, and close their sinks."""
        with ExitStack() as stack:  # all are closed, also after one that raises
            for plugin in reversed(self._plugins):
                stack.callback(plugin.sink.close)
                stack.callback(plugin.close)
        self._plugins.clear()


def _classes(plugins: Mapping[str, Any]) -> list[tuple[str, type[Plugin], Any]]:
    return [(name, find_plugin(name), given) for name, given in plugins.items()]
