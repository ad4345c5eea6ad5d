"""Matrix instructions on helpers where the code that a wave reaches has been decoded for another setting of MODE."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.async_runs import PRESET, always_admitted, frame, fresh_helpers, helpers_of, run

import rjemu

GROUP = [f"v_mfma_f32_16x16x32_bf16 a[{4 * k}:{4 * k + 3}], v[4:7], v[8:11], a[{4 * k}:{4 * k + 3}]" for k in range(4)]

BODY = "\n".join(
    [
        "s_nop 0",
        "s_getpc_b64 s[14:15]",
        "base:",
        "s_add_u32 s14, s14, block-base",
        "s_addc_u32 s15, s15, 0",
        "v_readfirstlane_b32 s12, v0",
        "s_cmp_eq_u32 s12, 0",
        "s_cbranch_scc1 first",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1",
        "s_nop 1",
        "v_add_f32 v20, v20, v21",
        "s_barrier",
        "s_barrier",
        "s_setpc_b64 s[14:15]",
        "first:",
        "s_barrier",
        "s_setpc_b64 s[14:15]",
        "block:",
        "s_nop 0",
        *GROUP,
        "s_cmp_eq_u32 s12, 0",
        "s_cbranch_scc0 done",
        "s_barrier",
        "done:",
    ]
)
"""The second wave sets FP16_OVFL, and executes an s_nop and an addition. Then the first one jumps to the block, which is
decoded for its setting; then the second one does, and knows the block's first instruction already, but not the others."""


STRAIGHT = "\n".join(["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "v_add_f32 v20, v20, v21", *GROUP])
"""What BODY executes under FP16_OVFL: compiled at once, and kept in one file."""


def test_helpers_get_code_that_the_issuer_loaded_for_another_instruction(tmp_path: Path) -> None:
    """The addition's file has the matrix instruction's handler, too, which nobody has met when it is loaded."""
    text = frame(BODY, registers=range(3, 24), agprs=range(16))
    with rjemu.Machine(PRESET, workers="inline", cache_dir=tmp_path) as gpu:
        run(gpu, frame(STRAIGHT, registers=range(3, 24), agprs=range(16)))
        expected, _ = run(gpu, text, waves=2)
    with (
        always_admitted(),
        rjemu.Machine(PRESET, workers="inline", async_helper_threads=1, cache_dir=tmp_path) as gpu,
    ):
        gpu.start()
        pid = helpers_of(gpu).board.word(0, "pid")
        for _ in range(2):
            fresh_helpers(gpu)
            stored, result = run(gpu, text, waves=2)
            assert np.array_equal(stored, expected)
        helpers_of(gpu).update()
        assert result.stats["async"]["helpers_lost"] == 0
        assert helpers_of(gpu).board.word(0, "pid") == pid


@pytest.mark.parametrize("helpers", [1, 2])
def test_code_that_only_others_have_compiled_is_not_given_away(helpers: int) -> None:
    text = frame(BODY, registers=range(3, 24), agprs=range(16))
    with rjemu.Machine(PRESET, workers="inline") as gpu:
        expected, _ = run(gpu, text, waves=2)
    for _ in range(3):
        with always_admitted(), rjemu.Machine(PRESET, workers="inline", async_helper_threads=helpers) as gpu:
            gpu.start()
            fresh_helpers(gpu)
            stored, result = run(gpu, text, waves=2)
            assert np.array_equal(stored, expected)
            fresh_helpers(gpu)
            stored, result = run(gpu, text, waves=2)
            assert np.array_equal(stored, expected)
            assert result.stats["async"]["mmas_offloaded"] > 0
