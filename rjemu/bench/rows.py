"""The rows of the benchmark's tables and what rjemu aims for in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["ratio", "per second", "seconds", "MiB", "%", "ns"]
_LARGER_IS_BETTER = ("ratio", "per second")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. least: the bound that rjemu keeps; aim: what it is made for. needs_triton: its kernel is a Triton kernel.
    group: the table that it is in. cpus: how many CPUs its process may use, 0 for all."""

    name: str
    title: str
    kind: Kind
    least: float
    aim: float
    needs_triton: bool = True
    group: str = "core"
    cpus: int = 1

    def verdict(self, value: float) -> str:
        """ "aim", "least" or "missed": the best bound that a figure keeps."""
        for bound, word in ((self.aim, "aim"), (self.least, "least")):
            if value >= bound if self.kind in _LARGER_IS_BETTER else value <= bound:
                return word
        return "missed"


CORE = (
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

PROCESSES = (
    Row("scaling", "fp16 matmul, time at 1/1 over 1/2", "ratio", 1.8, 1.95, group="processes", cpus=2),
    Row("launches", "launches of one empty workgroup", "per second", 3000, 10_000, False, "processes", 2),
    Row("open1", "opening a machine, 1 worker", "seconds", 0.6, 0.3, False, "processes", 0),
    Row("open16", "opening a machine, 16 workers", "seconds", 2.5, 1.0, False, "processes", 0),
    Row("memory", "private memory per worker", "MiB", 120, 60, group="processes", cpus=2),
    Row("overhead", "matmul at 1/1 against inline, one CPU", "%", 5, 1, group="processes", cpus=1),
)
"""What worker processes cost and bring (`rjemu.bench.processes`)."""

ASYNC = (
    Row("mfma32", "16 independent MXFP4 MFMAs 32x32x64", "ratio", 1.5, 1.8, False, "async", 2),
    Row("mfma16", "16 independent MXFP4 MFMAs 16x16x128", "ratio", 1.5, 1.8, False, "async", 2),
    Row("mxfp4-block", "Triton MXFP4 matmul, one workgroup", "ratio", 1.3, 1.6, group="async", cpus=2),
    Row("fp16-block", "Triton fp16 matmul, one workgroup", "ratio", 1.0, 1.25, group="async", cpus=2),
    Row("chain", "dependent MFMA chain, longer by", "%", 2, 0, False, "async", 2),
    Row("site", "per matrix instruction not given away", "ns", 30, 8, False, "async", 2),
    Row("handoff", "handoff and join of an empty job", "ns", 1500, 400, False, "async", 2),
)
"""What a helper process brings and costs one workgroup (`rjemu.bench.async_mma`): ratios are 1/1/0's time over 1/1/1's."""

CHECKPOINT = (
    Row("size", "checkpoint over live bytes, normal f16", "%", 100, 95, False, "checkpoint", 0),
    Row("save", "saving a GiB of them", "seconds", 10, 4, False, "checkpoint", 0),
    Row("restore", "restoring it", "seconds", 10, 4, False, "checkpoint", 0),
    Row("every10s", "run, saved every 10 s, longer by", "%", 100, 40, False, "checkpoint", 0),
    Row("every10m", "run, saved every 10 min, longer by", "%", 1, 0.7, False, "checkpoint", 0),
)
"""What checkpoints cost (`rjemu.bench.checkpoints`)."""

ROWS = (*CORE, *PROCESSES, *ASYNC, *CHECKPOINT)
GROUPS = ("core", "processes", "async", "checkpoint")
