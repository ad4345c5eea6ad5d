"""How many launches of a machine may be under way at once; waiting for them all, and stopping them all for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rjemu.errors import CannotSuspend, LaunchSuspended
from rjemu.exec.suspended import Pausable, SuspendedDispatch
from rjemu.vm.executor import Progress
from rjemu.vm.launch import LaunchMemory, PackedLaunch


class Pass:
    """A launch that has been let in (`exec.suspended.Pauses` for its executor).

    launch, memory: what it is, once it has been set up. suspended: what its dispatch is while all are paused; None if it has
    failed. ending: it shall end when the pause is over.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.thread = threading.get_ident()
        self.launch: PackedLaunch | None = None
        self.memory: LaunchMemory | None = None
        self.dispatch: Pausable | None = None
        self.suspended: SuspendedDispatch | None = None
        self.resting = False
        self.ending = False
        self._in_progress = False

    def watched(self, progress: Progress | None) -> Progress | None:
        """The callback, in which the launch's own thread may pause all launches, too."""
        if progress is None:
            return None

        def call(done: int, total: int) -> None:
            self._in_progress = True
            try:
                progress(done, total)
            finally:
                self._in_progress = False

        return call

    @property
    def can_be_suspended(self) -> bool:
        """Whether its own thread may suspend it now: that it does in the callback, but not in a signal's handler."""
        return self._in_progress and self.dispatch is not None

    @contextmanager
    def pausable(self, dispatch: Pausable) -> Iterator[None]:
        """For the time in which the launch's dispatch may be suspended. LaunchSuspended as `look`."""
        self.dispatch = dispatch
        try:
            yield
            self._end_if_wanted()
        finally:
            self.dispatch = None

    def look(self) -> float:
        """Suspends the launch while another thread pauses all; the seconds that took. LaunchSuspended if it is to end."""
        started = time.perf_counter()
        if self._gate.pausing:
            self._gate.rest()
        self._end_if_wanted()
        return time.perf_counter() - started

    def _end_if_wanted(self) -> None:
        if self.ending:
            assert self.launch is not None
            raise LaunchSuspended(f"kernel {self.launch.target.name} was suspended: a checkpoint holds the rest of it")

    def suspend(self) -> None:
        assert self.dispatch is not None
        self.suspended = self.dispatch.suspend()

    def go_on(self) -> None:
        self.suspended = None
        if self.dispatch is not None and not self.ending:
            self.dispatch.go_on()


class Gate:
    """Lets at most `limit` launches in at a time. Closing it waits for those inside."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._inside: list[Pass] = []
        self._pauser: int | None = None
        self._changed = threading.Condition()

    @property
    def pausing(self) -> bool:
        """Whether a thread pauses all launches."""
        return self._pauser is not None

    @contextmanager
    def entered(self) -> Iterator[Pass]:
        """For the time of one launch."""
        entry = Pass(self)
        with self._changed:
            while len(self._inside) >= self.limit or self._pauser is not None:
                self._changed.wait()
            self._inside.append(entry)
        try:
            yield entry
        finally:
            with self._changed:
                self._inside.remove(entry)
                self._changed.notify_all()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """For the time in which no launch may run."""
        with self._changed:
            while self._inside or self._pauser is not None:
                self._changed.wait()
            yield

    @contextmanager
    def paused(self) -> Iterator[list[Pass]]:
        """Stops all launches at an instruction boundary for the time of the block; gives those that are under way.

        Launches of this thread (it may be in a progress callback) are stopped, too. CannotSuspend if that cannot be.
        """
        mine = self._of_this_thread()
        if not all(entry.can_be_suspended for entry in mine):
            raise CannotSuspend(
                "a launch of this thread cannot be suspended: its executor runs launches to their ends, or this is not "
                "its progress callback"
            )
        self._begin_pause(mine)
        try:
            for entry in mine:
                entry.suspend()
            with self._changed:
                while not all(entry.resting or entry in mine for entry in self._inside):
                    self._changed.wait()
            yield list(self._inside)
        finally:
            for entry in mine:
                entry.go_on()
            with self._changed:
                self._pauser = None
                self._changed.notify_all()

    def _begin_pause(self, mine: list[Pass]) -> None:
        """Become the only thread that pauses; others may do so before."""
        while True:
            with self._changed:
                if self._pauser is None:
                    self._pauser = threading.get_ident()
                    return
                if not mine:
                    self._changed.wait()
            if mine:
                self.rest()

    def rest(self) -> None:
        """Suspends the launches of this thread until nobody pauses any more."""
        mine = self._of_this_thread()
        for entry in mine:
            entry.suspend()
        with self._changed:
            for entry in mine:
                entry.resting = True
            self._changed.notify_all()
            while self._pauser is not None:
                self._changed.wait()
            for entry in mine:
                entry.resting = False
        for entry in mine:
            entry.go_on()

    def _of_this_thread(self) -> list[Pass]:
        thread = threading.get_ident()
        with self._changed:
            return [entry for entry in self._inside if entry.thread == thread]
