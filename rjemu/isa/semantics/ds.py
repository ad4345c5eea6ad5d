"""DS instructions: the workgroup's LDS (CDNA3 and CDNA4 ISA, "Data Share Operations").

The lane permutes of this encoding touch no memory; they are with the other cross-lane instructions. GWS (global wave
sync) needs hardware shared by a whole device and is not supported.
"""

from __future__ import annotations

from rjemu.isa.context import AtomicOp, Context, Semantic
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import custom, register
from rjemu.isa.transfers import (
    LOADS,
    STORES,
    Access,
    Transfer,
    lds_base_of_m0,
    load,
    optional,
    registers,
    set_registers,
    store,
)

_LOADS: dict[str, Transfer] = {
    "u8": LOADS["ubyte"],
    "i8": LOADS["sbyte"],
    "u16": LOADS["ushort"],
    "i16": LOADS["sshort"],
    "u8_d16": LOADS["ubyte_d16"],
    "u8_d16_hi": LOADS["ubyte_d16_hi"],
    "i8_d16": LOADS["sbyte_d16"],
    "i8_d16_hi": LOADS["sbyte_d16_hi"],
    "u16_d16": LOADS["short_d16"],
    "u16_d16_hi": LOADS["short_d16_hi"],
    "b32": LOADS["dword"],
    "b64": LOADS["dwordx2"],
    "b96": LOADS["dwordx3"],
    "b128": LOADS["dwordx4"],
}
_STORES: dict[str, Transfer] = {
    "b8": STORES["byte"],
    "b8_d16_hi": STORES["byte_d16_hi"],
    "b16": STORES["short"],
    "b16_d16_hi": STORES["short_d16_hi"],
    "b32": STORES["dword"],
    "b64": STORES["dwordx2"],
    "b96": STORES["dwordx3"],
    "b128": STORES["dwordx4"],
}
_INTEGER_ATOMICS: dict[str, AtomicOp] = {
    "add{}_u": "add",
    "sub{}_u": "sub",
    "rsub{}_u": "rsub",
    "inc{}_u": "inc",
    "dec{}_u": "dec",
    "min{}_i": "smin",
    "max{}_i": "smax",
    "min{}_u": "umin",
    "max{}_u": "umax",
    "and{}_b": "and",
    "or{}_b": "or",
    "xor{}_b": "xor",
    "mskor{}_b": "mskor",
    "cmpst{}_b": "cmpswap",
}
_FLOAT_ATOMICS: dict[str, AtomicOp] = {
    "add{}_f": "fadd",
    "min{}_f": "fmin",
    "max{}_f": "fmax",
    "cmpst{}_f": "fcmpswap",
}
_ATOMICS: dict[str, tuple[AtomicOp, str]] = {
    **{f"{name}{bits}": (op, f"u{bits}") for bits in (32, 64) for name, op in _INTEGER_ATOMICS.items()},
    **{f"{name}{bits}": (op, f"f{bits}") for bits in (32, 64) for name, op in _FLOAT_ATOMICS.items()},
    "pk_add{}_f16": ("pk_add_f16", "u32"),
    "pk_add{}_bf16": ("pk_add_bf16", "u32"),
}
"""Atomics by their names, where {} is _rtn or nothing."""

_RETURNING_ATOMICS: dict[str, tuple[AtomicOp, str]] = {
    "wrxchg_rtn_b32": ("swap", "u32"),
    "wrxchg_rtn_b64": ("swap", "u64"),
    "wrap_rtn_b32": ("wrap", "u32"),
}


def _address(b: Context) -> Value:
    return b.vgpr(b.instr.operand("addr")) + b.imm("offset").bits("u32")


def _access(b: Context, address: Value) -> Access:
    lanes = b.exec_lanes()
    return Access("lds", b.vector(address), lanes, lanes)


def _pair_addresses(b: Context, unit: int) -> tuple[Value, Value]:
    """The two addresses of an instruction whose offsets count units of so many bytes, before any register is written."""
    base = b.vgpr(b.instr.operand("addr"))
    return base + b.imm("offset0").bits("u32") * unit, base + b.imm("offset1").bits("u32") * unit


def _load(transfer: Transfer) -> Semantic:
    return lambda b: load(b, [_access(b, _address(b))], transfer, b.instr.operand("vdst"))


def _store(transfer: Transfer) -> Semantic:
    return lambda b: store(b, [_access(b, _address(b))], transfer, b.instr.operand("data0"))


def _load_pair(nbytes: int, stride: int) -> Semantic:
    def semantic(b: Context) -> None:
        dst, lanes = b.instr.operand("vdst"), b.exec_lanes()
        for k, address in enumerate(_pair_addresses(b, nbytes * stride)):
            b.load_registers("lds", address, dst, nbytes, lanes, first=k * nbytes // 4)

    return semantic


def _store_pair(nbytes: int, stride: int) -> Semantic:
    """write2: equal offsets mean one store, of data0 (CDNA4 ISA, section 11.3.1)."""

    def semantic(b: Context) -> None:
        lanes = b.exec_lanes()
        first, second = _pair_addresses(b, nbytes * stride)
        b.store_registers("lds", first, b.instr.operand("data0"), nbytes, lanes)
        b.store_registers("lds", second, b.instr.operand("data1"), nbytes, lanes & (first != second))

    return semantic


def _exchange_pair(nbytes: int, stride: int) -> Semantic:
    """wrxchg2: two exchanges; the results lie one after the other."""
    type_name = f"u{8 * nbytes}"

    def semantic(b: Context) -> None:
        dst, lanes = b.instr.operand("vdst"), b.exec_lanes()
        addresses = _pair_addresses(b, nbytes * stride)
        data = [registers(b, b.instr.operand(name), 0, type_name) for name in ("data0", "data1")]
        old = [b.atomic("swap", "lds", type_name, a, x, lanes) for a, x in zip(addresses, data, strict=True)]
        for k, value in enumerate(old):
            set_registers(b, dst, k * nbytes // 4, value, lanes)

    return semantic


def _atomic(op: AtomicOp, type_name: str) -> Semantic:
    """data0 and data1 are the compared and the new value of cmpst, what mskor clears and sets, and the terms of wrap."""

    def semantic(b: Context) -> None:
        data0 = registers(b, b.instr.operand("data0"), 0, type_name)
        second = optional(b, "data1")
        data1 = None if second is None else registers(b, second, 0, type_name)
        value, compare = (data1, data0) if op in ("cmpswap", "fcmpswap") else (data0, data1)
        assert value is not None
        lanes = b.exec_lanes()
        old = b.atomic(op, "lds", type_name, _address(b), value, lanes, compare)
        dst = optional(b, "vdst")
        if dst is not None:
            set_registers(b, dst, 0, old, lanes)

    return semantic


@custom("ds_condxchg32_rtn_b64")
def _conditional_exchange(b: Context) -> None:
    """Each dword is replaced by the data's low 31 bits if the data's bit 31 says so. The address is rounded down to 8."""
    data, dst, lanes = b.instr.operand("data0"), b.instr.operand("vdst"), b.exec_lanes()
    address = _address(b) & 0xFFF8
    old = []
    for k in range(2):
        word = b.vgpr(data, k)
        chosen = word.bits("i32") < 0
        clear = b.select(chosen, b.const("u32", 0xFFFFFFFF), b.const("u32", 0))
        put = b.select(chosen, word & 0x7FFFFFFF, b.const("u32", 0))
        old.append(b.atomic("mskor", "lds", "u32", address + 4 * k, clear, lanes, put))
    for k, value in enumerate(old):
        b.set_vgpr(dst, k, value, lanes)


def _counter(op: AtomicOp) -> Semantic:
    """append, consume: one addition of the number of active lanes; all of them get the old value."""

    def semantic(b: Context) -> None:
        address = lds_base_of_m0(b) + b.imm("offset").bits("u32")
        active = b.exec()
        first = b.ctz(active).to("u32")
        one_lane = (b.lane_ids() == first) & b.exec_lanes()
        old = b.atomic(op, "lds", "u32", b.vector(address), b.vector(b.popcount(active).to("u32")), one_lane)
        b.set_vgpr(b.instr.operand("vdst"), 0, b.read_lane(old, first))

    return semantic


def _thread_address(b: Context) -> Value:
    """The addtid forms: M0[15:0] + offset + 4 * lane."""
    return (b.m0() & 0xFFFF) + b.imm("offset").bits("u32") + b.lane_ids() * 4


@custom("ds_read_addtid_b32")
def _read_thread(b: Context) -> None:
    load(b, [_access(b, _thread_address(b))], LOADS["dword"], b.instr.operand("vdst"))


@custom("ds_write_addtid_b32")
def _write_thread(b: Context) -> None:
    store(b, [_access(b, _thread_address(b))], STORES["dword"], b.instr.operand("data0"))


@custom("ds_nop")
def _nop(b: Context) -> None:
    """Does nothing."""


# --- transposing reads (gfx950) -----------------------------------------------------------------------------------------

_GROUP = 16


def _load_transposed(bits: int, nbytes: int) -> Semantic:
    """ds_read_*_tr_*: each group of 16 lanes reads rows of 16 elements and each lane gets a column.

    The group's data, in lane order, are the rows one after another: element e of lane y is element 16 * e + y of them.
    (CDNA4 ISA, "MFMA Transpose Load from LDS"; the exact mapping is that of rocRoller's hardware tests and of Triton.)
    """
    per_lane = 8 * nbytes // bits

    def semantic(b: Context) -> None:
        lanes = b.exec_lanes()
        words = b.load("lds", _address(b), nbytes, lanes)
        elements = [_column_element(b, words, bits, per_lane, e) for e in range(per_lane)]
        dst = b.instr.operand("vdst")
        for k, word in enumerate(_pack(b, elements, bits, nbytes // 4)):
            b.set_vgpr(dst, k, word, lanes)

    return semantic


def _column_element(b: Context, words: list[Value], bits: int, per_lane: int, e: int) -> Value:
    """u32 vector: element 16 * e + y of the group's rows for the group's lane y."""
    ids = range(b.wave)
    source = [lane - lane % _GROUP + (_GROUP * e + lane % _GROUP) // per_lane for lane in ids]
    position = [lane % per_lane * bits for lane in ids]
    moved = [b.shuffle(word, source) for word in words]
    low = _by_lane(b, moved, [p // 32 for p in position])
    shift = b.lane_constants("u32", [p % 32 for p in position])
    value = low >> shift
    if 32 % bits:
        high = _by_lane(b, moved, [min(p // 32 + 1, len(words) - 1) for p in position])
        straddles = [p % 32 + bits > 32 for p in position]
        value = b.select(_lane_flags(b, straddles), value | (high << (0 - shift)), value)
    return value & ((1 << bits) - 1)


def _by_lane(b: Context, words: list[Value], which: list[int]) -> Value:
    """Lane i takes its value from words[which[i]]."""
    value = words[0]
    for k, word in enumerate(words[1:], 1):
        value = b.select(_lane_flags(b, [w == k for w in which]), word, value)
    return value


def _lane_flags(b: Context, flags: list[bool]) -> Value:
    return b.lane_mask(b.const("u64", sum(1 << lane for lane, flag in enumerate(flags) if flag)))


def _pack(b: Context, elements: list[Value], bits: int, count: int) -> list[Value]:
    """`count` dwords that hold the elements one after another from bit 0."""
    words = [b.vector(b.const("u32", 0))] * count
    for e, element in enumerate(elements):
        k, shift = divmod(e * bits, 32)
        words[k] = words[k] | (element << shift)
        if shift + bits > 32:
            words[k + 1] = words[k + 1] | (element >> (32 - shift))
    return words


# --- the table ------------------------------------------------------------------------------------------------------------

for _name, _transfer in _LOADS.items():
    register(f"ds_read_{_name}", _load(_transfer))
for _name, _transfer in _STORES.items():
    register(f"ds_write_{_name}", _store(_transfer))
for _name, (_op, _type) in _ATOMICS.items():
    for _returning in ("", "_rtn"):
        register(f"ds_{_name.format(_returning)}", _atomic(_op, _type))
for _name, (_op, _type) in _RETURNING_ATOMICS.items():
    register(f"ds_{_name}", _atomic(_op, _type))
for _bits in (32, 64):
    for _suffix, _stride in (("", 1), ("st64", 64)):
        register(f"ds_read2{_suffix}_b{_bits}", _load_pair(_bits // 8, _stride))
        register(f"ds_write2{_suffix}_b{_bits}", _store_pair(_bits // 8, _stride))
        register(f"ds_wrxchg2{_suffix}_rtn_b{_bits}", _exchange_pair(_bits // 8, _stride))
for _name, _bits, _nbytes in (("b64_tr_b16", 16, 8), ("b64_tr_b8", 8, 8), ("b64_tr_b4", 4, 8), ("b96_tr_b6", 6, 12)):
    register(f"ds_read_{_name}", _load_transposed(_bits, _nbytes))
register("ds_append", _counter("add"))
register("ds_consume", _counter("sub"))
