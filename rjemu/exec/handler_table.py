"""The handlers that one process has loaded, and the address tables that the loop reads."""

from __future__ import annotations

import numpy as np

from rjemu.exec.compiler import Loader
from rjemu.exec.journal import Entry, NewBindings, NewClass, NewObject
from rjemu.exec.layout import CLASS_MAP_BYTES, FP_CLASSES

MAX_HANDLERS = 1 << 16
UNKNOWN_CLASS = 255


class HandlerTable:
    """The handlers that one process has loaded. Processes that apply the same journal have the same numbers.

    tables: uint64 [FP_CLASSES, MAX_HANDLERS], address of handler n for a class of MODE settings. class_map: uint8
    [CLASS_MAP_BYTES], class of each `layout.class_key`, UNKNOWN_CLASS where none has been made yet.
    """

    def __init__(self, undecoded: int) -> None:
        """undecoded: address of the handler that leaves the loop with event "undecoded"."""
        self.undecoded = undecoded
        self.addresses: dict[str, int] = {}
        self.mode_keys: list[int] = []
        self.tables = np.zeros((FP_CLASSES, MAX_HANDLERS), np.uint64)
        self.table_addresses = self.tables.ctypes.data + np.arange(FP_CLASSES, dtype=np.uint64) * np.uint64(MAX_HANDLERS * 8)
        self.class_map = np.full(CLASS_MAP_BYTES, UNKNOWN_CLASS, np.uint8)
        self._loader = Loader()

    def apply(self, entry: Entry) -> None:
        """Carry out a journal entry. CompileError if an object cannot be loaded."""
        if isinstance(entry, NewObject):
            self.addresses.update(self._loader.load(entry.code, list(entry.names)))
        elif isinstance(entry, NewBindings):
            for number, symbol in entry.symbols.items():
                self.tables[entry.mode_class, number] = self.addresses[symbol]
        elif isinstance(entry, NewClass):
            self.tables[len(self.mode_keys), :] = self.undecoded
            self.class_map[entry.mode_key] = len(self.mode_keys)
            self.mode_keys.append(entry.mode_key)
