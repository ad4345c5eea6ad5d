"""Where FLAT addresses mean LDS or scratch instead of device memory.

The apertures are 4 GiB each: the upper half of an address decides (CDNA3 ISA, "Flat Memory Instructions"). They lie
outside the address space of allocations, so that a fault's address also tells which memory was meant.
"""

from __future__ import annotations

LDS_APERTURE = 1 << 48
"""FLAT address of byte 0 of the workgroup's LDS (src_shared_base << 32 in the kernel's own terms)."""

SCRATCH_APERTURE = 2 << 48
"""FLAT address of byte 0 of the lane's private segment (src_private_base)."""

APERTURE_BYTES = 1 << 32
