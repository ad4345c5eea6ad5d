"""Time of every matrix instruction's native handler, beside the host's own float32 matrix multiplication in numpy.

    python scripts/bench_mma.py [--target gfx950] [--only f8f6f4] [--rounds 7]

Prints per instruction the nanoseconds, the GFLOP/s (multiplications and additions, of which a sparse one does half) and
their ratio to numpy's. Medians; everything runs on one thread (set OPENBLAS_NUM_THREADS=1 or the like for numpy).
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import rjemu.mma  # noqa: F401  (registers the matrix instructions)
from rjemu.exec.compiler import Loader, compile_object, host_features
from rjemu.exec.handlers import write_handler
from rjemu.exec.ir import IrLanes, Module, Ptr
from rjemu.exec.layout import CTX, WAVE_BYTES
from rjemu.exec.records import encode_record, handler_key
from rjemu.isa.instruction import Instruction, Operand
from rjemu.isa.lanes import TYPES
from rjemu.isa.tables import tables
from rjemu.mma.geometry import F8F6F4_FORMATS, INSTRUCTIONS, shape_of

FIRST_REGISTER = {"vdst": 0, "src0": 64, "src1": 96, "src2": 0, "scale_src0": 128, "scale_src1": 129}
SPARSE_INDEX_REGISTER = 130


def instructions(target: str, only: str) -> Iterator[tuple[str, Instruction]]:
    """(label, instruction) for every matrix instruction, and every pair of equal formats of f8f6f4."""
    rows = {row.name: row for encoding in ("VOP3P_MFMA", "VOP3PX2") for row in tables(target)[encoding].values()}
    for name in INSTRUCTIONS[target]:
        shape = shape_of(name)
        for code, element in enumerate(F8F6F4_FORMATS if not shape.a else ("",)):
            label = f"{name} {element}".strip()
            if only in label:
                registers = {"src0": shape.a_layout(shape.a or element).registers}
                registers["src1"] = shape.b_layout(shape.b or element).registers
                first = FIRST_REGISTER | ({"src2": SPARSE_INDEX_REGISTER} if shape.sparse else {})
                operands = tuple(
                    Operand(o.name, "v", first[o.name], 32 * registers.get(o.name, o.bits // 32), o.fmt, is_dst=o.is_dst)
                    for o in rows[name].operands
                )
                mods = {"cbsz": code, "blgp": code} if code else {}
                yield label, Instruction(name, rows[name].encoding, 8, operands, rows[name], mods)


def repeated(instr: Instruction, target: str, loader: Loader) -> tuple[Callable[[int], None], float]:
    """A function that executes the instruction some number of times, and the seconds it took to compile."""
    module = Module(host_features())
    key = handler_key(instr, target, 64)
    started = time.perf_counter()
    write_handler(module, instr, key, key.symbol)
    driver = IrLanes(module, 64)
    with driver.count(driver.make(TYPES["u64"], 1, "%times")):
        driver.call("@" + key.symbol, "ptr", [Ptr("%ctx"), Ptr("%w"), Ptr("%rec")])
    driver.ret()
    driver.finish("repeat_" + key.symbol, "void", "ptr %ctx, ptr %w, ptr %rec, i64 %times")
    address = loader.load(compile_object(module.text()), ["repeat_" + key.symbol])["repeat_" + key.symbol]
    seconds = time.perf_counter() - started
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 4)(address)
    context, record = np.zeros(CTX["end"], np.uint8), np.frombuffer(encode_record(instr, 0, 64), np.uint8).copy()
    raw = np.zeros(WAVE_BYTES + 64, np.uint8)
    wave = raw[-raw.ctypes.data % 64 :]
    # Small numbers in every format: no NaN, no infinity, no denormal.
    wave[: 512 * 256] = 0x34
    return lambda times: function(context.ctypes.data, wave.ctypes.data, record.ctypes.data, times), seconds


def median_seconds(run: Callable[[int], None], rounds: int) -> float:
    """Seconds of one execution."""
    times = 64
    samples = []
    run(times)
    for _ in range(rounds):
        started = time.perf_counter()
        run(times)
        samples.append((time.perf_counter() - started) / times)
        times = max(64, int(2e-3 / samples[-1]))
    return statistics.median(samples[1:])


def numpy_gflops(rounds: int, size: int = 512) -> float:
    a = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    samples = []
    for _ in range(rounds):
        started = time.perf_counter()
        np.matmul(a, a)
        samples.append(time.perf_counter() - started)
    return 2e-9 * size**3 / statistics.median(samples[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=sorted(INSTRUCTIONS), default="gfx950")
    parser.add_argument("--only", default="", help="part of the instructions' names")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    loader = Loader()
    host = numpy_gflops(arguments.rounds)
    print(f"numpy float32 matmul: {host:.0f} GFLOP/s")
    print(f"{'instruction':46} {'ns':>7} {'GFLOP/s':>8} {'ratio':>6} {'compile ms':>10}")
    for label, instr in instructions(arguments.target, arguments.only):
        shape = shape_of(instr.name)
        run, compiled = repeated(instr, arguments.target, loader)
        seconds = median_seconds(run, arguments.rounds)
        operations = 2 * shape.m * shape.n * shape.k * shape.blocks // (2 if shape.sparse else 1)
        gflops = operations / seconds * 1e-9
        print(f"{label:46} {seconds * 1e9:7.0f} {gflops:8.1f} {gflops / host:6.2f} {compiled * 1e3:10.1f}")


if __name__ == "__main__":
    main()
