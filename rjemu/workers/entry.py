"""The first code of a worker process. It imports nothing of rjemu before it can say what went wrong."""

from __future__ import annotations

import pickle
from typing import Any

FAILED = "failed"
"""First item of a worker's last message: it could not start, or met an error of its own; the second says which."""


def run_worker(setup: bytes, connection: Any) -> None:
    """Run a worker or helper, whose `Setup` or `HelperSetup` comes pickled, until it ends."""
    try:
        pickle.loads(setup).run(connection)
    except Exception as error:
        connection.send((FAILED, f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from error
