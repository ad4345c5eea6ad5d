"""Matrix instructions: geometry, element formats, and their semantics on both executors' matrix units.

Importing the package registers the semantics (`rjemu.isa.semantics.registry`).
"""

from rjemu.mma import native_unit, numpy_unit, semantics

__all__ = ["native_unit", "numpy_unit", "semantics"]
