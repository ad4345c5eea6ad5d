"""The metadata note of a code object: what its kernels' arguments are.

Each field states the key and the type that it has in the note. Source: LLVM's AMDGPUUsage, "Code Object V3 Metadata"
to "Code Object V5 Metadata" (V6 has V5's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import msgpack

from rjemu.errors import CodeObjectError

NT_AMDGPU_METADATA = 32
NOTE_OWNER = b"AMDGPU"

_MAX_ELEMENTS = 1 << 16
"""Elements of one msgpack array or map: room is made for them before they are read."""

_T = TypeVar("_T")


def _key(name: str, kind: type, default: Any = MISSING) -> Any:
    """A dataclass field that the note holds under `name`; required where it has no default."""
    metadata = {"key": name, "kind": kind}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class KernelArg:
    """One argument of a kernel. `offset` and `size` are bytes in the kernarg segment.

    value_kind: by_value, global_buffer, dynamic_shared_pointer, image, sampler, pipe, queue, or hidden_* for what the
    runtime fills in. Texts that the note leaves out are "".
    """

    offset: int = _key(".offset", int)
    size: int = _key(".size", int)
    value_kind: str = _key(".value_kind", str)
    name: str = _key(".name", str, "")
    type_name: str = _key(".type_name", str, "")
    address_space: str = _key(".address_space", str, "")
    access: str = _key(".access", str, "")
    actual_access: str = _key(".actual_access", str, "")
    pointee_align: int = _key(".pointee_align", int, 0)
    is_const: bool = _key(".is_const", bool, False)
    is_restrict: bool = _key(".is_restrict", bool, False)
    is_volatile: bool = _key(".is_volatile", bool, False)
    is_pipe: bool = _key(".is_pipe", bool, False)

    @property
    def is_hidden(self) -> bool:
        """Whether the runtime, not the caller, supplies the value."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """What the note says about one kernel. Sizes are in bytes; what it leaves out is None, "" or ()."""

    name: str = _key(".name", str)
    symbol: str = _key(".symbol", str)
    kernarg_segment_size: int = _key(".kernarg_segment_size", int)
    kernarg_segment_align: int = _key(".kernarg_segment_align", int, 8)
    group_segment_fixed_size: int = _key(".group_segment_fixed_size", int, 0)
    private_segment_fixed_size: int = _key(".private_segment_fixed_size", int, 0)
    wavefront_size: int | None = _key(".wavefront_size", int, None)
    max_flat_workgroup_size: int | None = _key(".max_flat_workgroup_size", int, None)
    uses_dynamic_stack: bool = _key(".uses_dynamic_stack", bool, False)
    uniform_work_group_size: int | None = _key(".uniform_work_group_size", int, None)
    workgroup_processor_mode: int | None = _key(".workgroup_processor_mode", int, None)
    sgpr_count: int | None = _key(".sgpr_count", int, None)
    vgpr_count: int | None = _key(".vgpr_count", int, None)
    agpr_count: int | None = _key(".agpr_count", int, None)
    sgpr_spill_count: int | None = _key(".sgpr_spill_count", int, None)
    vgpr_spill_count: int | None = _key(".vgpr_spill_count", int, None)
    kind: str = _key(".kind", str, "normal")
    language: str = _key(".language", str, "")
    device_enqueue_symbol: str = _key(".device_enqueue_symbol", str, "")
    vec_type_hint: str = _key(".vec_type_hint", str, "")
    reqd_workgroup_size: tuple[int, int, int] | None = None
    workgroup_size_hint: tuple[int, int, int] | None = None
    cluster_dims: tuple[int, int, int] | None = None
    args: tuple[KernelArg, ...] = ()

    @property
    def explicit_args(self) -> tuple[KernelArg, ...]:
        """The arguments that the caller supplies, in order."""
        return tuple(arg for arg in self.args if not arg.is_hidden)

    @property
    def hidden_args(self) -> tuple[KernelArg, ...]:
        """The arguments that the runtime supplies, in order."""
        return tuple(arg for arg in self.args if arg.is_hidden)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The whole note. `kernels` is keyed by the descriptor's symbol; `target` is "" where the note does not say."""

    version: tuple[int, ...]
    target: str
    kernels: Mapping[str, KernelMetadata]
    printf: tuple[str, ...] = ()


def decode_metadata(payload: bytes) -> Metadata:
    """From the msgpack bytes of an NT_AMDGPU_METADATA note."""
    root = _mapping(_unpack(payload), "the document")
    kernels = [
        _kernel(_mapping(entry, f"kernel {index}"), f"kernel {index}")
        for index, entry in enumerate(_get(root, "amdhsa.kernels", list, "the document", []))
    ]
    return Metadata(
        version=tuple(_list_of(root, "amdhsa.version", int, "the document")),
        target=_get(root, "amdhsa.target", str, "the document", ""),
        kernels={kernel.symbol: kernel for kernel in kernels},
        printf=tuple(_list_of(root, "amdhsa.printf", str, "the document")),
    )


def _unpack(payload: bytes) -> Any:
    elements = min(len(payload), _MAX_ELEMENTS)
    try:
        return msgpack.unpackb(payload, max_array_len=elements, max_map_len=elements)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise CodeObjectError(f"metadata note of {len(payload)} bytes is no msgpack document: {reason}") from error


def _kernel(entry: Mapping[str, Any], place: str) -> KernelMetadata:
    name = _get(entry, ".name", str, place)
    place = f"kernel {name!r}"
    args = [
        _record(KernelArg, _mapping(arg, f"{place}, argument {index}"), f"{place}, argument {index}")
        for index, arg in enumerate(_get(entry, ".args", list, place, []))
    ]
    return _record(
        KernelMetadata,
        entry,
        place,
        reqd_workgroup_size=_triple(entry, ".reqd_workgroup_size", place),
        workgroup_size_hint=_triple(entry, ".workgroup_size_hint", place),
        cluster_dims=_triple(entry, ".cluster_dims", place),
        args=tuple(args),
    )


def _record(record: type[_T], entry: Mapping[str, Any], place: str, **values: Any) -> _T:
    """A dataclass filled from the note by the keys that its fields state."""
    for spec in fields(record):  # type: ignore[arg-type]
        if "key" in spec.metadata:
            values[spec.name] = _get(entry, spec.metadata["key"], spec.metadata["kind"], place, spec.default)
    return record(**values)


def _get(entry: Mapping[str, Any], key: str, kind: type, place: str, default: Any = MISSING) -> Any:
    value: Any = entry.get(key, default)
    if value is default and default is not MISSING:
        return default
    if value is MISSING:
        raise CodeObjectError(f"metadata of {place} has no {key}")
    if type(value) is not kind:
        raise CodeObjectError(f"metadata of {place}: {key} is {type(value).__name__}, expected {kind.__name__}")
    if isinstance(value, int) and value < 0:
        raise CodeObjectError(f"metadata of {place}: {key} is {value}, expected no negative number")
    return value


def _list_of(entry: Mapping[str, Any], key: str, kind: type, place: str) -> list[Any]:
    values: list[Any] = _get(entry, key, list, place, [])
    if any(type(value) is not kind for value in values):
        raise CodeObjectError(f"metadata of {place}: {key} holds something other than {kind.__name__}")
    return values


def _triple(entry: Mapping[str, Any], key: str, place: str) -> tuple[int, int, int] | None:
    if key not in entry:
        return None
    values: list[int] = _list_of(entry, key, int, place)
    if len(values) != 3 or min(values) < 0:
        raise CodeObjectError(f"metadata of {place}: {key} is {values!r}, expected three sizes")
    return values[0], values[1], values[2]


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CodeObjectError(f"metadata of {place} is {type(value).__name__}, expected a map")
    return value
