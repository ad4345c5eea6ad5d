"""The notifications of what helpers are given, under the native executors."""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.issues import Issue
from rjemu.plugins.host import PluginHost
from rjemu.plugins.issue import IssueFacts


class IssueHooks:
    """Tells plugins of one dispatch's issues: `exec.issues.IssueListener`."""

    def __init__(self, host: PluginHost, spec: DispatchSpec) -> None:
        self._host = host
        self._dispatch = host.dispatch_of(spec)

    def __call__(self, issues: Sequence[Issue]) -> None:
        columns, rows, _ = self._dispatch.grid
        for issue in issues:
            y, x = divmod(issue.workgroup, columns)
            place = (x, y % rows, y // rows)
            self._host.issued(IssueFacts(self._dispatch, place, issue.wave, issue.pc, issue.helper, issue.instr))
