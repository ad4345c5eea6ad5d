"""Names of AMD GPU targets: ELF machine numbers, target ids with features, and which code runs on which target.

Sources: LLVM's AMDGPUUsage, "Processors", "Target ID" and "Header" (EF_AMDGPU_MACH, EF_AMDGPU_FEATURE_*_V4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from rjemu.errors import CodeObjectError

EF_AMDGPU_MACH = 0x0FF
_XNACK_SHIFT, _SRAMECC_SHIFT, _GENERIC_VERSION_SHIFT = 8, 10, 24
_FEATURE_SETTINGS: tuple[bool | None, ...] = (None, None, False, True)
"""By the two feature bits of e_flags: not supported, any, off, on."""


class Family(IntEnum):
    """Targets whose kernel descriptors share one layout, in order of introduction."""

    GFX9 = 0
    GFX90A = 1
    GFX10 = 2
    GFX11 = 3
    GFX12 = 4
    GFX125 = 5


_MACH: dict[Family, dict[int, str]] = {
    Family.GFX9: {
        0x2C: "gfx900",
        0x2D: "gfx902",
        0x2E: "gfx904",
        0x2F: "gfx906",
        0x30: "gfx908",
        0x31: "gfx909",
        0x32: "gfx90c",
        0x51: "gfx9-generic",
    },
    Family.GFX90A: {
        0x3F: "gfx90a",
        0x40: "gfx940",
        0x4B: "gfx941",
        0x4C: "gfx942",
        0x4F: "gfx950",
        0x5F: "gfx9-4-generic",
    },
    Family.GFX10: {
        0x33: "gfx1010",
        0x34: "gfx1011",
        0x35: "gfx1012",
        0x42: "gfx1013",
        0x36: "gfx1030",
        0x37: "gfx1031",
        0x38: "gfx1032",
        0x39: "gfx1033",
        0x3E: "gfx1034",
        0x3D: "gfx1035",
        0x45: "gfx1036",
        0x52: "gfx10-1-generic",
        0x53: "gfx10-3-generic",
    },
    Family.GFX11: {
        0x41: "gfx1100",
        0x46: "gfx1101",
        0x47: "gfx1102",
        0x44: "gfx1103",
        0x43: "gfx1150",
        0x4A: "gfx1151",
        0x55: "gfx1152",
        0x58: "gfx1153",
        0x5D: "gfx1170",
        0x5E: "gfx1171",
        0x5C: "gfx1172",
        0x54: "gfx11-generic",
    },
    Family.GFX12: {
        0x48: "gfx1200",
        0x4E: "gfx1201",
        0x59: "gfx12-generic",
    },
    Family.GFX125: {
        0x49: "gfx1250",
        0x5A: "gfx1251",
        0x5B: "gfx12-5-generic",
    },
}

PROCESSORS: dict[int, str] = {mach: name for names in _MACH.values() for mach, name in names.items()}
"""EF_AMDGPU_MACH value -> processor name."""

FAMILIES: dict[str, Family] = {name: family for family, names in _MACH.items() for name in names.values()}
"""Processor name -> family."""

GENERIC_MEMBERS: dict[str, frozenset[str]] = {
    "gfx9-generic": frozenset({"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}),
    "gfx9-4-generic": frozenset({"gfx940", "gfx941", "gfx942", "gfx950"}),
    "gfx10-1-generic": frozenset({"gfx1010", "gfx1011", "gfx1012", "gfx1013"}),
    "gfx10-3-generic": frozenset({"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}),
    "gfx11-generic": frozenset(
        {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"},
    ),
    "gfx12-generic": frozenset({"gfx1200", "gfx1201"}),
    "gfx12-5-generic": frozenset({"gfx1250", "gfx1251"}),
}
"""Generic processor -> the processors that run its code."""

_TARGET_ID = re.compile(r"(?:amdgcn-amd-amdhsa-[a-z]*-)?(gfx[0-9a-z]+(?:-[0-9a-z]+)*)((?::[a-z]+[+-])*)")


@dataclass(frozen=True, slots=True)
class TargetId:
    """A processor and its xnack and sramecc settings (None: code for any setting, or a target without the feature)."""

    processor: str
    xnack: bool | None = None
    sramecc: bool | None = None

    @classmethod
    def parse(cls, text: str) -> TargetId:
        """From LLVM's spelling, "gfx942:sramecc+:xnack-", with or without the triple in front."""
        match = _TARGET_ID.fullmatch(text)
        if match is None:
            raise CodeObjectError(f"{text!r} is no target id: expected a form like gfx942 or gfx942:sramecc+:xnack-")
        settings: dict[str, bool] = {}
        for feature in match[2].split(":")[1:]:
            name, on = feature[:-1], feature.endswith("+")
            if name not in ("xnack", "sramecc") or name in settings:
                raise CodeObjectError(f"target id {text!r}: expected xnack and sramecc at most once each, found {feature!r}")
            settings[name] = on
        return cls(match[1], **settings)

    @classmethod
    def from_elf_flags(cls, flags: int) -> TargetId:
        """From the e_flags of a V4, V5 or V6 code object."""
        mach = flags & EF_AMDGPU_MACH
        if mach not in PROCESSORS:
            raise CodeObjectError(
                f"e_flags {flags:#x} name machine {mach:#x}: expected a gfx9, gfx10, gfx11 or gfx12 target"
            )
        return cls(
            PROCESSORS[mach],
            xnack=_FEATURE_SETTINGS[flags >> _XNACK_SHIFT & 3],
            sramecc=_FEATURE_SETTINGS[flags >> _SRAMECC_SHIFT & 3],
        )

    @property
    def family(self) -> Family:
        return FAMILIES[self.processor]

    def runs_on(self, device: TargetId) -> bool:
        """Whether code for this target runs on `device`. A setting that either side leaves open fits."""
        same_processor = self.processor == device.processor or device.processor in GENERIC_MEMBERS.get(self.processor, ())
        return same_processor and _settings_agree(self.xnack, device.xnack) and _settings_agree(self.sramecc, device.sramecc)

    def match_rank(self, device: TargetId) -> tuple[bool, int]:
        """How closely code for this target fits `device` that it runs on: larger is closer."""
        stated = (self.xnack, device.xnack), (self.sramecc, device.sramecc)
        return self.processor == device.processor, sum(code is not None and code == wanted for code, wanted in stated)

    def __str__(self) -> str:
        features = (("sramecc", self.sramecc), ("xnack", self.xnack))
        return self.processor + "".join(f":{name}{'+' if on else '-'}" for name, on in features if on is not None)


def generic_version(flags: int) -> int:
    """The generic code object version of e_flags: 0 for code of a specific processor."""
    return flags >> _GENERIC_VERSION_SHIFT


def _settings_agree(code: bool | None, device: bool | None) -> bool:
    return code is None or device is None or code == device
