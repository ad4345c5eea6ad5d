"""The handlers of one process: numbers for keys, native code on demand, and the address tables that the loop reads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rjemu.exec.cache import HandlerCache
from rjemu.exec.compiler import CompileError, Loader, compile_object
from rjemu.exec.ir import Module
from rjemu.exec.layout import CLASS_MAP_BYTES, FP_CLASSES, HANDLER_UNDECODED
from rjemu.exec.native_context import NativeContext
from rjemu.exec.records import DEFAULT_MODE_KEY, HandlerKey, handler_key
from rjemu.isa.instruction import Instruction
from rjemu.isa.semantics.registry import semantic_of

MAX_HANDLERS = 1 << 16
MODULE_HANDLERS = 48
"""Handlers per LLVM module: enough to spread the fixed cost, few enough to keep a pack small."""

UNKNOWN_CLASS = 255


class HandlerLibrary:
    """Handler numbers and addresses.

    tables: uint64 [FP_CLASSES, MAX_HANDLERS], address of handler n for a class of MODE settings. class_map: uint8
    [CLASS_MAP_BYTES], class of each `layout.class_key`, UNKNOWN_CLASS where none has been made yet.
    """

    def __init__(self, target: str, wave: int, cache: HandlerCache, undecoded: int) -> None:
        """undecoded: address of the handler that leaves the loop with event "undecoded"."""
        self.target = target
        self.wave = wave
        self.compiled = 0
        self._cache = cache
        self._undecoded = undecoded
        self._loader = Loader()
        self._numbers: dict[HandlerKey, int] = {}
        self._addresses: dict[str, int] = {}
        self._examples: dict[int, Instruction] = {}
        self._mode_keys: list[int] = []
        self.tables = np.zeros((FP_CLASSES, MAX_HANDLERS), np.uint64)
        self.table_addresses = self.tables.ctypes.data + np.arange(FP_CLASSES, dtype=np.uint64) * np.uint64(MAX_HANDLERS * 8)
        self.class_map = np.full(CLASS_MAP_BYTES, UNKNOWN_CLASS, np.uint8)
        self.mode_class(DEFAULT_MODE_KEY)

    def mode_class(self, mode_key: int) -> int:
        """The class of a MODE setting, made if it is new. CompileError if a kernel uses more than FP_CLASSES of them."""
        known = int(self.class_map[mode_key])
        if known != UNKNOWN_CLASS:
            return known
        if len(self._mode_keys) == FP_CLASSES:
            raise CompileError(f"more than {FP_CLASSES} different MODE settings")
        new = len(self._mode_keys)
        self._mode_keys.append(mode_key)
        self.tables[new, :] = self._undecoded
        self.class_map[mode_key] = new
        return new

    def number(self, instr: Instruction) -> int:
        """The number of the instruction's handler, the same for every MODE."""
        key = handler_key(instr, self.target, self.wave)
        number = self._numbers.get(key)
        if number is None:
            number = len(self._numbers) + HANDLER_UNDECODED + 1
            if number == MAX_HANDLERS:
                raise CompileError(f"more than {MAX_HANDLERS} kinds of instruction")
            self._numbers[key] = number
            self._examples[number] = instr
        return number

    def provide(self, numbers: Iterable[int], mode_class: int) -> None:
        """Make native code for handlers in a class of MODE settings, from the cache or by compiling."""
        mode_key = self._mode_keys[mode_class]
        wanted: dict[str, tuple[int, HandlerKey]] = {}
        for number in numbers:
            if self.tables[mode_class, number] == self._undecoded:
                key = handler_key(self._examples[number], self.target, self.wave, mode_key)
                wanted[key.symbol] = (number, key)
        self._load_cached([symbol for symbol in wanted if symbol not in self._addresses])
        missing = [(symbol, *wanted[symbol]) for symbol in wanted if symbol not in self._addresses]
        for start in range(0, len(missing), MODULE_HANDLERS):
            self._compile(missing[start : start + MODULE_HANDLERS])
        for symbol, (number, _) in wanted.items():
            self.tables[mode_class, number] = self._addresses[symbol]

    def _load_cached(self, symbols: list[str]) -> None:
        for symbol in symbols:
            pack = self._cache.find(symbol)
            if symbol in self._addresses or pack is None:
                continue
            try:
                self._addresses.update(self._loader.load(*self._cache.read(pack)))
            except (OSError, CompileError, RuntimeError):
                self._cache.forget(pack)

    def _compile(self, batch: list[tuple[str, int, HandlerKey]]) -> None:
        module = Module(self._cache.host.features)
        for symbol, number, key in batch:
            write_handler(module, self._examples[number], key, symbol)
        code = compile_object(module.text(), host=self._cache.host)
        names = [symbol for symbol, _, _ in batch]
        self.compiled += len(names)
        self._addresses.update(self._loader.load(code, names))
        self._cache.write(code, names)


def write_handler(module: Module, instr: Instruction, key: HandlerKey, symbol: str) -> None:
    """Add the handler of an instruction to a module. KeyError if the instruction has no semantics."""
    semantic = semantic_of(instr)
    if semantic is None:
        raise KeyError(instr.name)
    context = NativeContext(module, instr, key.target, key.wave, key.fp, key.gpr_idx)
    if context.rounding == 0:
        context.record(symbol, semantic)
        return
    body = symbol + "_body"
    context.record(body, semantic)
    context.write_rounding_wrapper(symbol, body)
