"""`rjemu info`: what a code object holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rjemu.code import CodeObject, Kernel, KernelArg, load_code_object


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "info",
        description="Show the kernels of a code object or offload bundle, their arguments and resources.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a code object or an offload bundle")
    parser.add_argument("--target", help="which code object of a bundle, such as gfx950")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    facts = describe(load_code_object(arguments.file, arguments.target))
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(_lines(facts)))
    return 0


def describe(code: CodeObject) -> dict[str, Any]:
    """The facts that the command shows. Sizes are in bytes, registers are counts per lane or wave."""
    return {
        "target": str(code.target_id),
        "code_object_version": code.abi_version,
        "image_bytes": code.image.size,
        "kernels": [_describe_kernel(kernel) for kernel in code.kernels.values()],
    }


def _describe_kernel(kernel: Kernel) -> dict[str, Any]:
    descriptor, metadata = kernel.descriptor, kernel.metadata
    return {
        "name": kernel.name,
        "wave_size": descriptor.wave_size,
        "vgprs": descriptor.vgpr_count,
        "agprs": descriptor.agpr_count,
        "sgprs": descriptor.sgpr_count,
        "lds_bytes": descriptor.group_segment_fixed_size,
        "scratch_bytes": descriptor.private_segment_fixed_size,
        "dynamic_stack": descriptor.uses_dynamic_stack,
        "kernarg_bytes": descriptor.kernarg_size or (metadata.kernarg_segment_size if metadata else 0),
        "kernarg_preload_dwords": descriptor.kernarg_preload_length,
        "max_workgroup_size": metadata.max_flat_workgroup_size if metadata else None,
        "required_workgroup_size": metadata.reqd_workgroup_size if metadata else None,
        "arguments": None if metadata is None else [_describe_argument(arg) for arg in metadata.args],
    }


def _describe_argument(arg: KernelArg) -> dict[str, Any]:
    return {"offset": arg.offset, "size": arg.size, "kind": arg.value_kind, "name": arg.name, "type": arg.type_name}


def _lines(facts: dict[str, Any]) -> list[str]:
    kernels = facts["kernels"]
    version, size = facts["code_object_version"], facts["image_bytes"]
    count = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    lines = [f"{facts['target']}, code object V{version}, {size} bytes in memory, {count}"]
    for kernel in kernels:
        lines += ["", *_kernel_lines(kernel)]
    return lines


def _kernel_lines(kernel: dict[str, Any]) -> list[str]:
    lines = [
        kernel["name"],
        f"  wave{kernel['wave_size']}, {kernel['vgprs']} VGPRs, {kernel['agprs']} AGPRs, {kernel['sgprs']} SGPRs",
        f"  {kernel['lds_bytes']} bytes of LDS, {kernel['scratch_bytes']} bytes of scratch"
        + (", dynamic stack" if kernel["dynamic_stack"] else ""),
    ]
    if kernel["required_workgroup_size"]:
        lines.append(f"  workgroups of {list(kernel['required_workgroup_size'])}")
    elif kernel["max_workgroup_size"]:
        lines.append(f"  at most {kernel['max_workgroup_size']} work-items per workgroup")
    preload = kernel["kernarg_preload_dwords"]
    lines.append(f"  {kernel['kernarg_bytes']} bytes of arguments" + (f", {preload} dwords preloaded" if preload else ""))
    if kernel["arguments"] is None:
        lines.append("  no metadata about the arguments")
    for arg in kernel["arguments"] or ():
        named = " ".join(part for part in (arg["type"], arg["name"]) if part)
        lines.append(f"    {arg['offset']:>4} {arg['size']:>3}  {arg['kind']:<24} {named}".rstrip())
    return lines
