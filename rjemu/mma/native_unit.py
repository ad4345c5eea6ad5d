"""The matrix unit of native code: unpack operands into panels on the stack, then multiply tiles of rows in registers.

A tile is as many result rows as fit the vector registers: for each k one row of B is loaded, and each of A's elements is
broadcast from memory into a fused multiply-add. Loops keep the code small, so that a handler compiles in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rjemu.exec.ir import Ptr, type_text
from rjemu.exec.native_context import NativeContext
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import BOOL, TYPES, Value
from rjemu.isa.operands import raw_source
from rjemu.mma.formats import Decoder
from rjemu.mma.geometry import SCALE_BLOCK, WAVE, InputLayout, Place
from rjemu.mma.unit import CANONICAL_NAN, LARGEST_F32, MatrixUnit, Panel, Product, matrix_unit

_REGISTER_BYTES = 4 * WAVE
_UNROLL = 4
"""Steps of k in one turn of the inner loop."""
_INFINITY = 0x7F800000


class NativeUnit(MatrixUnit):
    def __init__(self, b: NativeContext) -> None:
        self._b = b

    def panel(self, type_name: str, rows: int, columns: int) -> Panel:
        kind = type_text(TYPES[type_name], 1)
        return Panel(type_name, rows, columns, self._b.stack(f"[{rows * columns} x {kind}]"))

    # --- unpacking ---------------------------------------------------------------------------------------------------

    def fill(
        self, panel: Panel, operand: Operand, layout: InputLayout, decoder: Decoder, lanes: Sequence[int] | None = None
    ) -> None:
        b = self._b
        turns = layout.registers // decoder.registers
        per_turn = layout.items // turns
        if turns == 1:
            self._fill_turn(panel, self._words(operand, decoder.registers, None, lanes), layout, decoder, panel.data)
            return
        row_bytes = _row_bytes(panel)
        starts = [layout.k_of(turn * per_turn, 0) * row_bytes for turn in range(turns)]
        with b.count(turns) as turn:
            words = self._words(operand, decoder.registers, turn, lanes)
            start = b.table(starts, turn).to("u64")
            self._fill_turn(panel, words, layout, decoder, b.offset(panel.data, start))

    def _words(self, operand: Operand, registers: int, turn: Value | None, lanes: Sequence[int] | None) -> list[Value]:
        b = self._b
        if operand.kind != "v":
            return [b.vector(raw_source(b, operand, "u32"))] * registers
        first = b.operand_ptr(operand)
        if turn is not None:
            first = b.offset(first, turn * (registers * _REGISTER_BYTES))
        words = [b.load_value(b.offset(first, k * _REGISTER_BYTES), "u32", WAVE) for k in range(registers)]
        return words if lanes is None else [b.shuffle(word, lanes) for word in words]

    def _fill_turn(self, panel: Panel, words: list[Value], layout: InputLayout, decoder: Decoder, start: Ptr) -> None:
        b = self._b
        for item, value in enumerate(decoder.decode(words)):
            for group in range(layout.groups):
                part = value if layout.groups == 1 else b.extract(value, group * layout.columns, layout.columns)
                b.store_value(b.offset(start, layout.k_of(item, group) * _row_bytes(panel)), part)

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
                offset = b.table([tile.register * _REGISTER_BYTES + 4 * tile.lane for tile in tiles], index).to("u64")
                a_offset = b.table([tile.a_column * self._size for tile in tiles], index).to("u64")
                b_offset = b.table([tile.b_column * self._size for tile in tiles], index).to("u64")
                c = None if source is None else b.offset(source, offset)
                self._tile(places, c, b.offset(self._target, offset), a_offset, b_offset)
        if product.result != "i32":
            with b.if_(b.load_value(self._found_nan, "u32") != 0, rarely=True):
                self._canonicalise()

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
        size = self._layout.registers * _REGISTER_BYTES
        distance = b.integer(registers) - b.integer(self._target)
        overlap = (distance != 0) & ((distance + (size - 1)) < 2 * size - 1)
        copy = b.stack(f"[{size} x i8]")
        with b.if_(overlap, rarely=True), b.count(self._layout.registers) as k:
            words = b.load_value(b.offset(registers, k * _REGISTER_BYTES), "u32", WAVE)
            b.store_value(b.offset(copy, k * _REGISTER_BYTES), words)
        return Ptr(b.define(f"select {b.typed(overlap)}, ptr {copy.name}, ptr {registers.name}"))

    # --- one tile ----------------------------------------------------------------------------------------------------

    def _tile(self, places: list[Place], c: Ptr | None, d: Ptr, a_offset: Value, b_offset: Value) -> None:
        product, b = self._product, self._b
        initial = [self._read_c(c, place) for place in places]
        if product.result == "i32":
            sums = self._chain([self._zero()] * len(places), a_offset, b_offset, product.steps)
            totals = [self._add_i32(x, total) for x, total in zip(initial, sums, strict=True)]
        elif product.scales is None:
            totals = self._chain(initial, a_offset, b_offset, product.steps)
        else:
            totals = b.fold(
                product.scale_blocks,
                initial,
                lambda block, values: self._add_scaled_block(block, values, a_offset, b_offset),
            )
        if product.result != "i32":
            totals = [self._saturate(x) for x in totals] if b.fp.fp16_ovfl and product.result == "f32" else totals
            self._note_nan(totals)
        for place, total in zip(places, totals, strict=True):
            self._write_d(d, place, total)

    def _chain(self, totals: list[Value], a_offset: Value, b_offset: Value, steps: int) -> list[Value]:
        """The totals after `steps` fused multiply-adds, from those panel offsets (bytes) on."""
        b, product = self._b, self._product
        a, other = b.offset(product.a.data, a_offset), b.offset(product.b.data, b_offset)
        unroll = math.gcd(steps, _UNROLL)
        a_row, b_row = _row_bytes(product.a), _row_bytes(product.b)
        selected = None if product.selected is None else b.offset(product.selected.data, a_offset)

        def step(turn: Value, values: list[Value]) -> list[Value]:
            a_turn, b_turn = b.offset(a, turn * (unroll * a_row)), b.offset(other, turn * (unroll * b_row))
            for k in range(unroll):
                a_step = b.offset(a_turn, k * a_row)
                if selected is None:
                    rows = [self._load(b.offset(b_turn, k * b_row))] * len(values)
                else:
                    chosen = b.offset(selected, turn * (unroll * a_row) + k * a_row)
                    rows = [self._load(self._chosen_row(other, chosen, i)) for i in range(len(values))]
                values = [self._fma(a_step, i, rows[i], value) for i, value in enumerate(values)]
            return values

        return b.fold(steps // unroll, totals, step)

    def _fma(self, a: Ptr, i: int, row: Value, total: Value) -> Value:
        b = self._b
        element = b.load_value(b.offset(a, i * self._size), self._product.a.type_name)
        return b.raw_fma(b.splat(element, self._n), row, total)

    def _load(self, row: Ptr) -> Value:
        return self._b.load_value(row, self._product.b.type_name, self._n)

    def _chosen_row(self, other: Ptr, chosen: Ptr, i: int) -> Ptr:
        """B's row that a sparse A's element i takes."""
        b = self._b
        k = b.load_value(b.offset(chosen, 4 * i), "u32").to("u64")
        return b.offset(other, k * _row_bytes(self._product.b))

    def _add_scaled_block(self, block: Value, values: list[Value], a_offset: Value, b_offset: Value) -> list[Value]:
        """The totals with one scale block's sums added."""
        b, product, scales = self._b, self._product, self._product.scales
        assert scales is not None
        sums = self._chain(
            [self._zero()] * len(values),
            a_offset + block * (SCALE_BLOCK * _row_bytes(product.a)),
            b_offset + block * (SCALE_BLOCK * _row_bytes(product.b)),
            SCALE_BLOCK,
        )
        a_scales = b.offset(scales.a.data, a_offset + block * _row_bytes(scales.a))
        b_scales = self._load(b.offset(scales.b.data, b_offset + block * _row_bytes(scales.b)))
        out = []
        for i, (value, total) in enumerate(zip(values, sums, strict=True)):
            a_scale = b.splat(b.load_value(b.offset(a_scales, 4 * i), "f32"), self._n)
            out.append(b.raw("add", value, self._scale(total, b.raw("add", a_scale, b_scales))))
        return out

    def _scale(self, x: Value, exponent: Value) -> Value:
        """x * 2^exponent with one rounding, NaN where the exponent is."""
        b = self._b
        kind = type_text(x.type, x.lanes)
        if "avx512f" in b.module.features:
            name = b.module.declare(
                "llvm.x86.avx512.mask.scalef.ps.512", "<16 x float>", "<16 x float>, <16 x float>, <16 x float>, i16, i32"
            )
            pieces = []
            for start in range(0, x.lanes, 16):
                value, power = b.extract(x, start, 16), b.extract(exponent, start, 16)
                text = f"call <16 x float> {name}({b.typed(value)}, {b.typed(power)}, {b.typed(value)}, i16 -1, i32 4)"
                pieces.append(b.make(x.type, 16, b.define(text)))
            return b.concat(pieces)
        integer = b.float_to_int(exponent, "i32")
        name = b.module.declare(f"llvm.ldexp.v{x.lanes}f32.v{x.lanes}i32", kind, f"{kind}, <{x.lanes} x i32>")
        scaled = b.make(x.type, x.lanes, b.define(f"call {kind} {name}({b.typed(x)}, {b.typed(integer)})"))
        return b.select(b.isnan(exponent), exponent, scaled)

    # --- C and D -----------------------------------------------------------------------------------------------------

    def _zero(self) -> Value:
        return self._b.splat(self._b.const("f32", 0.0), self._n)

    def _read_c(self, c: Ptr | None, place: Place) -> Value:
        b, bits, result = self._b, self._layout.bits, self._product.result
        if c is None:
            value = b.splat(b.constant(self._product.c, bits), self._n)
        else:
            first = b.offset(c, place.register * _REGISTER_BYTES + 4 * place.lane)
            value = b.load_value(first, "u32", self._n)
            if bits == 64:
                high = b.load_value(b.offset(first, _REGISTER_BYTES), "u32", self._n)
                value = value.to("u64") | (high.to("u64") << b.splat(b.const("u64", 32), self._n))
        if self._product.negate_c:
            value = value ^ b.splat(b.const(f"u{bits}", 1 << (bits - 1)), self._n)
        return value.bits(result)

    def _write_d(self, d: Ptr, place: Place, value: Value) -> None:
        b = self._b
        first = b.offset(d, place.register * _REGISTER_BYTES + 4 * place.lane)
        words = value.bits(f"u{self._layout.bits}")
        b.store_value(first, words.to("u32"))
        if self._layout.bits == 64:
            high = (words >> b.splat(b.const("u64", 32), self._n)).to("u32")
            b.store_value(b.offset(first, _REGISTER_BYTES), high)

    def _add_i32(self, c: Value, total: Value) -> Value:
        """c + the sum of products, which f32 holds exactly: 128 products of at most 2^14."""
        b = self._b
        kind = type_text(c.type, c.lanes)
        exact = b.make(c.type, c.lanes, b.define(f"fptosi {b.typed(total)} to {kind}"))
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
            first = b.offset(self._target, item * (span * _REGISTER_BYTES))
            words = [b.load_value(b.offset(first, k * _REGISTER_BYTES), "u32", WAVE) for k in range(span)]
            pattern = words[0] if span == 1 else b.join64(words[0], words[1])
            fixed = b.select(b.isnan(pattern.bits(result)), CANONICAL_NAN[result], pattern)
            b.store_value(first, fixed.to("u32"))
            if span == 2:
                b.store_value(b.offset(first, _REGISTER_BYTES), (fixed >> 32).to("u32"))


def _row_bytes(panel: Panel) -> int:
    return panel.columns * TYPES[panel.type_name].bits // 8


@matrix_unit.register
def _(b: NativeContext) -> NativeUnit:
    return NativeUnit(b)
