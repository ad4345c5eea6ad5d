"""The matrix unit of native code: operands in panels on the stack, multiplied tile by tile in registers.

A tile is as many result rows as fit the vector registers: for each k one row of B is loaded, and each of A's elements is
broadcast from memory into a fused multiply-add. Loops keep the code small, so that a handler compiles in milliseconds.
"""

from __future__ import annotations

import math

from rjemu.exec.ir import Ptr, type_text
from rjemu.exec.native_context import NativeContext
from rjemu.isa.lanes import BOOL, TYPES, Value
from rjemu.mma.geometry import WAVE, Place
from rjemu.mma.native_panels import (
    BYTE_FRACTION_BITS,
    REGISTER_BYTES,
    Panel,
    multiplies_bytes,
    new_panel,
    unpack,
    unpack_bytes,
)
from rjemu.mma.unit import CANONICAL_NAN, LARGEST_F32, MatrixUnit, Product, matrix_unit

_UNROLL = 4
"""Steps of k in one turn of the inner loop."""
_INFINITY = 0x7F800000
_SIGNS = 0x80808080
_F64_BIAS, _F64_FRACTION_BITS = 1023, 52


class NativeUnit(MatrixUnit):
    def __init__(self, b: NativeContext) -> None:
        self._b = b

    def multiply(self, product: Product) -> None:
        _Multiplication(self._b, product).write()


class _Multiplication:
    """Writes the code of one product."""

    def __init__(self, b: NativeContext, product: Product) -> None:
        self._b = b
        self._product = product
        self._layout = product.layout
        self._n = product.layout.n
        self._size = product.layout.bits // 8
        self._target = b.operand_ptr(product.d)
        self._found_nan = b.stack("i32")
        self._bytes = multiplies_bytes(b, product)
        read = unpack_bytes if self._bytes else unpack
        self._a, self._b_panel = read(b, product.a), read(b, product.b)
        self._selected = None if product.selected is None else unpack(b, product.selected)
        self._scales = None if product.scales is None else (unpack(b, product.scales.a), unpack(b, product.scales.b))
        self._blocks = 1 if product.scales is None else product.scale_blocks
        """Runs of k that are summed apart."""
        self._corrections = self._make_unsigned() if self._bytes else None

    def write(self) -> None:
        b, product = self._b, self._product
        b.store_value(self._found_nan, b.const("u32", 0))
        source = self._source()
        height = self._tile_height()
        tiles = self._layout.tiles(height)
        places = self._layout.tile_rows(height)
        if len(tiles) == 1:
            self._tile(places, source, self._target, b.const("u64", 0), b.const("u64", 0))
        else:
            with b.count(len(tiles)) as index:
                offset = b.table([tile.register * REGISTER_BYTES + 4 * tile.lane for tile in tiles], index).to("u64")
                a_offset = b.table([tile.a_column * self._size for tile in tiles], index).to("u64")
                b_offset = b.table([tile.b_column * self._size for tile in tiles], index).to("u64")
                c = None if source is None else b.offset(source, offset)
                self._tile(places, c, b.offset(self._target, offset), a_offset, b_offset)
        if product.result != "i32":
            with b.if_(b.load_value(self._found_nan, "u32") != 0, rarely=True):
                self._canonicalise()

    def _make_unsigned(self) -> Panel:
        """Add 128 to B's bytes, since the host multiplies unsigned by signed ones, and give what that makes of each row's
        sums, negated: -128 times the sum of A's bytes, [blocks][columns of A]."""
        b, a, other = self._b, self._a, self._b_panel
        with b.count(other.rows) as row:
            place = b.offset(other.ptr, row * other.row_bytes)
            words = b.load_value(place, "u32", other.columns)
            b.store_value(place, words ^ b.splat(b.const("u32", _SIGNS), other.columns))
        panel = new_panel(b, "i32", self._blocks, a.columns)
        rows = a.rows // self._blocks
        excess = b.splat(b.const("u32", _SIGNS), a.columns)
        zero = b.splat(b.const("i32", 0), a.columns)

        for block in range(self._blocks):
            first = b.offset(a.ptr, block * rows * a.row_bytes)

            def add_row(row: Value, totals: list[Value], first: Ptr = first) -> list[Value]:
                return [self._dot(excess, b.load_value(b.offset(first, row * a.row_bytes), "u32", a.columns), totals[0])]

            (total,) = b.fold(rows, [zero], add_row)
            b.store_value(b.offset(panel.ptr, block * panel.row_bytes), zero - total)
        return panel

    def _dot(self, unsigned: Value, signed: Value, total: Value) -> Value:
        """total + the products of the four bytes of each word."""
        b = self._b
        kinds = ", ".join(["<16 x i32>"] * 3)
        name = b.module.declare("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", kinds)
        pieces = []
        for start in range(0, total.lanes, 16):
            arguments = ", ".join(b.typed(b.extract(x, start, 16)) for x in (total, unsigned, signed))
            pieces.append(b.make(total.type, 16, b.define(f"call <16 x i32> {name}({arguments})")))
        return b.concat(pieces)

    def _tile_height(self) -> int:
        """Rows whose accumulators leave registers free for B's row and a broadcast element of A."""
        register_bytes, accumulators = (64, 16) if "avx512f" in self._b.module.features else (32, 8)
        per_row = max(self._n * self._size // register_bytes, 1)
        return min(self._layout.m, accumulators // per_row)

    def _source(self) -> Ptr | None:
        """Where C's registers are to be read from; None for a constant. Where they overlap with D's, but are not the
        same, from a copy, since D is written while C is still being read."""
        b, c = self._b, self._product.c
        if c.kind != "v":
            return None
        if c is self._product.d:
            return self._target
        registers = b.operand_ptr(c)
        size = self._layout.registers * REGISTER_BYTES
        distance = b.integer(registers) - b.integer(self._target)
        overlap = (distance != 0) & ((distance + (size - 1)) < 2 * size - 1)
        copy = b.stack(f"[{size} x i8]")
        with b.if_(overlap, rarely=True), b.count(self._layout.registers) as k:
            words = b.load_value(b.offset(registers, k * REGISTER_BYTES), "u32", WAVE)
            b.store_value(b.offset(copy, k * REGISTER_BYTES), words)
        return Ptr(b.define(f"select {b.typed(overlap)}, ptr {copy.name}, ptr {registers.name}"))

    # --- one tile ----------------------------------------------------------------------------------------------------

    def _tile(self, places: list[Place], c: Ptr | None, d: Ptr, a_offset: Value, b_offset: Value) -> None:
        product, b = self._product, self._b
        initial = [self._read_c(c, place) for place in places]
        if product.result == "i32":
            sums = self._chain(self._starts(len(places), a_offset), a_offset, b_offset)
            totals = [self._add_i32(x, total) for x, total in zip(initial, sums, strict=True)]
        elif product.scales is None:
            totals = self._chain(initial, a_offset, b_offset)
        else:
            totals = b.fold(
                self._blocks, initial, lambda block, values: self._add_scaled_block(block, values, a_offset, b_offset)
            )
        if product.result != "i32":
            totals = [self._saturate(x) for x in totals] if b.fp.fp16_ovfl and product.result == "f32" else totals
            self._note_nan(totals)
        for place, total in zip(places, totals, strict=True):
            self._write_d(d, place, total)

    def _starts(self, rows: int, a_offset: Value) -> list[Value]:
        """What sums from zero on begin with. a_offset: that of the tile's first row, and of its block of corrections."""
        b = self._b
        if self._corrections is None:
            return [b.splat(b.const("f32", 0.0), self._n)] * rows
        first = b.offset(self._corrections.ptr, a_offset)
        return [b.splat(b.load_value(b.offset(first, 4 * i), "i32"), self._n) for i in range(rows)]

    def _chain(self, totals: list[Value], a_offset: Value, b_offset: Value) -> list[Value]:
        """The totals after the multiply-adds of one run of k, from those offsets (bytes) in the panels on."""
        b = self._b
        steps = self._a.rows // self._blocks
        a, other = b.offset(self._a.ptr, a_offset), b.offset(self._b_panel.ptr, b_offset)
        unroll = math.gcd(steps, _UNROLL)
        a_row, b_row = self._a.row_bytes, self._b_panel.row_bytes
        selected = None if self._selected is None else b.offset(self._selected.ptr, a_offset)

        def step(turn: Value, values: list[Value]) -> list[Value]:
            a_turn, b_turn = b.offset(a, turn * (unroll * a_row)), b.offset(other, turn * (unroll * b_row))
            for k in range(unroll):
                a_step = b.offset(a_turn, k * a_row)
                if selected is None:
                    rows = [self._load_row(b.offset(b_turn, k * b_row))] * len(values)
                else:
                    chosen = b.offset(selected, turn * (unroll * a_row) + k * a_row)
                    rows = [self._load_row(self._chosen_row(other, chosen, i)) for i in range(len(values))]
                values = [self._multiply_add(a_step, i, rows[i], value) for i, value in enumerate(values)]
            return values

        return b.fold(steps // unroll, totals, step)

    def _multiply_add(self, a: Ptr, i: int, row: Value, total: Value) -> Value:
        b = self._b
        element = b.splat(b.load_value(b.offset(a, i * self._size), self._a.type_name), self._n)
        return self._dot(row, element, total) if self._bytes else b.raw_fma(element, row, total)

    def _load_row(self, row: Ptr) -> Value:
        return self._b.load_value(row, self._b_panel.type_name, self._n)

    def _chosen_row(self, other: Ptr, chosen: Ptr, i: int) -> Ptr:
        """B's row that a sparse A's element i takes."""
        b = self._b
        k = b.load_value(b.offset(chosen, 4 * i), "u32").to("u64")
        return b.offset(other, k * self._b_panel.row_bytes)

    def _add_scaled_block(self, block: Value, values: list[Value], a_offset: Value, b_offset: Value) -> list[Value]:
        """The totals with one scale block's sums added."""
        b = self._b
        assert self._scales is not None
        a_scales, b_scales = self._scales
        rows = self._a.rows // self._blocks
        starts = self._starts(len(values), a_offset + block * (4 * self._a.columns))
        a_block = a_offset + block * (rows * self._a.row_bytes)
        sums = self._chain(starts, a_block, b_offset + block * (rows * self._b_panel.row_bytes))
        first = b.offset(a_scales.ptr, a_offset + block * a_scales.row_bytes)
        b_power = b.load_value(b.offset(b_scales.ptr, b_offset + block * b_scales.row_bytes), "f32", self._n)
        if self._bytes:
            fraction = BYTE_FRACTION_BITS[self._product.a.element] + BYTE_FRACTION_BITS[self._product.b.element]
            b_power = b.raw("add", b_power, b.splat(b.const("f32", -fraction), self._n))
            sums = [total.to("f32") for total in sums]
        out = []
        for i, (value, total) in enumerate(zip(values, sums, strict=True)):
            a_power = b.splat(b.load_value(b.offset(first, 4 * i), "f32"), self._n)
            out.append(b.raw("add", value, self._scale(total, b.raw("add", a_power, b_power))))
        return out

    def _scale(self, x: Value, exponent: Value) -> Value:
        """x * 2^exponent with one rounding, NaN where the exponent is."""
        b = self._b
        if "avx512f" not in b.module.features:
            return self._scale_by_double(x, exponent)
        kinds = "<16 x float>, <16 x float>, <16 x float>, i16, i32"
        name = b.module.declare("llvm.x86.avx512.mask.scalef.ps.512", "<16 x float>", kinds)
        pieces = []
        for start in range(0, x.lanes, 16):
            value, power = b.extract(x, start, 16), b.extract(exponent, start, 16)
            text = f"call <16 x float> {name}({b.typed(value)}, {b.typed(power)}, {b.typed(value)}, i16 -1, i32 4)"
            pieces.append(b.make(x.type, 16, b.define(text)))
        return b.concat(pieces)

    def _scale_by_double(self, x: Value, exponent: Value) -> Value:
        """The same by way of f64, which holds every product of an f32 and such a power of two."""
        b, lanes = self._b, x.lanes
        whole = b.make(TYPES["i32"], lanes, b.define(f"fptosi {b.typed(exponent)} to <{lanes} x i32>"))
        biased = whole.to("i64") + b.splat(b.const("i64", _F64_BIAS), lanes)
        power = (biased << b.splat(b.const("i64", _F64_FRACTION_BITS), lanes)).bits("f64")
        scaled = b.raw_convert(b.raw("mul", b.raw_convert(x, "f64"), power), "f32")
        return b.select(b.isnan(exponent), exponent, scaled)

    # --- C and D -----------------------------------------------------------------------------------------------------

    def _read_c(self, c: Ptr | None, place: Place) -> Value:
        b, bits, result = self._b, self._layout.bits, self._product.result
        if c is None:
            value = b.splat(b.constant(self._product.c, bits), self._n)
        else:
            first = b.offset(c, place.register * REGISTER_BYTES + 4 * place.lane)
            value = b.load_value(first, "u32", self._n)
            if bits == 64:
                high = b.load_value(b.offset(first, REGISTER_BYTES), "u32", self._n)
                value = value.to("u64") | (high.to("u64") << b.splat(b.const("u64", 32), self._n))
        if self._product.negate_c:
            value = value ^ b.splat(b.const(f"u{bits}", 1 << (bits - 1)), self._n)
        return value.bits(result)

    def _write_d(self, d: Ptr, place: Place, value: Value) -> None:
        b = self._b
        first = b.offset(d, place.register * REGISTER_BYTES + 4 * place.lane)
        words = value.bits(f"u{self._layout.bits}")
        b.store_value(first, words.to("u32"))
        if self._layout.bits == 64:
            high = (words >> b.splat(b.const("u64", 32), self._n)).to("u32")
            b.store_value(b.offset(first, REGISTER_BYTES), high)

    def _add_i32(self, c: Value, total: Value) -> Value:
        """c + the sum of products, which f32 holds exactly too: 128 products of at most 2^14."""
        b = self._b
        kind = type_text(c.type, c.lanes)
        exact = total if self._bytes else b.make(c.type, c.lanes, b.define(f"fptosi {b.typed(total)} to {kind}"))
        if not b.fp.fp16_ovfl:
            return c + exact
        name = b.module.declare(f"llvm.sadd.sat.v{c.lanes}i32", kind, f"{kind}, {kind}")
        return b.make(c.type, c.lanes, b.define(f"call {kind} {name}({b.typed(c)}, {b.typed(exact)})"))

    def _saturate(self, x: Value) -> Value:
        """Infinities as the largest finite numbers of their sign."""
        b = self._b
        bits = x.bits("u32")
        magnitude = bits & b.splat(b.const("u32", 0x7FFFFFFF), self._n)
        infinite = magnitude == b.splat(b.const("u32", _INFINITY), self._n)
        return (bits - infinite.to("u32") * b.splat(b.const("u32", _INFINITY - LARGEST_F32), self._n)).bits("f32")

    def _note_nan(self, totals: list[Value]) -> None:
        """Set the flag if some total is NaN."""
        b = self._b
        unordered: Value | None = None
        for x, y in zip(totals[::2], totals[1::2] or totals, strict=True):
            either = b.make(BOOL, self._n, b.define(f"fcmp uno {b.typed(x)}, {b.ref(y)}"))
            unordered = either if unordered is None else unordered | either
        assert unordered is not None
        with b.if_(b.any(unordered), rarely=True):
            b.store_value(self._found_nan, b.const("u32", 1))

    def _canonicalise(self) -> None:
        """Give every NaN in D its defined bits."""
        b, result, bits = self._b, self._product.result, self._layout.bits
        span = bits // 32
        with b.count(self._layout.registers // span) as item:
            first = b.offset(self._target, item * (span * REGISTER_BYTES))
            words = [b.load_value(b.offset(first, k * REGISTER_BYTES), "u32", WAVE) for k in range(span)]
            pattern = words[0] if span == 1 else b.join64(words[0], words[1])
            fixed = b.select(b.isnan(pattern.bits(result)), CANONICAL_NAN[result], pattern)
            b.store_value(first, fixed.to("u32"))
            if span == 2:
                b.store_value(b.offset(first, REGISTER_BYTES), (fixed >> 32).to("u32"))


@matrix_unit.register
def _(b: NativeContext) -> NativeUnit:
    return NativeUnit(b)
