"""The rows of the benchmark's table and what rjemu aims for in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. kind: "ratio" (larger is better, against numpy in the same run) or "seconds" (smaller is better).

    least: the bound that rjemu keeps; aim: what it is made for. needs_triton: its kernel is a Triton kernel.
    """

    name: str
    title: str
    kind: Literal["ratio", "seconds"]
    least: float
    aim: float
    needs_triton: bool = True

    def verdict(self, value: float) -> str:
        """ "aim", "least" or "missed": the best bound that a figure keeps."""
        for bound, word in ((self.aim, "aim"), (self.least, "least")):
            if value >= bound if self.kind == "ratio" else value <= bound:
                return word
        return "missed"


ROWS = (
    Row("fp16", "Triton fp16 matmul, 1024^3", "ratio", 0.35, 0.6),
    Row("mxfp4", "Triton MXFP4 matmul, 1024^3", "ratio", 0.25, 0.5),
    Row("alu", "vector ALU loop, 200 registers", "ratio", 0.4, 0.8, False),
    Row("copy", "Triton copy of 32 MiB", "ratio", 0.10, 0.3),
    Row("softmax", "Triton softmax, 64 x 4096", "ratio", 0.2, 0.6),
    Row("empty", "100,000 empty workgroups", "seconds", 0.6, 0.2, False),
    Row("cold", "first process, empty cache", "seconds", 5.0, 2.0),
    Row("warm", "second process, start-up", "seconds", 1.5, 0.7),
)
"""Ratios are numpy's time over rjemu's for the same work: float32 matmul, copy and softmax; for the ALU loop, lane
operations per second over float32 additions per second. The processes run the fp16 matmul once and are timed from the
start of Python to its end, in the second case less the kernel's own time."""
