"""A code object loaded into a machine, and its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rjemu.code import CodeObject, Kernel, KernelMetadata
from rjemu.errors import MachineClosed
from rjemu.exec.dispatch import DispatchResult
from rjemu.vm.executor import Progress
from rjemu.vm.geometry import Extent
from rjemu.vm.handle import Handle

if TYPE_CHECKING:
    from rjemu.vm.gpu import Gpu


class Module(Handle):
    """A code object on one GPU; `module["name"]` is a kernel. It stays loaded until `unload` or the machine's end."""

    def __init__(self, device: Gpu, code: CodeObject, address: int) -> None:
        self.device = device
        self.code = code
        self._address: int | None = address

    @property
    def kernels(self) -> list[str]:
        """The kernels' names."""
        return list(self.code.kernels)

    @property
    def address(self) -> int:
        """The GPU address of the image; MachineClosed once the module is unloaded."""
        if self._address is None:
            raise MachineClosed("the module has been unloaded")
        return self._address

    def symbol_address(self, name: str) -> int:
        """The GPU address of a symbol, such as a global variable; KeyError if there is none of that name."""
        return self.address + self.code.symbols[name].offset

    def unload(self) -> None:
        """Releases the code's memory; a second call does nothing."""
        address, self._address = self._address, None
        if address is not None:
            self.device.unload(self.code, address)

    def __getitem__(self, name: str) -> LoadedKernel:
        """The kernel of that name; KernelNotFound lists those there are."""
        return LoadedKernel(self, self.code.kernel(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.code.kernels)

    def __len__(self) -> int:
        return len(self.code.kernels)


class LoadedKernel(Handle):
    """A kernel of a loaded module."""

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def metadata(self) -> KernelMetadata | None:
        """Arguments and limits, None for a code object without metadata."""
        return self.kernel.metadata

    def launch(
        self,
        grid: Extent | None = None,
        block: Extent | None = None,
        args: Sequence[Any] | None = None,
        *,
        global_size: Extent | None = None,
        kernarg: bytes | None = None,
        lds_bytes: int = 0,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> DispatchResult:
        """Runs the kernel to its end.

        grid: workgroups per dimension; or global_size: work-items, where the last workgroups may be partial. block:
        work-items per workgroup; by default the size that the kernel requires. args: one for each explicit argument
        (`rjemu.vm.kernargs.pack_arguments`); or kernarg: the segment's bytes. lds_bytes: dynamic LDS. timeout: seconds.

        LaunchError for what does not fit the kernel; KernelFault for what it does wrong; LaunchTimeout;
        LaunchInterrupted on Ctrl-C. Memory keeps what was written before.
        """
        return self.module.device.launch(
            self, grid, block, args, global_size=global_size, kernarg=kernarg, lds_bytes=lds_bytes, timeout=timeout,
            progress=progress,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"LoadedKernel({self.name!r})"
