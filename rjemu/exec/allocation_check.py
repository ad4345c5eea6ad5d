"""The slow half of the bounds check: native code that looks addresses up in the table of live allocations (`shm.vram`).

Handlers test a cached allocation by themselves (`native_memory`) and call this when a lane lies outside it.
"""

from __future__ import annotations

from rjemu.exec.ir import IrLanes, Module, Ptr, Variable
from rjemu.exec.layout import CHECK_FUNCTION, CTX, FAULT_SPACES, WHOLE_WAVE
from rjemu.isa.lanes import TYPES, Value
from rjemu.shm.vram import TABLE_COUNT, TABLE_GENERATION, TABLE_ROWS

_ROW_BYTES = 16


def write_check_function(module: Module) -> None:
    """Add `i32 rjemu_check_lanes(ptr ctx, ptr cached, ptr addresses, i64 lanes, i32 nbytes, i32 space, i32 access)`.

    addresses: u64 GPU address per lane; lanes: bits of the lanes to check, each for `nbytes` bytes; space and access:
    indices in `layout.FAULT_SPACES` and `FAULT_ACCESSES`. Gives 1 and puts the last lane's allocation into the cache entry
    (first address, bytes) if all lanes lie in live allocations. Else gives 0 with the fault fields of the context filled
    for the first lane that does not.
    """
    b = IrLanes(module, 1)
    context, entry, addresses = Ptr("%ctx"), Ptr("%cached"), Ptr("%addresses")
    lanes = b.make(TYPES["u64"], 1, "%lanes")
    nbytes, space, access = (b.make(TYPES["u32"], 1, name) for name in ("%nbytes", "%space", "%access"))
    table = b.load_ptr(b.offset(context, CTX["allocations"]))
    left, first, size = b.variable("u64"), b.variable("u64"), b.variable("u64")
    with b.loop():
        generation = b.load_atomic(b.offset(table, TABLE_GENERATION), "u64")
        left.set(lanes)
        first.set(0)
        size.set(0)
        with b.loop():
            b.break_if(left.get() == 0)
            lane = b.ctz(left.get())
            address = b.load_value(b.offset(addresses, lane << 3), "u64")
            with b.if_(~_inside(b, address, nbytes, first.get(), size.get())):
                _search(b, table, address, first, size)
                b.break_if(~_inside(b, address, nbytes, first.get(), size.get()))
            left.set(left.get() & (left.get() - 1))
        # An odd or changed generation means that the table was being changed meanwhile.
        unchanged = b.load_atomic(b.offset(table, TABLE_GENERATION), "u64") == generation
        b.break_if(unchanged & ((generation & 1) == 0))
    with b.if_(left.get() == 0):
        b.store_value(entry, first.get())
        b.store_value(b.offset(entry, 8), size.get())
        b.ret(b.const("u32", 1))
    lane = b.ctz(left.get())
    shown = b.select(space == FAULT_SPACES.index("scalar"), b.const("u32", WHOLE_WAVE), lane.to("u32"))
    b.store_value(b.offset(context, CTX["fault_lane"]), shown)
    b.store_value(b.offset(context, CTX["fault_address"]), b.load_value(b.offset(addresses, lane << 3), "u64"))
    for name, value in (("fault_bytes", nbytes), ("fault_space", space), ("fault_access", access)):
        b.store_value(b.offset(context, CTX[name]), value)
    b.ret(b.const("u32", 0))
    arguments = "ptr %ctx, ptr %cached, ptr %addresses, i64 %lanes, i32 %nbytes, i32 %space, i32 %access"
    b.finish(CHECK_FUNCTION, "i32", arguments)


def _inside(b: IrLanes, address: Value, nbytes: Value, first: Value, size: Value) -> Value:
    """b1: the access lies in [first, first + size). Written so that nothing wraps."""
    wanted = nbytes.to("u64")
    return (size >= wanted) & (address - first <= size - wanted)


def _search(b: IrLanes, table: Ptr, address: Value, first: Variable, size: Variable) -> None:
    """Set first and size to the last allocation that starts at or below the address; size 0 if there is none."""
    low, high = b.variable("u64", 0), b.variable("u64")
    high.set(b.load_atomic(b.offset(table, TABLE_COUNT), "u64", "monotonic"))
    with b.loop():
        b.break_if(low.get() >= high.get())
        middle = (low.get() + high.get()) >> 1
        start = b.load_atomic(b.offset(table, middle * _ROW_BYTES + TABLE_ROWS), "u64", "monotonic")
        above = start > address
        high.set(b.select(above, middle, high.get()))
        low.set(b.select(above, low.get(), middle + 1))
    first.set(0)
    size.set(0)
    with b.if_(low.get() > 0):
        row = b.offset(table, (low.get() - 1) * _ROW_BYTES + TABLE_ROWS)
        start = b.load_atomic(row, "u64", "monotonic")
        first.set(start)
        size.set(b.load_atomic(b.offset(row, 8), "u64", "monotonic") - start)
