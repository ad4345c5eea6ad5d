"""Memory instructions in native code: `Context`'s memory primitives as LLVM IR.

Every access is checked before it has any effect. Device memory: the allocation last hit by this record is cached in the
process context; if all active lanes lie inside, no call is made, else `allocation_check` looks them up. LDS: against the
workgroup's size. Nothing is read through an inactive lane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rjemu.exec.ir import IrLanes, Ptr
from rjemu.exec.layout import (
    ACCESS_CACHE_ENTRIES,
    CTX,
    EVENTS,
    FAULT_ACCESSES,
    FAULT_SPACES,
    RECORD_BYTES,
)
from rjemu.exec.native_moves import PointerOf, copy_groups, copy_lane, copy_piece, load_groups, store_groups
from rjemu.isa.atomics import atomic_mode, float_combine
from rjemu.isa.context import AtomicOp, Context, Space
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import TYPES, Value

_READ_MODIFY_WRITE: dict[str, str] = {
    "add": "add",
    "sub": "sub",
    "umin": "umin",
    "umax": "umax",
    "smin": "min",
    "smax": "max",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "swap": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}
"""Atomics that LLVM has an instruction for."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """Lanes whose addresses have been found good. bits: u64 scalar; full: b1 scalar, all lanes of the wave; hosts: stack
    array of u64 host addresses, valid for those lanes."""

    bits: Value
    full: Value
    hosts: Ptr


class NativeMemory(IrLanes, Context):
    """Mixed into `NativeContext`, which supplies the operands and the pointers."""

    context_ptr: Ptr
    record_ptr: Ptr
    _rare = False
    """Whether the code being written is for rare cases: then it is kept small."""

    @abstractmethod
    def operand_ptr(self, op: Operand, k: int = 0) -> Ptr:
        """Where register op.index + k lies."""

    @abstractmethod
    def _leave(self, event: int, value: Value | None = None) -> None:
        """Return from the handler with an event."""

    def when(self, condition: Value, effects: Callable[[], None]) -> None:
        outer, self._rare = self._rare, True
        with self.if_(self.any(condition), rarely=True):
            effects()
        self._rare = outer

    # --- checks ------------------------------------------------------------------------------------------------------

    def _field(self, name: str) -> Ptr:
        return self.offset(self.context_ptr, CTX[name])

    def _cache_entry(self) -> Ptr:
        """This record's entry in the cache of allocations."""
        slot = (self.integer(self.record_ptr) >> (RECORD_BYTES.bit_length() - 1)) & (ACCESS_CACHE_ENTRIES - 1)
        return self.offset(self._field("access_cache"), slot << 4)

    def _check(self, space: Space, address: Value, nbytes: int, mask: Value, access: str) -> _Checked:
        """Leave the handler if an active lane must not access nbytes bytes at its address."""
        address, mask = self.vector(address), self.vector(mask)
        bits = self.ballot(mask)
        full = bits == (1 << self.wave) - 1
        if space == "lds":
            return _Checked(bits, full, self._check_lds(address, nbytes, mask, access))
        return _Checked(bits, full, self._check_global(address, nbytes, mask, bits, access))

    def _check_lds(self, address: Value, nbytes: int, mask: Value, access: str) -> Ptr:
        size = self.load_value(self._field("lds_size"), "u32")
        outside = mask & ((address > size - nbytes) | (size < nbytes))
        with self.if_(self.any(outside), rarely=True):
            self._fault("memory", outside, address.to("u64"), nbytes, "lds", access)
        base = self.integer(self.load_ptr(self._field("lds")))
        return self._on_stack(address.to("u64") + base)

    def _check_global(self, address: Value, nbytes: int, mask: Value, bits: Value, access: str) -> Ptr:
        entry = self._cache_entry()
        first, size = self.load_value(entry, "u64"), self.load_value(self.offset(entry, 8), "u64")
        missed = self.any(mask & ((address - first) > (size - nbytes))) | ((size < nbytes) & (bits != 0))
        with self.if_(missed, rarely=True):
            self._look_up(entry, self._on_stack(address), bits, self.const("u32", nbytes), "global", access)
        return self._on_stack(address + self.load_value(self._field("vram_delta"), "u64"))

    def _look_up(self, entry: Ptr, addresses: Ptr, lanes: Value, nbytes: Value, space: str, access: str) -> None:
        """Check lanes by the table; leave the handler if one of them is outside every allocation."""
        function = self.load_ptr(self._field("check_lanes"))
        kinds = [self.const("u32", FAULT_SPACES.index(space)), self.const("u32", FAULT_ACCESSES.index(access))]
        good = self.call(function.name, "i32", [self.context_ptr, entry, addresses, lanes, nbytes, *kinds])
        with self.if_(self.make(TYPES["u32"], 1, good) == 0, rarely=True):
            self._leave(EVENTS["memory"])

    def _fault(self, event: str, bad: Value, address: Value, nbytes: int, space: str, access: str) -> None:
        """Leave the handler, naming the first lane of the b1 vector `bad`."""
        lane = self.ctz(self.ballot(bad)).to("u32")
        facts = {
            "fault_lane": lane,
            "fault_address": self.read_lane(address, lane),
            "fault_bytes": self.const("u32", nbytes),
            "fault_space": self.const("u32", FAULT_SPACES.index(space)),
            "fault_access": self.const("u32", FAULT_ACCESSES.index(access)),
        }
        for name, value in facts.items():
            self.store_value(self._field(name), value)
        self._leave(EVENTS[event])

    # --- stack arrays ------------------------------------------------------------------------------------------------

    def _on_stack(self, value: Value) -> Ptr:
        """The lanes of a vector as an array on the stack."""
        value = self.vector(value)
        slot = self.stack(f"[{value.lanes} x i{value.type.bits}]")
        self.store_value(slot, value, align=64)
        return slot

    def _host(self, checked: _Checked, lane: Value) -> Ptr:
        """Where the data of a lane (u64 number) lie."""
        return self.address(self.load_value(self.offset(checked.hosts, lane << 3), "u64"))

    # --- loads and stores ----------------------------------------------------------------------------------------------

    def _move(self, checked: _Checked, rows: Sequence[Ptr], *, to_memory: bool) -> None:
        """Whole dwords between the rows and memory: groups of lanes if all are active, else lane by lane."""
        if not self._rare:
            with self.if_(checked.full):
                (store_groups if to_memory else load_groups)(self, rows, self._pointers(checked))
        with self.each_bit(self._one_by_one(checked)) as lane:
            copy_lane(self, rows, lane, self._host(checked, lane), to_memory=to_memory)

    def _pointers(self, checked: _Checked) -> PointerOf:
        return lambda first, position: self._host(checked, first + position)

    def _one_by_one(self, checked: _Checked) -> Value:
        """Bits of the lanes that no group covers."""
        return checked.bits if self._rare else self.select(checked.full, self.const("u64", 0), checked.bits)

    def load_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        checked = self._check(space, address, nbytes, mask, "load")
        self._move(checked, self._registers(op, first, nbytes), to_memory=False)

    def store_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        checked = self._check(space, address, nbytes, mask, "store")
        self._move(checked, self._registers(op, first, nbytes), to_memory=True)

    def _registers(self, op: Operand, first: int, nbytes: int) -> list[Ptr]:
        return [self.operand_ptr(op, first + k) for k in range(nbytes // 4)]

    def load(self, space: Space, address: Value, nbytes: int, mask: Value) -> list[Value]:
        zero = self.vector(self.const("u32", 0))
        checked = self._check(space, address, nbytes, mask, "load")
        rows = [self._on_stack(zero) for _ in range(max(nbytes // 4, 1))]
        if nbytes >= 4:
            self._move(checked, rows, to_memory=False)
        else:
            part = f"u{8 * nbytes}"
            with self.each_bit(checked.bits) as lane:
                loaded = self.load_value(self._host(checked, lane), part, align=1)
                self.store_value(self.offset(rows[0], lane << 2), loaded.to("u32"))
        return [self.load_value(row, "u32", self.wave) for row in rows]

    def store(self, space: Space, address: Value, values: Sequence[Value], nbytes: int, mask: Value) -> None:
        checked = self._check(space, address, nbytes, mask, "store")
        rows = [self._on_stack(value) for value in values]
        if nbytes >= 4:
            self._move(checked, rows, to_memory=True)
            return
        part = f"u{8 * nbytes}"
        with self.each_bit(checked.bits) as lane:
            low = self.load_value(self.offset(rows[0], lane << 2), part, align=1)
            self.store_value(self._host(checked, lane), low, align=1)

    def copy_to_lds(self, address: Value, lds_address: Value, nbytes: int, mask: Value) -> None:
        source = self._check("global", address, nbytes, mask, "load")
        target = self._check("lds", lds_address, nbytes, mask, "store")
        if not self._rare:
            with self.if_(source.full):
                copy_groups(self, self._pointers(source), self._pointers(target), nbytes // 4)
        with self.each_bit(self._one_by_one(source)) as lane:
            copy_piece(self, self._host(source, lane), self._host(target, lane), nbytes // 4)

    # --- atomics -------------------------------------------------------------------------------------------------------

    def atomic(
        self,
        op: AtomicOp,
        space: Space,
        type_name: str,
        address: Value,
        data: Value,
        mask: Value,
        compare: Value | None = None,
    ) -> Value:
        type_ = TYPES[type_name]
        nbytes, integer = type_.bits // 8, f"u{type_.bits}"
        checked = self._check(space, address, nbytes, mask, "atomic")
        misaligned = self.vector(mask) & ((self.vector(address) & (nbytes - 1)) != 0)
        with self.if_(self.any(misaligned), rarely=True):
            self._fault("misaligned", misaligned, self.vector(address).to("u64"), nbytes, space, "atomic")
        sources = [self._on_stack(self.vector(x).bits(integer)) for x in (data, data if compare is None else compare)]
        result = self._on_stack(self.vector(self.const(integer, 0)))
        shift = nbytes.bit_length() - 1

        with self.each_bit(checked.bits) as lane:
            operands = [self.load_value(self.offset(source, lane << shift), integer) for source in sources]
            old = self._atomic_lane(op, space, type_name, self._host(checked, lane), *operands)
            self.store_value(self.offset(result, lane << shift), old)
        return self.load_value(result, integer, self.wave).bits(data.type.name)

    def _atomic_lane(self, op: AtomicOp, space: Space, type_name: str, memory: Ptr, data: Value, compare: Value) -> Value:
        """One lane's atomic on patterns; the old pattern. A workgroup's LDS belongs to one process at a time."""
        integer = data.type.name
        if space == "lds":
            old = self.load_value(memory, integer)
            self.store_value(memory, self._combine(op, space, type_name, old, data, compare))
            return old
        if op in _READ_MODIFY_WRITE:
            return self.atomic_rmw(_READ_MODIFY_WRITE[op], memory, data)
        if op == "cmpswap":
            return self.compare_exchange(memory, compare, data)[0]
        expected = self.variable(integer, self.load_atomic(memory, integer, "monotonic"))
        with self.loop():
            new = self._combine(op, space, type_name, expected.get(), data, compare)
            found, exchanged = self.compare_exchange(memory, expected.get(), new)
            self.break_if(exchanged)
            expected.set(found)
        return expected.get()

    def _combine(self, op: AtomicOp, space: Space, type_name: str, old: Value, data: Value, compare: Value) -> Value:
        """The new pattern of memory."""
        if op in _INTEGER:
            return _INTEGER[op](self, old, data, compare)
        mode, self.fp = self.fp, atomic_mode(self.fp, space)
        new = float_combine(self, op, *(x.bits(type_name) for x in (old, data, compare)))
        self.fp = mode
        return new.bits(old.type.name)

    # --- scalars -------------------------------------------------------------------------------------------------------

    def _scalar_memory(self, address: Value, dwords: int, limit: Value | None, access: str) -> tuple[Ptr, Value]:
        """Host pointer and number of dwords (u32) of a checked scalar access. The pointer is only good for those."""
        count = self.const("u32", dwords) if limit is None else limit
        nbytes = (count << 2).to("u64")
        entry = self._cache_entry()
        first, size = self.load_value(entry, "u64"), self.load_value(self.offset(entry, 8), "u64")
        missed = ((address - first > size - nbytes) | (size < nbytes)) & (count != 0)
        with self.if_(missed, rarely=True):
            slot = self.stack("i64")
            self.store_value(slot, address)
            self._look_up(entry, slot, self.const("u64", 1), nbytes.to("u32"), "scalar", access)
        return self.address(address + self.load_value(self._field("vram_delta"), "u64")), count

    def scalar_load(self, address: Value, dwords: int, limit: Value | None = None) -> list[Value]:
        memory, count = self._scalar_memory(address, dwords, limit, "load")
        if limit is None:
            words = self.load_value(memory, "u32", dwords, align=4)
            return [self.extract(words, k, 1) for k in range(dwords)] if dwords > 1 else [words]
        loaded = [self.variable("u32", 0) for _ in range(dwords)]
        for k, word in enumerate(loaded):
            with self.if_(count > k):
                word.set(self.load_value(self.offset(memory, 4 * k), "u32", align=4))
        return [word.get() for word in loaded]

    def scalar_store(self, address: Value, values: Sequence[Value], limit: Value | None = None) -> None:
        memory, count = self._scalar_memory(address, len(values), limit, "store")
        for k, value in enumerate(values):
            with self.if_(count > k):
                self.store_value(self.offset(memory, 4 * k), value, align=4)


_Combine = Callable[[IrLanes, Value, Value, Value], Value]

_INTEGER: dict[str, _Combine] = {
    "add": lambda b, old, data, _: old + data,
    "sub": lambda b, old, data, _: old - data,
    "rsub": lambda b, old, data, _: data - old,
    "umin": lambda b, old, data, _: b.min(old, data),
    "umax": lambda b, old, data, _: b.max(old, data),
    "smin": lambda b, old, data, _: b.min(_signed(old), _signed(data)).bits(old.type.name),
    "smax": lambda b, old, data, _: b.max(_signed(old), _signed(data)).bits(old.type.name),
    "and": lambda b, old, data, _: old & data,
    "or": lambda b, old, data, _: old | data,
    "xor": lambda b, old, data, _: old ^ data,
    "swap": lambda b, old, data, _: data,
    "cmpswap": lambda b, old, data, compare: b.select(old == compare, data, old),
    "inc": lambda b, old, data, _: b.select(old >= data, b.const(old.type.name, 0), old + 1),
    "dec": lambda b, old, data, _: b.select((old == 0) | (old > data), data, old - 1),
    "mskor": lambda b, old, data, other: (old & ~data) | other,
    "wrap": lambda b, old, data, other: b.select(old >= data, old - data, old + other),
}
"""New memory pattern from (old, data, compare)."""


def _signed(x: Value) -> Value:
    return x.bits(f"i{x.type.bits}")
