"""`IrLanes` with access to structures by field name: the language of the native run time."""

from __future__ import annotations

from rjemu.exec.ir import IrLanes, Ptr
from rjemu.exec.layout import EVENTS
from rjemu.isa.lanes import Value


class Native(IrLanes):
    """An `IrLanes` with access to structures by field name."""

    def field(self, base: Ptr, layout: dict[str, int], name: str) -> Ptr:
        return self.offset(base, layout[name])

    def get(self, base: Ptr, layout: dict[str, int], name: str, type_name: str = "u32") -> Value:
        return self.load_value(self.field(base, layout, name), type_name)

    def put(self, base: Ptr, layout: dict[str, int], name: str, value: Value | int, type_name: str = "u32") -> None:
        self.store_value(self.field(base, layout, name), value if isinstance(value, Value) else self.const(type_name, value))

    def get_ptr(self, base: Ptr, layout: dict[str, int], name: str) -> Ptr:
        return self.load_ptr(self.field(base, layout, name))

    def add_to(self, base: Ptr, layout: dict[str, int], name: str, amount: Value | int = 1) -> None:
        """Add to a u64 field that only this process writes."""
        self.put(base, layout, name, self.get(base, layout, name, "u64") + amount)

    def fill_zero(self, base: Ptr, nbytes: Value) -> None:
        callee = self.module.declare("llvm.memset.p0.i64", "void", "ptr, i8, i64, i1")
        self.emit(f"call void {callee}(ptr {base.name}, i8 0, {self.typed(nbytes)}, i1 false)")

    def copy(self, to: Ptr, source: Ptr, nbytes: Value) -> None:
        callee = self.module.declare("llvm.memcpy.p0.p0.i64", "void", "ptr, ptr, i64, i1")
        self.emit(f"call void {callee}(ptr {to.name}, ptr {source.name}, {self.typed(nbytes)}, i1 false)")

    def expect_write(self, ptr: Ptr) -> None:
        """Have a cache line that is read now and written soon fetched once, for both."""
        callee = self.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        self.emit(f"call void {callee}(ptr {ptr.name}, i32 1, i32 3, i32 1)")

    def divide(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Unsigned (quotient, remainder)."""
        quotient = self.make(x.type, 1, self.define(f"udiv {self.typed(x)}, {self.ref(y)}"))
        return quotient, x - quotient * y

    def argument(self, name: str, type_name: str = "u32") -> Value:
        """A scalar argument of the function."""
        return self.make(self.const(type_name, 0).type, 1, f"%{name}")

    def invoke(self, callee: str, type_name: str, arguments: list[Value | Ptr]) -> Value:
        """Call a function with a scalar result."""
        return self.make(self.const(type_name, 0).type, 1, self.call(callee, f"i{type_name[1:]}", arguments))


def repeats(b: Native, event: Value) -> Value:
    """b1: events after which the same instruction is executed again (or never was)."""
    result = event == EVENTS["undecoded"]
    for name in ("outside", "memory", "misaligned", "illegal", "unsupported"):
        result = result | (event == EVENTS[name])
    return result
