"""Job files: what each key means, and errors that name the file and the key."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from rjemu.errors import UsageError
from rjemu.jobs import Job, load_job
from rjemu.jobs.arguments import BufferArgument
from rjemu.jobs.files import ArrayFile
from rjemu.jobs.spec import Output, parse_job

MINIMAL = 'code = "k.hsaco"\n[[dispatches]]\nkernel = "k"\ngrid = 1\n'
BUFFER = MINIMAL + '[[buffers]]\nname = "a"\ndtype = "float32"\nshape = 4\n'


def parse(tmp_path: Path, text: str) -> Job:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return load_job(path)


def test_whole_job(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.float16))
    job = parse(
        tmp_path,
        """
config = "gfx942_cdna3"
wave_quantum = 1
code = "sub/gemm.hsaco"

[[buffers]]
name = "a"
file = "a.npy"

[[buffers]]
name = "c"
dtype = "bfloat16"
shape = [2, 3]
fill = "nan"

[[dispatches]]
kernel = "gemm"
grid = [8, 8, 1]
block = 256
lds_bytes = 65536
timeout = 2.5
args = ["a", { buffer = "c", offset = 16 }, { i32 = -5 }, { u64 = 0 }, { f16 = 0.5 }, { hex = "00ff" }, 7, 1.5, true]

[[dispatches]]
kernel = "raw"
global_size = [100]
block = [64]
kernarg = ["c", { bf16 = 1 }]

[[outputs]]
buffer = "c"
file = "c.npy"
expect = "ref.npy"
rtol = 1e-3

[[outputs]]
buffer = "a"
expect = "ref.npy"
exact = true
""",
    )
    assert (job.config, job.overrides, job.repeat) == ("gfx942_cdna3", {"wave_quantum": 1}, 1)
    assert (job.executor, job.workers) == ("native", None)
    assert job.codes == [tmp_path / "sub/gemm.hsaco"]
    a, c = job.buffers
    assert np.array_equal(a.contents(), np.arange(6, dtype=np.float16))
    assert c.contents().dtype == ml_dtypes.bfloat16
    assert np.isnan(c.contents().astype(np.float32)).all()
    gemm, raw = job.dispatches
    assert (gemm.grid, gemm.block, gemm.global_size, gemm.lds_bytes, gemm.timeout) == ([8, 8, 1], [256], None, 65536, 2.5)
    assert gemm.args == (
        BufferArgument("a"), BufferArgument("c", 16), np.int32(-5), np.uint64(0), np.float16(0.5), b"\x00\xff", 7, 1.5, True,
    )  # fmt: skip
    assert [type(arg) for arg in gemm.args[2:5]] == [np.int32, np.uint64, np.float16]
    assert (raw.args, raw.kernarg) == (None, (BufferArgument("c"), ml_dtypes.bfloat16(1)))
    assert job.outputs == (
        Output("c", tmp_path / "c.npy", ArrayFile(tmp_path / "ref.npy"), 1e-3, 1e-8, False),
        Output("a", None, ArrayFile(tmp_path / "ref.npy"), 1e-5, 1e-8, True),
    )


def test_config_may_be_a_file_beside_the_job_or_a_table(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text("{}")
    assert parse(tmp_path, 'config = "own.json"\n' + MINIMAL).config == tmp_path / "own.json"
    assert parse(tmp_path, "config = { wave_quantum = 2 }\n" + MINIMAL).config == {"wave_quantum": 2}
    assert parse(tmp_path, MINIMAL).config == "gfx950_mi355x"


@pytest.mark.parametrize(
    ("dtype", "fill", "check"),
    [
        ("float32", "3", lambda a: (a == 3).all()),
        ("int16", "-7", lambda a: (a == -7).all()),
        ("float16", '"nan"', lambda a: np.isnan(a).all()),
        ("float64", '{ random = "normal", seed = 3 }', lambda a: abs(a.mean()) < 0.1 and abs(a.std() - 1) < 0.1),
        ("float32", '{ random = "normal", mean = 5, std = 0 }', lambda a: (a == 5).all()),
        ("float8_e4m3fn", '{ random = "uniform", low = -1, high = 1 }', lambda a: abs(a.astype(float)).max() <= 1),
        ("int8", '{ random = "uniform", low = -128, high = 128 }', lambda a: a.min() == -128 and a.max() == 127),
    ],
)
def test_fills(tmp_path: Path, dtype: str, fill: str, check: object) -> None:
    text = MINIMAL + f'[[buffers]]\nname = "a"\ndtype = "{dtype}"\nshape = [64, 64]\nfill = {fill}\n'
    contents = parse(tmp_path, text).buffers[0].contents()
    assert contents.shape == (64, 64)
    assert check(contents)  # type: ignore[operator]
    assert parse(tmp_path, text).buffers[0].contents().tobytes() == contents.tobytes()


def test_seeds_differ(tmp_path: Path) -> None:
    texts = [BUFFER + f'fill = {{ random = "uniform", seed = {seed} }}\n' for seed in (1, 2)]
    first, second = (parse(tmp_path, text).buffers[0].contents() for text in texts)
    assert (first != second).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('code = "k" "j"', r"job\.toml: .*line 1, column 12"),
        ('[[dispatches]]\nkernel = "k"', "code is missing"),
        ('code = "k"', "dispatches is missing"),
        ('code = 5\n[[dispatches]]\nkernel = "k"', "code must be a string, not 5"),
        (MINIMAL + "gird = 2", r"dispatches\[0\] \(k\): has no key 'gird'; there are kernel, code, grid,"),
        (MINIMAL.replace("grid = 1", 'grid = "8"'), r"grid must be a whole number or a list, not '8'"),
        (MINIMAL.replace("grid = 1", "grid = [1, 2.5]"), "grid must be whole numbers"),
        (MINIMAL.replace("grid = 1", "grid = true"), "grid must be a whole number or a list, not True"),
        (MINIMAL + 'args = ["b"]', r"args\[0\]: there is no buffer 'b'"),
        (MINIMAL + "args = [{ i33 = 1 }]", r"args\[0\]: type 'i33' is not known; there are i8"),
        (MINIMAL + "args = [{ i32 = 1.5 }]", r"i32 must be a whole number, not 1.5"),
        (MINIMAL + "args = [{ u8 = 256 }]", r"256 is no u8"),
        (MINIMAL + "args = [{ f32 = 1, f16 = 2 }]", "is no argument"),
        (MINIMAL + 'args = [{ hex = "0g" }]', "no hexadecimal"),
        (MINIMAL + "args = [[1]]", r"args\[0\]: must be a table"),
        (BUFFER + "size = 5", r"buffer 'a': has no key 'size'"),
        (BUFFER + '[[buffers]]\nname = "a"\nfile = "a.npy"', "two buffers have the same name"),
        (BUFFER.replace("shape = 4", ""), "needs a shape"),
        (BUFFER.replace("shape = 4", "shape = [-1]"), "needs a shape of sizes that are not negative"),
        (BUFFER.replace('dtype = "float32"', ""), "needs a file, or dtype and shape"),
        (BUFFER.replace("float32", "float33"), "buffer 'a': 'float33' is no dtype"),
        (BUFFER.replace("float32", "int8") + "fill = 128", "fill 128 is no int8"),
        (BUFFER.replace("float32", "int8") + 'fill = "nan"', "fill nan is no int8"),
        (BUFFER + 'fill = "zero"', "fill 'zero' is not known"),
        (BUFFER + 'fill = { random = "beta" }', "random 'beta' is not known"),
        (BUFFER + 'fill = { random = "uniform", low = 1, high = 0 }', "no bounds of uniform numbers"),
        (BUFFER + 'fill = { random = "normal", std = -1 }', "no bounds of normal"),
        (BUFFER + 'fill = { random = "normal", seed = -1 }', "seed is -1"),
        (BUFFER + 'fill = { random = "normal", low = 1 }', "has no key 'low'"),
        (BUFFER.replace("float32", "int8") + 'fill = { random = "uniform", high = 300 }', "no bounds"),
        (BUFFER.replace("float32", "int8") + 'fill = { random = "normal" }', "normal random numbers are no int8"),
        (BUFFER + '[[outputs]]\nbuffer = "z"\nfile = "z.npy"', r"outputs\[0\] \(z\): there is no buffer 'z'"),
        (BUFFER + '[[outputs]]\nbuffer = "a"', "needs a file to write, or an expect"),
        (BUFFER + '[[outputs]]\nbuffer = "a"\nexpect = "a.npy"\nexact = 1', "exact must be true or false"),
        ("dispatches = 5\n" + 'code = "k"', "dispatches must be a list"),
        (MINIMAL + "repeat = 0", r"dispatches\[0\] \(k\): repeat must be at least 1, not 0"),
        ("repeat = -1\n" + MINIMAL, "repeat must be at least 1, not -1"),
        ("repeat = 1.5\n" + MINIMAL, "repeat must be a whole number"),
        ('executor = "fast"\n' + MINIMAL, "executor must be 'native' or 'reference', not 'fast'"),
        ('workers = "many"\n' + MINIMAL, "workers must be 'auto', 'inline' or two numbers, as in '1/2', not 'many'"),
        ("workers = [1, 2, 3]\n" + MINIMAL, r"not \[1, 2, 3\]"),
        ("workers = [0, 1]\n" + MINIMAL, "at least '1/1'"),
        ("workers = 5\n" + MINIMAL, "workers must be a string or a list, not 5"),
        (BUFFER.replace("shape = 4", 'file = "a.npy"\nkey = "a"'), r"key names an array of an \.npz file"),
        (BUFFER.replace("shape = 4", 'file = "a.npy"\noffset = 8'), "offset is for raw files"),
        (BUFFER + 'file = "a.npy"', r"shape is what \.npy files say themselves"),
        (BUFFER + 'file = "a.npz"', r"shape is what \.npz files say themselves"),
        (BUFFER.replace('dtype = "float32"', 'file = "a.bin"'), "a raw file needs a dtype"),
        (BUFFER + 'file = "a.bin"\noffset = -4', "offset is -4"),
        (BUFFER + 'file = "a.bin"\nfill = 1', "has no key 'fill'"),
        (BUFFER.replace("shape = 4", "shape = [4294967296, 4294967296]"), "no larger than memories are"),
        (BUFFER + '[[outputs]]\nbuffer = "a"\nfile = "a.npy"\nexpect_key = "c"', "expect is missing"),
        (BUFFER + '[[outputs]]\nbuffer = "a"\nexpect = "r.npy"\nexpect_key = "c"', r"expect_key names an array of an \.npz"),
        ('code = "k"\ndispatches = [5]', r"dispatches\[0\]: must be a table, not 5"),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'job.toml'}: ")


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a = '\udcff'", "a", "\ufeffa = 1", "a = 1\na = 2", "#" * (17 << 20)],
)
def test_texts_that_are_no_job(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=f"{path}: "):
        load_job(path)


@pytest.mark.parametrize("path", [".", "/dev/zero", "/dev/null", "no\0name", "x" * 5000])
def test_files_that_are_no_job(path: str) -> None:
    """Among them one without end."""
    with pytest.raises(UsageError):
        load_job(Path(path))


def test_launches_come_in_order_with_their_repetitions(tmp_path: Path) -> None:
    job = parse(
        tmp_path,
        """
repeat = 2
workers = "2/3"
executor = "reference"
code = "k.hsaco"
[[dispatches]]
kernel = "a"
grid = 1
[[dispatches]]
kernel = "b"
code = "other.hsaco"
grid = 1
repeat = 3
""",
    )
    assert job.launches == 8
    assert [job.dispatches[job.dispatch_of(launch)].kernel for launch in range(8)] == [*"abbb", *"abbb"]
    assert job.codes == [tmp_path / "k.hsaco", tmp_path / "other.hsaco"]
    assert (job.workers, job.executor) == ((2, 3), "reference")


def test_changes_replace_keys_of_the_file(tmp_path: Path) -> None:
    job = parse(tmp_path, "repeat = 3\nwave_quantum = 4\nworkers = [1, 2]\n" + MINIMAL)
    changed = job.with_changes(repeat=1, wave_quantum=2, workers="auto", cpu_thread_budget=4)
    assert (changed.repeat, changed.workers) == (1, None)
    assert changed.overrides == {"wave_quantum": 2, "cpu_thread_budget": 4}
    assert job.overrides == {"wave_quantum": 4}
    assert parse_job(job.file, changed.data) == changed
    with pytest.raises(UsageError, match="repeat must be at least 1"):
        job.with_changes(repeat=0)


def test_outputs_may_go_elsewhere(tmp_path: Path) -> None:
    text = BUFFER + '[[outputs]]\nbuffer = "a"\nfile = "x/a.npy"\nexpect = "e.npy"\n'
    text += f'[[outputs]]\nbuffer = "a"\nfile = "{tmp_path}/b.npy"\n'
    job = parse(tmp_path, text).with_changes(output_dir="there")
    assert [output.file for output in job.outputs] == [tmp_path / "there" / "x" / "a.npy", tmp_path / "b.npy"]
    assert job.outputs[0].expect == ArrayFile(tmp_path / "e.npy")
    assert parse(tmp_path, text).outputs[0].file == tmp_path / "x" / "a.npy"


def test_plugins_files_lie_in_the_jobs_folder(tmp_path: Path) -> None:
    job = parse(tmp_path, 'sinks = { types = ["file"], dir = "logs" }\n' + MINIMAL)
    assert job.overrides == {"sinks": {"types": ["file"], "dir": str(tmp_path / "logs")}}
    assert parse(tmp_path, "sinks = 5\n" + MINIMAL).overrides == {"sinks": 5}
