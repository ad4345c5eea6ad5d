"""What the processes of a machine import: they start the sooner, and are the smaller, the less that is."""

from __future__ import annotations

import subprocess
import sys

WRITERS = (
    "rjemu.exec.ir",
    "rjemu.exec.scheduler",
    "rjemu.exec.program",
    "rjemu.isa.semantics",
    "rjemu.mma",
    "rjemu.config",
    "rjemu.vm",
)


def test_workers_and_helpers_load_native_code_and_do_not_write_it() -> None:
    program = "import sys, rjemu.workers.worker, rjemu.workers.helper; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    modules = done.stdout.split()
    assert "rjemu.exec.engine" in modules
    assert [name for name in modules if name.startswith(WRITERS)] == []
