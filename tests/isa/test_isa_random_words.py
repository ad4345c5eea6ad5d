"""Random words decode or raise DecodeError, nothing else; what decodes prints as text that means the same instruction."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.assembler_lines import Rejected, assemble_lines

from rjemu.errors import DecodeError
from rjemu.isa.decoder import Decoder
from rjemu.isa.disasm import disassemble, format_instruction
from rjemu.isa.instruction import Instruction
from rjemu.isa.registers import reads, writes

TARGETS = ("gfx942", "gfx950")
DECODERS = {target: Decoder(target) for target in TARGETS}

PREFIXES = (
    *((0x00000000, 31), (0x7C000000, 25), (0x7E000000, 25), (0x80000000, 30), (0xBE800000, 23), (0xBF000000, 23)),
    *((0xBF800000, 23), (0xB0000000, 28), (0xC0000000, 26), (0xD0000000, 26), (0xD3800000, 23), (0xD8000000, 26)),
    *((0xDC000000, 26), (0xE0000000, 26), (0xE8000000, 26)),
)
"""(first dword without its low bits, how many low bits are free), one per encoding family."""

SCALE_PREFIX, SCALED = 0xD3AC0000, (0xD3AD0800, 0xD3AE0800)


def refused_by_llvm(instr: Instruction) -> bool:
    """Instructions that decode but that LLVM's assembler does not take, or prints as another."""
    acc = any(op.kind == "v" and op.index >= 256 for op in instr.operands)
    no_acc_form = instr.name in ("global_atomic_pk_add_f16", "global_atomic_add_f32") and acc and instr.has("vdst")
    no_sc1 = instr.name.endswith(("add_f64", "min_f64", "max_f64")) and acc and instr.mod("sc1")
    sdwa = instr.encoding.endswith("_SDWA")
    constant = sdwa and any(op.kind == "k" for op in instr.operands)
    return no_acc_form or bool(no_sc1) or constant or (sdwa and instr.name == "v_pk_fmac_f16")


def random_code(rng: random.Random) -> bytes:
    words = [rng.getrandbits(32) for _ in range(5)]
    prefix, free = rng.choice(PREFIXES)
    words[0] = prefix | words[0] & ((1 << free) - 1)
    if free == 31 or prefix >> 25 in (62, 63):
        words[0] = words[0] & ~0x1FF | rng.choice((words[0] & 0x1FF, 249, 250, 255))
    if prefix == 0xD3800000 and rng.random() < 0.3:
        words[0], words[2] = SCALE_PREFIX, rng.choice(SCALED) | words[2] & 0xFFFF
    return b"".join(word.to_bytes(4, "little") for word in words)


def check(target: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    decoded = []
    for _ in range(count):
        try:
            decoded.append(DECODERS[target].decode(random_code(rng)))
        except DecodeError:
            continue
    assert len(decoded) > count // 6
    encodings = {instr.encoding for instr in decoded}
    assert {"VOP3PX2", "VOP2_SDWA", "VOP1_DPP", "VOPC_SDWA", "SMEM", "MTBUF", "SCRATCH", "VOP3P_MFMA"} <= encodings | (
        {"VOP3PX2"} if target == "gfx942" else set()
    )
    decoded = [instr for instr in decoded if not refused_by_llvm(instr)]
    texts = [format_instruction(instr) for instr in decoded]
    for text, result in zip(texts, assemble_lines(texts, target), strict=True):
        assert not isinstance(result, Rejected), result
        assert format_instruction(DECODERS[target].decode(result.code)) == text


@pytest.mark.parametrize("target", TARGETS)
def test_random_words_mean_what_they_print(target: str) -> None:
    check(target, 12_000, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_many_random_words_mean_what_they_print(target: str) -> None:
    check(target, 1_000_000, seed=2)


@settings(max_examples=500, deadline=None)
@given(code=st.binary(max_size=20), target=st.sampled_from(TARGETS), offset=st.integers(0, 24))
def test_any_bytes_decode_or_raise_decode_error(code: bytes, target: str, offset: int) -> None:
    try:
        instr = DECODERS[target].decode(code, offset)
    except DecodeError:
        return
    assert instr.size <= len(code) - offset
    assert instr.size in (4, 8, 12, 16)
    assert DECODERS[target].decode(memoryview(code), offset).name == instr.name
    for registers in (reads(instr), writes(instr)):
        assert all(0 <= part.start < part.stop <= 512 for part in registers.vector)
        assert all(0 <= part.start < part.stop <= 128 for part in registers.scalar)


@settings(max_examples=200, deadline=None)
@given(code=st.binary(max_size=40), target=st.sampled_from(TARGETS))
def test_disassembly_covers_every_byte_once(code: bytes, target: str) -> None:
    pieces = list(disassemble(code, target, base=0x1000))
    assert b"".join(piece for _, piece, _ in pieces) == code
    assert [address for address, _, _ in pieces] == [
        0x1000 + sum(len(piece) for _, piece, _ in pieces[:i]) for i in range(len(pieces))
    ]
