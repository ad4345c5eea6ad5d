"""DPP lane movement: which lane each lane reads (CDNA3 ISA document, "Data Parallel Primitives")."""

from __future__ import annotations

_ROW = 16
_BANK = 4


def dpp_sources(ctrl: int, wave: int) -> list[int]:
    """Source lane of every lane for a DPP_CTRL value; -1 where the movement has no source.

    A source lane that EXEC disables counts as missing too: with bound_ctrl the operand is then 0, else the lane is not
    written.

    quad_perm 0x000-0x0ff, row_shl 0x101-0x10f, row_shr 0x111-0x11f, row_ror 0x121-0x12f, wave_shl 0x130, wave_rol 0x134,
    wave_shr 0x138, wave_ror 0x13c, row_mirror 0x140, row_half_mirror 0x141, row_bcast15 0x142, row_bcast31 0x143,
    row_newbcast 0x150-0x15f. Raises ValueError for any other value.
    """
    return [_source(ctrl, lane, wave) for lane in range(wave)]


def dpp_enabled_lanes(row_mask: int, bank_mask: int, wave: int) -> int:
    """Bits of the lanes that the row mask (bit r for lanes 16r to 16r + 15) and the bank mask (bit k for lanes 4k to
    4k + 3 of every row) leave enabled."""
    return sum(1 << i for i in range(wave) if row_mask >> (i // _ROW) & 1 and bank_mask >> (i % _ROW // _BANK) & 1)


def _source(ctrl: int, lane: int, wave: int) -> int:
    row, column = lane - lane % _ROW, lane % _ROW
    amount = ctrl & 0xF
    if ctrl < 0x100:
        return (lane & ~3) + (ctrl >> 2 * (lane & 3) & 3)
    if 0x101 <= ctrl <= 0x10F:
        return lane + amount if column + amount < _ROW else -1
    if 0x111 <= ctrl <= 0x11F:
        return lane - amount if column >= amount else -1
    if 0x121 <= ctrl <= 0x12F:
        return row + (column - amount) % _ROW
    if 0x150 <= ctrl <= 0x15F:
        return row + amount
    if ctrl == 0x130:
        return lane + 1 if lane + 1 < wave else -1
    if ctrl == 0x134:
        return (lane + 1) % wave
    if ctrl == 0x138:
        return lane - 1
    if ctrl == 0x13C:
        return (lane - 1) % wave
    if ctrl == 0x140:
        return row + _ROW - 1 - column
    if ctrl == 0x141:
        return (lane & ~7) + 7 - (lane & 7)
    if ctrl == 0x142:
        return row - 1
    if ctrl == 0x143:
        return 31 if lane >= 32 else -1
    raise ValueError(f"reserved DPP control {ctrl:#x}")
