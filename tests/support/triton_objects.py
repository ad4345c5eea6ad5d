"""Compiling Triton kernels to code objects in tests, without a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def compile_triton(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    target: str,
    *,
    divisible_by_16: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """The compiled kernel: `.asm["hsaco"]` is the code object, `.metadata.shared` its LDS bytes.

    signature: argument name -> Triton type ("*fp16", "i32"), without the constants. divisible_by_16: the arguments
    that Triton may assume to be multiples of 16, as its launcher finds out about addresses and sizes. options:
    num_warps, num_stages, ... Compiled objects are kept in the directory that tests/conftest.py makes.
    """
    places = {name: (index,) for index, name in enumerate(kernel.arg_names)}
    source = ASTSource(
        kernel,
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs={places[name]: value for name, value in constants.items()},
        attrs={places[name]: [["tt.divisibility", 16]] for name in divisible_by_16},
    )
    cache = str(Path(os.environ["RJEMU_TEST_OBJECTS"], "triton"))
    with mock.patch.dict(os.environ, TRITON_CACHE_DIR=cache, TRITON_DEFAULT_FP_FUSION="1"):
        return triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
