"""Handlers made on demand: numbers for kinds of instruction, and their native code."""

from __future__ import annotations

from collections.abc import Iterable

from rjemu.exec.cache import HandlerCache
from rjemu.exec.compiler import CompileError, compile_object
from rjemu.exec.handler_table import MAX_HANDLERS, UNKNOWN_CLASS, HandlerTable
from rjemu.exec.ir import Module
from rjemu.exec.journal import Entry, NewBindings, NewClass, NewObject
from rjemu.exec.layout import FP_CLASSES, HANDLER_UNDECODED
from rjemu.exec.native_context import NativeContext
from rjemu.exec.records import DEFAULT_MODE_KEY, HandlerKey, handler_key
from rjemu.isa.context import Context
from rjemu.isa.instruction import Instruction
from rjemu.isa.semantics.registry import semantic_of

MODULE_HANDLERS = 48
"""Handlers per LLVM module: enough to spread the fixed cost, few enough to keep a pack small."""


class HandlerLibrary:
    """Numbers for kinds of instruction, and their native code, made on demand. `journal` holds every change to `table`
    since the beginning, for other processes to apply."""

    def __init__(self, target: str, wave: int, cache: HandlerCache, undecoded: int) -> None:
        self.target = target
        self.wave = wave
        self.compiled = 0
        self.table = HandlerTable(undecoded)
        self.journal: list[Entry] = []
        self._cache = cache
        self._numbers: dict[HandlerKey, int] = {}
        self.examples: dict[int, Instruction] = {}
        self.mode_class(DEFAULT_MODE_KEY)

    def _enter(self, entry: Entry) -> None:
        self.table.apply(entry)
        self.journal.append(entry)

    def mode_class(self, mode_key: int) -> int:
        """The class of a MODE setting, made if it is new. CompileError if a kernel uses more than FP_CLASSES of them."""
        if self.table.class_map[mode_key] == UNKNOWN_CLASS:
            if len(self.table.mode_keys) == FP_CLASSES:
                raise CompileError(f"more than {FP_CLASSES} different MODE settings")
            self._enter(NewClass(mode_key))
        return int(self.table.class_map[mode_key])

    def number(self, instr: Instruction) -> int:
        """The number of the instruction's handler, the same for every MODE."""
        key = handler_key(instr, self.target, self.wave)
        number = self._numbers.get(key)
        if number is None:
            number = len(self._numbers) + HANDLER_UNDECODED + 1
            if number == MAX_HANDLERS:
                raise CompileError(f"more than {MAX_HANDLERS} kinds of instruction")
            self._numbers[key] = number
            self.examples[number] = instr
        return number

    def address(self, number: int, mode_class: int) -> int:
        """The address of a handler that `provide` has made."""
        return int(self.table.tables[mode_class, number])

    def provide(self, numbers: Iterable[int], mode_class: int) -> None:
        """Make native code for handlers in a class of MODE settings, from the cache or by compiling."""
        mode_key = self.table.mode_keys[mode_class]
        wanted: dict[int, HandlerKey] = {
            number: handler_key(self.examples[number], self.target, self.wave, mode_key)
            for number in numbers
            if self.table.tables[mode_class, number] == self.table.undecoded
        }
        if not wanted:
            return
        self._load_cached(key.symbol for key in wanted.values())
        missing = {key.symbol: (number, key) for number, key in wanted.items() if key.symbol not in self.table.addresses}
        batch = list(missing.items())
        for start in range(0, len(batch), MODULE_HANDLERS):
            self._compile(dict(batch[start : start + MODULE_HANDLERS]))
        self._enter(NewBindings(mode_class, {number: key.symbol for number, key in wanted.items()}))

    def _load_cached(self, symbols: Iterable[str]) -> None:
        for symbol in symbols:
            if symbol in self.table.addresses:
                continue
            pack = self._cache.find(symbol)
            if pack is not None:
                code, names = pack
                self._enter(NewObject(code, tuple(names)))

    def _compile(self, batch: dict[str, tuple[int, HandlerKey]]) -> None:
        module = Module(self._cache.host.features)
        for symbol, (number, key) in batch.items():
            write_handler(module, self.examples[number], key, symbol)
        code = compile_object(module.text(), host=self._cache.host)
        self.compiled += len(batch)
        self._enter(NewObject(code, tuple(batch)))
        self._cache.write(code, list(batch))


def write_handler(module: Module, instr: Instruction, key: HandlerKey, symbol: str) -> None:
    """Add the handler of an instruction to a module. KeyError if the instruction has no semantics."""
    semantic = _skip if key.skips else semantic_of(instr)
    if semantic is None:
        raise KeyError(instr.name)
    context = NativeContext(module, instr, key.target, key.wave, key.fp, key.gpr_idx)
    if context.rounding == 0:
        context.record(symbol, semantic)
        return
    body = symbol + "_body"
    context.record(body, semantic)
    context.write_rounding_wrapper(symbol, body)


def _skip(b: Context) -> None:
    """What a vector instruction does under VSKIP."""
