"""AMDGPU relocation types, and the fix-ups that placing a code object at an address needs.

Source: LLVM's AMDGPUUsage, "Relocation Records".
"""

from __future__ import annotations

from typing import NamedTuple

from rjemu.errors import CodeObjectError

_MASK_64 = (1 << 64) - 1


class RelocationType(NamedTuple):
    """How one relocation type computes its field.

    size: bytes of the field. shift: right shift of the value before it is stored. truncates: the field holds some of
    the value's bits by design; otherwise the value must fit. pc_relative: the place's address is subtracted.
    through_got: the symbol's GOT slot stands for the symbol. branch: the value is a SOPP branch offset, counted in
    dwords from the next instruction.
    """

    name: str
    size: int
    shift: int = 0
    truncates: bool = False
    pc_relative: bool = False
    through_got: bool = False
    branch: bool = False


R_AMDGPU_NONE, R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64 = 0, 3, 13

RELOCATION_TYPES: dict[int, RelocationType] = {
    1: RelocationType("R_AMDGPU_ABS32_LO", 4, truncates=True),
    2: RelocationType("R_AMDGPU_ABS32_HI", 4, shift=32, truncates=True),
    3: RelocationType("R_AMDGPU_ABS64", 8, truncates=True),
    4: RelocationType("R_AMDGPU_REL32", 4, pc_relative=True),
    5: RelocationType("R_AMDGPU_REL64", 8, truncates=True, pc_relative=True),
    6: RelocationType("R_AMDGPU_ABS32", 4),
    7: RelocationType("R_AMDGPU_GOTPCREL", 4, pc_relative=True, through_got=True),
    8: RelocationType("R_AMDGPU_GOTPCREL32_LO", 4, truncates=True, pc_relative=True, through_got=True),
    9: RelocationType("R_AMDGPU_GOTPCREL32_HI", 4, shift=32, truncates=True, pc_relative=True, through_got=True),
    10: RelocationType("R_AMDGPU_REL32_LO", 4, truncates=True, pc_relative=True),
    11: RelocationType("R_AMDGPU_REL32_HI", 4, shift=32, truncates=True, pc_relative=True),
    13: RelocationType("R_AMDGPU_RELATIVE64", 8, truncates=True),
    14: RelocationType("R_AMDGPU_REL16", 2, pc_relative=True, branch=True),
}


class Value(NamedTuple):
    """A number that depends on where the image is placed: constant + base_factor * base address."""

    constant: int
    base_factor: int


class Fixup(NamedTuple):
    """A field of the image whose bytes depend on the base address."""

    offset: int
    type: RelocationType
    value: Value

    def encode(self, base_address: int) -> bytes:
        """The field's bytes for an image at `base_address`."""
        value = self.value.constant + self.value.base_factor * base_address
        kind = self.type
        if kind.branch:
            if value % 4:
                raise CodeObjectError(f"{kind.name} at {self.offset:#x}: branch distance {value} is no multiple of 4")
            value = (value - 4) // 4
        bits = 8 * kind.size
        if not kind.truncates and not -(1 << bits - 1) <= value < (1 << bits - (1 if kind.pc_relative else 0)):
            raise CodeObjectError(f"{kind.name} at {self.offset:#x}: value {value:#x} does not fit in {bits} bits")
        return ((value & _MASK_64) >> kind.shift & (1 << bits) - 1).to_bytes(kind.size, "little")


def relocation_type(number: int) -> RelocationType:
    """The type of that number; CodeObjectError if there is none."""
    if number not in RELOCATION_TYPES:
        raise CodeObjectError(f"relocation type {number}: expected one of AMDGPU's, {sorted(RELOCATION_TYPES)}")
    return RELOCATION_TYPES[number]


def relocated_value(kind: RelocationType, symbol: Value, addend: int, place: int) -> Value:
    """The value of a relocation at image offset `place` against `symbol`."""
    if kind.pc_relative:
        return Value(symbol.constant + addend - place, symbol.base_factor - 1)
    return Value(symbol.constant + addend, symbol.base_factor)
