"""Kernels that ship with rjemu, each a package that `python -m` runs."""
