"""The native run time: turns of waves, workgroups, residency. Written once in IR, compiled for this host.

    turn       one wave for at most `quantum` instructions
    workgroup  the waves of one resident workgroup in turns, until it ends or its time slice is used up
    run        resident workgroups in rotation, new ones as others end or wait, until the grid is exhausted

Python is entered only when `run` returns: at its end, when the budget is used up, or for an event (an instruction that
is not decoded or compiled yet, a fault, a trap).
"""

from __future__ import annotations

from rjemu.exec.async_turn import write_async_turn
from rjemu.exec.counting_code import CountingCode
from rjemu.exec.handoff import write_handoff
from rjemu.exec.helper_job import write_run_job
from rjemu.exec.ir import IrLanes, Module, Ptr
from rjemu.exec.layout import (
    CTX,
    DISPATCH,
    EVENTS,
    FP16_OVFL,
    FP16_OVFL_KEY,
    GPR_IDX_EN,
    GPR_IDX_KEY,
    MAX_USER_SGPRS,
    PROGRAM,
    RECORD_HANDLER,
    RECORD_STEP,
    RUN_DEADLOCK,
    RUN_DONE,
    RUN_EVENT,
    RUN_PAUSED,
    SITE_FLAG,
    SLOT,
    SLOT_FREE,
    SLOT_HEADER_BYTES,
    SLOT_RUNNING,
    TEMPLATE,
    TEMPLATE_BYTES,
    TRACE_TURN,
    VSKIP,
    VSKIP_KEY,
    WAVE,
    WAVE_BARRIER,
    WAVE_BYTES,
    WAVE_ENDED,
    WAVE_HALTED,
    WAVE_RUNNING,
)
from rjemu.exec.structures import Native, repeats
from rjemu.exec.trace_code import now, record_event
from rjemu.isa.lanes import TYPES, Value

FLAT_SCRATCH_CODE = 102
UNKNOWN_CLASS = 255
ADMISSION_COST = 64
"""What starting a workgroup counts against the budget, in instructions."""

WORKGROUP_DONE, WORKGROUP_SLICE, WORKGROUP_EVENT, WORKGROUP_DEADLOCK = 0, 1, 2, 3


def scheduler_text(
    module: Module,
    wave: int,
    *,
    asynchronous: bool = False,
    counting: bool = False,
    watching: bool = False,
    notifying: bool = False,
) -> str:
    """The run time's IR module: functions run, turn, undecoded and exchange. asynchronous: with what gives matrix
    instructions to helpers (`exec.async_turn`), what helpers run (`exec.helper_job`) and `exec.handoff`. counting: the loops
    count the instructions that they execute (`exec.counting`). watching: Python is entered when waves have started, and when
    one has ended or halted. notifying: the asynchronous loop logs what helpers are given (`exec.issue_log`)."""
    _write_undecoded(module, wave)
    _write_turn(module, wave, asynchronous, counting)
    _write_release(module, wave)
    if asynchronous:
        write_handoff(module)
        write_async_turn(module, wave, counting=counting, notifying=notifying)
        write_run_job(module)
    _write_workgroup(module, wave, "@turn_async" if asynchronous else "@turn", watching)
    _write_start_wave(module, wave)
    _write_take(module, wave)
    _write_admit(module, wave)
    for traced in (False, True):
        _write_run(module, wave, traced=traced, watching=watching)
    _write_exchange(module)
    return module.text()


def _write_undecoded(module: Module, wave: int) -> None:
    """The handler of fresh records and of handlers that have no code yet."""
    b = Native(module, wave)
    b.put(Ptr("%ctx"), CTX, "event", EVENTS["undecoded"])
    b.terminate("ret ptr null")
    b.finish("undecoded", "ptr", "ptr %ctx, ptr %w, ptr %rec")


def _write_turn(module: Module, wave: int, asynchronous: bool, counting: bool) -> None:
    """i32 turn(ctx, wave, quantum): 0, or the event that ended the turn. The wave's pc is then that of the next
    instruction to execute (of the same one again for events that Python must cure first)."""
    b = Native(module, wave)
    ctx, w = Ptr("%ctx"), Ptr("%w")
    program = b.offset(b.get_ptr(ctx, CTX, "programs"), b.get(w, WAVE, "program").to("u64") * PROGRAM["end"])
    records, base = b.get_ptr(program, PROGRAM, "records"), b.get(program, PROGRAM, "code_base", "u64")
    b.store_value(b.field(ctx, CTX, "records"), b.integer(records))
    b.put(ctx, CTX, "code_base", base)
    b.put(ctx, CTX, "code_bytes", b.get(program, PROGRAM, "code_bytes", "u64"))
    tables = b.get_ptr(ctx, CTX, "tables")
    table = b.load_ptr(b.offset(tables, b.get(w, WAVE, "fp_class").to("u64") * 8))
    position = b.variable("u64", b.integer(b.offset(records, (b.get(w, WAVE, "pc", "u64") - base) << 4)))
    counters = CountingCode(b, program, position.get(), enabled=counting)
    left = b.variable("u32", b.make(b.const("u32", 0).type, 1, "%quantum"))
    event = b.variable("u32", 0)
    with b.loop():
        record = b.address(position.get())
        handler = b.load_value(b.offset(record, RECORD_HANDLER), "u32")
        if asynchronous:
            handler = handler & (SITE_FLAG - 1)
        code = b.load_ptr(b.offset(table, handler.to("u64") << 3))
        following = Ptr(b.call(code.name, "ptr", [ctx, w, record]))
        left.set(left.get() - 1)
        after = b.integer(following)
        with b.if_(after == 0, rarely=True):
            event.set(b.get(ctx, CTX, "event"))
            step = b.load_value(b.offset(record, RECORD_STEP), "u32").to("u64")
            again = repeats(b, event.get())
            position.set(b.select(again, position.get(), position.get() + step))
            left.set(b.select(again, left.get() + 1, left.get()))
        b.break_if(after == 0)
        if counting:
            step = b.load_value(b.offset(record, RECORD_STEP), "u32").to("u64")
            counters.goes_on(position.get() + step, after)
        position.set(after)
        b.break_if(left.get() == 0)
    counters.ends(position.get())
    b.put(w, WAVE, "pc", base + ((position.get() - b.integer(records)) >> 4))
    done = (b.make(left.type, 1, "%quantum") - left.get()).to("u64")
    b.put(w, WAVE, "instructions", b.get(w, WAVE, "instructions", "u64") + done)
    b.ret(event.get())
    b.finish("turn", "i32", "ptr %ctx, ptr %w, i32 %quantum")


def _write_release(module: Module, wave: int) -> None:
    """void release(slot, waves): every wave at the barrier goes on."""
    b = Native(module, wave)
    slot = Ptr("%slot")
    count = b.get(slot, SLOT, "waves")
    with b.count(count, "u32") as k:
        w = b.offset(Ptr("%waves"), k.to("u64") * WAVE_BYTES)
        with b.if_(b.get(w, WAVE, "state") == WAVE_BARRIER):
            b.put(w, WAVE, "state", WAVE_RUNNING)
    b.put(slot, SLOT, "waiting", 0)
    b.ret()
    b.finish("release", "void", "ptr %slot, ptr %waves")


def _write_workgroup(module: Module, wave: int, turn: str, watching: bool) -> None:
    """i32 workgroup(ctx, dispatch, slot, slice*): run one workgroup's waves in turns. *slice counts down."""
    b = Native(module, wave)
    ctx, dispatch, slot, budget = Ptr("%ctx"), Ptr("%dispatch"), Ptr("%slot"), Ptr("%budget")
    waves = b.offset(slot, b.get(dispatch, DISPATCH, "waves_offset", "u64"))
    quantum = b.get(dispatch, DISPATCH, "quantum")
    count = b.get(slot, SLOT, "waves")
    b.store_value(b.field(ctx, CTX, "lds"), b.integer(b.offset(slot, SLOT_HEADER_BYTES)))
    b.put(ctx, CTX, "lds_size", b.get(dispatch, DISPATCH, "lds_bytes"))
    index = b.variable("u32", b.get(slot, SLOT, "next_wave"))
    # A round that was left between two waves' turns: some have had theirs.
    ran = b.variable("u32", index.get() if watching else 0)
    with b.loop():
        with b.if_(index.get() == count):
            index.set(0)
            for status, condition in _round_end(b, slot, waves, ran.get(), budget):
                with b.if_(condition):
                    b.put(slot, SLOT, "next_wave", 0)
                    b.ret(b.const("u32", status))
            ran.set(0)
        w = b.offset(waves, index.get().to("u64") * WAVE_BYTES)
        with b.if_(b.get(w, WAVE, "state") == WAVE_RUNNING):
            ran.set(ran.get() + 1)
            event = b.variable("u32", b.make(count.type, 1, b.call(turn, "i32", [ctx, w, quantum])))
            with b.if_(event.get() != 0):
                _on_event(b, ctx, dispatch, slot, w, waves, event.get(), index.get(), budget)
                if watching:
                    _tell_of_halt(b, ctx, slot, event.get(), index.get())
        index.set(index.get() + 1)
    b.terminate("unreachable")
    b.finish("workgroup", "i32", "ptr %ctx, ptr %dispatch, ptr %slot, ptr %budget")


def _round_end(b: Native, slot: Ptr, waves: Ptr, ran: Value, budget: Ptr) -> list[tuple[int, Value]]:
    """After every wave has had its turn: (status to leave with, condition) pairs, in order."""
    left = b.load_value(budget, "u64").bits("i64") - (ran.to("u64") << 4).bits("i64") - 1
    b.store_value(budget, left)
    return [
        (WORKGROUP_DONE, b.get(slot, SLOT, "live") == 0),
        (WORKGROUP_DEADLOCK, ran == 0),
        (WORKGROUP_SLICE, left < 0),
    ]


def _on_event(
    b: Native, ctx: Ptr, dispatch: Ptr, slot: Ptr, w: Ptr, waves: Ptr, event: Value, index: Value, budget: Ptr
) -> None:
    """What an event does to its wave; those that are not the scheduler's return to Python."""
    arrivals = b.variable("u32", 0)
    handled = b.variable("u32", 1)
    with b.if_(event == EVENTS["end"]):
        b.put(w, WAVE, "state", WAVE_ENDED)
        executed = b.get(w, WAVE, "instructions", "u64")
        b.atomic_rmw("add", b.field(dispatch, DISPATCH, "instructions"), executed)
        b.put(ctx, CTX, "instructions_done", b.get(ctx, CTX, "instructions_done", "u64") + executed)
        b.put(slot, SLOT, "live", b.get(slot, SLOT, "live") - 1)
        arrivals.set(1)
        handled.set(0)
    with b.if_(event == EVENTS["barrier"]):
        b.put(w, WAVE, "state", WAVE_BARRIER)
        b.put(slot, SLOT, "waiting", b.get(slot, SLOT, "waiting") + 1)
        arrivals.set(1)
        handled.set(0)
    with b.if_(event == EVENTS["halt"]):
        b.put(w, WAVE, "state", WAVE_HALTED)
        handled.set(0)
    with b.if_(event == EVENTS["yield"]):
        handled.set(0)
    with b.if_(event == EVENTS["sleep"]):
        # A sleeping wave waits for somebody else: the sooner other workgroups run, the better.
        b.store_value(budget, (b.load_value(budget, "u64").bits("i64") - 256))
        handled.set(0)
    with b.if_(event == EVENTS["mode"]):
        known = _class_of_mode(b, ctx, b.get(w, WAVE, "mode"))
        with b.if_(known != UNKNOWN_CLASS):
            b.put(w, WAVE, "fp_class", known)
            handled.set(0)
    with b.if_(handled.get() != 0):
        b.store_value(b.field(ctx, CTX, "event_wave"), b.integer(w))
        b.put(slot, SLOT, "next_wave", index)
        b.ret(b.const("u32", WORKGROUP_EVENT))
    waiting = b.get(slot, SLOT, "waiting")
    with b.if_((arrivals.get() != 0) & (waiting != 0) & (waiting == b.get(slot, SLOT, "live"))):
        b.call("@release", "void", [slot, waves])


def _tell_of_halt(b: Native, ctx: Ptr, slot: Ptr, event: Value, index: Value) -> None:
    """Return to Python after a wave has ended or halted. It is the one before the slot's next wave."""
    with b.if_((event == EVENTS["end"]) | (event == EVENTS["halt"]), rarely=True):
        b.put(ctx, CTX, "event", event)
        b.put(slot, SLOT, "next_wave", index + 1)
        b.ret(b.const("u32", WORKGROUP_EVENT))


def _class_of_mode(b: Native, ctx: Ptr, mode: Value) -> Value:
    """`layout.class_key` and the class map, in native code."""
    indexing = b.select((mode & GPR_IDX_EN) != 0, b.const("u32", GPR_IDX_KEY), b.const("u32", 0))
    overflow = b.select((mode & FP16_OVFL) != 0, b.const("u32", FP16_OVFL_KEY), b.const("u32", 0))
    skipping = b.select((mode & VSKIP) != 0, b.const("u32", VSKIP_KEY), b.const("u32", 0))
    key = (mode & 0x3FF) | indexing | overflow | skipping
    return b.load_value(b.offset(b.get_ptr(ctx, CTX, "class_map"), key.to("u64")), "u8").to("u32")


def _write_start_wave(module: Module, wave: int) -> None:
    """void start_wave(dispatch, slot, wave, number, shape, scratch slot): a wave's state as hardware sets it up."""
    b = Native(module, wave)
    dispatch, slot, w = Ptr("%dispatch"), Ptr("%slot"), Ptr("%w")
    number, shape, scratch = (b.make(b.const("u32", 0).type, 1, name) for name in ("%number", "%shape", "%scratch"))
    row = 4 * wave
    b.fill_zero(w, (b.get(dispatch, DISPATCH, "vgprs") * row).to("u64"))
    b.fill_zero(b.offset(w, 256 * row), (b.get(dispatch, DISPATCH, "agprs") * row).to("u64"))
    scalars = b.field(w, WAVE, "scalars")
    b.fill_zero(scalars, b.const("u64", WAVE["end"] - WAVE["scalars"]))
    user = b.get(dispatch, DISPATCH, "user_sgprs")
    b.copy(scalars, b.field(dispatch, DISPATCH, "sgprs"), b.const("u64", 4 * MAX_USER_SGPRS))
    position = b.variable("u32", user)
    flags = b.get(dispatch, DISPATCH, "system_sgprs")
    last = b.get(dispatch, DISPATCH, "max_waves")
    first_wave = b.select(number == 0, b.const("u32", 1 << 31), b.const("u32", 0))
    base = b.get(dispatch, DISPATCH, "scratch_base", "u64")
    offset = scratch.to("u64") * b.get(dispatch, DISPATCH, "scratch_stride", "u64")
    system = (
        b.get(slot, SLOT, "id_x"),
        b.get(slot, SLOT, "id_y"),
        b.get(slot, SLOT, "id_z"),
        first_wave | last,
        offset.to("u32"),
    )
    for bit, value in enumerate(system):
        with b.if_((flags & (1 << bit)) != 0):
            b.store_value(b.offset(scalars, position.get().to("u64") << 2), value)
            position.set(position.get() + 1)
    with b.if_(b.get(dispatch, DISPATCH, "architected_flat_scratch") != 0):
        b.store_value(b.offset(scalars, 4 * FLAT_SCRATCH_CODE), base + offset)
    templates = b.offset(dispatch, b.get(dispatch, DISPATCH, "templates", "u64"))
    chosen = (shape * b.get(dispatch, DISPATCH, "max_waves") + number).to("u64") * TEMPLATE_BYTES
    template = b.offset(templates, chosen)
    b.store_value(b.offset(scalars, 4 * 126), b.get(template, TEMPLATE, "exec", "u64"))
    b.copy(w, b.field(template, TEMPLATE, "vgprs"), (b.get(dispatch, DISPATCH, "id_vgprs") * row).to("u64"))
    b.put(w, WAVE, "pc", b.get(dispatch, DISPATCH, "entry", "u64"))
    b.put(w, WAVE, "scratch_base", base + offset)
    for name in ("scratch_size", "mode", "fp_class", "program"):
        b.put(w, WAVE, name, b.get(dispatch, DISPATCH, name))
    b.put(w, WAVE, "wave_in_group", number)
    b.put(w, WAVE, "state", WAVE_RUNNING)
    b.ret()
    b.finish("start_wave", "void", "ptr %dispatch, ptr %slot, ptr %w, i32 %number, i32 %shape, i32 %scratch")


def _write_take(module: Module, wave: int) -> None:
    """i64 take(ctx, dispatch): the number of a workgroup that nobody has begun, or -1: first from the process's own XCDs,
    then from any."""
    b = Native(module, wave)
    ctx, dispatch = Ptr("%ctx"), Ptr("%dispatch")
    xcds, total = b.get(dispatch, DISPATCH, "xcds"), b.get(dispatch, DISPATCH, "total", "u64")
    own, mine = b.get(ctx, CTX, "own_xcds"), b.get(ctx, CTX, "own_xcd")
    counters = b.field(dispatch, DISPATCH, "xcd_next")
    xcd = b.variable("u32", b.get(ctx, CTX, "xcd_turn"))
    tries = b.variable("u32", 0)
    with b.loop():
        b.break_if(tries.get() >= xcds * 2)
        with b.if_(xcd.get() >= xcds):
            xcd.set(0)
        index = xcd.get().to("u64")
        counter = b.offset(counters, index << 3)
        _, rest = b.divide(xcd.get(), own)
        wanted = (tries.get() >= xcds) | (rest == mine)
        left = b.load_atomic(counter, "u64") * xcds.to("u64") + index < total
        with b.if_(wanted & left):
            number = b.atomic_rmw("add", counter, b.const("u64", 1)) * xcds.to("u64") + index
            with b.if_(number < total):
                b.put(ctx, CTX, "xcd_turn", xcd.get() + 1)
                b.ret(number)
        xcd.set(xcd.get() + 1)
        tries.set(tries.get() + 1)
    b.ret(b.const("u64", (1 << 64) - 1))
    b.finish("take", "i64", "ptr %ctx, ptr %dispatch")


def _write_admit(module: Module, wave: int) -> None:
    """i32 admit(ctx, dispatch, slot, slot number): take a workgroup into a free slot; 0 if none is left."""
    b = Native(module, wave)
    ctx, dispatch, slot = Ptr("%ctx"), Ptr("%dispatch"), Ptr("%slot")
    number = b.make(b.const("u32", 0).type, 1, "%number")
    workgroup = b.make(b.const("u64", 0).type, 1, b.call("@take", "i64", [ctx, dispatch]))
    with b.if_(workgroup == (1 << 64) - 1):
        b.ret(b.const("u32", 0))
    grid = [b.get(dispatch, DISPATCH, f"grid_{axis}") for axis in "xyz"]
    rest, x = b.divide(workgroup, grid[0].to("u64"))
    z, y = b.divide(rest, grid[1].to("u64"))
    partial = b.get(dispatch, DISPATCH, "partial")
    shape = b.const("u32", 0)
    for bit, (axis, value) in enumerate(zip("xyz", (x, y, z), strict=True)):
        coordinate = value.to("u32")
        b.put(slot, SLOT, f"id_{axis}", coordinate)
        at_edge = (coordinate == grid[bit] - 1) & ((partial & (1 << bit)) != 0)
        shape = shape | b.select(at_edge, b.const("u32", 1 << bit), b.const("u32", 0))
    waves = b.load_value(b.offset(b.field(dispatch, DISPATCH, "shape_waves"), shape.to("u64") << 2), "u32")
    b.put(slot, SLOT, "workgroup", workgroup)
    b.put(slot, SLOT, "state", SLOT_RUNNING)
    b.put(slot, SLOT, "waves", waves)
    b.put(slot, SLOT, "live", waves)
    b.put(slot, SLOT, "waiting", 0)
    b.put(slot, SLOT, "next_wave", 0)
    b.fill_zero(b.offset(slot, SLOT_HEADER_BYTES), b.get(dispatch, DISPATCH, "lds_bytes").to("u64"))
    states = b.offset(slot, b.get(dispatch, DISPATCH, "waves_offset", "u64"))
    most = b.get(dispatch, DISPATCH, "max_waves")
    first = b.get(ctx, CTX, "first_slot")
    with b.count(waves, "u32") as k:
        w = b.offset(states, k.to("u64") * WAVE_BYTES)
        b.call("@start_wave", "void", [dispatch, slot, w, k, shape, (first + number) * most + k])
    b.ret(b.const("u32", 1))
    b.finish("admit", "i32", "ptr %ctx, ptr %dispatch, ptr %slot, i32 %number")


def _write_run(module: Module, wave: int, *, traced: bool, watching: bool) -> None:
    """i32 run(ctx, dispatch, slots, number of slots, state*): see RUN_DONE ... in `layout`. run_traced does the same, and
    records every turn of a workgroup.

    state: u64 [3]: slots open for admission, the slot whose turn it is, budget (counts down).
    """
    b = Native(module, wave)
    ctx, dispatch, slots, state = Ptr("%ctx"), Ptr("%dispatch"), Ptr("%slots"), Ptr("%state")
    most = b.make(b.const("u64", 0).type, 1, "%most")
    stride = b.get(dispatch, DISPATCH, "slot_stride", "u64")
    slice_ = b.get(dispatch, DISPATCH, "time_slice", "u64")
    opened_slot, turn_slot, budget_slot = state, b.offset(state, 8), b.offset(state, 16)
    idle = b.variable("u64", 0)
    slice_left = b.variable("u64", 0)
    with b.loop():
        index = b.load_value(turn_slot, "u64")
        slot = b.offset(slots, index * stride)
        rung = b.load_atomic(b.get_ptr(ctx, CTX, "bell"), "u32") != b.get(ctx, CTX, "bell_seen")
        spent = b.load_value(budget_slot, "u64").bits("i64") < 0
        with b.if_(spent | rung | (b.get(dispatch, DISPATCH, "stop") != 0)):
            b.ret(b.const("u32", RUN_PAUSED))
        with b.if_(b.get(slot, SLOT, "state") == SLOT_FREE):
            _spend(b, budget_slot, b.const("u64", ADMISSION_COST))
            admitted = b.invoke("@admit", "u32", [ctx, dispatch, slot, index.to("u32")])
            if watching:
                with b.if_(admitted != 0):
                    b.put(ctx, CTX, "event", EVENTS["start"])
                    b.ret(b.const("u32", RUN_EVENT))
        running = b.variable("u32", b.get(slot, SLOT, "state"))
        status = b.variable("u32", WORKGROUP_DONE)
        with b.if_(running.get() == SLOT_RUNNING):
            slice_left.set(slice_)
            began = now(b, ctx) if traced else None
            result = b.call("@workgroup", "i32", [ctx, dispatch, slot, slice_left.ptr])
            if began is not None:
                record_event(b, ctx, TRACE_TURN, b.get(slot, SLOT, "workgroup", "u64"), began)
            status.set(b.make(b.const("u32", 0).type, 1, result))
            _spend(b, budget_slot, slice_ - slice_left.get())
            with b.if_(status.get() == WORKGROUP_EVENT):
                b.ret(b.const("u32", RUN_EVENT))
            with b.if_(status.get() == WORKGROUP_DONE):
                b.put(slot, SLOT, "state", SLOT_FREE)
                b.atomic_rmw("add", b.field(dispatch, DISPATCH, "completed"), b.const("u64", 1))
                b.put(ctx, CTX, "workgroups_done", b.get(ctx, CTX, "workgroups_done", "u64") + 1)
            with b.if_(status.get() == WORKGROUP_DEADLOCK):
                b.ret(b.const("u32", RUN_DEADLOCK))
            idle.set(0)
        with b.if_(running.get() == SLOT_FREE):
            idle.set(idle.get() + 1)
        waits = (running.get() == SLOT_RUNNING) & (status.get() != WORKGROUP_DONE)
        opened = b.load_value(opened_slot, "u64")
        with b.if_(waits & (opened < most)):
            b.put(b.offset(slots, opened * stride), SLOT, "state", SLOT_FREE)
            b.store_value(opened_slot, opened + 1)
        now_open = b.load_value(opened_slot, "u64")
        with b.if_(idle.get() >= now_open):
            b.ret(b.const("u32", RUN_DONE))
        moves = waits | (running.get() == SLOT_FREE)
        following = b.select(index + 1 >= now_open, b.const("u64", 0), index + 1)
        b.store_value(turn_slot, b.select(moves, following, index))
    b.terminate("unreachable")
    name = "run_traced" if traced else "run"
    b.finish(name, "i32", "ptr %ctx, ptr %dispatch, ptr %slots, i64 %most, ptr %state")


def _spend(b: Native, budget: Ptr, amount: Value) -> None:
    b.store_value(budget, b.load_value(budget, "u64") - amount)


def _write_exchange(module: Module) -> None:
    """i32 exchange(word, value) and void increment(word): atomic and sequentially consistent, for Python's side of shared
    words."""
    b = IrLanes(module, 1)
    b.ret(b.atomic_rmw("xchg", Ptr("%word"), b.make(TYPES["u32"], 1, "%value")))
    b.finish("exchange", "i32", "ptr %word, i32 %value")
    b = IrLanes(module, 1)
    b.atomic_rmw("add", Ptr("%word"), b.const("u32", 1))
    b.ret()
    b.finish("increment", "void", "ptr %word")
