"""Conversions from and to fp8, bf8, fp6, bf6 and fp4, with and without block scale, and those with stochastic rounding
(CDNA3 and CDNA4 ISA, "BF8 / FP8 and Smaller Formats and Conversions").

The format fp8 and bf8 stand for is the target's. An instruction writes its part of the destination's first dword (a byte
or half chosen by op_sel) and keeps the rest, or whole dwords. MODE's denormal control holds for f32 sources only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rjemu.isa.context import Context
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import Value
from rjemu.isa.operands import output_modifiers, raw_source, source, write_mask
from rjemu.isa.semantics.convert import pack16
from rjemu.isa.semantics.registry import define, register
from rjemu.isa.smallfloat import (
    BF16,
    F16,
    Scale,
    SmallFloat,
    Stochastic,
    bf16_to_f32,
    e8m0_scale,
    f32_to_bf16,
    format_of,
    narrow,
    widen,
)

_MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}

# --- reading and writing parts of registers ---------------------------------------------------------------------------


def _write_dwords(b: Context, values: list[Value]) -> None:
    """Write the destination's registers, all computed before the first is written: it may overlap the sources."""
    mask = write_mask(b)
    for k, value in enumerate(values):
        b.set_vgpr(b.instr.operand("vdst"), k, value, mask)


def _write_part(b: Context, value: Value, bits: int, position: int) -> None:
    """Write `bits` bits at part number `position` of the destination; its other bits stay."""
    shift = bits * position
    keep = 0xFFFFFFFF ^ (((1 << bits) - 1) << shift)
    _write_dwords(b, [(b.vgpr(b.instr.operand("vdst")) & keep) | (value << shift)])


def _byte_selection(b: Context) -> int:
    """op_sel[3:2]: the byte of the destination."""
    return b.instr.mod("op_sel") >> 2 & 3


def _half_selection(b: Context) -> int:
    """op_sel[3]: the half of the destination."""
    return b.instr.mod("op_sel") >> 3 & 1


def _with_signs(b: Context, pattern: Value, index: int, sign: int) -> Value:
    """A pattern with source `index`'s abs and neg applied to its sign bits."""
    if b.instr.mod("abs") >> index & 1:
        pattern = pattern & (0xFFFFFFFF ^ sign)
    if b.instr.mod("neg") >> index & 1:
        pattern = pattern ^ sign
    return pattern


def _elements(b: Context, op: Operand, kind: str, count: int) -> Iterator[Value]:
    """The first `count` f32, f16 or bf16 elements of a source as f32, after its modifiers."""
    index = int(op.name[-1])
    if kind == "f32":
        for k in range(count):
            word = b.vgpr(op, k) if op.kind == "v" else raw_source(b, op, "u32")
            yield b.flush_input(_with_signs(b, word, index, 0x80000000).bits("f32"))
        return
    for k in range((count + 1) // 2):
        word = b.vgpr(op, k) if op.kind == "v" else raw_source(b, op, "u32")
        word = _with_signs(b, word, index, 0x80008000)
        for half in (word & 0xFFFF, word >> 16):
            yield bf16_to_f32(half) if kind == "bf16" else half.to("u16").bits("f16").to("f32")


def _one_element(b: Context, op: Operand, kind: str) -> Value:
    """A scalar source as f32: for f16 and bf16 the half that op_sel names."""
    if kind == "f32":
        return b.flush_input(source(b, op, "f32"))
    if kind == "f16":
        return source(b, op, "f16").to("f32")
    pattern = _with_signs(b, source(b, op, "u16").to("u32"), int(op.name[-1]), 0x8000)
    return bf16_to_f32(pattern)


def _scale(b: Context, name: str) -> Scale:
    return e8m0_scale(raw_source(b, b.instr.operand(name), "u32"))


# --- fp8 and bf8 without scale ----------------------------------------------------------------------------------------


def _selected_source(b: Context) -> tuple[Value, int]:
    """src0's dword after DPP movement, and its SDWA selection (all that SDWA means here)."""
    op = b.instr.operand("src0")
    if "src0_sel" in b.instr.mods:
        return raw_source(b, op, "u32"), b.instr.mod("src0_sel")
    return source(b, op, "u32"), 0


def _define_widening(fmt: str) -> None:
    def one(b: Context) -> None:
        word, selection = _selected_source(b)
        byte = selection if selection < 4 else 0
        result = output_modifiers(b, widen(b, (word >> (8 * byte)) & 0xFF, format_of(fmt, b.target)))
        _write_dwords(b, [result.bits("u32")])

    def pair(b: Context) -> None:
        word, selection = _selected_source(b)
        half = word >> (16 * (selection & 3 == 1))
        values = [widen(b, (half >> shift) & 0xFF, format_of(fmt, b.target)) for shift in (0, 8)]
        _write_dwords(b, [output_modifiers(b, value).bits("u32") for value in values])

    register(f"v_cvt_f32_{fmt}", one)
    register(f"v_cvt_pk_f32_{fmt}", pair)


def _define_narrowing(fmt: str) -> None:
    def pair(b: Context) -> None:
        codes = [
            narrow(b, _one_element(b, b.instr.operand(name), "f32"), format_of(fmt, b.target), saturate=b.fp.fp16_ovfl)
            for name in ("src0", "src1")
        ]
        _write_part(b, codes[0] | (codes[1] << 8), 16, _half_selection(b))

    def stochastic(b: Context) -> None:
        rounding = Stochastic(source(b, b.instr.operand("src1"), "u32"))
        x = _one_element(b, b.instr.operand("src0"), "f32")
        code = narrow(b, x, format_of(fmt, b.target), stochastic=rounding, saturate=b.fp.fp16_ovfl)
        _write_part(b, code, 8, _byte_selection(b))

    register(f"v_cvt_pk_{fmt}_f32", pair)
    register(f"v_cvt_sr_{fmt}_f32", stochastic)


for _fmt in ("fp8", "bf8"):
    _define_widening(_fmt)
    _define_narrowing(_fmt)

# --- stochastic rounding to 16 bits -----------------------------------------------------------------------------------


def _define_stochastic_half(fmt: SmallFloat, name: str) -> None:
    def convert(b: Context) -> None:
        rounding = Stochastic(source(b, b.instr.operand("src1"), "u32"))
        x = _one_element(b, b.instr.operand("src0"), "f32")
        code = narrow(b, x, fmt, stochastic=rounding, saturate=b.fp.fp16_ovfl and fmt is F16)
        _write_part(b, code, 16, _half_selection(b))

    register(name, convert)


_define_stochastic_half(F16, "v_cvt_sr_f16_f32")
_define_stochastic_half(BF16, "v_cvt_sr_bf16_f32")


def random_step(b: Context, x: Value) -> Value:
    """One step of the linear feedback shift register of v_prng_b32 (u32)."""
    return (x << 1) ^ b.select(x.bits("i32") < 0, b.const("u32", 197), b.const("u32", 0))


define("v_prng_b32", "u32 = u32", random_step)

# --- with block scale: to small formats -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """v_cvt_scalef32_[sr_]...: elements of `kind` to codes of `fmt`, divided by the scale in the last source."""

    fmt: str
    kind: str
    stochastic: bool

    def codes(self, b: Context, elements: Iterator[Value]) -> Iterator[Value]:
        fmt = format_of(self.fmt, b.target)
        sources = [op for op in b.instr.operands if not op.is_dst]
        scale = _scale(b, sources[-1].name)
        saturate = b.fp.fp16_ovfl and fmt.nan is not None
        random = source(b, sources[1], "u32") if self.stochastic else None
        for x in elements:
            rounding = None if random is None else Stochastic(random, _MANTISSA[self.kind])
            yield narrow(b, x, fmt, scale=scale, stochastic=rounding, saturate=saturate)
            if random is not None:
                random = random_step(b, random)


def _define_scaled_single(fmt: str, kind: str) -> None:
    narrowing = _Narrowing(fmt, kind, stochastic=True)

    def convert(b: Context) -> None:
        element = iter([_one_element(b, b.instr.operand("src0"), kind)])
        _write_part(b, next(narrowing.codes(b, element)), 8, _byte_selection(b))

    register(f"v_cvt_scalef32_sr_{fmt}_{kind}", convert)


def _define_scaled_pair(fmt: str, kind: str, *, stochastic: bool = False) -> None:
    """Two elements: a register pair or src0 and src1 for f32, the halves of a register for f16 and bf16."""
    narrowing = _Narrowing(fmt, kind, stochastic)

    def convert(b: Context) -> None:
        src0 = b.instr.operand("src0")
        if kind == "f32" and not stochastic:
            elements = iter([_one_element(b, b.instr.operand(name), kind) for name in ("src0", "src1")])
        else:
            elements = _elements(b, src0, kind, 2)
        low, high = narrowing.codes(b, elements)
        if fmt == "fp4":
            _write_part(b, low | (high << 4), 8, _byte_selection(b))
        else:
            _write_part(b, low | (high << 8), 16, _half_selection(b))

    register(f"v_cvt_scalef32_{'sr_' if stochastic else ''}pk_{fmt}_{kind}", convert)


def pack6(codes: list[Value]) -> list[Value]:
    """32 6-bit codes, one after the other from bit 0, in 6 dwords."""
    words: list[Value] = []
    for k in range(6):
        parts = []
        for i, code in enumerate(codes):
            shift = 6 * i - 32 * k
            if -6 < shift < 32:
                parts.append(code << shift if shift >= 0 else code >> -shift)
        word = parts[0]
        for part in parts[1:]:
            word = word | part
        words.append(word)
    return words


def _define_scaled_32(fmt: str, kind: str, *, stochastic: bool = False) -> None:
    narrowing = _Narrowing(fmt, kind, stochastic)

    def convert(b: Context) -> None:
        codes = narrowing.codes(b, _elements(b, b.instr.operand("src0"), kind, 32))
        _write_dwords(b, pack6(list(codes)))

    register(f"v_cvt_scalef32_{'sr_' if stochastic else ''}pk32_{fmt}_{kind}", convert)


def _define_scaled_2x16(fmt: str) -> None:
    narrowing = _Narrowing(fmt, "f32", stochastic=False)

    def interleaved(b: Context) -> Iterator[Value]:
        pairs = (_elements(b, b.instr.operand(name), "f32", 16) for name in ("src0", "src1"))
        for first, second in zip(*pairs, strict=True):
            yield from (first, second)

    register(f"v_cvt_scalef32_2xpk16_{fmt}_f32", lambda b: _write_dwords(b, pack6(list(narrowing.codes(b, interleaved(b))))))


for _kind in ("f32", "f16", "bf16"):
    for _fmt in ("fp8", "bf8"):
        _define_scaled_single(_fmt, _kind)
        _define_scaled_pair(_fmt, _kind)
    _define_scaled_pair("fp4", _kind)
    _define_scaled_pair("fp4", _kind, stochastic=True)
    for _fmt in ("fp6", "bf6"):
        _define_scaled_32(_fmt, _kind, stochastic=True)
        if _kind != "f32":
            _define_scaled_32(_fmt, _kind)
_define_scaled_2x16("fp6")
_define_scaled_2x16("bf6")

# --- with block scale: from small formats -----------------------------------------------------------------------------


def _widened(b: Context, code: Value, fmt: SmallFloat, scale: Scale, kind: str) -> Value:
    """The value of a code times the scale as an f32, f16 or bf16 pattern in the low bits of a u32."""
    value = widen(b, code, fmt, scale=scale)
    if kind == "f32":
        return value.bits("u32")
    if kind == "bf16":
        pattern = f32_to_bf16(b, value)
    elif b.rounding:
        pattern = narrow(b, value, F16, saturate=b.fp.fp16_ovfl)
    else:
        pattern = b.limit_f16(value.to("f16"), value).bits("u16").to("u32")
    is_nan = b.isnan(value)
    return b.unlikely(is_nan, pattern, lambda: b.select(is_nan, pattern | 0x7FFF, pattern))


def _define_unscaling(fmt: str, kind: str) -> None:
    """v_cvt_scalef32_<kind>_<fmt>: the byte that op_sel[1:0] names; an f16 result goes to a half and keeps the other."""

    def convert(b: Context) -> None:
        byte = b.instr.mod("op_sel") & 3
        word = raw_source(b, b.instr.operand("src0"), "u32")
        result = _widened(b, (word >> (8 * byte)) & 0xFF, format_of(fmt, b.target), _scale(b, "src1"), kind)
        if kind == "f16":
            _write_part(b, result, 16, _half_selection(b))
        else:
            _write_dwords(b, [result])

    register(f"v_cvt_scalef32_{kind}_{fmt}", convert)


def _join(values: list[Value], kind: str) -> list[Value]:
    """Dwords of f32 patterns, or of pairs of 16-bit ones."""
    if kind == "f32":
        return values
    return [pack16(values[k].to("u16"), values[k + 1].to("u16")) for k in range(0, len(values), 2)]


def _define_unscaling_pair(fmt: str, kind: str) -> None:
    """The half (fp8, bf8: op_sel[0]) or byte (fp4: op_sel[1:0]) of src0 that holds two codes."""
    bits = 4 if fmt == "fp4" else 8
    parts = 3 if fmt == "fp4" else 1

    def convert(b: Context) -> None:
        start = 2 * bits * (b.instr.mod("op_sel") & parts)
        word = raw_source(b, b.instr.operand("src0"), "u32")
        scale = _scale(b, "src1")
        codes = [(word >> (start + shift)) & ((1 << bits) - 1) for shift in (0, bits)]
        _write_dwords(b, _join([_widened(b, code, format_of(fmt, b.target), scale, kind) for code in codes], kind))

    register(f"v_cvt_scalef32_pk_{kind}_{fmt}", convert)


def unpack6(words: list[Value]) -> list[Value]:
    """The 32 6-bit codes of 6 dwords: the reverse of `pack6`."""
    codes = []
    for i in range(32):
        k, shift = divmod(6 * i, 32)
        code = words[k] >> shift
        if shift > 26:
            code = code | (words[k + 1] << (32 - shift))
        codes.append(code & 0x3F)
    return codes


def _define_unscaling_32(fmt: str, kind: str) -> None:
    def convert(b: Context) -> None:
        src0 = b.instr.operand("src0")
        scale = _scale(b, "src1")
        codes = unpack6([b.vgpr(src0, k) for k in range(6)])
        _write_dwords(b, _join([_widened(b, code, format_of(fmt, b.target), scale, kind) for code in codes], kind))

    register(f"v_cvt_scalef32_pk32_{kind}_{fmt}", convert)


for _kind in ("f32", "f16", "bf16"):
    for _fmt in ("fp8", "bf8"):
        _define_unscaling_pair(_fmt, _kind)
        if _kind != "bf16":
            _define_unscaling(_fmt, _kind)
    _define_unscaling_pair("fp4", _kind)
    for _fmt in ("fp6", "bf6"):
        _define_unscaling_32(_fmt, _kind)
