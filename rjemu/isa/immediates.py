"""Immediates with a structure of their own, as LLVM writes them: hwreg, sendmsg, waitcnt, gpr_idx, swizzle."""

from __future__ import annotations

from rjemu.isa.instruction import OperandSpec

HARDWARE_REGISTERS = {
    1: "MODE",
    2: "STATUS",
    3: "TRAPSTS",
    4: "HW_ID",
    5: "GPR_ALLOC",
    6: "LDS_ALLOC",
    7: "IB_STS",
    15: "SH_MEM_BASES",
    16: "TBA_LO",
    17: "TBA_HI",
    18: "TMA_LO",
    19: "TMA_HI",
    20: "XCC_ID",
    21: "SQ_PERF_SNAPSHOT_DATA",
    22: "SQ_PERF_SNAPSHOT_DATA1",
    23: "SQ_PERF_SNAPSHOT_PC_LO",
    24: "SQ_PERF_SNAPSHOT_PC_HI",
}

MESSAGES = {
    1: "MSG_INTERRUPT",
    2: "MSG_GS",
    3: "MSG_GS_DONE",
    4: "MSG_SAVEWAVE",
    5: "MSG_STALL_WAVE_GEN",
    6: "MSG_HALT_WAVES",
    7: "MSG_ORDERED_PS_DONE",
    8: "MSG_EARLY_PRIM_DEALLOC",
    9: "MSG_GS_ALLOC_REQ",
    10: "MSG_GET_DOORBELL",
    15: "MSG_SYSMSG",
}
GS, GS_DONE, SYSMSG = 2, 3, 15
GS_OPERATIONS = {0: "GS_OP_NOP", 1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"}
SYSTEM_OPERATIONS = {1: "SYSMSG_OP_ECC_ERR_INTERRUPT", 2: "SYSMSG_OP_REG_RD", 4: "SYSMSG_OP_TTRACE_PC"}

MAX_VMCNT, MAX_EXPCNT, MAX_LGKMCNT = 63, 7, 15
LAST_DECIMAL = 64
"""LLVM writes plain 16-bit immediates up to here in decimal, as it does inline constants."""


def format_immediate(mnemonic: str, spec: OperandSpec, value: int) -> str:
    """The immediate as the kind of its spec prints."""
    if spec.kind == "label":
        return str(value)
    if spec.kind == "waitcnt":
        return _waitcnt(value)
    if spec.kind == "hwreg":
        return _hwreg(value)
    if spec.kind == "sendmsg":
        return _sendmsg(value)
    if spec.kind == "gpr_idx" and value < 16:
        return "gpr_idx(" + ",".join(name for i, name in enumerate(("SRC0", "SRC1", "SRC2", "DST")) if value >> i & 1) + ")"
    if mnemonic.endswith(("_i32", "_u32")):
        return f"{value & 0xFFFF:#x}"
    return str(value) if value <= LAST_DECIMAL else f"{value:#x}"


def waitcnt_fields(value: int) -> tuple[int, int, int]:
    """(vmcnt, expcnt, lgkmcnt) of an s_waitcnt immediate."""
    return value & 15 | (value >> 14 & 3) << 4, value >> 4 & 7, value >> 8 & 15


def hwreg_fields(value: int) -> tuple[int, int, int]:
    """(register number, first bit, number of bits) of an s_getreg or s_setreg immediate."""
    return value & 63, value >> 6 & 31, (value >> 11) + 1


def _waitcnt(value: int) -> str:
    """The counters below their maximum, or all of them if none is. Unused bits set: the plain number."""
    vmcnt, expcnt, lgkmcnt = waitcnt_fields(value)
    if value & 0x3080:
        return f"{value:#x}"
    counters = (("vmcnt", vmcnt, MAX_VMCNT), ("expcnt", expcnt, MAX_EXPCNT), ("lgkmcnt", lgkmcnt, MAX_LGKMCNT))
    waiting = [f"{name}({count})" for name, count, most in counters if count < most]
    return " ".join(waiting or [f"{name}({count})" for name, count, _ in counters])


def _hwreg(value: int) -> str:
    number, first, count = hwreg_fields(value)
    name = f"HW_REG_{HARDWARE_REGISTERS[number]}" if number in HARDWARE_REGISTERS else str(number)
    return f"hwreg({name})" if (first, count) == (0, 32) else f"hwreg({name}, {first}, {count})"


def _sendmsg(value: int) -> str:
    """sendmsg(message, operation, stream) where LLVM knows them and would encode them as `value`, else numbers."""
    message, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
    if value != message | operation << 4 | stream << 8:
        return str(value)
    name = MESSAGES.get(message)
    if name is not None and message not in (GS, GS_DONE, SYSMSG) and operation == stream == 0:
        return f"sendmsg({name})"
    if name is not None and message in (GS, GS_DONE) and operation in GS_OPERATIONS:
        if operation:
            return f"sendmsg({name}, {GS_OPERATIONS[operation]}, {stream})"
        if message == GS_DONE and stream == 0:
            return f"sendmsg({name}, {GS_OPERATIONS[0]})"
    if name is not None and message == SYSMSG and operation in SYSTEM_OPERATIONS and stream == 0:
        return f"sendmsg({name}, {SYSTEM_OPERATIONS[operation]})"
    return f"sendmsg({message}, {operation}, {stream})"


def format_swizzle(offset: int) -> str:
    """The pattern in ds_swizzle_b32's offset, or the plain number where a pattern would not encode as `offset`."""
    if offset & 0xFFE0 == 0xE000:
        return f"swizzle(FFT,{offset & 31})"
    if offset & 0xF81F == 0xC000:
        return f"swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset & 0xFF00 == 0x8000:
        return f"swizzle(QUAD_PERM,{','.join(str(offset >> shift & 3) for shift in (0, 2, 4, 6))})"
    if offset & 0x8000:
        return str(offset)
    return _bitmask_swizzle(offset & 31, offset >> 5 & 31, offset >> 10 & 31)


def _bitmask_swizzle(and_mask: int, or_mask: int, xor_mask: int) -> str:
    """Lane i reads lane ((i & and) | or) ^ xor of its 32."""
    if and_mask == 31 and or_mask == 0 and xor_mask:
        if xor_mask & (xor_mask - 1) == 0:
            return f"swizzle(SWAP,{xor_mask})"
        if xor_mask & (xor_mask + 1) == 0:
            return f"swizzle(REVERSE,{xor_mask + 1})"
    group = 32 - and_mask
    if group > 1 and group & (group - 1) == 0 and or_mask < group and xor_mask == 0:
        return f"swizzle(BROADCAST,{group},{or_mask})"
    if or_mask & (and_mask | xor_mask) or xor_mask & ~and_mask:
        return str(and_mask | or_mask << 5 | xor_mask << 10)
    # Each bit of the lane number: 0 and 1 fix it, p keeps it, i inverts it.
    pattern = ""
    for i in range(4, -1, -1):
        keep, fix, invert = and_mask >> i & 1, or_mask >> i & 1, xor_mask >> i & 1
        pattern += "i" if invert else "p" if keep else str(fix)
    return f'swizzle(BITMASK_PERM,"{pattern}")'
