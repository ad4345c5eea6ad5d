"""What a process has given to helpers, one entry for each matrix instruction in program order, for those who want to know.

Native code appends an entry where a wave goes past an instruction that a helper has been given (`exec.issue_code`); Python
takes the entries after every native run, which ends when there is no room left.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rjemu.exec.layout import fields

ISSUE: Final = fields(0, ("workgroup", 8), ("pc", 8), ("wave", 4), ("helper", 4))
ISSUE_BYTES: Final = ISSUE["end"]
LOG_HEADER: Final = fields(0, ("recorded", 8))
LOG_ENTRIES: Final = 64
LOG_CAPACITY: Final = 1024
"""How many entries there is room for until Python is entered."""

_ENTRY = np.dtype(
    {
        "names": list(ISSUE)[:-1],
        "formats": ["<u8", "<u8", "<u4", "<u4"],
        "offsets": list(ISSUE.values())[:-1],
        "itemsize": ISSUE_BYTES,
    }
)


class IssueLog:
    """The entries of one process's loop. address: the log's host address."""

    def __init__(self) -> None:
        self._header = np.zeros((LOG_ENTRIES + LOG_CAPACITY * ISSUE_BYTES) // 8, np.uint64)
        self._entries = self._header.view(np.uint8)[LOG_ENTRIES:].view(_ENTRY)
        self.address = self._header.ctypes.data

    def take(self) -> np.ndarray:
        """A copy of the entries (fields of ISSUE), which are forgotten."""
        count = int(self._header[LOG_HEADER["recorded"] // 8])
        self._header[LOG_HEADER["recorded"] // 8] = 0
        return self._entries[:count].copy()
