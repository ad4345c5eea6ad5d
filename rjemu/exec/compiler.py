"""LLVM at run time: text IR to object code for this host, and object code to addresses.

Object code is position-independent bytes, so that it can be cached on disk and loaded by any process of the same host.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import llvmlite.binding as llvm

from rjemu.errors import RjemuError


class CompileError(RjemuError):
    """LLVM refused a module that rjemu wrote: a defect of rjemu."""


_LOCK = threading.Lock()
"""llvmlite's contexts are not thread-safe."""


@lru_cache(maxsize=1)
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def host_cpu() -> str:
    """LLVM's name of the host's CPU."""
    return str(llvm.get_host_cpu_name())


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """The host CPU's features by LLVM's names, e.g. "avx512f"."""
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def _machine(opt: int) -> llvm.TargetMachine:
    _initialise()
    features = llvm.get_host_cpu_features().flatten()
    if "avx512f" in host_features():
        # Lane vectors want the widest registers; the default for some CPUs prefers half of that.
        features += ",-prefer-256-bit"
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=host_cpu(), features=features, opt=opt, reloc="pic", codemodel="default")


def compile_object(text: str, *, opt: int = 1, optimise: bool = False) -> bytes:
    """Object code of an IR module. optimise: also run LLVM's middle-end pipeline (for run-time code with variables).

    Raises CompileError with LLVM's message.
    """
    with _LOCK:
        machine = _machine(opt)
        try:
            module = llvm.parse_assembly(text)
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            if optimise:
                options = llvm.create_pipeline_tuning_options(speed_level=2)
                builder = llvm.create_pass_builder(machine, options)
                builder.getModulePassManager().run(module, builder)
            return bytes(machine.emit_object(module))
        except RuntimeError as error:
            raise CompileError(f"LLVM: {error}") from error


class Loader:
    """Object code loaded into this process, through LLVM's JITLink: it keeps an object's sections together, so that code
    reaches its constants by 32-bit distances."""

    def __init__(self) -> None:
        _initialise()
        self._jit = llvm.create_lljit_compiler(_machine(1), use_jit_link=True)
        self._libraries: list[llvm.ResourceTracker] = []

    def load(self, code: bytes, names: list[str]) -> dict[str, int]:
        """Load an object and give the addresses of its functions. CompileError if it is damaged or lacks one."""
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder.export_symbol(name)
        with _LOCK:
            try:
                library = builder.link(self._jit, f"objects{len(self._libraries)}")
            except RuntimeError as error:
                raise CompileError(f"object code cannot be loaded: {error}") from error
            self._libraries.append(library)
            return {name: int(library[name]) for name in names}
