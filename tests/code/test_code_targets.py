"""Target names and e_flags, against what the assembler writes for each processor."""

from __future__ import annotations

import pytest
from support.assemble import assemble

from rjemu.code.elf import ElfFile
from rjemu.code.targets import FAMILIES, GENERIC_MEMBERS, PROCESSORS, Family, TargetId, generic_version
from rjemu.errors import CodeObjectError

UNKNOWN_TO_THE_ASSEMBLER = {"gfx940", "gfx941", "gfx1170", "gfx1171", "gfx1172", "gfx12-5-generic"}
"""Removed from LLVM, or newer than the test dependency's oldest release."""

ASSEMBLED = sorted(set(FAMILIES) - UNKNOWN_TO_THE_ASSEMBLER)


@pytest.mark.parametrize("processor", ASSEMBLED)
def test_machine_number_is_the_assemblers(processor: str) -> None:
    flags = ElfFile(assemble("", processor, ("-mcode-object-version=6",))).flags
    assert TargetId.from_elf_flags(flags).processor == processor
    assert generic_version(flags) == (1 if processor.endswith("generic") else 0)


@pytest.mark.parametrize(
    "text",
    ["gfx942", "gfx942:xnack+", "gfx942:xnack-", "gfx90a:sramecc+", "gfx90a:sramecc-:xnack+", "gfx950:sramecc+:xnack-"],
)
def test_features_come_from_the_flags(text: str) -> None:
    assert str(TargetId.from_elf_flags(ElfFile(assemble("", text)).flags)) == text


def test_tables_agree() -> None:
    assert set(PROCESSORS.values()) == set(FAMILIES)
    for generic, members in GENERIC_MEMBERS.items():
        assert len({FAMILIES[name] for name in (generic, *members)} - {Family.GFX90A}) <= 1
        assert all(FAMILIES[name] == FAMILIES[generic] for name in members)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gfx942", TargetId("gfx942")),
        ("amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-", TargetId("gfx950", xnack=False, sramecc=True)),
        ("amdgcn-amd-amdhsa-unknown-gfx9-4-generic:xnack+", TargetId("gfx9-4-generic", xnack=True)),
        ("gfx90a:xnack+:sramecc-", TargetId("gfx90a", xnack=True, sramecc=False)),
    ],
)
def test_parse(text: str, expected: TargetId) -> None:
    assert TargetId.parse(text) == expected


@pytest.mark.parametrize("text", ["", "sm_90", "gfx942:", "gfx942:xnack", "gfx942:xnack+:xnack-", "gfx942:wide+", "gfx942 "])
def test_parse_rejects(text: str) -> None:
    with pytest.raises(CodeObjectError):
        TargetId.parse(text)


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx950", False),
        ("gfx942", "gfx942:xnack+", True),
        ("gfx942:xnack+", "gfx942", True),
        ("gfx942:xnack+", "gfx942:xnack-", False),
        ("gfx942:sramecc-", "gfx942:sramecc+:xnack-", False),
        ("gfx9-4-generic", "gfx942", True),
        ("gfx9-4-generic", "gfx950", True),
        ("gfx9-4-generic:xnack+", "gfx950:xnack-", False),
        ("gfx9-4-generic", "gfx90a", False),
        ("gfx9-generic", "gfx942", False),
        ("gfx942", "gfx9-4-generic", False),
        ("gfx11-generic", "gfx1151", True),
        ("gfx12-generic", "gfx1250", False),
        ("gfx12-5-generic", "gfx1250", True),
    ],
)
def test_runs_on(code: str, device: str, runs: bool) -> None:
    assert TargetId.parse(code).runs_on(TargetId.parse(device)) is runs


def test_unknown_machine_is_named() -> None:
    with pytest.raises(CodeObjectError, match=r"machine 0x20.*expected a gfx9"):
        TargetId.from_elf_flags(0x20)
