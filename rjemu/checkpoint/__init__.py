"""Checkpoints: a machine as a file, in the middle of its launches (docs/checkpoints.md)."""
