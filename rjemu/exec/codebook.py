"""The code that waves may execute: loaded ranges, their decoded programs, and the handlers these need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from itertools import islice
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from rjemu.errors import DecodeError, UsageError
from rjemu.exec.handlers import HandlerLibrary
from rjemu.exec.journal import DropProgram, NewProgram
from rjemu.exec.layout import MAX_PROGRAMS
from rjemu.exec.program import Program
from rjemu.isa.disasm import format_instruction
from rjemu.isa.instruction import Instruction
from rjemu.shm.vram import Vram


class Analyst(Protocol):
    """What says which matrix instructions helpers may run: `rjemu.mma.plan_cache`."""

    def registers(self, instr: Instruction) -> tuple[int, int]: ...
    def site(self, program: Program, pc: int) -> int: ...
    def invalidate(self) -> None: ...


class Helpers(Protocol):
    """A machine's helpers, as those that run its dispatches see them: `rjemu.workers.helpers`."""

    @property
    def analyst(self) -> Analyst: ...

    def start(self) -> None:
        """Start them, if they do not run yet; they are not waited for."""

    def update(self) -> None:
        """Send them the code that they lack, and replace those that have died."""


P = ParamSpec("P")
T = TypeVar("T")


def _one_at_a_time(method: Callable[Concatenate[Codebook, P], T]) -> Callable[Concatenate[Codebook, P], T]:
    """Run a method of a codebook with its lock held."""

    @wraps(method)
    def call(self: Codebook, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return method(self, *args, **kwargs)

    return call


class Codebook:
    """Decodes on demand. The library's journal also gets the coming and going of programs. helpers: where there are some,
    programs have notes and sites (`exec.plans`). compiles: the instructions that native code is made for, by default all.
    Calls may come from several threads: one may load or unload code while another launches."""

    def __init__(
        self,
        vram: Vram,
        target: str,
        library: HandlerLibrary,
        helpers: Helpers | None = None,
        compiles: Callable[[Instruction], bool] | None = None,
    ) -> None:
        self.library = library
        self._compiles = compiles
        self._helpers = helpers
        self._analyst = None if helpers is None else helpers.analyst
        self._vram = vram
        self._target = target
        self.programs: list[Program | None] = []
        self.decode_seconds = 0.0  # spent in `decode`, with compiling
        self._lock = threading.RLock()

    @_one_at_a_time
    def add(self, address: int, nbytes: int) -> int:
        """Register an executable range of device memory; gives its index. UsageError if there are too many."""
        index = self.programs.index(None) if None in self.programs else len(self.programs)
        if index == MAX_PROGRAMS:
            raise UsageError(f"more than {MAX_PROGRAMS} code ranges are loaded")
        registers = None if self._analyst is None else self._analyst.registers
        program = Program(self._target, address, self._vram.view(address, nbytes), self.library.wave, registers)
        self.programs[index : index + 1] = [program]
        self.library.journal.append(NewProgram(index, program.segment_name, address, nbytes, program.notes_segment))
        return index

    @_one_at_a_time
    def remove(self, address: int) -> list[int]:
        """Forget the range that starts at an address; gives the indices that became free."""
        removed = [k for k, program in enumerate(self.programs) if program is not None and program.base == address]
        for index in removed:
            self._program(index).close()
            self.programs[index] = None
            if self._analyst is not None:
                self._analyst.invalidate()
            self.library.journal.append(DropProgram(index))
        return removed

    def _program(self, index: int) -> Program:
        program = self.programs[index]
        assert program is not None, f"program {index} has been removed"
        return program

    @_one_at_a_time
    def program_of(self, pc: int) -> int | None:
        """The index of the range that holds an address."""
        for index, program in enumerate(self.programs):
            if program is not None and program.contains(pc):
                return index
        return None

    @_one_at_a_time
    def mode_class(self, mode_key: int) -> int:
        """The class of handlers for a MODE setting (`layout.class_key`)."""
        return self.library.mode_class(mode_key)

    @_one_at_a_time
    def decode(self, pc: int, mode_class: int) -> bool:
        """Make what is at pc executable in a class of MODE settings.

        False if the instruction there has no semantics; DecodeError if there is none.
        """
        index = self.program_of(pc)
        if index is None:
            raise DecodeError(f"{pc:#x} is in no loaded code")
        program = self._program(index)
        known = len(program.instructions)
        started = time.perf_counter()
        try:
            numbers = program.handlers() if program.handler_at(pc) else program.decode(pc, self.library.number)
            self.library.provide(filter(self._is_compiled, numbers), mode_class)
        finally:
            self.decode_seconds += time.perf_counter() - started
        if self._analyst is not None and program.notes is not None:
            # A plan is made when everything that it looks at has been decoded, and can be timed. Other processes may use it
            # at once: by then the instructions after it must have their sites.
            for at in sorted(islice(program.instructions, known, None), reverse=True):
                program.set_site(at, self._analyst.site(program, at))
        if self._helpers is not None:
            self._helpers.update()
        return bool(numbers)

    def _is_compiled(self, number: int) -> bool:
        return self._compiles is None or self._compiles(self.library.examples[number])

    def start_helpers(self) -> None:
        """The first instruction that a helper may run has been met."""
        if self._helpers is not None:
            self._helpers.start()

    @_one_at_a_time
    def instruction(self, pc: int) -> Instruction:
        """The instruction at an address. DecodeError if there is none."""
        index = self.program_of(pc)
        if index is None:
            raise DecodeError(f"{pc:#x} is in no loaded code")
        return self._program(index).instruction(pc)

    @_one_at_a_time
    def executed_instruction(self, pc: int) -> Instruction | None:
        """The instruction at an address as it was decoded to be executed, if its code has not been decoded anew since; else
        as it is now, None if there is none."""
        index = self.program_of(pc)
        known = None if index is None else self._program(index).instructions.get(pc)
        try:
            return known or self.instruction(pc)
        except DecodeError:
            return None

    def text(self, pc: int) -> str:
        """The instruction at an address in assembly, or what is wrong with it."""
        try:
            return format_instruction(self.instruction(pc), pc)
        except DecodeError as error:
            return str(error)

    def nearest(self, address: int) -> str:
        """Where an address lies among the live allocations, in words."""
        return self._vram.nearest(address)

    @_one_at_a_time
    def refresh(self) -> None:
        """Decode anew what has changed since: code is data, and may be written."""
        for program in self.programs:
            if program is not None and program.refresh() and self._analyst is not None:
                self._analyst.invalidate()

    @_one_at_a_time
    def close(self) -> None:
        for program in self.programs:
            if program is not None:
                program.close()
        self.programs.clear()
