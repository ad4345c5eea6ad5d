"""Loading a code object: from a file's bytes to kernels with descriptors, metadata and an image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rjemu.code import elf
from rjemu.code.bundle import is_bundle, pick, read_bundle
from rjemu.code.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from rjemu.code.elf import ElfFile
from rjemu.code.image import ImageSymbol, LoadedImage
from rjemu.code.layout import lay_out
from rjemu.code.metadata import NOTE_OWNER, NT_AMDGPU_METADATA, KernelMetadata, Metadata, decode_metadata
from rjemu.code.targets import TargetId, generic_version
from rjemu.errors import CodeObjectError, KernelNotFound

MAX_FILE_BYTES = 1 << 31

_CODE_OBJECT_VERSIONS = {2: 4, 3: 5, 4: 6}
"""EI_ABIVERSION -> code object version."""

_DESCRIPTOR_SUFFIX = ".kd"
_INSTRUCTION_ALIGNMENT = 4
_NAMES_SHOWN = 32


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a code object. Offsets are bytes of the image; metadata is None where the object has none."""

    name: str
    descriptor: KernelDescriptor
    metadata: KernelMetadata | None
    descriptor_offset: int
    entry_offset: int


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A loaded code object.

    target_id: processor and features that the code is for. abi_version: 4, 5 or 6. generic_version: 0 unless the
    processor is a generic one. kernels: by name, in the order of their descriptors.
    """

    target_id: TargetId
    abi_version: int
    generic_version: int
    kernels: Mapping[str, Kernel]
    image: LoadedImage
    metadata: Metadata | None

    @property
    def target(self) -> str:
        """The processor's name, such as "gfx950"."""
        return self.target_id.processor

    @property
    def features(self) -> dict[str, bool]:
        """The settings that the code was made for, of xnack and sramecc; open ones are left out."""
        settings = {"xnack": self.target_id.xnack, "sramecc": self.target_id.sramecc}
        return {name: on for name, on in settings.items() if on is not None}

    @property
    def symbols(self) -> Mapping[str, ImageSymbol]:
        return self.image.symbols

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; KernelNotFound, with the names there are, if there is none."""
        if name not in self.kernels:
            names = ", ".join(list(self.kernels)[:_NAMES_SHOWN]) or "none"
            more = f" and {len(self.kernels) - _NAMES_SHOWN} more" if len(self.kernels) > _NAMES_SHOWN else ""
            raise KernelNotFound(f"no kernel {name!r} in the code object; its kernels: {names}{more}")
        return self.kernels[name]


def load_code_object(data: bytes | bytearray | memoryview | str | os.PathLike[str], target: str | None = None) -> CodeObject:
    """Load a code object from its bytes or its file.

    data: an AMDGPU ELF file (linked or relocatable), an offload bundle, plain or compressed, or a host binary that
    holds one. target: the device's target id, such as "gfx942" or "gfx950:xnack-"; needed to choose from a bundle
    with several code objects. Raises CodeObjectError, saying what was found and what was expected, for anything that
    is not a sound code object for that target.
    """
    content = code_bytes(data)
    device = None if target is None else TargetId.parse(target)
    try:
        if is_bundle(content):
            content = bytes(pick(read_bundle(content), device).code)
        return _load_elf(ElfFile(content), device)
    except CodeObjectError as error:
        if isinstance(data, str | os.PathLike):
            raise type(error)(f"{os.fspath(data)}: {error}") from error
        raise


def code_bytes(data: bytes | bytearray | memoryview | str | os.PathLike[str]) -> bytes:
    """The bytes of a code object that is given as such or by its file; CodeObjectError if that cannot be read."""
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else _read_file(Path(data))


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise CodeObjectError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CodeObjectError(f"{path} has {path.stat().st_size} bytes: expected at most {MAX_FILE_BYTES}")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise CodeObjectError(f"cannot read {path}: {error}") from error


def _load_elf(file: ElfFile, device: TargetId | None) -> CodeObject:
    if file.machine != elf.EM_AMDGPU:
        raise CodeObjectError(f"ELF file for machine {file.machine}: expected AMDGPU ({elf.EM_AMDGPU})")
    if file.os_abi != elf.ELFOSABI_AMDGPU_HSA:
        raise CodeObjectError(f"ELF OS ABI {file.os_abi}: expected AMDGPU_HSA ({elf.ELFOSABI_AMDGPU_HSA})")
    if file.abi_version not in _CODE_OBJECT_VERSIONS:
        raise CodeObjectError(f"ELF ABI version {file.abi_version}: expected 2, 3 or 4 (code object V4, V5 or V6)")
    target = TargetId.from_elf_flags(file.flags)
    if device is not None and not target.runs_on(device):
        raise CodeObjectError(f"the code object is for {target}: expected one for {device}")
    if not file.sections:
        raise CodeObjectError("the ELF file has no section headers: expected sections with symbols and notes")
    image = lay_out(file)
    metadata = _metadata(file)
    return CodeObject(
        target_id=target,
        abi_version=_CODE_OBJECT_VERSIONS[file.abi_version],
        generic_version=generic_version(file.flags),
        kernels=_kernels(image, target, metadata),
        image=image,
        metadata=metadata,
    )


def _metadata(file: ElfFile) -> Metadata | None:
    for note in file.notes():
        if (note.owner, note.type) == (NOTE_OWNER, NT_AMDGPU_METADATA):
            return decode_metadata(note.payload)
    return None


def _kernels(image: LoadedImage, target: TargetId, metadata: Metadata | None) -> dict[str, Kernel]:
    described = metadata.kernels if metadata else {}
    symbols = sorted(
        (symbol for symbol in image.symbols.values() if symbol.name.endswith(_DESCRIPTOR_SUFFIX)),
        key=lambda symbol: symbol.offset,
    )
    missing = described.keys() - {symbol.name for symbol in symbols}
    if missing:
        raise CodeObjectError(f"the metadata describes {min(missing)!r}: expected a kernel descriptor symbol of that name")
    kernels = (_kernel(symbol, image, target, described.get(symbol.name)) for symbol in symbols)
    return {kernel.name: kernel for kernel in kernels}


def _kernel(symbol: ImageSymbol, image: LoadedImage, target: TargetId, metadata: KernelMetadata | None) -> Kernel:
    end = symbol.offset + DESCRIPTOR_SIZE
    if end > image.size:
        raise CodeObjectError(f"kernel descriptor {symbol.name!r} ends at {end:#x}: the image has {image.size:#x} bytes")
    descriptor = KernelDescriptor.decode(image.data[symbol.offset : end], target)
    entry = symbol.offset + descriptor.kernel_code_entry_byte_offset
    if entry % _INSTRUCTION_ALIGNMENT or not image.is_executable(entry):
        raise CodeObjectError(
            f"kernel descriptor {symbol.name!r} starts its code at {entry:#x}: expected aligned code there"
        )
    return Kernel(symbol.name.removesuffix(_DESCRIPTOR_SUFFIX), descriptor, metadata, symbol.offset, entry)
