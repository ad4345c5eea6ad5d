"""Compiling Triton kernels to code objects in tests, without a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from rjemu.integrations.triton import compile_kernel


def compile_triton(
    kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any], target: str, **options: Any
) -> Any:
    """`rjemu.integrations.triton.compile_kernel`, with multiply-add fused as on Triton's default for AMD's libraries.

    Compiled objects are kept in the directory that tests/conftest.py makes, for one test run.
    """
    cache = str(Path(os.environ["RJEMU_TEST_OBJECTS"], "triton"))
    with mock.patch.dict(os.environ, TRITON_CACHE_DIR=cache):
        return compile_kernel(kernel, signature, constants, target, **{"enable_fp_fusion": True, **options})
