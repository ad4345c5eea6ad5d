"""What a helper does with a job: matrix instructions on the issuer's wave, with its own code.

    i32 run_job(env, slot)   0 (at once for an empty job), or REFUSED where this process lacks the code or the wave's
                             segment; see `exec.handoff.serve`
    void repeat(code, ctx, wave, record, n)   call a handler n times, to see what it costs

The results go to the helper's buffers first. Only when all are there, and the slot says so, are they copied to the wave's
registers: should the helper be killed, its issuer can do the job again, or copy again, even where accumulators are updated
in place. Accumulators that others follow in the register file, which the issuer may be computing at the same time, are not
read as a stream, but copied to the buffer before (`copy_scattered`).
"""

from __future__ import annotations

from rjemu.exec.async_turn import copy_scattered, plan_word
from rjemu.exec.host_rounding import HostRounding
from rjemu.exec.ir import Module, Ptr
from rjemu.exec.layout import ENV, RECORD_BYTES, RECORD_HANDLER, operand_slot
from rjemu.exec.plans import ACCUMULATOR_OPERAND, NO_SOURCE, PLAN_BYTES, PLAN_RECORDS
from rjemu.exec.structures import Native
from rjemu.isa.lanes import Value
from rjemu.shm.scoreboard import HELPER, REFUSED


def write_run_job(module: Module) -> None:
    """Add the functions to a module."""
    b = Native(module, 1)
    env, slot = Ptr("%env"), Ptr("%slot")
    plan = b.offset(b.get_ptr(env, ENV, "plans"), b.get(slot, HELPER, "plan").to("u64") * PLAN_BYTES)
    with b.if_(b.get(slot, HELPER, "count") == 0, rarely=True):
        b.ret(b.const("u32", 0))
    number = b.get(slot, HELPER, "segment").to("u64")
    base = b.load_value(b.offset(b.get_ptr(env, ENV, "segments"), number << 3), "u64")
    with b.if_(base == 0, rarely=True):
        b.ret(b.const("u32", REFUSED))
    w = b.address(base + b.get(slot, HELPER, "place", "u64"))
    table = b.load_ptr(b.offset(b.get_ptr(env, ENV, "tables"), b.get(slot, HELPER, "fp_class").to("u64") << 3))
    first, count = b.get(slot, HELPER, "first"), b.get(slot, HELPER, "count")
    host = HostRounding(b)
    own = host.read()
    wanted = b.get(slot, HELPER, "fp_control", "u64").to(own.type.name)
    with b.if_(own != wanted, rarely=True):
        host.write(wanted)
    record = b.stack(f"[{RECORD_BYTES} x i8]")
    with b.count(count, "u32") as k:
        source = b.offset(plan, (first + k).to("u64") * RECORD_BYTES + PLAN_RECORDS)
        code = b.load_value(b.offset(table, b.load_value(b.offset(source, RECORD_HANDLER), "u32").to("u64") << 3), "u64")
        with b.if_((code == 0) | (code == b.get(env, ENV, "undecoded", "u64")), rarely=True):
            host.write(own)
            b.ret(b.const("u32", REFUSED))
        b.copy(record, source, b.const("u64", RECORD_BYTES))
        buffer = b.offset(b.field(slot, HELPER, "results"), k.to("u64") << 12)
        away = b.integer(buffer) - b.integer(w)
        b.store_value(b.offset(record, operand_slot(0)), away)
        accumulator = plan_word(b, plan, "sources", first + k)
        size = plan_word(b, plan, "sizes", first + k)
        with b.if_((accumulator != NO_SOURCE) & _borders_on_others(b, plan, first, count, accumulator + size)):
            b.store_value(b.offset(record, operand_slot(ACCUMULATOR_OPERAND)), away)
            copy_scattered(b, buffer, b.offset(w, accumulator.to("u64")), size)
        b.call(b.address(code).name, "ptr", [b.get_ptr(env, ENV, "context"), w, record])
    b.store_atomic(b.field(slot, HELPER, "whole"), b.get(slot, HELPER, "sequence"), "seq_cst")
    with b.count(count, "u32") as k:
        result, size = (plan_word(b, plan, name, first + k) for name in ("results", "sizes"))
        borders = _borders_on_others(b, plan, first, count, result + size)
        buffer, registers = b.offset(b.field(slot, HELPER, "results"), k.to("u64") << 12), b.offset(w, result.to("u64"))
        with b.if_(borders):
            copy_scattered(b, registers, buffer, size)
        with b.if_(borders ^ True):
            b.copy(registers, buffer, size.to("u64"))
    _restore(b, host, own, wanted)
    b.put(slot, HELPER, "mmas", b.get(slot, HELPER, "mmas", "u64") + count.to("u64"))
    b.ret(b.const("u32", 0))
    b.finish("run_job", "i32", "ptr %env, ptr %slot")
    _write_repeat(module)


def _borders_on_others(b: Native, plan: Ptr, first: Value, count: Value, following: Value) -> Value:
    """b1: whether the registers at an offset in the wave are no accumulators of the job's."""
    others = b.variable("u32", 1)
    with b.count(count, "u32") as k, b.if_(plan_word(b, plan, "results", first + k) == following):
        others.set(0)
    return others.get() != 0


def _restore(b: Native, host: HostRounding, own: Value, wanted: Value) -> None:
    with b.if_(own != wanted, rarely=True):
        host.write(own)


def _write_repeat(module: Module) -> None:
    b = Native(module, 1)
    with b.count(b.argument("n", "u64")):
        b.call("%code", "ptr", [Ptr("%ctx"), Ptr("%w"), Ptr("%record")])
    b.ret()
    b.finish("repeat", "void", "ptr %code, ptr %ctx, ptr %w, ptr %record, i64 %n")
