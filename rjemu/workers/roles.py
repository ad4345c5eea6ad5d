"""What the workers of a machine are for (design: E engines, and D - 1 dispatch workers per GPU)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """device: the GPU whose dispatches a worker takes part in, None for all of them (an engine).

    engines, engine: the worker takes first the workgroups of XCDs x, counted over all GPUs, with x mod engines == engine.
    """

    name: str
    device: int | None
    engines: int
    engine: int

    def serves(self, device: int) -> bool:
        """Whether the worker takes part in dispatches of that GPU."""
        return self.device is None or self.device == device

    def own_xcds(self, device: int, xcds: int) -> tuple[int, int]:
        """(n, r): of a GPU with so many XCDs its own are those whose number within the GPU is r modulo n."""
        return self.engines, (self.engine - device * xcds) % self.engines


def roles(engines: int, dispatch: int, devices: int = 1) -> list[Role]:
    """E engines, which advance XCDs of their own, and D - 1 dispatch workers for each GPU, which take from any XCD of it."""
    out = [Role(f"engine {e}", None, engines, e) for e in range(engines)]
    for device in range(devices):
        of = f" of GPU {device}" if devices > 1 else ""
        out += [Role(f"dispatch {d}{of}", device, 1, 0) for d in range(1, dispatch)]
    return out


def engines_and_dispatch(workers: Sequence[Role]) -> tuple[int, int]:
    """(E, D) of which `roles` makes these workers."""
    engines = sum(role.device is None for role in workers)
    return engines, 1 + sum(role.device == 0 for role in workers)
