"""The variant of the asynchronous loop that logs what helpers are given (`exec.issue_log`): what it adds to `attend`."""

from __future__ import annotations

from rjemu.exec.ir import Ptr
from rjemu.exec.issue_log import ISSUE, ISSUE_BYTES, LOG_CAPACITY, LOG_ENTRIES, LOG_HEADER
from rjemu.exec.layout import CTX, HOLDER_BYTES, RECORD_BYTES, SLOT, SLOT_HEADER_BYTES, WAVE, operand_slot
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value

_HOLDER_SHIFT = HOLDER_BYTES.bit_length() - 1
_RESULT = operand_slot(0)
"""Where the record of a matrix instruction has its result's place in the wave."""


class IssueCode:
    """Writes the log's keeping into a function on a wave. In variants without one (`enabled` False) it writes nothing."""

    def __init__(self, b: Native, ctx: Ptr, w: Ptr, row: Value, *, enabled: bool) -> None:
        """row: of the instruction that the wave has come to."""
        self._enabled = enabled
        if enabled:
            self._b, self._ctx, self._w, self._row = b, ctx, w, row
            self._log = b.get_ptr(ctx, CTX, "issue_log")

    def leave_if_full(self, status: int) -> None:
        """Return `status` unless there is room for an entry."""
        if self._enabled:
            with self._b.if_(self._b.get(self._log, LOG_HEADER, "recorded", "u64") == LOG_CAPACITY, rarely=True):
                self._b.ret(self._b.const("u32", status))

    def append(self) -> None:
        """Enter the instruction: a helper has it, or has had it."""
        if not self._enabled:
            return
        b, ctx, w = self._b, self._ctx, self._w
        recorded = b.get(self._log, LOG_HEADER, "recorded", "u64")
        entry = b.offset(self._log, recorded * ISSUE_BYTES + LOG_ENTRIES)
        # The context knows the workgroup by its LDS, which comes after the slot's header.
        slot = b.address(b.get(ctx, CTX, "lds", "u64") - SLOT_HEADER_BYTES)
        record = b.offset(b.get_ptr(ctx, CTX, "records"), self._row.to("u64") * RECORD_BYTES)
        result = b.load_value(b.offset(record, _RESULT), "u32")
        # Nothing else has written the result since the helper was given it.
        holder = b.offset(b.field(w, WAVE, "holders"), (result >> _HOLDER_SHIFT).to("u64"))
        values = {
            "workgroup": b.get(slot, SLOT, "workgroup", "u64"),
            "pc": b.get(ctx, CTX, "code_base", "u64") + (self._row.to("u64") << 2),
            "wave": b.get(w, WAVE, "wave_in_group"),
            "helper": b.load_value(holder, "u8").to("u32") - 1,
        }
        for name, value in values.items():
            b.put(entry, ISSUE, name, value)
        b.put(self._log, LOG_HEADER, "recorded", recorded + 1)
