"""The kernel descriptor: 64 bytes that say how a kernel's waves start.

Each field of `KernelDescriptor` states its place in the descriptor's words and the target families that have it.
Source: LLVM's AMDGPUUsage, "Kernel Descriptor", tables for compute_pgm_rsrc1, 2 and 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from rjemu.code.targets import Family, TargetId
from rjemu.errors import CodeObjectError

DESCRIPTOR_SIZE = 64

_LAYOUT = struct.Struct("<III4xq20xIIIHH4x")
_WORDS = (
    "group_segment_fixed_size",
    "private_segment_fixed_size",
    "kernarg_size",
    "kernel_code_entry_byte_offset",
    "rsrc3",
    "rsrc1",
    "rsrc2",
    "properties",
    "preload",
)


class _Bits(NamedTuple):
    """`width` bits of a word from bit `shift` on, in the families `first` to `last`."""

    word: str
    shift: int
    width: int
    first: Family = Family.GFX9
    last: Family = Family.GFX125


def _bits(*places: _Bits) -> Any:
    return field(default=0, metadata={"places": places})


def _flag(*places: _Bits) -> Any:
    return field(default=False, metadata={"places": places})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDescriptor:
    """A decoded kernel descriptor. Sizes are in bytes; a field that the target lacks is 0 or False.

    target: decides the meaning of the fields. kernel_code_entry_byte_offset: from the descriptor to the first
    instruction. kernarg_preload_length and _offset: in dwords.
    """

    target: TargetId
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    kernel_code_entry_byte_offset: int

    granulated_workitem_vgpr_count: int = _bits(_Bits("rsrc1", 0, 6))
    granulated_wavefront_sgpr_count: int = _bits(_Bits("rsrc1", 6, 4, last=Family.GFX90A))
    priority: int = _bits(_Bits("rsrc1", 10, 2))
    float_round_mode_32: int = _bits(_Bits("rsrc1", 12, 2))
    float_round_mode_16_64: int = _bits(_Bits("rsrc1", 14, 2))
    float_denorm_mode_32: int = _bits(_Bits("rsrc1", 16, 2))
    float_denorm_mode_16_64: int = _bits(_Bits("rsrc1", 18, 2))
    priv: bool = _flag(_Bits("rsrc1", 20, 1))
    enable_dx10_clamp: bool = _flag(_Bits("rsrc1", 21, 1, last=Family.GFX11))
    enable_wg_rr: bool = _flag(_Bits("rsrc1", 21, 1, Family.GFX12))
    debug_mode: bool = _flag(_Bits("rsrc1", 22, 1))
    enable_ieee_mode: bool = _flag(_Bits("rsrc1", 23, 1, last=Family.GFX11))
    disable_perf: bool = _flag(_Bits("rsrc1", 23, 1, Family.GFX12))
    bulky: bool = _flag(_Bits("rsrc1", 24, 1))
    cdbg_user: bool = _flag(_Bits("rsrc1", 25, 1))
    fp16_overflow: bool = _flag(_Bits("rsrc1", 26, 1))
    flat_scratch_is_nv: bool = _flag(_Bits("rsrc1", 27, 1, Family.GFX125))
    wgp_mode: bool = _flag(_Bits("rsrc1", 29, 1, Family.GFX10))
    memory_ordered: bool = _flag(_Bits("rsrc1", 30, 1, Family.GFX10))
    forward_progress: bool = _flag(_Bits("rsrc1", 31, 1, Family.GFX10))

    enable_private_segment: bool = _flag(_Bits("rsrc2", 0, 1))
    user_sgpr_count: int = _bits(_Bits("rsrc2", 1, 5, last=Family.GFX12), _Bits("rsrc2", 1, 6, Family.GFX125))
    enable_trap_handler: bool = _flag(_Bits("rsrc2", 6, 1, last=Family.GFX11))
    enable_dynamic_vgpr: bool = _flag(_Bits("rsrc2", 6, 1, Family.GFX12, Family.GFX12), _Bits("rsrc3", 17, 1, Family.GFX125))
    enable_sgpr_workgroup_id_x: bool = _flag(_Bits("rsrc2", 7, 1))
    enable_sgpr_workgroup_id_y: bool = _flag(_Bits("rsrc2", 8, 1))
    enable_sgpr_workgroup_id_z: bool = _flag(_Bits("rsrc2", 9, 1))
    enable_sgpr_workgroup_info: bool = _flag(_Bits("rsrc2", 10, 1))
    enable_vgpr_workitem_id: int = _bits(_Bits("rsrc2", 11, 2))
    enable_exception_address_watch: bool = _flag(_Bits("rsrc2", 13, 1))
    enable_exception_memory: bool = _flag(_Bits("rsrc2", 14, 1))
    granulated_lds_size: int = _bits(_Bits("rsrc2", 15, 9))
    enable_exception_fp_invalid_operation: bool = _flag(_Bits("rsrc2", 24, 1))
    enable_exception_fp_denormal_source: bool = _flag(_Bits("rsrc2", 25, 1))
    enable_exception_fp_division_by_zero: bool = _flag(_Bits("rsrc2", 26, 1))
    enable_exception_fp_overflow: bool = _flag(_Bits("rsrc2", 27, 1))
    enable_exception_fp_underflow: bool = _flag(_Bits("rsrc2", 28, 1))
    enable_exception_fp_inexact: bool = _flag(_Bits("rsrc2", 29, 1))
    enable_exception_int_division_by_zero: bool = _flag(_Bits("rsrc2", 30, 1))
    wgp_takeover: bool = _flag(_Bits("rsrc2", 31, 1, Family.GFX12))

    granulated_accum_offset: int = _bits(_Bits("rsrc3", 0, 6, Family.GFX90A, Family.GFX90A))
    tg_split: bool = _flag(_Bits("rsrc3", 16, 1, Family.GFX90A, Family.GFX90A))
    shared_vgpr_count: int = _bits(_Bits("rsrc3", 0, 4, Family.GFX10, Family.GFX11))
    inst_pref_size: int = _bits(_Bits("rsrc3", 4, 6, Family.GFX11, Family.GFX11), _Bits("rsrc3", 4, 8, Family.GFX12))
    trap_on_start: bool = _flag(_Bits("rsrc3", 10, 1, Family.GFX11, Family.GFX11))
    trap_on_end: bool = _flag(_Bits("rsrc3", 11, 1, Family.GFX11, Family.GFX11))
    enable_group_launch_guarantee: bool = _flag(_Bits("rsrc3", 13, 1, Family.GFX12))
    granulated_named_barrier_count: int = _bits(_Bits("rsrc3", 14, 3, Family.GFX125))
    tcp_split: int = _bits(_Bits("rsrc3", 18, 3, Family.GFX125))
    enable_didt_throttle: bool = _flag(_Bits("rsrc3", 21, 1, Family.GFX125))
    image_op: bool = _flag(_Bits("rsrc3", 31, 1, Family.GFX11))

    enable_sgpr_private_segment_buffer: bool = _flag(_Bits("properties", 0, 1))
    enable_sgpr_dispatch_ptr: bool = _flag(_Bits("properties", 1, 1))
    enable_sgpr_queue_ptr: bool = _flag(_Bits("properties", 2, 1))
    enable_sgpr_kernarg_segment_ptr: bool = _flag(_Bits("properties", 3, 1))
    enable_sgpr_dispatch_id: bool = _flag(_Bits("properties", 4, 1))
    enable_sgpr_flat_scratch_init: bool = _flag(_Bits("properties", 5, 1))
    enable_sgpr_private_segment_size: bool = _flag(_Bits("properties", 6, 1))
    enable_wavefront_size32: bool = _flag(_Bits("properties", 10, 1, Family.GFX10))
    uses_dynamic_stack: bool = _flag(_Bits("properties", 11, 1))

    kernarg_preload_length: int = _bits(_Bits("preload", 0, 7))
    kernarg_preload_offset: int = _bits(_Bits("preload", 7, 9))

    @classmethod
    def decode(cls, data: bytes, target: TargetId) -> KernelDescriptor:
        """From the descriptor's 64 bytes."""
        if len(data) != DESCRIPTOR_SIZE:
            raise CodeObjectError(f"kernel descriptor of {len(data)} bytes: expected {DESCRIPTOR_SIZE}")
        words = dict(zip(_WORDS, _LAYOUT.unpack(data), strict=True))
        values: dict[str, Any] = {name: words[name] for name in _WORDS[:4]}
        for spec in fields(cls):
            for bits in spec.metadata.get("places", ()):
                if bits.first <= target.family <= bits.last:
                    value = words[bits.word] >> bits.shift & (1 << bits.width) - 1
                    values[spec.name] = bool(value) if bits.width == 1 else value
        return cls(target=target, **values)

    @property
    def wave_size(self) -> int:
        """Lanes of a wave: 32 or 64."""
        return 32 if self.enable_wavefront_size32 else 64

    @property
    def allocated_vgpr_count(self) -> int:
        """32-bit vector registers of a lane in all, AGPRs included where they share the file."""
        return (self.granulated_workitem_vgpr_count + 1) * self._vgpr_granule

    @property
    def accum_offset(self) -> int:
        """Place of the first AGPR in the unified file of gfx90a, gfx942 and gfx950; 0 on other targets."""
        return (self.granulated_accum_offset + 1) * 4 if self.target.family is Family.GFX90A else 0

    @property
    def vgpr_count(self) -> int:
        """Vector registers v0 on that a lane may use, AGPRs not included."""
        if self.target.family is Family.GFX90A:
            return min(self.allocated_vgpr_count, self.accum_offset)
        return self.allocated_vgpr_count

    @property
    def agpr_count(self) -> int:
        """Accumulation registers a0 on that a lane may use."""
        if self.target.processor == "gfx908":
            return self.allocated_vgpr_count
        if self.target.family is Family.GFX90A:
            return max(0, self.allocated_vgpr_count - self.accum_offset)
        return 0

    @property
    def sgpr_count(self) -> int:
        """Scalar registers of a wave, those for VCC, FLAT_SCRATCH and XNACK_MASK included; fixed from gfx10 on."""
        if self.target.family >= Family.GFX10:
            return 128
        return (self.granulated_wavefront_sgpr_count // 2 + 1) * 16

    @property
    def named_barrier_count(self) -> int:
        """Named barriers of a workgroup, gfx1250 only."""
        return self.granulated_named_barrier_count * 4

    @property
    def initial_mode(self) -> int:
        """The MODE register of a wave at its start (ISA documents, "MODE register").

        FP_ROUND 3:0, FP_DENORM 7:4, FP16_OVFL 23; up to gfx11 also DX10_CLAMP 8, IEEE 9, DEBUG_EN 11 and the
        exception enables 20:12, which gfx12 keeps in a register of their own.
        """
        mode = (
            self.float_round_mode_32
            | self.float_round_mode_16_64 << 2
            | self.float_denorm_mode_32 << 4
            | self.float_denorm_mode_16_64 << 6
            | self.fp16_overflow << 23
        )
        if self.target.family <= Family.GFX11:
            mode |= self.enable_dx10_clamp << 8 | self.enable_ieee_mode << 9 | self.debug_mode << 11
            mode |= sum(enabled << 12 + place for place, enabled in enumerate(self._exception_enables))
        return mode

    @property
    def _exception_enables(self) -> tuple[bool, ...]:
        """In the order of MODE.EXCP_EN, lowest bit first."""
        return (
            self.enable_exception_fp_invalid_operation,
            self.enable_exception_fp_denormal_source,
            self.enable_exception_fp_division_by_zero,
            self.enable_exception_fp_overflow,
            self.enable_exception_fp_underflow,
            self.enable_exception_fp_inexact,
            self.enable_exception_int_division_by_zero,
            self.enable_exception_address_watch,
            self.enable_exception_memory,
        )

    @property
    def _vgpr_granule(self) -> int:
        family, wave32 = self.target.family, self.wave_size == 32
        if family is Family.GFX90A:
            return 8
        granule = 8 if family is Family.GFX125 else 4
        return granule * 2 if wave32 else granule
