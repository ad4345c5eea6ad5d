"""What the instructions do. Importing the package fills the registry (`semantics.registry`)."""

from rjemu.isa.semantics import buffer, buffer_format, convert, convert_small, ds, flat, lane_moves

__all__ = ["buffer", "buffer_format", "convert", "convert_small", "ds", "flat", "lane_moves"]
