"""Files: what is kept, what is refused and how, and what a file can do at worst."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.interrupted import SHORT_SLICES, WORKS, resumed, save_after, uninterrupted

import rjemu
from rjemu.checkpoint.format import MAGIC, VERSION, checksum
from rjemu.checkpoint.info import describe
from rjemu.errors import CheckpointError, ConfigError, OutOfMemory, RjemuError, UsageError
from rjemu.exec.dispatch import DispatchResult

SMALL = {"local_mem_size": 64 << 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint in the middle of a launch, with everything in it that there can be."""
    path = tmp_path_factory.mktemp("format") / "machine"
    assert save_after(WORKS["barriers"], 0.03, path, workers="inline", **SHORT_SLICES, **SMALL) is None
    return path.read_bytes()


def parts(file: bytes) -> list[Any]:
    """The objects of the stream, contents unpacked."""
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(file)
    header, *sections = unpacker
    return [header, *([name, msgpack.unpackb(content)] for name, _, content in sections)]


def joined(found: list[Any]) -> bytes:
    """The opposite of `parts`: lengths, checksums and the final count are right, whatever the contents are."""
    header, *sections = found
    out = [msgpack.packb(header)]
    for name, content in sections:
        if name == "end":
            content = {"sections": len(sections) - 1}
        packed = msgpack.packb(content)
        out.append(msgpack.packb([name, checksum(name, packed), packed]))
    return b"".join(out)


def restore_bytes(path: Path, data: bytes, **options: Any) -> list[DispatchResult]:
    path.write_bytes(data)
    with rjemu.restore(path, **{"workers": "inline", **options}) as gpu:
        return gpu.resume(timeout=5)


def changed(file: bytes, name: str, change: Callable[[Any], None]) -> bytes:
    """The file with the content of the first section of that name changed."""
    found = parts(file)
    change(next(content for section, content in found[1:] if section == name))
    return joined(found)


# --- what is kept -----------------------------------------------------------------------------------------------------


DTYPES = [
    "float32", "int8", "uint64", "bool", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4",
    np.dtype([("x", "<f4", (3,)), ("y", [("low", "u1"), ("high", "<i8")])]), ">i4", "<M8[ns]", "S5",
]  # fmt: skip


def test_arrays_keep_address_shape_dtype_and_contents(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with rjemu.Machine(workers="inline", num_gpus=2, **SMALL) as gpu:
        arrays = {}
        for k, dtype in enumerate(DTYPES):
            array = gpu.devices[k % 2].zeros((k, 3), dtype)
            gpu.vram.write(array.address, rng.integers(0, 2, array.nbytes, np.uint8))
            arrays[array.address] = array
        untouched = gpu.zeros(1 << 20, np.float32)
        freed = gpu.zeros(16, np.uint8)
        gone = freed.address
        freed.free()
        gpu.save(tmp_path / "machine")
        size = (tmp_path / "machine").stat().st_size
        with rjemu.restore(tmp_path / "machine", workers="inline") as restored:
            found = restored.arrays | restored.devices[1].arrays
            assert sorted(found) == sorted([*arrays, untouched.address])
            for address, array in arrays.items():
                assert (found[address].shape, found[address].dtype) == (array.shape, array.dtype)
                assert found[address].to_host().tobytes() == array.to_host().tobytes()
            assert not found[untouched.address].to_host().any()
            assert restored.memory_used == gpu.memory_used
            assert restored.devices[1].memory_used == gpu.devices[1].memory_used
            # What was free is free, what was not is not.
            assert restored.zeros(16, np.uint8).address == gone
    assert size < 64 << 10, "zero pages are left out"


def test_modules_run_again_with_their_variables(tmp_path: Path) -> None:
    with rjemu.Machine(workers="inline", **SMALL) as gpu:
        out, kernel, launch = WORKS["atomics"].start(gpu)
        kernel.launch(**launch)
        before = int(out.to_host()[0])
        gpu.save(tmp_path / "machine", data={"out": out.address, "steps": [1, 2.5, "three", b"four", None]})
    with rjemu.restore(tmp_path / "machine", workers=(1, 1)) as gpu:
        assert gpu.resume() == []
        assert gpu.data["steps"] == [1, 2.5, "three", b"four", None]
        (module,) = gpu.modules
        module["kernel"].launch(**launch, timeout=60)
        assert int(gpu.arrays[gpu.data["out"]].to_host()[0]) == 2 * before % (1 << 32)
        module.unload()
        assert gpu.modules == []


def test_the_configuration_is_kept_as_it_was_asked_for(tmp_path: Path) -> None:
    asked = {"cpu_thread_budget": 3, "thread_allocations": [{"num_threads": 1, "cpu_dispatch_threads": 2}], "time_slice": 99}
    with rjemu.Machine("gfx942_cdna3", **asked, **SMALL) as gpu:
        gpu.save(tmp_path / "machine")
        with rjemu.restore(tmp_path / "machine") as restored:
            assert restored.config == gpu.config
            assert restored.request == gpu.request
        with rjemu.restore(tmp_path / "machine", workers=(1, 1), time_slice=7, executor="reference") as restored:
            assert restored.config.time_slice == 7
            assert restored.config.cpu_thread_budget == 3
            assert (restored.request.workers, restored.request.executor) == ((1, 1), "reference")


def test_an_older_file_has_no_helpers_and_keeps_what_it_has(whole: bytes, tmp_path: Path) -> None:
    def strip(machine: Any) -> None:
        for key in ("async_helper_threads", "executor", "workers"):
            del machine[key]
        machine["configuration"]["num_threads"] = 2
        machine["configuration"].pop("thread_allocations", None)

    (tmp_path / "older").write_bytes(changed(whole, "machine", strip))
    with rjemu.restore(tmp_path / "older") as gpu:
        assert gpu.config.threads.async_helper_threads == 0
        assert gpu.config.threads.num_threads == 2
        gpu.resume(timeout=60)


def test_info_tells_what_is_inside(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "machine").write_bytes(whole)
    facts = describe(tmp_path / "machine")
    (launch,) = facts["launches"]
    assert facts["version"] == VERSION
    assert launch["kernel"] == "kernel"
    assert launch["workgroups_resident"] == 12
    assert sum(launch["waves"].values()) == 48
    assert facts["machine"]["workers"] == "inline"
    assert facts["arrays"][0]["shape"] == [12 * 256]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF\x02\x01\x01", b"{}", b"\x00" * 100, msgpack.packb({"a": 1}), b"\xc1", b"\xdd"]
)
def test_foreign_files_are_no_checkpoints(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "foreign").write_bytes(data)
    for read in (rjemu.restore, describe):
        with pytest.raises(CheckpointError, match=r"no checkpoint|ends too early"):
            read(tmp_path / "foreign")


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(CheckpointError, match="cannot read"):
            rjemu.restore(path)


def test_a_newer_version_is_refused(whole: bytes, tmp_path: Path) -> None:
    found = parts(whole)
    found[0] = [MAGIC, VERSION + 1]
    with pytest.raises(CheckpointError, match=f"format version {VERSION + 1}; this rjemu reads"):
        restore_bytes(tmp_path / "newer", joined(found))


def test_every_truncation_is_noticed(whole: bytes, tmp_path: Path) -> None:
    rng = random.Random(1)
    for length in [*(rng.randrange(len(whole)) for _ in range(60)), len(whole) - 1]:
        with pytest.raises(CheckpointError):
            restore_bytes(tmp_path / "truncated", whole[:length])


def test_every_flipped_bit_is_noticed(whole: bytes, tmp_path: Path) -> None:
    """A thousand files: each has one bit that is not as it was, or a few bytes."""
    rng = random.Random(2)
    for k in range(1000):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        if k % 4:
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
        if data == whole:
            continue
        (tmp_path / "damaged").write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            describe(tmp_path / "damaged")
        assert str(tmp_path) in str(caught.value)


def test_trailing_bytes_and_missing_sections(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="something follows the end"):
        restore_bytes(tmp_path / "more", whole + b"\xc0")
    found = parts(whole)
    for k in range(1, len(found) - 1):
        if found[k][0] == "memory":  # pages may be missing: they are zero
            continue
        with pytest.raises(CheckpointError):
            restore_bytes(tmp_path / "fewer", joined(found[:k] + found[k + 1 :]))


CHANGES: list[tuple[str, Callable[[Any], None], str]] = [
    ("launch", lambda c: c.update(kernel="other"), "other"),
    ("launch", lambda c: c.update(completed=5), "workgroups were begun"),
    ("launch", lambda c: c.update(begun=[1]), "XCDs"),
    ("launch", lambda c: c.update(slots=[*c["slots"][:-1], c["slots"][0]]), "does not name"),
    ("launch", lambda c: c.update(block=[2048, 1, 1]), "2048"),
    ("launch", lambda c: c.update(global_size=[1 << 40, 1, 1]), "."),
    ("launch", lambda c: c.update(dynamic_lds_bytes=1 << 30), "LDS"),
    ("launch", lambda c: c.update(kernarg_address=c["queue_address"]), "another's"),
    ("launch", lambda c: c.update(queue_address=1), "belong together"),
    ("launch", lambda c: c.update(code="0"), "must be of type int"),
    ("launch", lambda c: c.pop("kernarg"), "kernarg is missing"),
    ("workgroup", lambda c: c.update(slot=4000), "does not name"),
    ("workgroup", lambda c: c.update(data=b"\x28\xb5\x2f\xfd" + c["data"][4:-3]), "damaged"),
    ("workgroup", lambda c: c.update(data=b""), "."),
    ("allocations", lambda c: c["rows"][0].__setitem__(1, 1 << 60), "1152921504606846976"),
    ("allocations", lambda c: c["rows"][0].__setitem__(1, 1 << 40), "."),
    ("allocations", lambda c: c["rows"][0].__setitem__(0, 12), "cannot be in the memory"),
    ("allocations", lambda c: c["rows"].append(c["rows"][0]), "overlaps another"),
    ("allocations", lambda c: c["rows"][0].pop(), "columns"),
    ("arrays", lambda c: c["rows"][0].__setitem__(2, [1 << 40, 1 << 40]), "needs"),
    ("arrays", lambda c: c["rows"][0].__setitem__(3, "object"), "dtype"),
    ("arrays", lambda c: c["rows"][0].__setitem__(3, [["x", ["y"]]]), "dtype"),
    ("arrays", lambda c: c["rows"][0].__setitem__(3, "os.system"), "dtype"),
    ("queues", lambda c: c["rows"].clear(), "queue"),
    ("code", lambda c: c.update(nbytes=5), "more bytes"),
    ("code", lambda c: c.update(device=3), "device"),
    ("code bytes", lambda c: c.update(data=b"\x7fELF" + bytes(len(c["data"]) - 4)), "."),
    ("memory", lambda c: c.update(address=c["address"] + (1 << 30)), "in no allocation"),
    ("memory", lambda c: c.update(address=c["address"] + 1), "."),
    ("memory", lambda c: c.update(pages=b"\xff" * (1 << 20)), "pages"),
    ("machine", lambda c: c.update(configuration=5), "configuration"),
]


@pytest.mark.parametrize("name, change, message", CHANGES, ids=range(len(CHANGES)))
def test_contents_that_cannot_be_are_refused(
    whole: bytes, tmp_path: Path, name: str, change: Callable[[Any], None], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        restore_bytes(tmp_path / "forged", changed(whole, name, change))


def test_a_configuration_that_is_none_is_that_error(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        restore_bytes(tmp_path / "forged", changed(whole, "machine", lambda c: c["configuration"].clear()))


def test_overrides_that_do_not_fit_are_refused(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"target|gfx942"):
        restore_bytes(tmp_path / "machine", whole, config="gfx942_cdna3")
    with pytest.raises((CheckpointError, OutOfMemory)):
        restore_bytes(tmp_path / "machine", whole, local_mem_size=4096)
    with pytest.raises(UsageError, match="reference executor"):
        restore_bytes(tmp_path / "machine", whole, executor="reference")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in it."""
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, entry in list(entries):
        yield content, key
        yield from places(entry)


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_a_well_formed_file_is_an_error_or_a_machine(
    whole: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    """Also when lengths and checksums are right. A machine that comes out of it can be used, and closed."""
    found = parts(whole)
    chosen = data.draw(st.sampled_from([part for part in found[1:-1] if part[0] != "machine"]))
    container, key = data.draw(st.sampled_from(list(places(chosen[1]))))
    old = container[key]
    nudged = st.sampled_from([old + 1, old - 1, -old, old ^ 1 << 12]) if type(old) is int else values
    container[key] = data.draw(values | nudged)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(RjemuError):
        restore_bytes(tmp_path / "forged", joined(found))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB


def test_a_length_that_is_not_there_costs_no_memory(tmp_path: Path) -> None:
    start = msgpack.packb([MAGIC, VERSION])
    for huge in (
        b"\xc6\xff\xff\xff\xff",
        b"\xc6" + struct.pack(">I", 60 << 20),
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
    ):
        (tmp_path / "huge").write_bytes(start + b"\x93\xa6memory\x00" + huge + b"x" * 100)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(CheckpointError, match="byte"):
            describe(tmp_path / "huge")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def test_the_undamaged_file_is_good(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "machine").write_bytes(joined(parts(whole)))
    expected = uninterrupted(WORKS["barriers"], **SHORT_SLICES)
    assert resumed(tmp_path / "machine", workers="inline")[1].tobytes() == expected.tobytes()


@pytest.mark.parametrize("data", [object(), {1: 2}, {"a": np.zeros(3)}, 1 << 70, {"a": (1, 2)}])
def test_data_must_be_plain(tmp_path: Path, data: Any) -> None:
    with rjemu.Machine(workers="inline", **SMALL) as gpu, pytest.raises(UsageError, match="plain"):
        gpu.save(tmp_path / "machine", data=data)
    assert list(tmp_path.iterdir()) == []
