"""Shared set-up of the test suite: `support` is importable, and the built objects are cached for one test run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_CACHE = "RJEMU_TEST_OBJECTS"


def pytest_configure(config: pytest.Config) -> None:
    """One object cache for the whole run: xdist workers inherit the variable from the process that starts them."""
    if _CACHE not in os.environ:
        os.environ[_CACHE] = tempfile.mkdtemp(prefix="rjemu-test-objects-")
        config.add_cleanup(_remove_cache)


def _remove_cache() -> None:
    shutil.rmtree(os.environ.pop(_CACHE), ignore_errors=True)
