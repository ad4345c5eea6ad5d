"""A matrix multiplication for gfx950: `python -m rjemu.examples.gemm` compiles, runs and checks it."""
