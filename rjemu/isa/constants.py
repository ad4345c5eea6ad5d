"""Inline constants and literals: the value that an instruction sees for a constant operand.

What the hardware produces (CDNA3 ISA, "Scalar operands"; LLVM's AMDGPUBaseInfo, getInlineEncodingV216, for 16 bits):
an integer code gives the sign-extended integer; a float code gives the value in the operand's own float format (f16,
bf16, f64), and the f32 pattern for 32-bit operands and for 16-bit integer operands. A packed 16-bit operand gets one
32-bit value: a sign-extended integer, or the 16-bit float in the low half with a zero high half. op_sel and op_sel_hi pick
halves of that value like those of a register, so that a splat of 1.0 needs op_sel_hi = 0 for its operand. Packed f32 is
alike: the f32 in the low dword, a zero high dword.
A literal is 32 bits: the high half of an f64 operand, sign-extended for i64, else zero-extended.
"""

from __future__ import annotations

import struct

FIRST_INTEGER, LAST_POSITIVE, LAST_INTEGER = 128, 192, 208
FIRST_FLOAT, INVERSE_2PI = 240, 248

FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}

_INVERSE_2PI_BITS = {"f16": 0x3118, "bf16": 0x3E22, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
"""1 / (2 * pi) as the hardware and LLVM have it: rounded in f16 and f32, truncated in bf16 and f64."""


def inline_integer(code: int) -> int | None:
    """0 to 64 and -16 to -1 for the codes 128 to 208, else None."""
    if FIRST_INTEGER <= code <= LAST_POSITIVE:
        return code - FIRST_INTEGER
    if LAST_POSITIVE < code <= LAST_INTEGER:
        return LAST_POSITIVE - code
    return None


def inline_constant(code: int, bits: int, fmt: str) -> int | None:
    """The constant of an operand code as an unsigned number of `bits` bits, None if the code is no inline constant."""
    integer = inline_integer(code)
    if integer is None and not FIRST_FLOAT <= code <= INVERSE_2PI:
        return None
    value = integer if integer is not None else _float_bits(code, _float_format(bits, fmt))
    return value & ((1 << bits) - 1)


def literal_constant(literal: int, bits: int, fmt: str) -> int:
    """The value of a 32-bit literal as an unsigned number of `bits` bits."""
    if bits <= 32:
        return literal & ((1 << bits) - 1)
    if fmt == "f64":
        return literal << 32
    if fmt == "i64" and literal >> 31:
        return literal | 0xFFFFFFFF_00000000
    return literal


def _float_format(bits: int, fmt: str) -> str:
    element = fmt.rpartition("_")[2]
    if element in ("f16", "bf16"):
        return element
    return "f64" if bits == 64 and not fmt.startswith("pk") else "f32"


def _float_bits(code: int, fmt: str) -> int:
    if code == INVERSE_2PI:
        return _INVERSE_2PI_BITS[fmt]
    value = FLOATS[code]
    if fmt == "bf16":
        return _pattern("<f", value) >> 16
    return _pattern({"f16": "<e", "f32": "<f", "f64": "<d"}[fmt], value)


def _pattern(code: str, value: float) -> int:
    return int.from_bytes(struct.pack(code, value), "little")
