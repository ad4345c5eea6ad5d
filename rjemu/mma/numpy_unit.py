"""The matrix unit of the reference executor, on numpy arrays."""

from __future__ import annotations

import numpy as np

from rjemu.exec.numpy_context import NumpyContext
from rjemu.exec.numpy_lanes import DTYPES, fma32
from rjemu.isa.lanes import TYPES
from rjemu.isa.operands import raw_source
from rjemu.mma.geometry import SCALE_BLOCK, WAVE
from rjemu.mma.unit import CANONICAL_NAN, LARGEST_F32, Input, MatrixUnit, Product, matrix_unit


class NumpyUnit(MatrixUnit):
    def __init__(self, b: NumpyContext) -> None:
        self._b = b

    def _unpack(self, source: Input) -> np.ndarray:
        """The elements [k][columns]."""
        b, layout, decoder, operand = self._b, source.layout, source.decoder, source.operand
        out = np.zeros((layout.k, layout.columns), DTYPES[TYPES[source.type_name]])
        item = 0
        for register in range(0, layout.registers, decoder.registers):
            words = [
                b.vgpr(operand, register + k) if operand.kind == "v" else b.vector(raw_source(b, operand, "u32"))
                for k in range(decoder.registers)
            ]
            if source.lanes is not None:
                words = [b.shuffle(word, source.lanes) for word in words]
            for value in decoder.decode(words):
                rows = [layout.k_of(item, group) for group in range(layout.groups)]
                out[rows] = value.data.reshape(layout.groups, layout.columns)
                item += 1
        return out

    def multiply(self, product: Product) -> None:
        layout = product.layout
        rows = [(block, i) for block in range(layout.blocks) for i in range(layout.m)]
        places = [layout.place(block, i, 0) for block, i in rows]
        register = np.array([place.register for place in places])[:, None]
        lane = np.array([place.lane for place in places])[:, None] + np.arange(layout.n)
        column = np.array([block * layout.n for block, _ in rows])[:, None] + np.arange(layout.n)
        steps = self._steps(product, column)
        result = self._accumulate(product, self._read(product, register, lane), steps)
        self._write(product, result, register, lane)

    def _steps(self, product: Product, column: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each multiply-add, A's elements [row of a block, 1] and B's [row of a block, column]."""
        a, other = self._unpack(product.a), self._unpack(product.b)
        if product.selected is None:
            rows = np.broadcast_to(np.arange(product.steps)[:, None], a.shape)
        else:
            rows = self._unpack(product.selected)
        return [(a[k][:, None], other[rows[k][:, None], column]) for k in range(product.steps)]

    def _read(self, product: Product, register: np.ndarray, lane: np.ndarray) -> np.ndarray:
        """C as [row of a block, column] of the result's type."""
        b = self._b
        bits = product.layout.bits
        if product.c.kind == "v":
            file = np.stack([b.vgpr(product.c, k).data for k in range(product.layout.registers)])
            words = file[register, lane]
            if bits == 64:
                words = words | file[register + 1, lane].astype(np.uint64) << np.uint64(32)
        else:
            words = np.broadcast_to(b.constant(product.c, bits).data, lane.shape)
        c = np.ascontiguousarray(words).view(DTYPES[TYPES[product.result]])
        return -c if product.negate_c else c

    def _accumulate(self, product: Product, c: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        if product.result == "i32":
            total = c + sum((x * y).astype(np.int64) for x, y in steps)
            if self._b.fp.fp16_ovfl:
                total = np.clip(total, -(1 << 31), (1 << 31) - 1)
            return np.asarray(total.astype(np.int32))
        if product.scales is None:
            return self._chain(c, steps)
        a_scales, b_scales = self._unpack(product.scales.a), self._unpack(product.scales.b)
        for block in range(product.scale_blocks):
            first = block * SCALE_BLOCK
            total = self._chain(np.zeros_like(c), steps[first : first + SCALE_BLOCK])
            exponent = a_scales[block][:, None] + b_scales[block]
            with np.errstate(all="ignore"):
                c = c + np.where(np.isnan(exponent), np.float32(np.nan), np.ldexp(total, exponent.astype(np.int32)))
        return c

    def _chain(self, total: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """fma(a, b, ...) in order."""
        for x, y in steps:
            if total.dtype == np.float64:
                flat = [np.broadcast_to(v, total.shape).ravel() for v in (x, y, total)]
                values = [self._b.make(TYPES["f64"], v) for v in flat]
                total = self._b.raw_fma(*values).data.reshape(total.shape)
            else:
                total = fma32(x, y, total)
        return total

    def _write(self, product: Product, result: np.ndarray, register: np.ndarray, lane: np.ndarray) -> None:
        b = self._b
        bits = result.view(f"uint{product.layout.bits}").copy()
        if product.result != "i32":
            if product.result == "f32" and b.fp.fp16_ovfl:
                bits[np.isinf(result)] -= 0x7F800000 - LARGEST_F32
            bits[np.isnan(result)] = CANONICAL_NAN[product.result]
        file = np.zeros((product.layout.registers, WAVE), np.uint32)
        file[register, lane] = bits.astype(np.uint32)
        if product.layout.bits == 64:
            file[register + 1, lane] = (bits >> np.uint64(32)).astype(np.uint32)
        everywhere = b.lane_mask(b.const("u64", -1))
        for k, words in enumerate(file):
            b.set_vgpr(product.d, k, b.make(TYPES["u32"], words), everywhere)


@matrix_unit.register
def _(b: NumpyContext) -> NumpyUnit:
    return NumpyUnit(b)
