"""Building AMD GPU code objects in tests, with the clang and lld of the ziglang wheel.

Every function returns bytes and is cached by its inputs for the test run, in the directory that tests/conftest.py
makes. A tool that fails raises `BuildError` with the tool's own messages.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

CLANG = (sys.executable, "-m", "ziglang", "clang")
LLD = (sys.executable, "-m", "ziglang", "ld.lld")
ASSEMBLER_FLAGS = ("-x", "assembler-with-cpp", "-target", "amdgcn-amd-amdhsa", "-c")
HIP_FLAGS = ("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O2", "-S", "-Xclang", "-emit-obj")

GFX9_DEFAULTS = {"next_free_vgpr": 64, "next_free_sgpr": 32, "accum_offset": 64, "user_sgpr_kernarg_segment_ptr": 1}


class BuildError(Exception):
    """The assembler, compiler or linker rejected its input."""


def assemble(text: str, target: str, flags: Sequence[str] = ()) -> bytes:
    """The ET_REL object of an assembly text. `target` is a processor, with features if any: "gfx942:xnack+"."""
    return _run_tool((*CLANG, *ASSEMBLER_FLAGS, f"-mcpu={target}", *flags), {"input.s": text.encode()})


def link(*objects: bytes, flags: Sequence[str] = ()) -> bytes:
    """The shared object (.hsaco) linked from ET_REL objects."""
    files = {f"input{i}.o": data for i, data in enumerate(objects)}
    return _run_tool((*LLD, "-shared", *flags), files)


def build(text: str, target: str, flags: Sequence[str] = ()) -> bytes:
    """The linked code object (.hsaco) of an assembly text that states its own .amdhsa_kernel blocks."""
    return link(assemble(text, target, flags))


def compile_hip(source: str, target: str, flags: Sequence[str] = ()) -> bytes:
    """The ET_REL object of a HIP source that includes no headers."""
    return _run_tool((*CLANG, *HIP_FLAGS, f"--offload-arch={target}", *flags), {"input.hip": source.encode()})


def compile_host(source: str) -> bytes:
    """The shared library of a C source, for the host, with the floating-point operations exactly as written."""
    return _run_tool((*CLANG, "-shared", "-fPIC", "-O1", "-ffp-contract=off"), {"input.c": source.encode()})


def kernel_text(
    body: str,
    name: str = "kernel",
    directives: Mapping[str, int] | None = None,
    defaults: Mapping[str, int] = GFX9_DEFAULTS,
) -> str:
    """Assembly of one kernel: `body` as its code, and a descriptor of `defaults` updated by `directives`.

    Directive names go without their `.amdhsa_` prefix. The body ends the wave itself (`s_endpgm`).
    """
    fields = {**defaults, **(directives or {})}
    lines = "\n".join(f"  .amdhsa_{field} {value}" for field, value in fields.items())
    return (
        f".text\n.globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n{body}\n"
        f".L{name}_end:\n.size {name}, .L{name}_end-{name}\n"
        f".rodata\n.p2align 6\n.amdhsa_kernel {name}\n{lines}\n.end_amdhsa_kernel\n.text\n"
    )


def text_section(elf: bytes) -> bytes:
    """The bytes of the .text section."""
    section = ELFFile(io.BytesIO(elf)).get_section_by_name(".text")
    if section is None:
        raise BuildError("the object has no .text section")
    return bytes(section.data())


@functools.cache
def _cache_directory() -> Path:
    shared = os.environ.get("RJEMU_TEST_OBJECTS")
    if shared:
        return Path(shared)
    own = tempfile.mkdtemp(prefix="rjemu-test-objects-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _run_tool(command: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    """The output of `command` run on `files`, from the cache if the same was built before."""
    digest = hashlib.sha256(repr((command, sorted(files.items()))).encode()).hexdigest()
    cached = _cache_directory() / digest
    if cached.exists():
        return cached.read_bytes()
    with tempfile.TemporaryDirectory(dir=_cache_directory()) as work:
        for file_name, data in files.items():
            Path(work, file_name).write_bytes(data)
        output = Path(work, "output")
        done = subprocess.run([*command, *files, "-o", output.name], cwd=work, capture_output=True, text=True)
        if done.returncode != 0 or not output.exists():
            raise BuildError(f"{' '.join(command)}\n{done.stderr}")
        output.replace(cached)
    return cached.read_bytes()
