"""The native loop's asynchronous variant: matrix instructions given to helpers, and waits for just what depends on them.

    turn_async   as `turn`, but looks at each record's site, and at its registers while the wave has jobs pending
    attend       what a record calls for that is a matrix instruction, or is met while jobs are pending
    issue        give the first instructions of a planned group to the helpers that are free
    settle       wait for some of a wave's jobs, and make up for those that no helper has done
    drain        wait for all of a wave's jobs
    drain_slots  the same for all waves of a dispatch in this process

A wave's scoreboard lies beside its registers (`layout.SCORES`): other waves, and later turns of the same one, run while its
jobs are pending.
"""

from __future__ import annotations

from rjemu.exec.counting_code import CountingCode
from rjemu.exec.handoff import JOIN_LOST, JOIN_REFUSED, NOBODY
from rjemu.exec.host_calls import HostCalls
from rjemu.exec.host_rounding import HostRounding
from rjemu.exec.ir import Module, Ptr, Variable
from rjemu.exec.issue_code import IssueCode
from rjemu.exec.layout import (
    CREDIT_LIMIT,
    CTX,
    EVENTS,
    GPR_IDX_EN,
    HANDLER_UNDECODED,
    HOLDER_BYTES,
    PROGRAM,
    RECORD_BYTES,
    RECORD_HANDLER,
    RECORD_STEP,
    SCORES,
    SET_BYTES,
    SITE_FLAG,
    SLOT,
    SLOT_RUNNING,
    VSKIP,
    WAVE,
    WAVE_BYTES,
    WINDOW,
)
from rjemu.exec.plans import (
    FIRST_PLAN,
    MAX_SHARES,
    PLAN,
    PLAN_BYTES,
    PLAN_READS,
    PLAN_RECORDS,
    PLAN_WRITES,
    SITE_KEPT,
)
from rjemu.exec.structures import Native, repeats
from rjemu.isa.instruction import EXEC
from rjemu.isa.lanes import Value
from rjemu.shm.scoreboard import HEADER, HEADER_BYTES, HELPER, HELPER_BYTES, POSTED, PROGRESS_SHIFT

SKIP, START_HELPERS, WAIT, TELL = 1, 2, 4, 8
"""What `attend` gives: the instruction is a helper's; the first candidate has been met and there are no helpers yet; what it
depends on is not there yet; the log of what helpers are given is full (`exec.issue_log`)."""

CLOSELY, HOISTING = 1 << 30, 1 << 29
PATIENCE = 64
"""Turns that a wave leaves to the other waves of its workgroup before the process waits for a job."""

PAUSE = 8
"""Candidates that do not look for a helper after one that found none free."""

CREDIT_AGAIN, CREDIT_PER_MMA, CREDIT_SHIFT = 1 << 19, 1 << 7, 6
"""A helper may cost its issuers CREDIT_LIMIT ticks of the host's clock by waits and wake-ups, beyond what it earns by each
matrix instruction (CREDIT_PER_MMA, less than such an instruction takes). Then it is passed over until one in
2^CREDIT_SHIFT of the time that goes by has made up for that, and is tried again with CREDIT_AGAIN. Helpers that are
slow to wake up pay off as soon as they have work for a while; those whose results are wanted at once cost a few percent."""

_SET_LANES = SET_BYTES // 8
_KEEPS_JOBS = ("barrier", "sleep", "yield", "mode", "helpers")
"""Events after which a wave's jobs may go on; the others drain them."""
_HOLDER_SHIFT = HOLDER_BYTES.bit_length() - 1


def write_async_turn(module: Module, wave: int, *, counting: bool, notifying: bool) -> None:
    """Add the functions to a module that has `turn` and those of `exec.handoff`. counting: see `exec.counting`; notifying:
    what helpers are given is logged (`exec.issue_log`)."""
    _write_recover(module)
    _write_settle(module)
    _write_drain(module)
    _write_drain_slots(module)
    _write_issue(module)
    _write_attend(module, notifying)
    _write_turn_async(module, wave, counting, notifying)


def _set_at(b: Native, ptr: Ptr) -> Value:
    return b.load_value(ptr, "u64", _SET_LANES)


def _meets(b: Native, x: Value) -> Value:
    """b1: whether a set has a member."""
    return b.any(x != b.splat(b.const("u64", 0), _SET_LANES))


def _score(b: Native, w: Ptr, name: str, entry: Value, size: int) -> Ptr:
    return b.offset(b.field(w, SCORES, name), entry.to("u64") * size)


def _helper_slot(b: Native, ctx: Ptr, helper: Value) -> Ptr:
    board = b.get_ptr(ctx, CTX, "scoreboard")
    return b.offset(board, helper.to("u64") * HELPER_BYTES + HEADER_BYTES)


def _plan_ptr(b: Native, ctx: Ptr, number: Value) -> Ptr:
    return b.offset(b.get_ptr(ctx, CTX, "plans"), number.to("u64") * PLAN_BYTES)


def plan_word(b: Native, plan: Ptr, name: str, k: Value) -> Value:
    return b.load_value(b.offset(b.field(plan, PLAN, name), k.to("u64") << 2), "u32")


# --- waiting ------------------------------------------------------------------------------------------------------------


def _write_recover(module: Module) -> None:
    """void recover(ctx, wave, slot): carry out a job that its helper has not, or not to its end."""
    b = Native(module, 1)
    ctx, w, slot = Ptr("%ctx"), Ptr("%w"), Ptr("%slot")
    plan = _plan_ptr(b, ctx, b.get(slot, HELPER, "plan"))
    table = b.load_ptr(b.offset(b.get_ptr(ctx, CTX, "tables"), b.get(slot, HELPER, "fp_class").to("u64") << 3))
    first = b.get(slot, HELPER, "first")
    progress = b.get(slot, HELPER, "progress", "u64")
    known = (progress >> PROGRESS_SHIFT).to("u32") == b.get(slot, HELPER, "sequence")
    marks = b.select(known, progress.to("u32"), b.const("u32", 0))
    k = b.variable("u32", marks >> 1)
    with b.if_((marks & 1) != 0):
        registers = b.offset(w, plan_word(b, plan, "results", first + k.get()).to("u64"))
        b.copy(registers, b.field(slot, HELPER, "undo"), plan_word(b, plan, "undo", first + k.get()).to("u64"))
    with b.loop():
        b.break_if(k.get() == b.get(slot, HELPER, "count"))
        record = b.offset(plan, (first + k.get()).to("u64") * RECORD_BYTES + PLAN_RECORDS)
        handler = b.load_value(b.offset(record, RECORD_HANDLER), "u32").to("u64")
        code = b.load_ptr(b.offset(table, handler << 3))
        b.call(code.name, "ptr", [ctx, w, record])
        k.set(k.get() + 1)
    b.ret()
    b.finish("recover", "void", "ptr %ctx, ptr %w, ptr %slot")


def _write_settle(module: Module) -> None:
    """void settle(ctx, wave, jobs): wait for the jobs of those entries, and free the entries and the helpers."""
    b = Native(module, 1)
    ctx, w, jobs = Ptr("%ctx"), Ptr("%w"), b.argument("jobs")
    host = HostCalls(b)
    board = b.get_ptr(ctx, CTX, "scoreboard")
    with b.each_bit(jobs) as entry:
        helper = b.load_value(_score(b, w, "helpers", entry, 4), "u32")
        slot = _helper_slot(b, ctx, helper)
        lost_ticks = b.variable("u64", 0)
        b.expect_write(slot)
        with b.if_((b.load_atomic(b.field(slot, HELPER, "state"), "u32", "seq_cst") & POSTED) != 0):
            lost_ticks.set(host.ticks())
        status = b.invoke("@join", "u32", [slot])
        with b.if_(lost_ticks.get() != 0):
            lost_ticks.set(host.ticks() - lost_ticks.get())
        _charge(b, slot, lost_ticks.get(), b.get(slot, HELPER, "count").to("u64") * CREDIT_PER_MMA)
        with b.if_((status & (JOIN_REFUSED | JOIN_LOST)) != 0, rarely=True):
            b.call("@recover", "void", [ctx, w, slot])
        b.put(slot, HELPER, "owner", 0)
        with b.if_((status & JOIN_REFUSED) != 0, rarely=True):
            b.add_to(ctx, CTX, "jobs_refused")
        lost = (status & JOIN_LOST) != 0
        with b.if_(lost, rarely=True):
            b.add_to(ctx, CTX, "jobs_lost")
            b.store_atomic(b.field(slot, HELPER, "state"), b.const("u32", 0), "seq_cst")
            b.store_atomic(b.field(slot, HELPER, "lost"), b.const("u32", 1), "seq_cst")
        with b.if_(lost ^ True):
            b.call("@give_back", "void", [board, helper])
    pending = b.get(w, WAVE, "pending") & (jobs ^ 0xFFFFFFFF)
    b.put(w, WAVE, "pending", pending)
    reads, writes = (b.variable("u64", b.splat(b.const("u64", 0), _SET_LANES), _SET_LANES) for _ in range(2))
    with b.each_bit(pending) as entry:
        reads.set(reads.get() | _set_at(b, _score(b, w, "reads", entry, SET_BYTES)))
        writes.set(writes.get() | _set_at(b, _score(b, w, "writes", entry, SET_BYTES)))
    b.store_value(b.field(w, SCORES, "all_reads"), reads.get())
    b.store_value(b.field(w, SCORES, "all_writes"), writes.get())
    b.ret()
    b.finish("settle", "void", "ptr %ctx, ptr %w, i32 %jobs", "nounwind noinline")


def _charge(b: Native, slot: Ptr, lost: Value, earned: Value) -> None:
    """Charge a helper with the ticks that an issuer has lost by it, less what its work is worth."""
    credit = b.get(slot, HELPER, "credit", "i64")
    left = credit + earned.bits("i64") - lost.bits("i64")
    # What it gets when it is tried again must be made up for, too.
    left = b.select((credit >= 0) & (left < 0), left - CREDIT_AGAIN, left)
    b.put(slot, HELPER, "credit", b.select(left > CREDIT_LIMIT, b.const("i64", CREDIT_LIMIT), left))


def _may_use(b: Native, host: HostCalls, slot: Ptr) -> Value:
    """b1: whether a helper has not cost too much: one without a CPU of its own does. Time makes up for it."""
    credit = b.variable("i64", b.get(slot, HELPER, "credit", "i64"))
    with b.if_(credit.get() < 0, rarely=True):
        now = host.ticks()
        grown = credit.get() + ((now - b.get(slot, HELPER, "credited", "u64")) >> CREDIT_SHIFT).bits("i64")
        credit.set(b.select(grown < 0, grown, b.const("i64", CREDIT_AGAIN)))
        b.put(slot, HELPER, "credit", credit.get())
        b.put(slot, HELPER, "credited", now)
    return credit.get() >= 0


def _write_drain(module: Module) -> None:
    """void drain(ctx, wave)"""
    b = Native(module, 1)
    ctx, w = Ptr("%ctx"), Ptr("%w")
    pending = b.get(w, WAVE, "pending")
    with b.if_(pending != 0):
        b.add_to(ctx, CTX, "boundary_drains")
        b.call("@settle", "void", [ctx, w, pending])
    b.ret()
    b.finish("drain", "void", "ptr %ctx, ptr %w", "nounwind noinline")


def _write_drain_slots(module: Module) -> None:
    """void drain_slots(ctx, slots, stride, waves offset, number of slots)"""
    b = Native(module, 1)
    ctx, slots = Ptr("%ctx"), Ptr("%slots")
    with b.count(b.argument("most", "u64")) as k:
        slot = b.offset(slots, k * b.argument("stride", "u64"))
        with b.if_(b.get(slot, SLOT, "state") == SLOT_RUNNING), b.count(b.get(slot, SLOT, "waves"), "u32") as number:
            first = b.offset(slot, b.argument("waves", "u64"))
            b.call("@drain", "void", [ctx, b.offset(first, number.to("u64") * WAVE_BYTES)])
    b.ret()
    b.finish("drain_slots", "void", "ptr %ctx, ptr %slots, i64 %stride, i64 %waves, i64 %most")


# --- giving away --------------------------------------------------------------------------------------------------------


def _finished(b: Native, ctx: Ptr, w: Ptr, pending: Value) -> Value:
    """The entries among `pending` whose helpers are through."""
    done = b.variable("u32", 0)
    with b.each_bit(pending) as entry:
        slot = _helper_slot(b, ctx, b.load_value(_score(b, w, "helpers", entry, 4), "u32"))
        b.expect_write(slot)
        state = b.load_atomic(b.field(slot, HELPER, "state"), "u32", "seq_cst")
        with b.if_((state & POSTED) == 0):
            done.set(done.get() | (b.const("u32", 1) << entry))
    return done.get()


def _conflicts(b: Native, w: Ptr, pending: Value, reads: Value, writes: Value) -> Value:
    """The entries whose jobs read or write what is to be written, or write what is to be read."""
    found = b.variable("u32", 0)
    with b.each_bit(pending) as entry:
        job_reads = _set_at(b, _score(b, w, "reads", entry, SET_BYTES))
        job_writes = _set_at(b, _score(b, w, "writes", entry, SET_BYTES))
        with b.if_(_meets(b, (writes & (job_reads | job_writes)) | (reads & job_writes))):
            found.set(found.get() | (b.const("u32", 1) << entry))
    return found.get()


def _write_issue(module: Module) -> None:
    """i32 issue(ctx, wave, plan's number, row): give away what can be; the number of jobs."""
    b = Native(module, 1)
    ctx, w, number, row = Ptr("%ctx"), Ptr("%w"), b.argument("number"), b.argument("row")
    plan = _plan_ptr(b, ctx, number)
    pending = b.get(w, WAVE, "pending")
    with b.if_(pending != 0):
        done = _finished(b, ctx, w, pending)
        with b.if_(done != 0):
            b.call("@settle", "void", [ctx, w, done])
    room = b.const("u32", WINDOW) - b.popcount(b.get(w, WAVE, "pending"))
    helpers, counts = (b.stack(f"[{MAX_SHARES} x i32]") for _ in range(2))
    jobs = b.variable("u32", 0)
    _share_out(b, ctx, w, plan, room, helpers, counts, jobs)
    with b.if_(jobs.get() == 0):
        b.put(ctx, CTX, "pause", PAUSE)
        b.add_to(ctx, CTX, "inline_no_capacity")
        b.ret(b.const("u32", 0))
    total = b.variable("u32", 0)
    with b.count(jobs.get(), "u32") as job:
        total.set(total.get() + _item(b, counts, job))
    with b.if_(b.get(w, WAVE, "pending") != 0):
        reads, writes = _member_sets(b, plan, b.const("u32", 0), total.get())
        conflicts = _conflicts(b, w, b.get(w, WAVE, "pending"), reads, writes)
        with b.if_(conflicts != 0):
            b.add_to(ctx, CTX, "dependency_waits")
            b.call("@settle", "void", [ctx, w, conflicts])
    _open_window(b, ctx, w)
    first = b.variable("u32", 0)
    hoisted = b.variable("u64", 0)
    with b.count(jobs.get(), "u32") as job:
        count = _item(b, counts, job)
        hoisted.set(hoisted.get() | _give(b, ctx, w, plan, number, _item(b, helpers, job), first.get(), count))
        first.set(first.get() + count)
    b.put(w, WAVE, "hoist_from", row)
    b.put(w, WAVE, "hoisted", hoisted.get())
    b.put(w, WAVE, "own", _rows(b, plan, total.get(), b.get(plan, PLAN, "count") - total.get()))
    b.put(ctx, CTX, "jobs", b.get(ctx, CTX, "jobs", "u64") + jobs.get().to("u64"))
    b.put(ctx, CTX, "mmas_offloaded", b.get(ctx, CTX, "mmas_offloaded", "u64") + total.get().to("u64"))
    b.ret(jobs.get())
    b.finish("issue", "i32", "ptr %ctx, ptr %w, i32 %number, i32 %row", "nounwind noinline")


def _item(b: Native, array: Ptr, k: Value) -> Value:
    return b.load_value(b.offset(array, k.to("u64") << 2), "u32")


def _holder(b: Native, w: Ptr, result: Value) -> Ptr:
    """Where it says who computes the result at a byte offset in the wave."""
    return b.offset(b.field(w, WAVE, "holders"), (result >> _HOLDER_SHIFT).to("u64"))


def _take(b: Native, ctx: Ptr, prefer: Value, helpers: Ptr, jobs: Variable) -> None:
    """Append a free helper, or leave the loop."""
    helper = b.invoke("@reserve", "u32", [b.get_ptr(ctx, CTX, "scoreboard"), prefer, b.get(ctx, CTX, "next_helper")])
    b.break_if(helper == NOBODY)
    b.put(ctx, CTX, "next_helper", helper + 1)
    slot = _helper_slot(b, ctx, helper)
    usable = _may_use(b, HostCalls(b), slot)
    with b.if_(usable ^ True, rarely=True):
        b.call("@give_back", "void", [b.get_ptr(ctx, CTX, "scoreboard"), helper])
    b.break_if(usable ^ True)
    b.store_value(b.offset(helpers, jobs.get().to("u64") << 2), helper)
    jobs.set(jobs.get() + 1)


def _share_out(b: Native, ctx: Ptr, w: Ptr, plan: Ptr, room: Value, helpers: Ptr, counts: Ptr, jobs: Variable) -> None:
    """Take as many helpers as the plan has a use for and are free, and share the group out among them. Helpers are preferred
    whose caches have the accumulators."""
    most = b.get(plan, PLAN, "max_jobs")
    wanted = b.select(room < most, room, most)
    first = b.variable("u32", 0)
    with b.loop():
        b.break_if(jobs.get() == wanted)
        holder = b.load_value(_holder(b, w, plan_word(b, plan, "results", first.get())), "u8").to("u32")
        prefer = b.select(holder == 0, b.get(ctx, CTX, "next_helper"), holder - 1)
        first.set(first.get() + _share(b, plan, wanted, jobs.get()))
        _take(b, ctx, prefer, helpers, jobs)
    with b.if_(jobs.get() != 0), b.count(jobs.get(), "u32") as job:
        b.store_value(b.offset(counts, job.to("u64") << 2), _share(b, plan, jobs.get(), job))


def _share(b: Native, plan: Ptr, helpers: Value, job: Value) -> Value:
    """What a helper gets of a plan if there are so many."""
    row = b.offset(b.field(plan, PLAN, "shares"), (helpers - 1).to("u64") * MAX_SHARES)
    return b.load_value(b.offset(row, job.to("u64")), "u8").to("u32")


def _rows(b: Native, plan: Ptr, first: Value, count: Value) -> Value:
    """u64: the rows of some of a plan's instructions as bits."""
    rows = b.variable("u64", 0)
    with b.count(count, "u32") as k:
        rows.set(rows.get() | (b.const("u64", 1) << plan_word(b, plan, "rows", first + k).to("u64")))
    return rows.get()


def _member_sets(b: Native, plan: Ptr, first: Value, count: Value) -> tuple[Value, Value]:
    """The registers that `count` of a plan's instructions read, and write."""
    reads, writes = (b.variable("u64", b.splat(b.const("u64", 0), _SET_LANES), _SET_LANES) for _ in range(2))
    with b.count(count, "u32") as k:
        place = (first + k).to("u64") * SET_BYTES
        reads.set(reads.get() | _set_at(b, b.offset(plan, place + PLAN_READS)))
        writes.set(writes.get() | _set_at(b, b.offset(plan, place + PLAN_WRITES)))
    return reads.get(), writes.get()


def _open_window(b: Native, ctx: Ptr, w: Ptr) -> None:
    with b.if_(b.get(w, WAVE, "pending") == 0):
        zero = b.splat(b.const("u64", 0), _SET_LANES)
        b.store_value(b.field(w, SCORES, "all_reads"), zero)
        b.store_value(b.field(w, SCORES, "all_writes"), zero)
        b.put(w, WAVE, "window_left", b.get(ctx, CTX, "window_limit"))
        b.add_to(ctx, CTX, "windows")


def _give(b: Native, ctx: Ptr, w: Ptr, plan: Ptr, number: Value, helper: Value, first: Value, count: Value) -> Value:
    """Publish one job, and enter it in the wave's scoreboard; gives the rows that it covers as bits (u64)."""
    slot = _helper_slot(b, ctx, helper)
    words = {
        "count": count, "first": first, "plan": number, "segment": b.get(ctx, CTX, "wave_segment"),
        "fp_class": b.get(w, WAVE, "fp_class"), "owner": b.get(ctx, CTX, "owner"),
        "sequence": b.get(slot, HELPER, "sequence") + 1,
    }  # fmt: skip
    for name, value in words.items():
        b.put(slot, HELPER, name, value)
    b.put(slot, HELPER, "place", b.integer(w) - b.get(ctx, CTX, "wave_base", "u64"))
    b.put(slot, HELPER, "fp_control", HostRounding(b).read().to("u64"))
    woken = b.invoke("@publish", "u64", [slot])
    with b.if_(woken != 0, rarely=True):
        _charge(b, slot, woken, b.const("u64", 0))
        b.add_to(ctx, CTX, "wakeups")
    reads, writes = _member_sets(b, plan, first, count)
    pending = b.get(w, WAVE, "pending")
    entry = b.ctz(pending ^ 0xFFFFFFFF)
    b.store_value(_score(b, w, "reads", entry, SET_BYTES), reads)
    b.store_value(_score(b, w, "writes", entry, SET_BYTES), writes)
    b.store_value(_score(b, w, "helpers", entry, 4), helper)
    for name, registers in (("all_reads", reads), ("all_writes", writes)):
        union = b.field(w, SCORES, name)
        b.store_value(union, _set_at(b, union) | registers)
    b.put(w, WAVE, "pending", pending | (b.const("u32", 1) << entry))
    with b.count(count, "u32") as k:
        b.store_value(_holder(b, w, plan_word(b, plan, "results", first + k)), (helper + 1).to("u8"))
    return _rows(b, plan, first, count)


# --- the loop -----------------------------------------------------------------------------------------------------------


def _write_attend(module: Module, notifying: bool) -> None:
    """i32 attend(ctx, wave, row, site, note): before a record is executed: 0, SKIP, START_HELPERS, WAIT or TELL."""
    b = Native(module, 1)
    ctx, w, row, site, note = Ptr("%ctx"), Ptr("%w"), b.argument("row"), b.argument("site"), Ptr("%note")
    issues = IssueCode(b, ctx, w, row, enabled=notifying)
    issues.leave_if_full(TELL)
    hoisted, own = (b.get(w, WAVE, name, "u64") for name in ("hoisted", "own"))
    bit = b.const("u64", 1) << ((row - b.get(w, WAVE, "hoist_from")) & 63).to("u64")
    with b.if_((hoisted & bit) != 0):
        b.put(w, WAVE, "hoisted", hoisted ^ bit)
        issues.append()
        b.ret(b.const("u32", SKIP))
    pending = b.get(w, WAVE, "pending")
    with b.if_(pending != 0):
        _limit_window(b, ctx, w)
        reads, writes = _set_at(b, note), _set_at(b, b.offset(note, SET_BYTES))
        job_reads, job_writes = (_set_at(b, b.field(w, SCORES, name)) for name in ("all_reads", "all_writes"))
        with b.if_(_meets(b, (writes & (job_reads | job_writes)) | (reads & job_writes)), rarely=True):
            conflicts = _conflicts(b, w, b.get(w, WAVE, "pending"), reads, writes)
            _leave_turn_to_others(b, ctx, w, conflicts)
            b.put(w, WAVE, "patience", 0)
            b.add_to(ctx, CTX, "dependency_waits")
            b.call("@settle", "void", [ctx, w, conflicts])
    with b.if_(site == 0):
        b.ret(b.const("u32", 0))
    with b.if_(site < FIRST_PLAN):
        _count_site(b, ctx, site)
        b.ret(b.const("u32", 0))
    with b.if_((own & bit) != 0):
        b.put(w, WAVE, "own", own ^ bit)
        _count_site(b, ctx, b.const("u32", SITE_KEPT))
        b.ret(b.const("u32", 0))
    full = b.load_value(b.offset(b.field(w, WAVE, "scalars"), 4 * EXEC), "u64", align=4) == (1 << 64) - 1
    with b.if_(full ^ True, rarely=True):
        b.add_to(ctx, CTX, "inline_not_eligible")
        b.ret(b.const("u32", 0))
    with b.if_(b.get(ctx, CTX, "helpers_started") == 0, rarely=True):
        b.ret(b.const("u32", START_HELPERS))
    pause = b.get(ctx, CTX, "pause")
    with b.if_(pause != 0, rarely=True):
        b.put(ctx, CTX, "pause", pause - 1)
        b.add_to(ctx, CTX, "inline_no_capacity")
        b.ret(b.const("u32", 0))
    with b.if_(_free_helpers(b, ctx) == 0):
        b.add_to(ctx, CTX, "inline_no_capacity")
        b.ret(b.const("u32", 0))
    with b.if_(_lacks_code(b, ctx, w, site - FIRST_PLAN), rarely=True):
        b.add_to(ctx, CTX, "inline_not_eligible")
        b.ret(b.const("u32", 0))
    given = b.invoke("@issue", "u32", [ctx, w, site - FIRST_PLAN, row])
    with b.if_(given == 0):
        b.ret(b.const("u32", 0))
    b.put(w, WAVE, "hoisted", b.get(w, WAVE, "hoisted", "u64") ^ 1)
    issues.append()
    b.ret(b.const("u32", SKIP))
    b.finish("attend", "i32", "ptr %ctx, ptr %w, i32 %row, i32 %site, ptr %note", "nounwind noinline")


def _lacks_code(b: Native, ctx: Ptr, w: Ptr, number: Value) -> Value:
    """b1: whether this process lacks code for one of a plan's instructions, which it must carry out should a helper not:
    other processes may have decoded them, or waves with another setting of MODE."""
    plan = _plan_ptr(b, ctx, number)
    table = b.load_ptr(b.offset(b.get_ptr(ctx, CTX, "tables"), b.get(w, WAVE, "fp_class").to("u64") << 3))
    undecoded = b.load_value(b.offset(table, HANDLER_UNDECODED << 3), "u64")
    lacks = b.variable("u32", 0)
    with b.count(b.get(plan, PLAN, "count"), "u32") as k:
        record = b.offset(plan, k.to("u64") * RECORD_BYTES + PLAN_RECORDS)
        handler = b.load_value(b.offset(record, RECORD_HANDLER), "u32").to("u64")
        code = b.load_value(b.offset(table, handler << 3), "u64")
        lacks.set(lacks.get() | (code == undecoded).to("u32"))
    return lacks.get() != 0


def _leave_turn_to_others(b: Native, ctx: Ptr, w: Ptr, conflicts: Value) -> None:
    """Return WAIT while one of the jobs is not done, for some turns."""
    patience = b.get(w, WAVE, "patience")
    with b.if_((_finished(b, ctx, w, conflicts) != conflicts) & (patience < PATIENCE)):
        b.put(w, WAVE, "patience", patience + 1)
        b.ret(b.const("u32", WAIT))


def _count_site(b: Native, ctx: Ptr, kind: Value) -> None:
    """Count a matrix instruction that the issuer runs, by SITE_*."""
    counter = b.offset(b.field(ctx, CTX, "mmas_kept"), kind.to("u64") << 3)
    b.store_value(counter, b.load_value(counter, "u64") + 1)


def _free_helpers(b: Native, ctx: Ptr) -> Value:
    """u64: not 0 if a helper may be free."""
    board = b.get_ptr(ctx, CTX, "scoreboard")
    low, high = (b.load_atomic(b.field(board, HEADER, name), "u64", "monotonic") for name in ("free", "free_high"))
    return low | high


def _limit_window(b: Native, ctx: Ptr, w: Ptr) -> None:
    """Drain a window that has been open for too many instructions, where there is a limit."""
    with b.if_(b.get(ctx, CTX, "window_limit") != 0, rarely=True):
        left = b.get(w, WAVE, "window_left") - 1
        b.put(w, WAVE, "window_left", left)
        with b.if_(left == 0):
            b.call("@drain", "void", [ctx, w])


def _write_turn_async(module: Module, wave: int, counting: bool, notifying: bool) -> None:
    """i32 turn_async(ctx, wave, quantum): see `turn`."""
    b = Native(module, wave)
    ctx, w, quantum = Ptr("%ctx"), Ptr("%w"), b.argument("quantum")
    with b.if_((b.get(w, WAVE, "mode") & (GPR_IDX_EN | VSKIP)) != 0, rarely=True):
        # What an instruction does, and with which registers, is only known as it runs.
        b.call("@drain", "void", [ctx, w])
        b.ret(b.invoke("@turn", "u32", [ctx, w, quantum]))
    program = b.offset(b.get_ptr(ctx, CTX, "programs"), b.get(w, WAVE, "program").to("u64") * PROGRAM["end"])
    records, base = b.get_ptr(program, PROGRAM, "records"), b.get(program, PROGRAM, "code_base", "u64")
    sites, notes = (b.get_ptr(program, PROGRAM, name) for name in ("sites", "notes"))
    b.store_value(b.field(ctx, CTX, "records"), b.integer(records))
    b.put(ctx, CTX, "code_base", base)
    b.put(ctx, CTX, "code_bytes", b.get(program, PROGRAM, "code_bytes", "u64"))
    table = b.load_ptr(b.offset(b.get_ptr(ctx, CTX, "tables"), b.get(w, WAVE, "fp_class").to("u64") << 3))
    position = b.variable("u64", b.integer(b.offset(records, (b.get(w, WAVE, "pc", "u64") - base) << 4)))
    counters = CountingCode(b, program, position.get(), enabled=counting)
    left = b.variable("u32", quantum)
    event = b.variable("u32", 0)
    skip = b.variable("u32", 0)
    after = b.variable("u64", 0)
    busy = b.variable("u32", _business(b, ctx, w))
    with b.loop():
        record = b.address(position.get())
        handler = b.load_value(b.offset(record, RECORD_HANDLER), "u32")
        skip.set(0)
        with b.if_(((handler | busy.get()) & SITE_FLAG) != 0):
            row = (position.get() - b.integer(records)) >> 6
            site = b.load_value(b.offset(sites, row << 2), "u32")
            note = b.offset(notes, row * (2 * SET_BYTES))
            plain = (site == 0) | ((site < FIRST_PLAN) & ((busy.get() & HOISTING) == 0))
            simple = plain & _is_clear(b, w, note, busy.get())
            with b.if_(simple & (site != 0)):
                _count_site(b, ctx, site)
            with b.if_(simple ^ True):
                skip.set(b.invoke("@attend", "u32", [ctx, w, row.to("u32"), site, note]))
                busy.set(_business(b, ctx, w))
        for flag, name in ((START_HELPERS, "helpers"), (WAIT, "yield"), *([(TELL, "issues")] if notifying else [])):
            with b.if_((skip.get() & flag) != 0, rarely=True):
                event.set(EVENTS[name])
                b.put(ctx, CTX, "event", EVENTS[name])
        b.break_if(event.get() != 0)
        step = b.load_value(b.offset(record, RECORD_STEP), "u32").to("u64")
        after.set(position.get() + step)
        with b.if_(skip.get() == 0):
            code = b.load_ptr(b.offset(table, (handler & (SITE_FLAG - 1)).to("u64") << 3))
            after.set(b.integer(Ptr(b.call(code.name, "ptr", [ctx, w, record]))))
        left.set(left.get() - 1)
        with b.if_(after.get() == 0, rarely=True):
            _leave_loop(b, ctx, w, event, position, left, step)
        b.break_if(event.get() != 0)
        counters.goes_on(position.get() + step, after.get())
        position.set(after.get())
        b.break_if(left.get() == 0)
    counters.ends(position.get())
    b.put(w, WAVE, "pc", base + ((position.get() - b.integer(records)) >> 4))
    done = (quantum - left.get()).to("u64")
    b.put(w, WAVE, "instructions", b.get(w, WAVE, "instructions", "u64") + done)
    b.ret(event.get())
    b.finish("turn_async", "i32", "ptr %ctx, ptr %w, i32 %quantum")


def _business(b: Native, ctx: Ptr, w: Ptr) -> Value:
    """u32: what of a wave's jobs concerns its next instructions: the entries pending; CLOSELY if `attend` must see each one;
    HOISTING if some of those that have sites are in a group that was given away; SITE_FLAG if all are to be looked at."""
    pending = b.get(w, WAVE, "pending")
    closely = (pending != 0) & (b.get(ctx, CTX, "window_limit") != 0)
    hoisting = (b.get(w, WAVE, "hoisted", "u64") | b.get(w, WAVE, "own", "u64")) != 0
    zero = b.const("u32", 0)
    busy = pending | b.select(closely, b.const("u32", CLOSELY), zero) | b.select(hoisting, b.const("u32", HOISTING), zero)
    return busy | b.select(pending != 0, b.const("u32", SITE_FLAG), zero)


def _is_clear(b: Native, w: Ptr, note: Ptr, busy: Value) -> Value:
    """b1: whether an instruction meets no pending job."""
    clear = b.variable("u32", 1)
    with b.if_((busy & SITE_FLAG) != 0):
        reads, writes = _set_at(b, note), _set_at(b, b.offset(note, SET_BYTES))
        job_reads, job_writes = (_set_at(b, b.field(w, SCORES, name)) for name in ("all_reads", "all_writes"))
        meets = _meets(b, (writes & (job_reads | job_writes)) | (reads & job_writes))
        clear.set(((meets ^ True) & ((busy & CLOSELY) == 0)).to("u32"))
    return clear.get() != 0


def _leave_loop(b: Native, ctx: Ptr, w: Ptr, event: Variable, position: Variable, left: Variable, step: Value) -> None:
    """A handler ended the turn: where the wave goes on, and what becomes of its jobs."""
    kind = b.get(ctx, CTX, "event")
    event.set(kind)
    again = repeats(b, kind)
    position.set(b.select(again, position.get(), position.get() + step))
    left.set(b.select(again, left.get() + 1, left.get()))
    keeps = kind == EVENTS[_KEEPS_JOBS[0]]
    for name in _KEEPS_JOBS[1:]:
        keeps = keeps | (kind == EVENTS[name])
    with b.if_(keeps ^ True):
        b.call("@drain", "void", [ctx, w])
