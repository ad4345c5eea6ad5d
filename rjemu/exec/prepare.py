"""From a `DispatchSpec` to the numbers that native code and the reference executor start waves from."""

from __future__ import annotations

import math
from functools import lru_cache

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
Size3 = tuple[int, int, int]


def slot_layout(spec: DispatchSpec) -> tuple[int, int]:
    """(offset of the first wave in a slot, bytes per slot)."""
    lds = -(-spec.lds_bytes // _PAGE) * _PAGE
    return SLOT_HEADER_BYTES + lds, SLOT_HEADER_BYTES + lds + spec.waves_per_workgroup * WAVE_BYTES


def last_block(spec: DispatchSpec) -> Size3:
    """Work-items per dimension of the last workgroup of each dimension."""
    x, y, z = (size % block or block for size, block in zip(spec.global_size, spec.block, strict=True))
    return x, y, z


def partial_dimensions(spec: DispatchSpec) -> int:
    """Bit i set where the last workgroup of dimension i has fewer work-items than the others."""
    return sum(1 << i for i, (last, block) in enumerate(zip(last_block(spec), spec.block, strict=True)) if last != block)


def wave_templates(spec: DispatchSpec) -> tuple[np.ndarray, tuple[int, ...]]:
    """(uint8 [shapes, waves, TEMPLATE_BYTES], waves of each shape); read only, as launches of the same shape share it.

    Work-items are numbered x fastest and fill the waves in order; a partial workgroup is packed just so, with fewer waves.
    """
    return _templates(spec.block, last_block(spec), spec.wave_size, spec.vgpr_workitem_ids, spec.packed_workitem_ids)


@lru_cache(maxsize=64)
def _templates(
    block: Size3, last: Size3, wave_size: int, dimensions: int, packed: bool
) -> tuple[np.ndarray, tuple[int, ...]]:
    waves = -(-math.prod(block) // wave_size)
    templates = np.zeros((WORKGROUP_SHAPES, waves, TEMPLATE_BYTES), np.uint8)
    counts = [0] * WORKGROUP_SHAPES
    for shape in range(WORKGROUP_SHAPES):
        if any(shape >> i & 1 and last[i] == block[i] for i in range(3)):
            continue
        x, y, z = (last[i] if shape >> i & 1 else block[i] for i in range(3))
        items = x * y * z
        counts[shape] = -(-items // wave_size)
        flat = np.arange(waves * wave_size)
        ids = np.stack([flat % x, flat // x % y, flat // (x * y)]).astype(np.uint32)
        ids[dimensions:] = 0
        for wave in range(counts[shape]):
            lanes = slice(wave * wave_size, (wave + 1) * wave_size)
            active = min(items - wave * wave_size, wave_size)
            _fill_template(templates[shape, wave], ids[:, lanes], (1 << active) - 1, packed)
    templates.setflags(write=False)
    return templates, tuple(counts)


def _fill_template(template: np.ndarray, ids: np.ndarray, exec_mask: int, packed: bool) -> None:
    """ids: uint32 [3, wave size]."""
    template[TEMPLATE["exec"] : TEMPLATE["exec"] + 8].view(np.uint64)[0] = exec_mask
    rows = template[TEMPLATE["vgprs"] : TEMPLATE["vgprs"] + ids.nbytes].view(np.uint32).reshape(ids.shape)
    if packed:
        rows[0] = ids[0] | ids[1] << 10 | ids[2] << 20
    else:
        rows[:] = ids


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
        fixed = memory[:TEMPLATES_OFFSET]
        self._words, self._longs = fixed.view(np.uint32), fixed.view(np.uint64)

    def word(self, name: str) -> int:
        return int(self._words[DISPATCH[name] // 4])

    def long(self, name: str) -> int:
        return int(self._longs[DISPATCH[name] // 8])

    def set_word(self, name: str, value: int) -> None:
        self._words[DISPATCH[name] // 4] = value

    def set_long(self, name: str, value: int) -> None:
        self._longs[DISPATCH[name] // 8] = value

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
            self.set_long(name, value)
        for name, value in words.items():
            self.set_word(name, value)
        shape_words = self.memory[DISPATCH["shape_waves"] :][: 4 * WORKGROUP_SHAPES].view(np.uint32)
        shape_words[:] = counts
        sgprs = self.memory[DISPATCH["sgprs"] :][: 4 * MAX_USER_SGPRS].view(np.uint32)
        sgprs[: len(spec.user_sgprs)] = spec.user_sgprs
