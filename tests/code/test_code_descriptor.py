"""Descriptor decoding, against the .amdhsa_ directives that the assembler encodes (LLVM's AMDGPUUsage)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.assemble import build, kernel_text

from rjemu.code import KernelDescriptor, TargetId, load_code_object
from rjemu.errors import CodeObjectError

FIELD_OF_DIRECTIVE = {
    "group_segment_fixed_size": "group_segment_fixed_size",
    "private_segment_fixed_size": "private_segment_fixed_size",
    "kernarg_size": "kernarg_size",
    "user_sgpr_dispatch_ptr": "enable_sgpr_dispatch_ptr",
    "user_sgpr_queue_ptr": "enable_sgpr_queue_ptr",
    "user_sgpr_kernarg_segment_ptr": "enable_sgpr_kernarg_segment_ptr",
    "user_sgpr_dispatch_id": "enable_sgpr_dispatch_id",
    "user_sgpr_private_segment_size": "enable_sgpr_private_segment_size",
    "user_sgpr_kernarg_preload_length": "kernarg_preload_length",
    "user_sgpr_kernarg_preload_offset": "kernarg_preload_offset",
    "uses_dynamic_stack": "uses_dynamic_stack",
    "enable_private_segment": "enable_private_segment",
    "system_sgpr_workgroup_id_x": "enable_sgpr_workgroup_id_x",
    "system_sgpr_workgroup_id_y": "enable_sgpr_workgroup_id_y",
    "system_sgpr_workgroup_id_z": "enable_sgpr_workgroup_id_z",
    "system_sgpr_workgroup_info": "enable_sgpr_workgroup_info",
    "system_vgpr_workitem_id": "enable_vgpr_workitem_id",
    "float_round_mode_32": "float_round_mode_32",
    "float_round_mode_16_64": "float_round_mode_16_64",
    "float_denorm_mode_32": "float_denorm_mode_32",
    "float_denorm_mode_16_64": "float_denorm_mode_16_64",
    "dx10_clamp": "enable_dx10_clamp",
    "ieee_mode": "enable_ieee_mode",
    "fp16_overflow": "fp16_overflow",
    "tg_split": "tg_split",
    "exception_fp_ieee_invalid_op": "enable_exception_fp_invalid_operation",
    "exception_fp_denorm_src": "enable_exception_fp_denormal_source",
    "exception_fp_ieee_div_zero": "enable_exception_fp_division_by_zero",
    "exception_fp_ieee_overflow": "enable_exception_fp_overflow",
    "exception_fp_ieee_underflow": "enable_exception_fp_underflow",
    "exception_fp_ieee_inexact": "enable_exception_fp_inexact",
    "exception_int_div_zero": "enable_exception_int_division_by_zero",
    "wavefront_size32": "enable_wavefront_size32",
    "workgroup_processor_mode": "wgp_mode",
    "memory_ordered": "memory_ordered",
    "forward_progress": "forward_progress",
    "inst_pref_size": "inst_pref_size",
    "named_barrier_count": "granulated_named_barrier_count",
}

GFX9_COMMON = {"next_free_vgpr": 64, "next_free_sgpr": 32, "accum_offset": 64}
SMALL = {"next_free_vgpr": 64, "next_free_sgpr": 8}
SIZES = {"group_segment_fixed_size": 163840, "private_segment_fixed_size": 4660, "kernarg_size": 280}

CASES: list[tuple[str, dict[str, int]]] = [
    (target, {**GFX9_COMMON, **case})
    for target in ("gfx942", "gfx950")
    for case in (
        SIZES,
        {"user_sgpr_dispatch_ptr": 1, "user_sgpr_queue_ptr": 1, "user_sgpr_dispatch_id": 1},
        {"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_kernarg_preload_length": 5, "user_sgpr_kernarg_preload_offset": 3},
        {"user_sgpr_private_segment_size": 1, "uses_dynamic_stack": 1, "enable_private_segment": 1},
        {"system_sgpr_workgroup_id_x": 0, "system_sgpr_workgroup_id_y": 1, "system_vgpr_workitem_id": 1},
        {"system_sgpr_workgroup_id_z": 1, "system_sgpr_workgroup_info": 1, "system_vgpr_workitem_id": 2},
        {"float_round_mode_32": 1, "float_round_mode_16_64": 2, "float_denorm_mode_32": 2, "float_denorm_mode_16_64": 1},
        {"dx10_clamp": 0, "ieee_mode": 1, "fp16_overflow": 1},
        {"dx10_clamp": 1, "ieee_mode": 0, "tg_split": 1},
        {"exception_fp_ieee_invalid_op": 1, "exception_fp_ieee_div_zero": 1, "exception_fp_ieee_underflow": 1},
        {"exception_fp_denorm_src": 1, "exception_fp_ieee_overflow": 1, "exception_fp_ieee_inexact": 1},
        {"exception_int_div_zero": 1},
    )
] + [
    ("gfx1100", {"next_free_vgpr": 64, "next_free_sgpr": 32, **case})
    for case in (
        SIZES | {"group_segment_fixed_size": 65536},
        {"wavefront_size32": 0, "workgroup_processor_mode": 0, "memory_ordered": 0, "forward_progress": 1},
        {"wavefront_size32": 1, "workgroup_processor_mode": 1, "memory_ordered": 1, "dx10_clamp": 0, "ieee_mode": 1},
    )
] + [
    ("gfx1201", {"next_free_vgpr": 64, "next_free_sgpr": 32, "inst_pref_size": 200, "wavefront_size32": 0}),
    ("gfx1201", {"next_free_vgpr": 64, "next_free_sgpr": 32, "workgroup_processor_mode": 0, "fp16_overflow": 1}),
    ("gfx1250", {"next_free_vgpr": 64, "next_free_sgpr": 32, "inst_pref_size": 77, "named_barrier_count": 3}),
]  # fmt: skip


def descriptor(target: str, directives: Mapping[str, int]) -> KernelDescriptor:
    defaults = {} if target.startswith("gfx1") else GFX9_COMMON
    text = kernel_text("s_endpgm", directives={**defaults, **directives}, defaults={})
    return load_code_object(build(text, target)).kernel("kernel").descriptor


@pytest.mark.parametrize(("target", "directives"), CASES)
def test_directives_come_back(target: str, directives: dict[str, int]) -> None:
    decoded = descriptor(target, directives)
    stated = {name: value for name, value in directives.items() if name in FIELD_OF_DIRECTIVE}
    assert {name: int(getattr(decoded, FIELD_OF_DIRECTIVE[name])) for name in stated} == stated


@pytest.mark.parametrize(
    ("target", "directives", "allocated", "vgprs", "agprs"),
    [
        ("gfx942", {"next_free_vgpr": 1, "accum_offset": 4, "next_free_sgpr": 1}, 8, 4, 4),
        ("gfx942", {"next_free_vgpr": 512, "accum_offset": 256, "next_free_sgpr": 96}, 512, 256, 256),
        ("gfx950", {"next_free_vgpr": 100, "accum_offset": 36, "next_free_sgpr": 40}, 104, 36, 68),
        ("gfx950", {"next_free_vgpr": 24, "accum_offset": 24, "next_free_sgpr": 102}, 24, 24, 0),
        ("gfx906", {"next_free_vgpr": 41, "next_free_sgpr": 20, "accum_offset": None}, 44, 44, 0),
        ("gfx908", {"next_free_vgpr": 41, "next_free_sgpr": 20, "accum_offset": None}, 44, 44, 44),
        ("gfx1030", {"next_free_vgpr": 41, "next_free_sgpr": 20}, 48, 48, 0),
        ("gfx1100", {"next_free_vgpr": 41, "next_free_sgpr": 20, "wavefront_size32": 0}, 44, 44, 0),
        ("gfx1201", {"next_free_vgpr": 41, "next_free_sgpr": 20}, 48, 48, 0),
        ("gfx1250", {"next_free_vgpr": 520, "next_free_sgpr": 20}, 528, 528, 0),
    ],
)
def test_register_counts(target: str, directives: dict[str, int | None], allocated: int, vgprs: int, agprs: int) -> None:
    merged = {**({} if target.startswith("gfx1") else GFX9_COMMON), **directives}
    text = kernel_text("s_endpgm", directives={k: v for k, v in merged.items() if v is not None}, defaults={})
    decoded = load_code_object(build(text, target)).kernel("kernel").descriptor
    assert (decoded.allocated_vgpr_count, decoded.vgpr_count, decoded.agpr_count) == (allocated, vgprs, agprs)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_sgpr_count_holds_what_was_asked_for(target: str) -> None:
    """In granules of 16 registers, with the six for VCC, FLAT_SCRATCH and XNACK_MASK that the assembler adds."""
    for asked in (1, 10, 11, 26, 27, 96, 102):
        assert descriptor(target, {"next_free_sgpr": asked}).sgpr_count == -(-(asked + 6) // 16) * 16


@pytest.mark.parametrize(
    ("target", "wave_size"), [("gfx942", 64), ("gfx950", 64), ("gfx1100", 32), ("gfx1201", 32), ("gfx1250", 32)]
)
def test_default_wave_size(target: str, wave_size: int) -> None:
    assert descriptor(target, SMALL).wave_size == wave_size


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100"])
def test_initial_mode_places_every_field(target: str) -> None:
    """MODE as the ISA documents number it: round 3:0, denorm 7:4, clamp 8, IEEE 9, exceptions from 12, FP16_OVFL 23."""
    base = {"next_free_vgpr": 64, "next_free_sgpr": 8, "dx10_clamp": 0, "ieee_mode": 0, "float_denorm_mode_16_64": 0}
    places = {
        "float_round_mode_32": 0,
        "float_round_mode_16_64": 2,
        "float_denorm_mode_32": 4,
        "float_denorm_mode_16_64": 6,
        "dx10_clamp": 8,
        "ieee_mode": 9,
        "exception_fp_ieee_invalid_op": 12,
        "exception_fp_denorm_src": 13,
        "exception_fp_ieee_div_zero": 14,
        "exception_fp_ieee_overflow": 15,
        "exception_fp_ieee_underflow": 16,
        "exception_fp_ieee_inexact": 17,
        "exception_int_div_zero": 18,
        "fp16_overflow": 23,
    }
    assert descriptor(target, base).initial_mode == 0
    for directive, bit in places.items():
        assert descriptor(target, {**base, directive: 1}).initial_mode == 1 << bit, directive


def test_default_mode_of_compute_kernels() -> None:
    """The assembler's defaults: round to nearest even, f32 denormals flushed, f16/f64 kept, DX10_CLAMP and IEEE on."""
    assert descriptor("gfx950", {}).initial_mode == 0x3C0
    assert descriptor("gfx1201", SMALL).initial_mode == 0xC0


def test_user_sgpr_count_adds_up() -> None:
    enables = {"user_sgpr_dispatch_ptr": 2, "user_sgpr_queue_ptr": 2, "user_sgpr_kernarg_segment_ptr": 2}
    for count in range(len(enables) + 1):
        chosen = dict.fromkeys(list(enables)[:count], 1)
        assert descriptor("gfx950", chosen).user_sgpr_count == 2 * count
    preload = {"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_kernarg_preload_length": 14}
    assert descriptor("gfx950", preload).user_sgpr_count == 16
    assert descriptor("gfx942", {"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 9}).user_sgpr_count == 9
    wide = {"next_free_vgpr": 8, "next_free_sgpr": 40, "user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 32}
    assert descriptor("gfx1250", wide).user_sgpr_count == 32


def test_fields_of_other_families_are_off() -> None:
    everything = b"\xff" * 64
    gfx950 = KernelDescriptor.decode(everything, TargetId("gfx950"))
    gfx1100 = KernelDescriptor.decode(everything, TargetId("gfx1100"))
    gfx1201 = KernelDescriptor.decode(everything, TargetId("gfx1201"))
    gfx1250 = KernelDescriptor.decode(everything, TargetId("gfx1250"))
    assert gfx950.granulated_accum_offset == 63
    assert (gfx950.wave_size, gfx950.wgp_mode, gfx950.inst_pref_size, gfx950.shared_vgpr_count) == (64, False, 0, 0)
    assert (gfx1100.granulated_accum_offset, gfx1100.inst_pref_size, gfx1100.enable_dx10_clamp) == (0, 63, True)
    assert (gfx1201.enable_dx10_clamp, gfx1201.enable_wg_rr, gfx1201.inst_pref_size) == (False, True, 255)
    assert (gfx1201.user_sgpr_count, gfx1201.enable_dynamic_vgpr, gfx1201.named_barrier_count) == (31, True, 0)
    assert (gfx1250.user_sgpr_count, gfx1250.enable_dynamic_vgpr, gfx1250.named_barrier_count) == (63, True, 28)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(min_size=64, max_size=64), st.sampled_from(["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250"]))
def test_any_bytes_decode_to_consistent_counts(data: bytes, target: str) -> None:
    decoded = KernelDescriptor.decode(data, TargetId(target))
    assert decoded.kernel_code_entry_byte_offset == int.from_bytes(data[16:24], "little", signed=True)
    assert 0 < decoded.vgpr_count <= decoded.allocated_vgpr_count <= 1024
    assert 0 <= decoded.agpr_count <= decoded.allocated_vgpr_count
    assert 0 <= decoded.initial_mode < 1 << 24


@pytest.mark.parametrize("size", [0, 63, 65])
def test_wrong_size(size: int) -> None:
    with pytest.raises(CodeObjectError, match=f"{size} bytes: expected 64"):
        KernelDescriptor.decode(bytes(size), TargetId("gfx950"))
