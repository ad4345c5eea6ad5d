"""Packed and mixed-precision floating-point arithmetic and dot products (VOP3P, VOP2)."""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa import floats
from rjemu.isa.context import Context, Semantic
from rjemu.isa.instruction import Operand
from rjemu.isa.lanes import Value
from rjemu.isa.operands import clamp01, output_modifiers, raw_source, source, write_mask, write_vector
from rjemu.isa.semantics.registry import custom, register

Function = Callable[..., Value]


def _sources(b: Context) -> list[Operand]:
    return [op for op in b.instr.operands if not op.is_dst]


def _bit(b: Context, modifier: str, index: int) -> bool:
    return bool(b.instr.mod(modifier) >> index & 1)


def _half(word: Value, upper: bool) -> Value:
    return (word >> 16 if upper else word).to("u16").bits("f16")


def _joined(low: Value, high: Value) -> Value:
    return low.bits("u16").to("u32") | (high.bits("u16").to("u32") << 16)


def _clamped(b: Context, value: Value) -> Value:
    return clamp01(b, value) if b.instr.mod("clamp") else value


def _negated(b: Context, value: Value, negate: bool) -> Value:
    return b.fneg(value) if negate else value


# --- two operations side by side: op_sel, neg_lo for the low result, op_sel_hi, neg_hi for the high one -----------------

LOW, HIGH = ("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi")


def _packed_f16(fn: Function) -> Semantic:
    def run(b: Context) -> None:
        words = [raw_source(b, op, "u32") for op in _sources(b)]

        def result(selection: str, negation: str) -> Value:
            halves = [_negated(b, _half(word, _bit(b, selection, k)), _bit(b, negation, k)) for k, word in enumerate(words)]
            return _clamped(b, fn(b, *halves))

        write_vector(b, b.instr.operand("vdst"), _joined(result(*LOW), result(*HIGH)))

    return run


def _dword(b: Context, op: Operand, k: int) -> Value:
    """Dword k of a pair, as f32."""
    if op.kind == "v":
        return b.vgpr(op, k).bits("f32")
    if op.kind == "s":
        return b.scalar(op, k).bits("f32")
    return (raw_source(b, op, "u64") >> (32 * k)).to("u32").bits("f32")


def _packed_f32(fn: Function) -> Semantic:
    def run(b: Context) -> None:
        def result(selection: str, negation: str) -> Value:
            dwords = [
                _negated(b, _dword(b, op, int(_bit(b, selection, k))), _bit(b, negation, k))
                for k, op in enumerate(_sources(b))
            ]
            return b.vector(_clamped(b, fn(b, *dwords)).bits("u32"))

        low, high = result(*LOW), result(*HIGH)
        vdst, mask = b.instr.operand("vdst"), write_mask(b)
        b.set_vgpr(vdst, 0, low, mask)
        b.set_vgpr(vdst, 1, high, mask)

    return run


register("v_pk_add_f16", _packed_f16(lambda b, x, y: b.fadd(x, y)))
register("v_pk_mul_f16", _packed_f16(lambda b, x, y: b.fmul(x, y)))
register("v_pk_fma_f16", _packed_f16(lambda b, x, y, z: b.fma(x, y, z)))
register("v_pk_min_f16", _packed_f16(floats.min_number))
register("v_pk_max_f16", _packed_f16(floats.max_number))
register("v_pk_minimum3_f16", _packed_f16(floats.minimum3))
register("v_pk_maximum3_f16", _packed_f16(floats.maximum3))
register("v_pk_add_f32", _packed_f32(lambda b, x, y: b.fadd(x, y)))
register("v_pk_mul_f32", _packed_f32(lambda b, x, y: b.fmul(x, y)))
register("v_pk_fma_f32", _packed_f32(lambda b, x, y, z: b.fma(x, y, z)))

# --- packed sources of VOP2 and its other forms: neg and abs hold for both halves ---------------------------------------


def _pair(b: Context, op: Operand, index: int) -> tuple[Value, Value]:
    """(low, high) patterns of a pair of 16-bit floats."""
    word = source(b, op, "u32")
    if _bit(b, "abs", index):
        word = word & 0x7FFF_7FFF
    if _bit(b, "neg", index):
        word = word ^ 0x8000_8000
    return word.to("u16"), (word >> 16).to("u16")


@custom("v_pk_fmac_f16")
def _packed_fmac(b: Context) -> None:
    vdst = b.instr.operand("vdst")
    x, y = (_pair(b, op, k) for k, op in enumerate(_sources(b)))
    old = raw_source(b, vdst, "u32")

    def result(upper: bool) -> Value:
        total = b.fma(x[upper].bits("f16"), y[upper].bits("f16"), _half(old, upper))
        return output_modifiers(b, total)

    write_vector(b, vdst, _joined(result(False), result(True)))


# --- dot products of two pairs into f32 ---------------------------------------------------------------------------------


def _from_f16(b: Context, x: Value) -> Value:
    return b.flush_input(x.bits("f16")).to("f32")


def _from_bf16(b: Context, x: Value) -> Value:
    return (x.to("u32") << 16).bits("f32")


def _dot_accumulate(widen: Callable[[Context, Value], Value]) -> Semantic:
    """v_dot2c: the destination plus the products, the low one first."""

    def run(b: Context) -> None:
        vdst = b.instr.operand("vdst")
        x, y = (_pair(b, op, k) for k, op in enumerate(_sources(b)))
        total = raw_source(b, vdst, "f32")
        for upper in (0, 1):
            total = b.fma(widen(b, x[upper]), widen(b, y[upper]), total)
        write_vector(b, vdst, output_modifiers(b, total))

    return run


register("v_dot2c_f32_f16", _dot_accumulate(_from_f16))
register("v_dot2c_f32_bf16", _dot_accumulate(_from_bf16))


def _dot_factors(b: Context, widen: Callable[[Context, Value], Value]) -> list[tuple[Value, Value]]:
    """The factors of the low and the high product, with neg_lo and neg_hi applied."""
    first, second, _ = _sources(b)

    def element(op: Operand, index: int, negation: str, upper: bool) -> Value:
        value = widen(b, _half(raw_source(b, op, "u32"), upper).bits("u16"))
        return _negated(b, value, _bit(b, negation, index))

    return [
        (element(first, 0, "neg_lo", False), element(second, 1, "neg_lo", False)),
        (element(first, 0, "neg_hi", True), element(second, 1, "neg_hi", True)),
    ]


@custom("v_dot2_f32_f16")
def _dot2_f16(b: Context) -> None:
    """A denormal addend counts as zero whatever the mode (LLVM, SITargetLowering::performFMACombine)."""
    low, high = _dot_factors(b, _from_f16)
    addend = _negated(b, raw_source(b, _sources(b)[2], "f32"), _bit(b, "neg_lo", 2))
    total = b.fma(*high, b.fma(*low, b.flush(addend)))
    write_vector(b, b.instr.operand("vdst"), _clamped(b, total))


@custom("v_dot2_f32_bf16")
def _dot2_bf16(b: Context) -> None:
    """Here the addend comes last, and modifiers leave it alone (CDNA4 ISA, V_DOT2_F32_BF16)."""
    low, high = _dot_factors(b, _from_bf16)
    total = b.fadd(b.fma(*high, b.fmul(*low)), raw_source(b, _sources(b)[2], "f32"))
    write_vector(b, b.instr.operand("vdst"), _clamped(b, total))


# --- f32 fma of f16 and f32 sources -------------------------------------------------------------------------------------


def _mixed(b: Context) -> tuple[Value, list[Value]]:
    """(the sum in f32, its sources): op_sel_hi says which sources are f16, op_sel which half of them."""
    values = []
    for k, op in enumerate(_sources(b)):
        is_half = _bit(b, "op_sel_hi", k)
        values.append(b.flush_input(source(b, op, "f16")).to("f32") if is_half else source(b, op, "f32"))
    return b.fma(*values), values


def _mixed_half(b: Context) -> Value:
    """The sum rounded to f16."""
    total, values = _mixed(b)
    return _clamped(b, b.limit_f16(b.flush_result(total.to("f16")), *values))


@custom("v_fma_mix_f32")
def _mix(b: Context) -> None:
    write_vector(b, b.instr.operand("vdst"), _clamped(b, _mixed(b)[0]))


@custom("v_fma_mixlo_f16")
def _mix_low(b: Context) -> None:
    write_vector(b, b.instr.operand("vdst"), _mixed_half(b), keep_high=True)


@custom("v_fma_mixhi_f16")
def _mix_high(b: Context) -> None:
    vdst = b.instr.operand("vdst")
    high = _mixed_half(b).bits("u16").to("u32") << 16
    write_vector(b, vdst, (b.vgpr(vdst) & 0xFFFF) | high)
