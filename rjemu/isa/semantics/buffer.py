"""Untyped buffer instructions (MUBUF); those with data formats are in `semantics.buffer_format`."""

from __future__ import annotations

from rjemu.isa.buffers import Place
from rjemu.isa.context import Context, Semantic
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import custom, register
from rjemu.isa.transfers import (
    ATOMICS,
    LOADS,
    STORES,
    Access,
    Transfer,
    atomic,
    end_direct_load,
    lds_direct_address,
    load,
    load_to_lds,
    optional,
    store,
)


def _whole(b: Context, place: Place, nbytes: int) -> Value:
    """b1 vector: the active lanes of a plain buffer whose every dword is in range."""
    return b.exec_lanes() & place.in_range(nbytes) & place.descriptor.plain


def _one_by_one(b: Context, place: Place, nbytes: int, lanes: Value) -> list[Access]:
    """The dwords of an access: each has its own range check, and in a swizzled buffer its own address."""
    at = range(0, nbytes, 4)
    return [
        Access("global", address, lanes & place.in_range(byte + 4), lanes)
        for byte, address in zip(at, place.addresses(at), strict=True)
    ]


def _words(b: Context, place: Place, nbytes: int, lanes: Value) -> list[Value]:
    """What the accesses one by one load; zero out of range."""
    return [b.load("global", access.address, 4, access.mask)[0] for access in _one_by_one(b, place, nbytes, lanes)]


def _part(b: Context, place: Place, nbytes: int) -> Access:
    """An access below a dword."""
    lanes = b.exec_lanes()
    return Access("global", place.address(), lanes & place.in_range(nbytes), lanes)


def _load(transfer: Transfer) -> Semantic:
    def semantic(b: Context) -> None:
        place = Place(b)
        if b.instr.mod("lds"):
            _load_direct(b, place, transfer)
        elif transfer.whole_dwords:
            _load_dwords(b, place, transfer.nbytes)
        else:
            load(b, [_part(b, place, transfer.nbytes)], transfer, b.instr.operand("vdata"))

    return semantic


def _load_dwords(b: Context, place: Place, nbytes: int) -> None:
    dst = b.instr.operand("vdata")
    whole = _whole(b, place, nbytes)
    rest = b.exec_lanes() & ~whole
    address = place.linear()

    def dword_by_dword() -> None:
        for k, word in enumerate(_words(b, place, nbytes, rest)):
            b.set_vgpr(dst, k, word, rest)

    b.when(rest, dword_by_dword)
    b.load_registers("global", address, dst, nbytes, whole)


def _load_direct(b: Context, place: Place, transfer: Transfer) -> None:
    """To LDS; lanes out of range put zeros there."""
    if not transfer.whole_dwords:
        load_to_lds(b, _part(b, place, transfer.nbytes), transfer)
        return
    target = lds_direct_address(b, transfer)
    whole = _whole(b, place, transfer.nbytes)
    rest = b.exec_lanes() & ~whole
    b.copy_to_lds(place.linear(), target, transfer.nbytes, whole)
    b.when(rest, lambda: b.store("lds", target, _words(b, place, transfer.nbytes, rest), transfer.nbytes, rest))
    end_direct_load(b)


def _store(transfer: Transfer) -> Semantic:
    def semantic(b: Context) -> None:
        place, data = Place(b), b.instr.operand("vdata")
        if not transfer.whole_dwords:
            store(b, [_part(b, place, transfer.nbytes)], transfer, data)
            return
        whole = _whole(b, place, transfer.nbytes)
        rest = b.exec_lanes() & ~whole

        def dword_by_dword() -> None:
            for k, access in enumerate(_one_by_one(b, place, transfer.nbytes, rest)):
                b.store("global", access.address, [b.vgpr(data, k)], 4, access.mask)

        b.store_registers("global", place.linear(), data, transfer.nbytes, whole)
        b.when(rest, dword_by_dword)

    return semantic


def _atomic(name: str) -> Semantic:
    """Entirely in range or not executed at all."""
    nbytes = 8 if ATOMICS[name][1].endswith("64") else 4

    def semantic(b: Context) -> None:
        place, lanes = Place(b), b.exec_lanes()
        access = Access("global", place.address(), lanes & place.in_range(nbytes), lanes)
        atomic(b, [access], ATOMICS[name], b.instr.operand("vdata"), optional(b, "vdst"))

    return semantic


@custom("buffer_wbl2", "buffer_inv")
def _cache_operation(b: Context) -> None:
    """Memory is coherent here: nothing to write back or to invalidate."""


for _name, _transfer in LOADS.items():
    register(f"buffer_load_{_name}", _load(_transfer))
for _name, _transfer in STORES.items():
    register(f"buffer_store_{_name}", _store(_transfer))
for _name in ATOMICS:
    register(f"buffer_atomic_{_name}", _atomic(_name))
