"""What a semantic function may touch: the state of one wave, seen while one instruction executes.

`Context` extends `Lanes` by registers, memory and control flow. The numpy executor acts on the wave at once; the
compiler records native code in which register numbers, constants and immediates stay run-time values. A semantic
function may look at the instruction's operand kinds and modifiers (they specialise the native code), never at register
numbers, constant values or immediates: those come as `Value`s.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

from rjemu.isa.instruction import EXEC, M0, VCC, Instruction, Operand
from rjemu.isa.lanes import Lanes, Value

Space = Literal["global", "lds"]
AtomicOp = Literal[
    "add",
    "sub",
    "umin",
    "umax",
    "smin",
    "smax",
    "and",
    "or",
    "xor",
    "swap",
    "cmpswap",
    "inc",
    "dec",
    "fadd",
    "fmin",
    "fmax",
    "pk_add_f16",
    "pk_add_bf16",
    "rsub",
    "mskor",
    "wrap",
    "fcmpswap",
]
"""How an atomic combines memory with data; see `Context.atomic`."""

Semantic = Callable[["Context"], None]
"""The meaning of one instruction."""

Event = Literal["end", "barrier", "sleep", "trap", "halt", "icache", "illegal", "unsupported", "yield"]
"""Why a wave leaves the loop; see `Context.event`."""


class Context(Lanes):
    """One instruction of one wave. `instr` is the decoded instruction, `target` the architecture ("gfx950", ...)."""

    instr: Instruction
    target: str

    # --- whole registers ------------------------------------------------------------------------------------------

    @abstractmethod
    def vgpr(self, op: Operand, k: int = 0) -> Value:
        """u32 vector: vector register number op.index + k."""

    @abstractmethod
    def set_vgpr(self, op: Operand, k: int, value: Value, mask: Value | None = None) -> None:
        """Write u32 (vector, or scalar to broadcast) to register op.index + k in the lanes of mask (b1 vector), by
        default those of EXEC."""

    @abstractmethod
    def scalar(self, op: Operand, k: int = 0) -> Value:
        """u32 scalar: scalar register with code op.index + k."""

    @abstractmethod
    def set_scalar(self, op: Operand, k: int, value: Value) -> None:
        """Write a u32 scalar to scalar register op.index + k."""

    @abstractmethod
    def constant(self, op: Operand, bits: int) -> Value:
        """u32 or u64 scalar: the value of a constant operand."""

    @abstractmethod
    def fixed_scalar(self, code: int, bits: int) -> Value:
        """u32 or u64 scalar: the scalar register of that fixed hardware code (VCC, EXEC, M0, ...)."""

    @abstractmethod
    def set_fixed_scalar(self, code: int, value: Value) -> None: ...

    @abstractmethod
    def scalar_number(self, op: Operand) -> Value:
        """u32 scalar: the hardware code of a scalar operand's first register."""

    @abstractmethod
    def scalar_at(self, number: Value) -> Value:
        """u32 scalar: the scalar register of a computed code (u32 scalar, modulo 128)."""

    @abstractmethod
    def set_scalar_at(self, number: Value, value: Value) -> None: ...

    @abstractmethod
    def scc(self) -> Value:
        """b1 scalar."""

    @abstractmethod
    def set_scc(self, value: Value) -> None: ...

    @abstractmethod
    def hardware(self, name: str) -> Value:
        """u32 scalar from the wave's hardware state: "mode", "status", "trapsts", "hw_id", "xcc_id", "gpr_alloc",
        "lds_alloc", "ib_sts", "gpr_idx" (index mode word), "wave_in_group" ..."""

    @abstractmethod
    def set_hardware(self, name: str, value: Value) -> None: ...

    @abstractmethod
    def imm(self, name: str) -> Value:
        """i32 scalar: a free-running immediate (offset, offset0, offset1, simm16)."""

    def exec(self) -> Value:
        """u64 scalar."""
        return self.fixed_scalar(EXEC, 64)

    def exec_lanes(self) -> Value:
        """b1 vector: the active lanes."""
        return self.lane_mask(self.exec())

    def set_exec(self, value: Value) -> None:
        self.set_fixed_scalar(EXEC, value)

    def vcc(self) -> Value:
        return self.fixed_scalar(VCC, 64)

    def set_vcc(self, value: Value) -> None:
        self.set_fixed_scalar(VCC, value)

    def m0(self) -> Value:
        return self.fixed_scalar(M0, 32)

    # --- control ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def pc(self) -> Value:
        """u64 scalar: the GPU address of this instruction."""

    @abstractmethod
    def branch(self, condition: Value | None) -> None:
        """Continue at pc + 4 + 4 * simm16 if the condition (b1 scalar) holds or is None. Last effect of the instruction."""

    @abstractmethod
    def jump(self, target: Value) -> None:
        """Continue at a GPU address (u64 scalar). Last effect of the instruction."""

    @abstractmethod
    def event(self, kind: Event, value: Value | None = None) -> None:
        """Leave the loop after this instruction (end, barrier, sleep ...) with a u32 payload. Last effect. "yield" only
        ends the wave's turn among the waves of its workgroup."""

    @abstractmethod
    def clock(self) -> Value:
        """u64 scalar: a counter that grows with the instructions that the wave executes."""

    @abstractmethod
    def when(self, condition: Value, effects: Callable[[], None]) -> None:
        """Carry out rare effects (register writes, memory accesses) if the condition (b1) holds in some lane. The effects
        mask the lanes themselves; values made inside do not leave."""

    # --- memory ----------------------------------------------------------------------------------------------------
    # Addresses: u64 vectors of GPU addresses (global) or u32 vectors of byte offsets in the workgroup's LDS.
    # mask: b1 vector of the lanes that access; nothing is read through the others. A stray address faults.

    @abstractmethod
    def load(self, space: Space, address: Value, nbytes: int, mask: Value) -> list[Value]:
        """u32 vectors, one per dword; for 1 or 2 bytes one vector, zero extended. Masked-off lanes give 0."""

    @abstractmethod
    def load_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        """Load whole dwords straight into op's registers from op.index + first on, in the masked lanes. (The quick path of
        plain loads.)"""

    @abstractmethod
    def store(self, space: Space, address: Value, values: Sequence[Value], nbytes: int, mask: Value) -> None:
        """Store u32 vectors, one per dword; for 1 or 2 bytes the low part of one. Lanes store in ascending order."""

    @abstractmethod
    def store_registers(self, space: Space, address: Value, op: Operand, nbytes: int, mask: Value, first: int = 0) -> None:
        """Store whole dwords straight from op's registers. (The quick path of plain stores.)"""

    @abstractmethod
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
        """Per lane in ascending order, atomically: old = mem; mem = old op data. Gives old (as data; 0 where masked off).

        type_name: u32, u64, f32 or f64 (pk_*: u32). inc: old >= data ? 0 : old + 1. dec: (old == 0 or old > data) ? data
        : old - 1. cmpswap: old == compare ? data : old, fcmpswap by floating-point comparison. rsub: data - old. mskor:
        (old & ~data) | compare. wrap: old >= data ? old - data : old + compare. The floating-point ones: see `isa.atomics`;
        in LDS they follow the mode's denormal control, elsewhere they keep denormals. Misaligned addresses fault."""

    def copy_to_lds(self, address: Value, lds_address: Value, nbytes: int, mask: Value) -> None:
        """Copy whole dwords from global memory to LDS."""
        self.store("lds", lds_address, self.load("global", address, nbytes, mask), nbytes, mask)

    @abstractmethod
    def scalar_load(self, address: Value, dwords: int, limit: Value | None = None) -> list[Value]:
        """u32 scalars from a GPU address (u64 scalar). Only the first `limit` (u32 scalar, at most `dwords`) are read, the
        others are 0."""

    @abstractmethod
    def scalar_store(self, address: Value, values: Sequence[Value], limit: Value | None = None) -> None:
        """Store u32 scalars at a GPU address (u64 scalar), only the first `limit` of them if given."""

    @abstractmethod
    def scratch_base(self) -> Value:
        """u64 scalar: GPU address of this wave's scratch; lane l's private byte a lies at base + l * scratch_size + a."""

    @abstractmethod
    def scratch_size(self) -> Value:
        """u32 scalar: private segment bytes per lane."""
