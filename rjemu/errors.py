"""Every exception that rjemu raises on purpose.

The classes carry their facts as attributes, so that programs need not parse the message. A user's mistake is a
`UsageError`; something wrong with a file is a `CodeObjectError`; what a running kernel did wrong is a `KernelFault`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class RjemuError(Exception):
    """Base class of all errors that rjemu raises on purpose."""


class UsageError(RjemuError):
    """A call or a command line that cannot be carried out as given."""


class ConfigError(RjemuError):
    """A machine configuration that cannot be used."""


class CodeObjectError(RjemuError):
    """A code object that cannot be loaded: not one, damaged, or for another target."""


class KernelNotFound(CodeObjectError):
    """The code object has no kernel of that name."""


class LaunchError(UsageError):
    """A launch whose arguments, geometry or resources do not fit the kernel."""


class OutOfMemory(RjemuError):
    """An allocation larger than what is left of the device's or the host's memory."""


class MachineClosed(UsageError):
    """The machine, or the array, has been closed or freed."""


class ForkedMachine(MachineClosed):
    """A machine, or something of it, used in a process that was forked from the one that opened it."""

    @classmethod
    def of(cls, what: str) -> ForkedMachine:
        """The error for the use of `what`."""
        return cls(
            f"{what} was opened by the process that this one was forked from, and cannot be used here: open one here, "
            "or start processes by spawn or forkserver"
        )


class DaemonGone(RjemuError):
    """The daemon that serves the machine has ended, or serves this client no longer; everything in the machine is lost."""


class ProtocolError(RjemuError):
    """Bytes between a client and a daemon that are not of their protocol."""


class DecodeError(RjemuError):
    """Bytes that are no instruction of the target."""


class LaunchInterrupted(RjemuError):
    """The launch was ended by Ctrl-C; memory keeps what had been written."""


class LaunchSuspended(RjemuError):
    """The launch was ended by a checkpoint that was to stop it; the checkpoint's machine can go on with it."""


class CheckpointError(RjemuError):
    """A checkpoint that cannot be written, or a file that is none, is damaged, or does not fit what it is restored to."""


class CannotSuspend(CheckpointError):
    """A checkpoint asked for by a launch that its executor runs only to its end."""


class JobError(RjemuError):
    """A batch job that cannot be finished: what it has computed, or its last checkpoint, cannot be written."""


class JobInterrupted(RjemuError):
    """A batch job that was ended, by a signal or its time limit, with a checkpoint from which it can be gone on with."""


class WorkerLost(RjemuError):
    """A worker process ended in the middle of a launch; it has been replaced, and memory keeps what had been written."""


class LaunchTimeout(RjemuError):
    """The launch ran longer than its `timeout`; memory keeps what had been written."""


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """Where a kernel fault happened. `lane` is None for a fault of the whole wave."""

    kernel: str
    workgroup: tuple[int, int, int]
    wave: int
    lane: int | None
    pc: int
    instruction: str

    def __str__(self) -> str:
        lane = "" if self.lane is None else f", lane {self.lane}"
        return (
            f"kernel {self.kernel}, workgroup {self.workgroup}, wave {self.wave}{lane}, pc {self.pc:#x}: {self.instruction}"
        )


class KernelFault(RjemuError):
    """A running kernel did something that the architecture does not allow."""

    def __init__(self, message: str, place: FaultPlace | None = None) -> None:
        super().__init__(f"{message} ({place})" if place else message)
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        """Faults travel from the worker that meets them to the launcher."""
        return _restored_fault, (type(self), str(self), self.__dict__)


def _restored_fault(kind: type[KernelFault], text: str, state: dict[str, Any]) -> KernelFault:
    fault = kind(text)
    fault.__dict__.update(state)
    return fault


class MemoryFault(KernelFault):
    """A stray or misaligned access. `space` is global, lds, scratch, scalar or buffer; `access` load, store or atomic."""

    def __init__(
        self, message: str, place: FaultPlace | None = None, *, address: int = 0, space: str = "global", access: str = "load"
    ) -> None:
        super().__init__(message, place)
        self.address = address
        self.space = space
        self.access = access


class MisalignedAccess(MemoryFault):
    """An access whose address lacks the alignment that the instruction needs."""


class IllegalInstruction(KernelFault):
    """The bytes at pc are no instruction of the target, or use registers in a way it forbids."""


class UnsupportedInstruction(KernelFault):
    """An instruction of the target that rjemu does not execute (graphics only)."""


class JumpFault(KernelFault):
    """A jump or fall-through to an address that holds no code."""


class BarrierDeadlock(KernelFault):
    """Waves wait at a barrier (or in a wait) for partners that can never arrive."""


class TrapFault(KernelFault):
    """The kernel executed s_trap (an assertion or abort of the device program)."""
