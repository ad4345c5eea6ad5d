"""Kernels written as LLVM IR: compiled for an AMD GPU by the amdgcn back end that llvmlite carries."""

from __future__ import annotations

import llvmlite.binding as llvm

from rjemu.code.targets import FAMILIES, TargetId
from rjemu.errors import UsageError

TRIPLE = "amdgcn-amd-amdhsa"


def compile_ir(text: str, target: str, *, optimise: int = 3) -> bytes:
    """The code object of an IR module: relocatable (ET_REL), which `Machine.load` takes as it is.

    text: textual IR; its kernels have the calling convention amdgpu_kernel. target: a target id such as "gfx950" or
    "gfx942:xnack+". optimise: LLVM's optimisation level, 0 to 3.

    UsageError for a target that LLVM does not have and for IR that does not parse or verify; CodeObjectError for what is
    no target id. What only the back end notices (LLVM's "fatal error", such as an intrinsic that the target lacks) ends
    the process with LLVM's message.
    """
    target_id = TargetId.parse(target)
    if target_id.processor not in FAMILIES:
        raise UsageError(f"{target_id.processor!r} is no AMD GPU target; there are {', '.join(FAMILIES)}")
    if optimise not in range(4):
        raise UsageError(f"optimise is {optimise}: expected 0 to 3")
    machine = _target_machine(target_id, optimise)
    try:
        module = llvm.parse_assembly(text)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise UsageError(f"not valid LLVM IR: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=optimise)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _target_machine(target_id: TargetId, optimise: int) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    settings = (("xnack", target_id.xnack), ("sramecc", target_id.sramecc))
    features = ",".join(f"{'+' if on else '-'}{name}" for name, on in settings if on is not None)
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=target_id.processor, features=features, opt=optimise, reloc="pic"
    )
