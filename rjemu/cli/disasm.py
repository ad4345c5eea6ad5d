"""`rjemu disasm`: a code object's instructions in LLVM's syntax."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rjemu.code import CodeObject, load_code_object
from rjemu.isa.disasm import disassemble


class Line(NamedTuple):
    """An instruction: its offset in the code object's image, its bytes, its text."""

    offset: int
    code: bytes
    text: str


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "disasm",
        description="Print the instructions of a code object's functions in LLVM's syntax.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a code object or an offload bundle")
    parser.add_argument("--kernel", help="only this kernel (default: all functions)")
    parser.add_argument("--target", help="which code object of a bundle, such as gfx950")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    code = load_code_object(arguments.file, arguments.target)
    functions = functions_of(code, arguments.kernel)
    if arguments.json:
        listing = {
            name: [{"offset": line.offset, "bytes": line.code.hex(), "text": line.text} for line in lines]
            for name, lines in functions
        }
        print(json.dumps(listing, indent=2))
        return 0
    for name, lines in functions:
        print(f"{name}:")
        for line in lines:
            dwords = " ".join(f"{int.from_bytes(line.code[i : i + 4], 'little'):08x}" for i in range(0, len(line.code), 4))
            print(f"    {line.text:<64}// {line.offset:08x}: {dwords}")
    return 0


def functions_of(code: CodeObject, kernel: str | None) -> Iterator[tuple[str, Iterator[Line]]]:
    """Each function's name and instructions, by offset; those of one kernel if it is given (else KernelNotFound).

    A function ends at the next one, or with the executable part that it lies in.
    """
    wanted = None if kernel is None else code.kernel(kernel).entry_offset
    starts = {symbol.offset: symbol.name for symbol in code.symbols.values() if symbol.kind == "function"}
    starts |= {entry.entry_offset: entry.name for entry in code.kernels.values()}
    for begin, end in code.image.text_ranges:
        offsets = sorted(offset for offset in starts if begin <= offset < end)
        for offset, following in zip(offsets, [*offsets[1:], end], strict=True):
            if wanted in (None, offset):
                yield starts[offset], _lines(code, offset, following)


def _lines(code: CodeObject, start: int, end: int) -> Iterator[Line]:
    for offset, raw, text in disassemble(code.image.data[start:end], code.target, start):
        yield Line(offset, raw, text)
