"""A machine's trace: the launcher's session, and the rings of its workers in one shared segment."""

from __future__ import annotations

from collections.abc import Sequence

from rjemu.exec.trace import RING_BYTES, TraceRing, TraceRow, TraceSession
from rjemu.shm.segment import Segment
from rjemu.workers.control import SEGMENT_NAME_BYTES, Control


class PoolTrace:
    """The launcher's side, for as long as the machine is traced. names: the workers', by index."""

    def __init__(self, control: Control, names: Sequence[str]) -> None:
        self.session = TraceSession()
        self._control = control
        self._names = names
        self._segment = Segment.create("trace", len(names) * RING_BYTES, reserve=True)
        control.header.set_text("trace_name", self._segment.name, SEGMENT_NAME_BYTES)

    def end(self) -> list[TraceRow]:
        """Stop tracing; gives the launcher's rows, and those of the workers that have something to show."""
        self._control.header.set_text("trace_name", "", SEGMENT_NAME_BYTES)
        rows = self.session.rows()
        for index, name in enumerate(self._names):
            ring = TraceRing(self._segment.bytes[index * RING_BYTES :][:RING_BYTES])
            slices = ring.slices(self.session.kernels)
            if slices:
                rows.append(TraceRow(name, slices, ring.lost))
        self._segment.close()
        return rows


class WorkerTrace:
    """A worker's side: its ring, while the machine is traced."""

    def __init__(self, control: Control, index: int) -> None:
        self._control = control
        self._index = index
        self._name = ""
        self._ring: TraceRing | None = None

    def ring(self) -> TraceRing | None:
        """The ring to record in; None if nothing is traced."""
        header = self._control.header
        name = header.text("trace_name") if header.word("trace_name_bytes") else ""
        if name != self._name:
            self._name, self._ring = name, self._attach(name) if name else None
        return self._ring

    def _attach(self, name: str) -> TraceRing | None:
        try:
            segment = Segment.attach(name)
        except FileNotFoundError:  # the trace has ended meanwhile
            return None
        return TraceRing(segment.bytes[self._index * RING_BYTES :][:RING_BYTES])
