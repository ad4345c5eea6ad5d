"""Buffer resource descriptors (V#) and the addresses that buffer instructions form from them.

CDNA3 and CDNA4 ISA, "Buffer Addressing" and "Buffer Resource". Which lanes are in range:
    private (ADD_TID_ENABLE, no index)   all
    structured (index, stride not 0)     index < NUM_RECORDS
    raw (anything else)                  the element ends within NUM_RECORDS bytes of the base; each dword by itself
Lanes out of range load zero and store nothing.

Where the documents differ from hardware, hardware counts, as measured on gfx950 for rocJITsu (ROCm/rocm-systems pull request
10928) and as hand-written kernels need it: the SGPR's offset takes part in the raw check, in which only the sum of the
VGPR's and the instruction's offset wraps at 32 bits; and a linear buffer with an index ignores ADD_TID_ENABLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rjemu.isa.context import Context
from rjemu.isa.lanes import Value
from rjemu.isa.operands import raw_source
from rjemu.isa.transfers import optional

_ELEMENT = 4
"""Bytes of a swizzled element: gfx9 has no field for it (LLVM, `getScratchRsrcWords23`)."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The fields of a V# as scalars (u64 base; u32 numbers; b1 flags)."""

    base: Value
    stride: Value
    extended_stride: Value
    num_records: Value
    swizzle: Value
    add_tid: Value
    index_shift: Value
    dst_sel: Value
    nfmt: Value
    dfmt: Value
    unbound: Value

    @property
    def plain(self) -> Value:
        """b1: addresses are linear in the index and the offset, and depend on nothing else."""
        return ~(self.swizzle | self.add_tid)


def read_descriptor(b: Context, *, typed: bool) -> Descriptor:
    """The instruction's V#. typed: an instruction with a data format, which the descriptor's bits 114:111 then are; for
    others they extend the stride of buffers to whose index the lane is added."""
    op = b.instr.operand("srsrc")
    word = [b.scalar(op, k) for k in range(4)]
    add_tid = (word[3] & (1 << 23)) != 0
    stride = (word[1] >> 16) & 0x3FFF
    dfmt = (word[3] >> 15) & 0xF
    unbound = dfmt == 0
    if not typed:
        unbound = unbound & ~add_tid
    return Descriptor(
        base=b.join64(word[0], word[1] & 0xFFFF),
        stride=stride,
        extended_stride=stride if typed else stride | (dfmt << 14),
        num_records=word[2],
        swizzle=(word[1] & (1 << 31)) != 0,
        add_tid=add_tid,
        index_shift=((word[3] >> 21) & 3) + 3,
        dst_sel=word[3] & 0xFFF,
        nfmt=(word[3] >> 12) & 7,
        dfmt=dfmt,
        unbound=unbound,
    )


class Place:
    """Where the lanes of one buffer instruction go."""

    def __init__(self, b: Context, *, typed: bool = False) -> None:
        self.b = b
        self.descriptor = read_descriptor(b, typed=typed)
        records, soffset = self.descriptor.num_records, raw_source(b, b.instr.operand("soffset"), "u32")
        self._start = self.descriptor.base + soffset.to("u64")
        self._bytes = b.select(soffset < records, records - soffset, b.const("u32", 0))
        vaddr, self._indexed = optional(b, "vaddr"), bool(b.instr.mod("idxen"))
        self._index = b.vgpr(vaddr, 0) if vaddr is not None and self._indexed else None
        self._offset = b.vector(b.imm("offset").bits("u32"))
        if vaddr is not None and b.instr.mod("offen"):
            self._offset = self._offset + b.vgpr(vaddr, int(self._indexed))

    def in_range(self, end: int) -> Value:
        """b1 vector: the lanes, active or not, whose access is in range up to its byte `end`, exclusive (at least 1)."""
        b, d = self.b, self.descriptor
        inside = (self._offset < self._bytes) & (self._bytes - self._offset >= end)
        if self._index is None:
            inside = inside | d.add_tid
        else:
            inside = b.select(d.stride != 0, self._index < d.num_records, inside)
        return inside & ~d.unbound

    def linear(self, byte: int = 0) -> Value:
        """u64 vector: the addresses of the access's byte `byte` in a plain buffer."""
        address = self._offset.to("u64") + (self._start + byte)
        if self._index is None:
            return address
        return address + self._index.to("u64") * self.descriptor.stride.to("u64")

    def address(self) -> Value:
        """u64 vector: the addresses of the access's first byte in any buffer."""
        return self.b.unlikely(~self.descriptor.plain, self.linear(), lambda: self.addresses([0])[0])

    def addresses(self, at: Sequence[int]) -> list[Value]:
        """u64 vectors: the addresses of some bytes of the access in any buffer, plain or not."""
        b, d = self.b, self.descriptor
        zero = b.vector(b.const("u32", 0))
        add_lane = d.add_tid if self._index is None else d.add_tid & d.swizzle
        index = zero if self._index is None else self._index
        index = (index + b.select(add_lane, b.lane_ids(), zero)).to("u64")
        stride, shift = b.select(add_lane, d.extended_stride, d.stride).to("u64"), d.index_shift.to("u64")
        group, member = index >> shift, index & ((b.const("u64", 1) << shift) - 1)
        record = b.select(d.swizzle, ((group * stride) << shift) + member * _ELEMENT, index * stride) + self._start
        out = []
        for byte in at:
            offset = self._offset.to("u64") + byte
            inside = offset & (_ELEMENT - 1)
            out.append(record + b.select(d.swizzle, ((offset ^ inside) << shift) + inside, offset))
        return out
