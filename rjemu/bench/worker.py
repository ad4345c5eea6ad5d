"""The process that measures one row: `python -m rjemu.bench.worker ROW REPEAT` prints a line of JSON.

It has as many CPUs as the row says.
A process of its own, so that numpy starts with one thread whatever the command's process has loaded.
"""

from __future__ import annotations

import json
import sys

import psutil

from rjemu.bench.measure import measure
from rjemu.bench.rows import ROWS


def main(name: str, repeat: int) -> None:
    process = psutil.Process()
    cpus = next(row.cpus for row in ROWS if row.name == name)
    if cpus and hasattr(process, "cpu_affinity"):
        process.cpu_affinity(process.cpu_affinity()[-cpus:])
    value, seconds = measure(name, repeat)
    print(json.dumps({"value": value, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
