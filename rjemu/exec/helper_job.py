"""What a helper does with a job: matrix instructions on the issuer's wave, with its own code.

    i32 run_job(env, slot)   0 (at once for an empty job), or REFUSED where this process lacks the code or the wave's
                             segment; see `exec.handoff.serve`
    i32 run_job_traced(env, slot)   the same, and records it in the trace ring of the environment's context
    void repeat(code, ctx, wave, record, n)   call a handler n times, to see what it costs

A job is done in the registers themselves: what has been computed by a helper stays in its cache. Before an instruction whose
accumulators it updates in place, it saves these, and says how far it is: should it be killed, its issuer puts them back and
goes on from there (`exec.async_turn`).
"""

from __future__ import annotations

from rjemu.exec.async_turn import plan_word
from rjemu.exec.host_rounding import HostRounding
from rjemu.exec.ir import Module, Ptr
from rjemu.exec.layout import ENV, RECORD_BYTES, RECORD_HANDLER, TRACE_JOB
from rjemu.exec.plans import PLAN_BYTES, PLAN_RECORDS
from rjemu.exec.structures import Native
from rjemu.exec.trace_code import now, record_event
from rjemu.isa.lanes import Value
from rjemu.shm.scoreboard import HELPER, PROGRESS_SHIFT, REFUSED


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
    job = b.get(slot, HELPER, "sequence").to("u64") << PROGRESS_SHIFT
    progress, undo = b.field(slot, HELPER, "progress"), b.field(slot, HELPER, "undo")
    with b.count(count, "u32") as k:
        record = b.offset(plan, (first + k).to("u64") * RECORD_BYTES + PLAN_RECORDS)
        code = b.load_value(b.offset(table, b.load_value(b.offset(record, RECORD_HANDLER), "u32").to("u64") << 3), "u64")
        marks = job | (k << 1).to("u64")
        b.store_atomic(progress, marks)
        with b.if_((code == 0) | (code == b.get(env, ENV, "undecoded", "u64")), rarely=True):
            host.write(own)
            b.ret(b.const("u32", REFUSED))
        result, size = (plan_word(b, plan, name, first + k) for name in ("results", "undo"))
        registers = b.offset(w, result.to("u64"))
        with b.if_(size != 0):
            _copy(b, undo, registers, size)
            b.store_atomic(progress, marks | 1)
        b.call(b.address(code).name, "ptr", [b.get_ptr(env, ENV, "context"), w, record])
    b.store_atomic(progress, job | (count << 1).to("u64"))
    _restore(b, host, own, wanted)
    b.put(slot, HELPER, "mmas", b.get(slot, HELPER, "mmas", "u64") + count.to("u64"))
    b.ret(b.const("u32", 0))
    b.finish("run_job", "i32", "ptr %env, ptr %slot")
    _write_run_job_traced(module)
    _write_repeat(module)


def _copy(b: Native, to: Ptr, source: Ptr, nbytes: Value) -> None:
    """Copy whole vector registers."""
    with b.count(nbytes >> 8, "u32") as k:
        for line in range(0, 256, 64):
            place = k.to("u64") * 256 + line
            b.store_value(b.offset(to, place), b.load_value(b.offset(source, place), "u32", 16))


def _restore(b: Native, host: HostRounding, own: Value, wanted: Value) -> None:
    with b.if_(own != wanted, rarely=True):
        host.write(own)


def _write_run_job_traced(module: Module) -> None:
    b = Native(module, 1)
    env, slot = Ptr("%env"), Ptr("%slot")
    context, count = b.get_ptr(env, ENV, "context"), b.get(slot, HELPER, "count")
    began = now(b, context)
    refused = b.invoke("@run_job", "u32", [env, slot])
    with b.if_(count != 0):
        record_event(b, context, TRACE_JOB, count.to("u64"), began)
    b.ret(refused)
    b.finish("run_job_traced", "i32", "ptr %env, ptr %slot")


def _write_repeat(module: Module) -> None:
    b = Native(module, 1)
    with b.count(b.argument("n", "u64")):
        b.call("%code", "ptr", [Ptr("%ctx"), Ptr("%w"), Ptr("%record")])
    b.ret()
    b.finish("repeat", "void", "ptr %code, ptr %ctx, ptr %w, ptr %record, i64 %n")
