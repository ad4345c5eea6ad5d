"""Where address spaces lie in the flat (generic) address space of a gfx9 process.

Values of the Linux kernel driver (amdkfd, gfx9 apertures): each aperture is 4 GiB, outside the 47-bit range of
global memory, and its base has zero in the low 32 bits.
"""

LDS_APERTURE = 1 << 48
SCRATCH_APERTURE = 2 << 48
