"""The `logging` plugin: what each dispatch is, and its kernel's first matrix instruction."""

from __future__ import annotations

from rjemu.plugins.contract import Dispatch, Outcome, Plugin

_MATRIX = ("mfma", "smfmac", "wmma")


class KernelLogging(Plugin):
    """Every dispatch, with its resources and its kernel's first matrix instruction, and how it ended. No settings."""

    @classmethod
    def supports_async_instructions(cls) -> bool:
        return True

    def on_dispatch_begin(self, dispatch: Dispatch) -> None:
        self.sink.line(
            f"[logging] dispatch {dispatch.number}: kernel {dispatch.kernel} at {dispatch.entry:#x}, "
            f"device {dispatch.device}, grid {dispatch.grid}, block {dispatch.block}, "
            f"{dispatch.vgprs} VGPRs, {dispatch.agprs} AGPRs, {dispatch.sgprs} SGPRs, "
            f"{dispatch.lds_bytes} bytes of LDS, {dispatch.scratch_bytes} bytes of scratch"
        )
        for step in dispatch.code():
            if any(part in step.instr.name for part in _MATRIX):
                self.sink.line(
                    f"[logging] dispatch {dispatch.number}: first matrix instruction at {step.pc:#x}: {step.text}"
                )
                break

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        how = "ended" if outcome.error is None else f"failed: {outcome.error}"
        self.sink.line(f"[logging] dispatch {dispatch.number}: {how} after {outcome.seconds:.6f} s")
