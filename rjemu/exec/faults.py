"""From what a wave ran into to the exception that names it: kernel, workgroup, wave, lane, pc and instruction."""

from __future__ import annotations

from rjemu.errors import (
    DecodeError,
    FaultPlace,
    IllegalInstruction,
    JumpFault,
    KernelFault,
    MemoryFault,
    MisalignedAccess,
    TrapFault,
    UnsupportedInstruction,
)
from rjemu.exec.memory import AccessError
from rjemu.isa.apertures import APERTURE_BYTES, SCRATCH_APERTURE
from rjemu.isa.disasm import format_instruction
from rjemu.isa.instruction import Instruction


def memory_fault(error: AccessError, place: FaultPlace, nearest: str, lds_bytes: int) -> MemoryFault:
    """The exception for a stray or misaligned access. nearest: where the address lies among the allocations."""
    space, address = _space(error, place), error.address
    size = f"{error.nbytes} byte{'s' if error.nbytes != 1 else ''}"
    where = f"{space} address {address:#x}"
    if error.misaligned:
        message = f"{error.access} of {size} at {where}: it needs {error.nbytes}-byte alignment"
        return MisalignedAccess(message, place, address=address, space=space, access=error.access)
    if space == "lds":
        near = f"the workgroup has {lds_bytes} bytes of LDS"
    elif space == "scratch":
        near = f"offset {address - SCRATCH_APERTURE:#x} is outside the lane's private segment"
    else:
        near = f"nearest: {nearest}"
    message = f"{error.access} of {size} at {where}, which is not allocated; {near}"
    return MemoryFault(message, place, address=address, space=space, access=error.access)


def _space(error: AccessError, place: FaultPlace) -> str:
    """The memory that the program meant. Scratch and buffers lie in device memory, where the access was refused."""
    if error.space == "global" and SCRATCH_APERTURE <= error.address < SCRATCH_APERTURE + APERTURE_BYTES:
        return "scratch"
    if error.space == "global" and place.instruction.startswith(("buffer_", "tbuffer_")):
        return "buffer"
    return error.space


def code_fault(error: DecodeError, place: FaultPlace) -> IllegalInstruction:
    """The exception for bytes that are no instruction."""
    return IllegalInstruction(f"illegal instruction: {error}", place)


def unsupported(instr: Instruction, place: FaultPlace) -> UnsupportedInstruction:
    why = "it needs the driver's global wave sync" if instr.name.startswith("ds_gws_") else "it is for graphics only"
    return UnsupportedInstruction(f"rjemu does not execute {instr.name}: {why}", place)


def jump_fault(target: int, place: FaultPlace) -> JumpFault:
    return JumpFault(f"jump to {target:#x}, which holds no code", place)


def trap(number: int, place: FaultPlace) -> TrapFault:
    return TrapFault(f"s_trap {number}: the kernel gave up (an assertion or abort of the device program)", place)


def event_fault(name: str, place: FaultPlace) -> KernelFault:
    """Events that semantics raise by name."""
    if name == "illegal":
        return IllegalInstruction("the instruction uses its operands in a way that the architecture forbids", place)
    return UnsupportedInstruction("rjemu does not execute this instruction", place)


def instruction_text(instr: Instruction, pc: int) -> str:
    return format_instruction(instr, pc)
