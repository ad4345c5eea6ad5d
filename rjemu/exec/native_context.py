"""`Context` that records a handler: native code for one kind of instruction, with registers and numbers taken from the
micro-op record at run time.

A handler is `ptr handler(ptr context, ptr wave, ptr record)`: it acts on the wave and gives the next record, or null
when the wave leaves the loop; then the context's event fields say why.
"""

from __future__ import annotations

from rjemu.exec.host_rounding import HostRounding
from rjemu.exec.ir import IrLanes, Module, Ptr
from rjemu.exec.layout import (
    CLOCK_STEP,
    CTX,
    EVENTS,
    RECORD_BYTES,
    RECORD_IMMS,
    RECORD_STEP,
    SCALAR_COUNT,
    WAVE,
    operand_slot,
)
from rjemu.exec.native_memory import NativeMemory
from rjemu.isa.context import Context, Event, Semantic
from rjemu.isa.gpr_index import FILE_SIZE, index_bit
from rjemu.isa.instruction import M0, Instruction, Operand
from rjemu.isa.lanes import BOOL, TYPES, FpMode, Value

SIGNATURE = "ptr noalias %ctx, ptr noalias %w, ptr noalias %rec"


class NativeContext(NativeMemory, IrLanes, Context):
    """See the module's docstring. One object writes one handler."""

    def __init__(
        self, module: Module, instr: Instruction, target: str, wave: int, fp: FpMode, gpr_idx: bool = False
    ) -> None:
        IrLanes.__init__(self, module, wave, fp, fp.rounding_of(instr.name))
        self.instr = instr
        self.target = target
        self.gpr_idx = gpr_idx
        self.context_ptr, self.wave_ptr, self.record_ptr = Ptr("%ctx"), Ptr("%w"), Ptr("%rec")
        self._offsets: dict[str, Value] = {}
        self._mode_changed = False

    def record(self, name: str, semantic: Semantic) -> None:
        """Write the whole handler as function `name` of the module."""
        if self.gpr_idx:
            self._check_indices()
        semantic(self)
        if not self._terminated:
            if self._mode_changed:
                self._leave(EVENTS["mode"])
            else:
                self.ret(self._next())
        self.finish(name, "ptr", SIGNATURE, "nounwind noinline")

    def write_rounding_wrapper(self, name: str, body: str) -> None:
        """Add function `name`, which calls `body` with the host rounding in this instruction's direction.

        A call, because LLVM may move plain arithmetic across a change of the control register.
        """
        wrapper = IrLanes(self.module, self.wave)
        control = HostRounding(wrapper)
        before = control.read()
        control.write(control.with_direction(before, self.rounding))
        result = wrapper.call(f"@{body}", "ptr", [self.context_ptr, self.wave_ptr, self.record_ptr])
        control.write(before)
        wrapper.ret(Ptr(result))
        wrapper.finish(name, "ptr", SIGNATURE)

    def _next(self) -> Ptr:
        return self.offset(self.record_ptr, self.load_value(self.offset(self.record_ptr, RECORD_STEP), "u32").to("u64"))

    def _leave(self, event: int, value: Value | None = None) -> None:
        self.store_value(self.offset(self.context_ptr, CTX["event"]), self.const("u32", event))
        if value is not None:
            self.store_value(self.offset(self.context_ptr, CTX["event_value"]), value)
        self.terminate("ret ptr null")

    # --- operands ----------------------------------------------------------------------------------------------------

    def _operand_index(self, op: Operand) -> int:
        return next(k for k, other in enumerate(self.instr.operands) if other is op)

    def _operand_offset(self, op: Operand) -> Value:
        """The operand's byte offset in the wave's state, read once in the entry block."""
        if op.name not in self._offsets:
            slot = self.define_entry(f"getelementptr i8, ptr %rec, i64 {operand_slot(self._operand_index(op))}")
            short = self.define_entry(f"load i32, ptr {slot}, align 8")
            offset = self.make(TYPES["u64"], 1, self.define_entry(f"zext i32 {short} to i64"))
            if self.gpr_idx and op.kind == "v":
                offset = self._indexed(op, offset)
            self._offsets[op.name] = offset
        return self._offsets[op.name]

    def _indexed(self, op: Operand, offset: Value) -> Value:
        """The offset moved by M0[7:0] registers where M0 enables indexing of the operand (`isa.gpr_index`)."""
        bit = index_bit(self.instr, op)
        if bit is None:
            return offset
        slot = self.define_entry(f"getelementptr i8, ptr %w, i64 {WAVE['scalars'] + 4 * M0}")
        m0 = self.define_entry(f"load i32, ptr {slot}, align 4")
        enabled = self.define_entry(f"and i32 {m0}, {1 << bit}")
        on = self.define_entry(f"icmp ne i32 {enabled}, 0")
        index = self.define_entry(f"and i32 {m0}, 255")
        moved = self.define_entry(f"select i1 {on}, i32 {index}, i32 0")
        wide = self.define_entry(f"zext i32 {moved} to i64")
        nbytes = self.define_entry(f"mul i64 {wide}, {self.wave * 4}")
        return self.make(TYPES["u64"], 1, self.define_entry(f"add i64 {offset.data}, {nbytes}"))

    def _check_indices(self) -> None:
        """Leave with event "illegal" where indexing moves an operand out of its register file."""
        for position, op in enumerate(self.instr.operands):
            if index_bit(self.instr, op) is None:
                continue
            row = 4 * self.wave
            slot = self.offset(self.record_ptr, operand_slot(position))
            encoded = self.load_value(slot, "u32").to("u64")
            file = encoded & ~self.const("u64", FILE_SIZE * row - 1)
            with self.if_(self._operand_offset(op) + op.dwords * row > file + FILE_SIZE * row, rarely=True):
                self._leave(EVENTS["illegal"])

    def operand_ptr(self, op: Operand, k: int = 0) -> Ptr:
        """Where register op.index + k lies: a row of the register file, or a scalar."""
        assert op.kind in "vs" and k < op.dwords, f"{self.instr.name} {op.name}: register {k} of {op.dwords}"
        base = self.offset(self.wave_ptr, self._operand_offset(op))
        return self.offset(base, k * (4 * self.wave if op.kind == "v" else 4))

    def vgpr(self, op: Operand, k: int = 0) -> Value:
        assert op.kind == "v"
        return self.load_value(self.operand_ptr(op, k), "u32", self.wave)

    def set_vgpr(self, op: Operand, k: int, value: Value, mask: Value | None = None) -> None:
        assert op.kind == "v"
        lanes = self.exec_lanes() if mask is None else self.vector(mask)
        self.store_masked(self.operand_ptr(op, k), self.vector(self.coerce(value, TYPES["u32"])), lanes)

    def scalar(self, op: Operand, k: int = 0) -> Value:
        assert op.kind == "s"
        return self.load_value(self.operand_ptr(op, k), "u32")

    def set_scalar(self, op: Operand, k: int, value: Value) -> None:
        assert op.kind == "s"
        self.store_value(self.operand_ptr(op, k), self.coerce(value, TYPES["u32"]))

    def scalar_number(self, op: Operand) -> Value:
        return ((self._operand_offset(op) - WAVE["scalars"]) >> 2).to("u32")

    def _scalar_ptr(self, number: Value) -> Ptr:
        return self.offset(self._state("scalars"), (number & (SCALAR_COUNT - 1)).to("u64") << 2)

    def scalar_at(self, number: Value) -> Value:
        return self.load_value(self._scalar_ptr(number), "u32")

    def set_scalar_at(self, number: Value, value: Value) -> None:
        self.store_value(self._scalar_ptr(number), value)

    def constant(self, op: Operand, bits: int) -> Value:
        slot = self.offset(self.record_ptr, operand_slot(self._operand_index(op)))
        return self.load_value(slot, f"u{bits}")

    def imm(self, name: str) -> Value:
        position = sorted(self.instr.imms).index(name)
        return self.load_value(self.offset(self.record_ptr, RECORD_IMMS + 4 * position), "i32")

    # --- fixed state -------------------------------------------------------------------------------------------------

    def _state(self, name: str) -> Ptr:
        return self.offset(self.wave_ptr, WAVE[name])

    def fixed_scalar(self, code: int, bits: int) -> Value:
        return self.load_value(self.offset(self.wave_ptr, WAVE["scalars"] + 4 * code), f"u{bits}", align=4)

    def set_fixed_scalar(self, code: int, value: Value) -> None:
        self.store_value(self.offset(self.wave_ptr, WAVE["scalars"] + 4 * code), value, align=4)

    def scc(self) -> Value:
        return self.load_value(self._state("scc"), "u32") != 0

    def set_scc(self, value: Value) -> None:
        assert value.type is BOOL and value.lanes == 1
        self.store_value(self._state("scc"), value.to("u32"))

    def hardware(self, name: str) -> Value:
        return self.load_value(self._state(name), "u32")

    def set_hardware(self, name: str, value: Value) -> None:
        self.store_value(self._state(name), value)
        self._mode_changed |= name == "mode"

    def scratch_base(self) -> Value:
        return self.load_value(self._state("scratch_base"), "u64")

    def scratch_size(self) -> Value:
        return self.load_value(self._state("scratch_size"), "u32")

    def clock(self) -> Value:
        now = self.load_value(self._state("clock"), "u64") + CLOCK_STEP
        self.store_value(self._state("clock"), now)
        return now

    # --- control -----------------------------------------------------------------------------------------------------

    def _context_field(self, name: str, type_name: str) -> Value:
        return self.load_value(self.offset(self.context_ptr, CTX[name]), type_name)

    def _record_offset(self) -> Value:
        """This record's distance from the program's first, in bytes."""
        return self.integer(self.record_ptr) - self._context_field("records", "u64")

    def pc(self) -> Value:
        return self._context_field("code_base", "u64") + (self._record_offset() >> 4)

    def branch(self, condition: Value | None) -> None:
        distance = (self.imm("simm16").to("i64") + 1) * RECORD_BYTES
        target = self.offset(self.record_ptr, distance)
        if condition is None:
            self.ret(target)
            return
        after = self._next()
        text = f"select {self.typed(condition)}, ptr {target.name}, ptr {after.name}"
        self.ret(Ptr(self.define(text)))

    def jump(self, target: Value) -> None:
        offset = target - self._context_field("code_base", "u64")
        inside = (offset < self._context_field("code_bytes", "u64")) & ((offset & 3) == 0)
        with self.if_(inside ^ True, rarely=True):
            self.store_value(self.offset(self.context_ptr, CTX["fault_address"]), target)
            self._leave(EVENTS["outside"])
        records = self.load_ptr(self.offset(self.context_ptr, CTX["records"]))
        self.ret(self.offset(records, offset << 4))

    def event(self, kind: Event, value: Value | None = None) -> None:
        self._leave(EVENTS[kind], value)
