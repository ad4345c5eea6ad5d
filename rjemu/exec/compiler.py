"""LLVM at run time: text IR to object code for this host, and object code to addresses.

Object code is position-independent bytes, so that it can be cached on disk and loaded by any process of the same host.
"""

from __future__ import annotations

import platform
import threading
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Host:
    """The CPU that code is compiled for: LLVM's name of it and of its features ("avx512f", ...)."""

    cpu: str
    features: frozenset[str]

    @property
    def feature_text(self) -> str:
        text = ",".join(f"+{name}" for name in sorted(self.features))
        # Lane vectors want the widest registers; the default for some CPUs prefers half of that.
        return text + ",-prefer-256-bit" if "avx512f" in self.features else text

    def without(self, *prefixes: str) -> Host:
        """A lesser host: no feature whose name starts with one of the prefixes ("avx512", "amx")."""
        features = frozenset(name for name in self.features if not name.startswith(prefixes))
        return Host("x86-64-v3" if self.cpu_is_x86 else "generic", features)

    @property
    def cpu_is_x86(self) -> bool:
        return platform.machine() in ("x86_64", "AMD64")


@lru_cache(maxsize=1)
def this_host() -> Host:
    """The CPU that this process runs on."""
    present = llvm.get_host_cpu_features()
    return Host(str(llvm.get_host_cpu_name()), frozenset(name for name, on in present.items() if on))


def host_features() -> frozenset[str]:
    """The features of the CPU that this process runs on."""
    return this_host().features


def _machine(host: Host, opt: int) -> llvm.TargetMachine:
    _initialise()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=host.cpu, features=host.feature_text, opt=opt, reloc="pic", codemodel="default")


def compile_object(text: str, *, opt: int = 1, optimise: bool = False, host: Host | None = None) -> bytes:
    """Object code of an IR module for a host, by default this one. optimise: also run LLVM's middle-end pipeline (for
    run-time code with variables).

    Raises CompileError with LLVM's message.
    """
    with _LOCK:
        machine = _machine(host or this_host(), opt)
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
        self._jit = llvm.create_lljit_compiler(_machine(this_host(), 1), use_jit_link=True)
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
