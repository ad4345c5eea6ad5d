"""LLVM's assembler line by line: the bytes of each line and LLVM's own way of writing it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ASSEMBLER = (sys.executable, "-m", "ziglang", "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa")
OPTIONS = ("-filetype", "asm", "-show-encoding", "-o", "-")


@dataclass(frozen=True)
class Assembled:
    """One accepted line."""

    source: str
    code: bytes
    text: str


@dataclass(frozen=True)
class Rejected:
    source: str
    message: str


def assemble_lines(lines: list[str], target: str) -> list[Assembled | Rejected]:
    """One result per line, in order. No line may be empty, a label or a directive."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "lines.s")
        source.write_text("\n".join(lines) + "\n")
        command = [*ASSEMBLER, "-target-cpu", target, *OPTIONS, str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
    errors = {int(m[1]) - 1: m[2] for m in re.finditer(r"^\S+?:(\d+):\d+: error: (.*)$", done.stderr, re.M)}
    accepted = iter(re.findall(r"^\t(.*?)\s*; encoding: \[(.*)\]", done.stdout, re.M))
    results: list[Assembled | Rejected] = []
    for i, line in enumerate(lines):
        if i in errors:
            results.append(Rejected(line, errors[i]))
        else:
            text, encoding = next(accepted)
            results.append(Assembled(line, bytes(int(byte, 16) for byte in encoding.split(",")), text))
    assert next(accepted, None) is None, "the assembler accepted a line that it also rejected"
    return results
