"""Operands that the compiler knows are rounded in the mode's direction all the same."""

from __future__ import annotations

import numpy as np
import pytest
from support.harness import Lab


@pytest.mark.parametrize("direction", range(4))
@pytest.mark.parametrize("text", ["v_cvt_f32_u32 v1, src_shared_limit", "v_cvt_f32_u32 v1, 0xfffffff1"])
def test_constants_round_as_the_mode_says(text: str, direction: int) -> None:
    lab = Lab("gfx950", 0x3F0 | direction | direction << 2)
    (instr,) = lab.instructions(text)
    lab.check(instr, np.random.default_rng(direction), 3)
