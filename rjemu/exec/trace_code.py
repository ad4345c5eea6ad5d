"""What native code writes into a trace ring (`exec.trace`)."""

from __future__ import annotations

import time

from rjemu.exec.ir import Ptr
from rjemu.exec.layout import CTX, TRACE_EVENT, TRACE_EVENT_BYTES, TRACE_EVENTS, TRACE_HEADER
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value


def now(b: Native, ctx: Ptr) -> Value:
    """Nanoseconds of CLOCK_MONOTONIC."""
    timespec = b.field(ctx, CTX, "timespec")
    b.call(b.get_ptr(ctx, CTX, "clock").name, "i32", [b.const("u32", time.CLOCK_MONOTONIC), timespec])
    return b.load_value(timespec, "u64") * 1_000_000_000 + b.load_value(b.offset(timespec, 8), "u64")


def record_event(b: Native, ctx: Ptr, kind: int, detail: Value, began: Value) -> None:
    """An event from `began` to now, if there is room."""
    ring = b.get_ptr(ctx, CTX, "trace")
    recorded = b.get(ring, TRACE_HEADER, "recorded", "u64")
    with b.if_(recorded < b.get(ring, TRACE_HEADER, "capacity", "u64")):
        event = b.offset(ring, recorded * TRACE_EVENT_BYTES + TRACE_EVENTS)
        for name, value in (("began", began), ("ended", now(b, ctx)), ("detail", detail)):
            b.put(event, TRACE_EVENT, name, value)
        b.put(event, TRACE_EVENT, "kind", kind)
        b.put(event, TRACE_EVENT, "launch", b.get(ctx, CTX, "launch"))
    b.put(ring, TRACE_HEADER, "recorded", recorded + 1)
