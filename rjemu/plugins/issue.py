"""What plugins are told of a matrix instruction that a helper executes: what it is, and nothing of what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from rjemu.errors import UsageError
from rjemu.isa.disasm import format_instruction
from rjemu.isa.instruction import Instruction
from rjemu.plugins.executed import OVERWRITTEN

if TYPE_CHECKING:
    from rjemu.plugins.contract import Dispatch, Size3

_STATE = ("state", "vgpr", "scalars", "exec", "lds")


@dataclass(frozen=True, slots=True)
class IssueFacts:
    """What an `AsyncIssue` tells. instr: None where the code has been overwritten since by what is no instruction."""

    dispatch: Dispatch
    workgroup: Size3
    wave: int
    pc: int
    helper: int
    instr: Instruction | None


class AsyncIssue:
    """A matrix instruction that was given to a helper, valid until `on_async_issue` returns: any later use is a UsageError,
    and so is any attempt to read the wave's registers or memory, which the helper may be changing."""

    __slots__ = ("_facts",)

    def __init__(self, facts: IssueFacts) -> None:
        self._facts: IssueFacts | None = facts

    def expire(self) -> None:
        """Make the notification invalid."""
        self._facts = None

    @property
    def _valid(self) -> IssueFacts:
        if self._facts is None:
            raise UsageError(
                "a notification of an asynchronous instruction is valid only until on_async_issue returns; "
                "keep the values that are wanted of it, not the object"
            )
        return self._facts

    @property
    def dispatch(self) -> Dispatch:
        """The dispatch that the wave belongs to."""
        return self._valid.dispatch

    @property
    def workgroup(self) -> Size3:
        """The place of the wave's workgroup in the grid."""
        return self._valid.workgroup

    @property
    def wave(self) -> int:
        """The wave's number in its workgroup."""
        return self._valid.wave

    @property
    def pc(self) -> int:
        """The instruction's GPU address."""
        return self._valid.pc

    @property
    def helper(self) -> int:
        """The number of the helper that was given the instruction. If the helper died or refused, its issuer ran it."""
        return self._valid.helper

    @property
    def mnemonic(self) -> str:
        """The instruction's name; "overwritten" if there is no instruction there any more."""
        instr = self._valid.instr
        return OVERWRITTEN if instr is None else instr.name

    @property
    def text(self) -> str:
        """The instruction in assembly; "overwritten" if there is no instruction there any more."""
        facts = self._valid
        return OVERWRITTEN if facts.instr is None else format_instruction(facts.instr, facts.pc)

    @property
    def place(self) -> str:
        """Which wave it is, for messages."""
        facts = self._valid
        return f"kernel {facts.dispatch.kernel}, workgroup {facts.workgroup}, wave {facts.wave}"

    def __getattr__(self, name: str) -> NoReturn:
        if name in _STATE:
            raise UsageError(
                f"a notification of an asynchronous instruction has no {name}: a helper may be executing the instruction, "
                "and the wave's registers and memory cannot be read"
            )
        raise AttributeError(f"an AsyncIssue has no attribute {name!r}")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an AsyncIssue cannot be copied or pickled: it is valid only until on_async_issue returns")

    def __repr__(self) -> str:
        facts = self._facts
        return "AsyncIssue(no longer valid)" if facts is None else f"AsyncIssue({self.place}, {self.pc:#x}: {self.text})"
