"""Branches, calls, and the instructions that stop, pause or tune a wave (SOP1, SOPK, SOPP).

Instructions that only schedule (s_setprio) or count for profilers (s_incperflevel, s_ttracedata) do nothing. Loads and
stores land at issue here, so s_waitcnt waits for nothing; but on hardware the other waves go on meanwhile, and so they do
here. s_sendmsg: no compute message changes a wave.
"""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source, write_scalar
from rjemu.isa.semantics.registry import custom, define, register

# --- branches ---------------------------------------------------------------------------------------------------------

_DEBUG_SYSTEM, _DEBUG_USER = 1 << 21, 1 << 20
"""STATUS bits COND_DBG_SYS and COND_DBG_USER, which a debugger sets."""

CONDITIONS: dict[str, Callable[[Context], Value]] = {
    "scc0": lambda b: ~b.scc(),
    "scc1": lambda b: b.scc(),
    "vccz": lambda b: b.vcc() == 0,
    "vccnz": lambda b: b.vcc() != 0,
    "execz": lambda b: b.exec() == 0,
    "execnz": lambda b: b.exec() != 0,
    "cdbgsys": lambda b: (b.hardware("status") & _DEBUG_SYSTEM) != 0,
    "cdbguser": lambda b: (b.hardware("status") & _DEBUG_USER) != 0,
    "cdbgsys_or_user": lambda b: (b.hardware("status") & (_DEBUG_SYSTEM | _DEBUG_USER)) != 0,
    "cdbgsys_and_user": lambda b: (b.hardware("status") & (_DEBUG_SYSTEM | _DEBUG_USER)) == (_DEBUG_SYSTEM | _DEBUG_USER),
}


def _branch_if(condition: Callable[[Context], Value]) -> Callable[[Context], None]:
    return lambda b: b.branch(condition(b))


for _name, _condition in CONDITIONS.items():
    register(f"s_cbranch_{_name}", _branch_if(_condition))


@custom("s_branch")
def _branch(b: Context) -> None:
    b.branch(None)


def _after(b: Context) -> Value:
    """The address of the next instruction; none of those that ask has a literal."""
    return b.pc() + 4


define("s_getpc_b64", "u64 =", _after)


@custom("s_setpc_b64")
def _set_pc(b: Context) -> None:
    b.jump(raw_source(b, b.instr.operand("src0"), "u64"))


@custom("s_swappc_b64")
def _swap_pc(b: Context) -> None:
    target = raw_source(b, b.instr.operand("src0"), "u64")
    write_scalar(b, b.instr.operand("sdst"), _after(b))
    b.jump(target)


@custom("s_call_b64")
def _call(b: Context) -> None:
    write_scalar(b, b.instr.operand("sdst"), _after(b))
    b.branch(None)


# --- divergent branches: the stack of pending paths lies in SGPRs, four a level, its depth in MODE.CSP ----------------

_CSP_SHIFT = 29
_LEVEL_REGISTERS = 4


def _stack_level(mode: Value) -> Value:
    """Scalar register of the level that MODE.CSP names."""
    return (mode >> _CSP_SHIFT) * _LEVEL_REGISTERS


def _fork(b: Context, mask: Value, target: Value) -> None:
    """Lanes of the mask go to the target, the others on. Where both are wanted, the smaller half goes first."""
    active = b.exec()
    taken, other = mask & active, ~mask & active
    diverges = (taken != 0) & (other != 0)
    other_first = b.popcount(other) < b.popcount(taken)
    mode = b.hardware("mode")
    level = _stack_level(mode)
    after = _after(b)
    pending = (b.select(other_first, target, after), b.select(other_first, taken, other))
    for k, word in enumerate(half for value in pending[::-1] for half in (b.low32(value), b.high32(value))):
        b.set_scalar_at(level + k, b.select(diverges, word, b.scalar_at(level + k)))
    b.set_hardware("mode", mode + (diverges.to("u32") << _CSP_SHIFT))
    b.set_exec(b.select(diverges, b.select(other_first, other, taken), active))
    b.jump(b.select(b.select(diverges, other_first, taken != active), after, target))


@custom("s_cbranch_g_fork")
def _fork_to_register(b: Context) -> None:
    _fork(b, raw_source(b, b.instr.operand("src0"), "u64"), raw_source(b, b.instr.operand("src1"), "u64"))


@custom("s_cbranch_i_fork")
def _fork_to_label(b: Context) -> None:
    target = _after(b) + (b.imm("simm16").to("i64") << 2).bits("u64")
    _fork(b, raw_source(b, b.instr.operand("src0"), "u64"), target)


@custom("s_cbranch_join")
def _join(b: Context) -> None:
    """Go on if the stack is as deep as the source says, else take the pending path off it."""
    mode = b.hardware("mode")
    done = (mode >> _CSP_SHIFT) == raw_source(b, b.instr.operand("src0"), "u32")
    popped = mode - (1 << _CSP_SHIFT)
    level = _stack_level(popped)
    words = [b.scalar_at(level + k) for k in range(_LEVEL_REGISTERS)]
    b.set_hardware("mode", b.select(done, mode, popped))
    b.set_exec(b.select(done, b.exec(), b.join64(words[0], words[1])))
    b.jump(b.select(done, _after(b), b.join64(words[2], words[3])))


# --- leaving the loop -------------------------------------------------------------------------------------------------


@custom("s_endpgm", "s_endpgm_saved")
def _end(b: Context) -> None:
    b.event("end")


@custom("s_barrier")
def _barrier(b: Context) -> None:
    b.event("barrier")


@custom("s_sleep")
def _sleep(b: Context) -> None:
    b.event("sleep", b.imm("simm16").bits("u32") & 0x7F)


@custom("s_trap")
def _trap(b: Context) -> None:
    """The payload is the trap's number: 2 aborts the program, 3 is a breakpoint."""
    b.event("trap", b.imm("simm16").bits("u32") & 0xFF)


@custom("s_sethalt")
def _set_halt(b: Context) -> None:
    b.when(_lowest_bit(b), lambda: b.event("halt"))


@custom("s_setkill")
def _set_kill(b: Context) -> None:
    b.when(_lowest_bit(b), lambda: b.event("end"))


def _lowest_bit(b: Context) -> Value:
    return (b.imm("simm16") & 1) != 0


@custom("s_sendmsghalt")
def _send_and_halt(b: Context) -> None:
    b.event("halt")


@custom("s_icache_inv")
def _invalidate_code(b: Context) -> None:
    b.event("icache")


@custom("s_rfe_b64", "s_rfe_restore_b64")
def _return_from_exception(b: Context) -> None:
    """Illegal outside a trap handler, and no wave here runs one."""
    b.event("illegal")


@custom("s_waitcnt")
def _wait(b: Context) -> None:
    """Hand-written kernels overwrite LDS that another wave reads after the same barrier; its read is as long ago as this
    wave's own, for which this wave has waited."""
    b.event("yield")


@custom(
    "s_nop",
    "s_wakeup",
    "s_setprio",
    "s_sendmsg",
    "s_incperflevel",
    "s_decperflevel",
    "s_ttracedata",
)
def _nothing(b: Context) -> None:
    """No effect on what a program computes."""
