"""The plugin contract: what a plugin is told, in which order, and what it may look at.

A plugin is a subclass of `Plugin`. What it overrides decides how dispatches run (`rjemu.plugins.host`): hooks on dispatches
leave the native executor alone, and so does `on_async_issue`; hooks on waves keep it in the launcher, and any other hook
needs the step executor, which runs one instruction at a time.

Order of the hooks of one instruction: `before_instruction`, `on_register_read` (all of them), `on_memory_access`,
`on_register_write`, `on_wait` or `on_barrier`, `after_instruction`; then, if it ended the wave, `on_wave_halt`, and if it
was the last arrival at a barrier, `on_barrier_release`. An instruction that faults gives `before_instruction` and its
register reads.

A matrix instruction that is given to a helper has neither `before_instruction` nor `after_instruction`, but
`on_async_issue`, on its issuer's side and in its place in the wave's program order. Its register hooks, if there are some,
come before that, with an `IssuedWave`. Where helpers are, nobody can look at a running wave's vector registers, which they
change (`rjemu.plugins.shared_wave`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rjemu.exec.wave import WaveState
from rjemu.isa.disasm import format_instruction
from rjemu.isa.instruction import EXEC, Instruction
from rjemu.plugins.executed import Executed
from rjemu.plugins.issue import AsyncIssue
from rjemu.plugins.schema import Setting

if TYPE_CHECKING:
    from rjemu.plugins.sinks import Sink

Size3 = tuple[int, int, int]
DWORD_BYTES = 0b1111
_NAMED_SCALARS = {
    102: "flat_scratch_lo",
    103: "flat_scratch_hi",
    106: "vcc_lo",
    107: "vcc_hi",
    124: "m0",
    126: "exec_lo",
    127: "exec_hi",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a wave. pc: its GPU address."""

    pc: int
    instr: Instruction

    @property
    def text(self) -> str:
        """The instruction in assembly."""
        return format_instruction(self.instr, self.pc)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A kernel dispatch. number: of the machine, from 0 on; entry: GPU address of the first instruction; grid counts
    workgroups, block work-items; vgprs, agprs, sgprs: registers that the kernel may use; lds_bytes: of a workgroup;
    scratch_bytes: of a lane."""

    number: int
    kernel: str
    target: str
    device: int
    entry: int
    wave_size: int
    grid: Size3
    block: Size3
    workgroups: int
    waves_per_workgroup: int
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    _read_code: Callable[[], list[Step]] = field(repr=False, compare=False)

    def code(self) -> list[Step]:
        """The instructions that straight lines and direct branches reach from the entry, in address order. Only while the
        dispatch is under way."""
        return self._read_code()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a dispatch ended. error: None if it ran to its end. seconds: wall time; stats: `exec.dispatch.launch_stats`,
    empty after an error. executed: of a dispatch that ran to its end, where some plugin asks for counts
    (`Plugin.counts_instructions`), else without anything."""

    wave_instructions: int
    seconds: float
    stats: Mapping[str, Any]
    error: str | None
    executed: Executed


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """A register that an instruction reads or writes.

    file: "vector" (index 0-255 VGPRs, 256-511 AGPRs), "scalar" (index: hardware code) or "scc" (index 0). lanes: bit l for
    lane l, 0 for scalar registers; bytes: bit b for byte b of the dword.
    """

    file: Literal["vector", "scalar", "scc"]
    index: int
    lanes: int
    bytes: int = DWORD_BYTES

    @property
    def name(self) -> str:
        """v0, a0, s0, vcc_lo, scc ..."""
        if self.file == "scc":
            return "scc"
        if self.file == "vector":
            return f"v{self.index}" if self.index < 256 else f"a{self.index - 256}"
        return _NAMED_SCALARS.get(self.index, f"s{self.index}")


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """What the lanes of an instruction access in one address space.

    space: "global" (device memory; scratch lies there, too), "lds" or "scalar" (device memory by a scalar instruction).
    kind: "load", "store" or "atomic". lanes: int array, ascending, empty for scalar; addresses: int array, of each of these
    lanes (of the access, for scalar), GPU addresses or byte offsets in LDS. nbytes: at each address. data:
    uint8 [addresses, nbytes], what the memory holds after the instruction.
    """

    space: Literal["global", "lds", "scalar"]
    kind: Literal["load", "store", "atomic"]
    lanes: np.ndarray
    addresses: np.ndarray
    nbytes: int
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class WaitCounters:
    """Limits that a wait sets: the instruction waits until no more operations than that are outstanding; None: no limit."""

    vmcnt: int | None
    lgkmcnt: int | None
    expcnt: int | None


@dataclass(slots=True, eq=False)
class Wave:
    """A running wave, valid until its `on_wave_halt` returns. number: in its workgroup, whose place in the grid is
    `workgroup`."""

    dispatch: Dispatch
    workgroup: Size3
    number: int
    _state: WaveState = field(repr=False)
    _lds: np.ndarray = field(repr=False)

    @property
    def state(self) -> WaveState:
        """All of the wave's state, not to be written."""
        return self._state

    @property
    def lds(self) -> np.ndarray:
        """uint8, the workgroup's LDS, not to be written."""
        return self._lds

    @property
    def vgpr(self) -> np.ndarray:
        """uint32 [512, lanes], not to be written: VGPRs, then AGPRs."""
        return _locked(self.state.vgpr)

    @property
    def scalars(self) -> np.ndarray:
        """uint32 [128] by hardware code, not to be written."""
        return _locked(self._state.scalars)

    @property
    def exec(self) -> int:
        """The active lanes, bit l for lane l."""
        low, high = self._state.scalars[EXEC : EXEC + 2].tolist()
        return int(low | high << 32) & ((1 << self._state.wave_size) - 1)

    @property
    def place(self) -> str:
        """Which wave it is, for messages."""
        return f"kernel {self.dispatch.kernel}, workgroup {self.workgroup}, wave {self.number}"


def _locked(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


class Plugin:
    """Base class of plugins: every hook does nothing. One instance serves one machine; hooks of several launching threads
    come one after another.

    SETTINGS: what the configuration may or must give. counts_instructions: `Outcome.executed` is wanted.
    """

    SETTINGS: ClassVar[Mapping[str, Setting]] = {}
    counts_instructions: ClassVar[bool] = False

    def __init__(self, settings: Mapping[str, Any], sink: Sink) -> None:
        """settings: checked against SETTINGS, defaults filled in. sink: where output goes."""
        self.settings = settings
        self.sink = sink

    @classmethod
    def supports_async_instructions(cls) -> bool:
        """Whether matrix instructions may be executed by helper processes. If any active plugin says no, none is."""
        return False

    def on_dispatch_begin(self, dispatch: Dispatch) -> None:
        """Before anything of the dispatch runs."""

    def on_dispatch_end(self, dispatch: Dispatch, outcome: Outcome) -> None:
        """When nothing of it runs any more, also after a fault or an interruption."""

    def on_wave_start(self, wave: Wave) -> None:
        """The wave's registers are as hardware sets them up."""

    def on_wave_halt(self, wave: Wave) -> None:
        """The wave has ended, or waits for ever (s_sethalt)."""

    def before_instruction(self, wave: Wave, step: Step) -> None:
        """The wave's state is what the instruction finds."""

    def after_instruction(self, wave: Wave, step: Step) -> None:
        """The wave's state is what the instruction leaves."""

    def on_register_read(self, wave: Wave, step: Step, access: RegisterAccess) -> None:
        """The instruction's result depends on these lanes and bytes of a register. The state is still the one before."""

    def on_register_write(self, wave: Wave, step: Step, access: RegisterAccess) -> None:
        """The instruction has written these lanes and bytes; those that it preserves are not among them."""

    def on_memory_access(self, wave: Wave, step: Step, access: MemoryAccess) -> None:
        """Lanes of the instruction have accessed memory."""

    def on_wait(self, wave: Wave, step: Step, counters: WaitCounters) -> None:
        """A wait-counter instruction."""

    def on_barrier(self, wave: Wave, step: Step) -> None:
        """The wave arrives at its workgroup's barrier."""

    def on_barrier_release(self, waves: tuple[Wave, ...]) -> None:
        """All waves of a workgroup that have not ended have arrived: these go on."""

    def on_async_issue(self, issue: AsyncIssue) -> None:
        """A wave has come to a matrix instruction that a helper has been given: once for each, in the wave's program order,
        some time after that and before `on_wave_halt`. Its register hooks have been called, where there are some. The
        notification tells what the instruction is; it is not valid any more when this returns, and nothing can be read of
        the wave's state."""

    def close(self) -> None:
        """The machine closes. The sink is closed afterwards."""


WAVE_HOOKS = ("on_wave_start", "on_wave_halt")
"""The hooks that enter Python at waves' starts and ends, in the launcher."""

ISSUE_HOOKS = ("on_async_issue",)
"""The hooks on what helpers are given, which leave the native executors alone."""

STEP_HOOKS = (
    "before_instruction",
    "after_instruction",
    "on_register_read",
    "on_register_write",
    "on_memory_access",
    "on_wait",
    "on_barrier",
    "on_barrier_release",
)
"""The hooks that need the step executor."""
