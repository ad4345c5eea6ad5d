"""From a `DispatchSpec` to the numbers that native code and the reference executor start waves from."""

from __future__ import annotations

from itertools import product

import numpy as np

from rjemu.exec.dispatch import DispatchSpec
from rjemu.exec.layout import (
    DISPATCH,
    MAX_USER_SGPRS,
    SLOT_HEADER_BYTES,
    TEMPLATE,
    TEMPLATE_BYTES,
    TEMPLATES_OFFSET,
    WAVE_BYTES,
    WORKGROUP_SHAPES,
)

_PAGE = 4096


def slot_layout(spec: DispatchSpec) -> tuple[int, int]:
    """(offset of the first wave in a slot, bytes per slot)."""
    lds = -(-spec.lds_bytes // _PAGE) * _PAGE
    return SLOT_HEADER_BYTES + lds, SLOT_HEADER_BYTES + lds + spec.waves_per_workgroup * WAVE_BYTES


def partial_dimensions(spec: DispatchSpec) -> int:
    """Bit i set where the last workgroup of dimension i has fewer work-items than the others."""
    return sum(1 << i for i in range(3) if spec.global_size[i] % spec.block[i])


def shape_block(spec: DispatchSpec, shape: int) -> tuple[int, int, int]:
    """Work-items per dimension of a workgroup of that shape (`layout.WORKGROUP_SHAPES`)."""
    x, y, z = (
        size % block if shape >> i & 1 else block
        for i, (size, block) in enumerate(zip(spec.global_size, spec.block, strict=True))
    )
    return x, y, z


def wave_templates(spec: DispatchSpec) -> tuple[np.ndarray, list[int]]:
    """(uint8 [shapes, waves, TEMPLATE_BYTES], waves of each shape).

    Work-items are numbered x fastest and fill the waves in order; a partial workgroup is packed just so, with fewer waves.
    """
    waves = spec.waves_per_workgroup
    templates = np.zeros((WORKGROUP_SHAPES, waves, TEMPLATE_BYTES), np.uint8)
    counts = [0] * WORKGROUP_SHAPES
    possible = partial_dimensions(spec)
    for bits in product((0, 1), repeat=3):
        shape = bits[0] | bits[1] << 1 | bits[2] << 2
        if shape & ~possible:
            continue
        x, y, z = shape_block(spec, shape)
        items = x * y * z
        counts[shape] = -(-items // spec.wave_size)
        flat = np.arange(waves * spec.wave_size)
        ids = np.stack([flat % x, flat // x % y, flat // (x * y)]).astype(np.uint32)
        for wave in range(counts[shape]):
            lanes = slice(wave * spec.wave_size, (wave + 1) * spec.wave_size)
            active = min(items - wave * spec.wave_size, spec.wave_size)
            _fill_template(templates[shape, wave], spec, ids[:, lanes], (1 << active) - 1)
    return templates, counts


def _fill_template(template: np.ndarray, spec: DispatchSpec, ids: np.ndarray, exec_mask: int) -> None:
    template[TEMPLATE["exec"] : TEMPLATE["exec"] + 8].view(np.uint64)[0] = exec_mask
    registers = template[TEMPLATE["vgprs"] : TEMPLATE["vgprs"] + 12 * spec.wave_size].view(np.uint32)
    rows = registers.reshape(3, spec.wave_size)
    used = ids * (np.arange(3) < spec.vgpr_workitem_ids)[:, None].astype(np.uint32)
    if spec.packed_workitem_ids:
        rows[0] = used[0] | used[1] << 10 | used[2] << 20
    else:
        rows[:] = used


def system_sgpr_flags(spec: DispatchSpec) -> int:
    """Which system SGPRs follow the user SGPRs, as DISPATCH's system_sgprs."""
    flags = sum(1 << i for i, on in enumerate(spec.workgroup_id_enables) if on)
    return flags | spec.workgroup_info_enable << 3 | spec.private_segment_wave_offset_enable << 4


class DispatchBlock:
    """The DISPATCH structure in memory, filled from a spec."""

    def __init__(self, memory: np.ndarray) -> None:
        """memory: uint8 [DISPATCH_BYTES], 64-byte aligned."""
        self.memory = memory
        self.address = memory.ctypes.data

    def word(self, name: str) -> int:
        return int(self.memory[DISPATCH[name] : DISPATCH[name] + 4].view(np.uint32)[0])

    def long(self, name: str) -> int:
        return int(self.memory[DISPATCH[name] : DISPATCH[name] + 8].view(np.uint64)[0])

    def _set(self, name: str, value: int, size: int) -> None:
        self.memory[DISPATCH[name] : DISPATCH[name] + size] = np.frombuffer(int(value).to_bytes(size, "little"), np.uint8)

    def set_word(self, name: str, value: int) -> None:
        self._set(name, value, 4)

    def fill(self, spec: DispatchSpec, fp_class: int, program: int) -> None:
        """Everything, with the counters at 0, and the wave templates behind it."""
        waves_offset, stride = slot_layout(spec)
        self.memory[: DISPATCH["end"]] = 0
        templates, counts = wave_templates(spec)
        self.memory[TEMPLATES_OFFSET : TEMPLATES_OFFSET + templates.size] = templates.reshape(-1)
        longs = {
            "total": spec.workgroups,
            "entry": spec.entry,
            "scratch_base": spec.scratch_base,
            "scratch_stride": spec.scratch_stride,
            "slot_stride": stride,
            "waves_offset": waves_offset,
            "time_slice": spec.time_slice,
            "templates": TEMPLATES_OFFSET,
        }
        words = {
            "xcds": spec.xcds,
            "grid_x": spec.grid[0],
            "grid_y": spec.grid[1],
            "grid_z": spec.grid[2],
            "partial": partial_dimensions(spec),
            "scratch_size": spec.scratch_bytes,
            "lds_bytes": spec.lds_bytes,
            "max_waves": spec.waves_per_workgroup,
            "quantum": spec.wave_quantum,
            "mode": spec.mode,
            "fp_class": fp_class,
            "program": program,
            "vgprs": min(spec.vgprs, 256),
            "agprs": min(spec.agprs, 256),
            "id_vgprs": 1 if spec.packed_workitem_ids else spec.vgpr_workitem_ids,
            "user_sgprs": len(spec.user_sgprs),
            "system_sgprs": system_sgpr_flags(spec),
            "architected_flat_scratch": 1,
        }
        for name, value in longs.items():
            self._set(name, value, 8)
        for name, value in words.items():
            self._set(name, value, 4)
        shape_words = self.memory[DISPATCH["shape_waves"] :][: 4 * WORKGROUP_SHAPES].view(np.uint32)
        shape_words[:] = counts
        sgprs = self.memory[DISPATCH["sgprs"] :][: 4 * MAX_USER_SGPRS].view(np.uint32)
        sgprs[: len(spec.user_sgprs)] = spec.user_sgprs
