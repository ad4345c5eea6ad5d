"""What a checkpoint holds, without a machine being made of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rjemu.checkpoint.contents import decode_piece, decode_workgroup, number, numbers, rows_of, value
from rjemu.checkpoint.format import Reader, Section
from rjemu.errors import CheckpointError
from rjemu.exec.suspended import WAVE_STATES


def read_request(path: str | Path) -> tuple[Any, Any]:
    """(configuration as it was asked for, what `Machine.save` was given as `data`), without the rest being read.
    CheckpointError as `describe`."""
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    with file:
        section = next(Reader(file, str(path)).sections(), None)
    if section is None or section.name != "machine":
        raise CheckpointError(f"{path} does not begin with what machine it is of")
    return section.content.get("configuration"), section.content.get("data")


def describe(path: str | Path) -> dict[str, Any]:
    """The facts that `rjemu checkpoint info` shows. The whole file is read, and its checksums are compared.

    CheckpointError if it cannot be read, is no checkpoint, or is damaged.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    with file:
        reader = Reader(file, str(path))
        facts: dict[str, Any] = {
            "version": reader.version,
            "file_bytes": Path(path).stat().st_size,
            "machine": {},
            "allocations": {"count": 0, "bytes": 0},
            "memory": {"pages_bytes": 0, "file_bytes": 0},
            "arrays": [],
            "code": [],
            "queues": 0,
            "launches": [],
        }
        for section in reader.sections():
            try:
                _add(facts, section)
            except ValueError as problem:
                section.fail(problem)
    if not facts["machine"]:
        raise CheckpointError(f"{path} does not say what machine it is of")
    return facts


def _add(facts: dict[str, Any], section: Section) -> None:
    content = section.content
    if section.name == "machine":
        facts["machine"] = {key: content.get(key) for key in ("name", "executor", "workers", "async_helper_threads")}
        facts["machine"]["data"] = content.get("data") is not None
    elif section.name == "allocations":
        sizes = [number(row, "nbytes") for row in rows_of(content, "address", "nbytes", "label", "device")]
        facts["allocations"] = {"count": len(sizes), "bytes": sum(sizes)}
    elif section.name == "memory":
        _, _, pages = decode_piece(content)
        facts["memory"]["pages_bytes"] += pages.nbytes
        facts["memory"]["file_bytes"] += section.nbytes
    elif section.name == "arrays":
        facts["arrays"] = [
            {"address": number(row, "address"), "device": number(row, "device"), "shape": list(numbers(row, "shape")),
             "dtype": row["dtype"]}
            for row in rows_of(content, "address", "device", "shape", "dtype")
        ]  # fmt: skip
    elif section.name == "code":
        keys = ("address", "device", "nbytes")
        facts["code"].append({key: number(content, key) for key in keys} | {"target": value(content, "target", str)})
    elif section.name == "queues":
        facts["queues"] = len(value(content, "rows", list))
    elif section.name == "launch":
        facts["launches"].append(_launch(content))
    elif section.name == "workgroup":
        if not facts["launches"]:
            raise ValueError("a workgroup of no launch")
        record = decode_workgroup(number(content, "slot"), value(content, "data", bytes))
        states = Counter(WAVE_STATES.get(wave.fields["state"], "unknown") for wave in record.waves)
        waves = facts["launches"][-1]["waves"]
        for state, count in states.items():
            waves[state] = waves.get(state, 0) + count


def _launch(content: Any) -> dict[str, Any]:
    return {
        "kernel": value(content, "kernel", str),
        "device": number(content, "device"),
        "global_size": list(numbers(content, "global_size")),
        "block": list(numbers(content, "block")),
        "workgroups_completed": number(content, "completed"),
        "workgroups_resident": len(numbers(content, "slots")),
        "waves": {},
    }
