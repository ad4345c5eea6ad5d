"""Code objects: ELF files, kernel descriptors, metadata, offload bundles, and the images that go to GPU memory."""

from rjemu.code.descriptor import KernelDescriptor
from rjemu.code.image import ImageSegment, ImageSymbol, LoadedImage
from rjemu.code.loader import CodeObject, Kernel, load_code_object
from rjemu.code.metadata import KernelArg, KernelMetadata, Metadata
from rjemu.code.targets import Family, TargetId

__all__ = [
    "CodeObject",
    "Family",
    "ImageSegment",
    "ImageSymbol",
    "Kernel",
    "KernelArg",
    "KernelDescriptor",
    "KernelMetadata",
    "LoadedImage",
    "Metadata",
    "TargetId",
    "load_code_object",
]
