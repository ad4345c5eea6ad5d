"""Where everything lies in shared memory: the wave's state, the micro-op record, the workgroup and the process context.

These byte offsets are the contract between Python, native code and every process; all come from the tables here.
"""

from __future__ import annotations

from typing import Final

VGPR_COUNT: Final = 512
"""Vector registers in the file: 0-255 VGPRs, 256-511 AGPRs."""


def fields(start: int, *spec: tuple[str, int]) -> dict[str, int]:
    """Lay out (name, bytes) one after another with natural alignment: name -> offset; "end" -> the first free byte."""
    out: dict[str, int] = {}
    offset = start
    for name, size in spec:
        align = min(size, 8)
        offset = (offset + align - 1) // align * align
        out[name] = offset
        offset += size
    out["end"] = offset
    return out


# --- wave ---------------------------------------------------------------------------------------------------------
# The register file comes first, [register][lane]; then the scalar file by hardware code, then the hardware state.

WAVE_SCALARS: Final = VGPR_COUNT * 64 * 4
SCALAR_COUNT: Final = 128

WAVE: Final = fields(
    WAVE_SCALARS,
    ("scalars", 8),
    ("_scalars", SCALAR_COUNT * 4 - 8),
    ("pc", 8),
    ("instructions", 8),
    ("scratch_base", 8),
    ("clock", 8),
    ("scratch_size", 4),
    ("scc", 4),
    ("mode", 4),
    ("gpr_idx", 4),
    ("status", 4),
    ("trapsts", 4),
    ("hw_id", 4),
    ("xcc_id", 4),
    ("gpr_alloc", 4),
    ("lds_alloc", 4),
    ("ib_sts", 4),
    ("wave_in_group", 4),
    ("state", 4),
    ("event", 4),
    ("event_value", 4),
    ("fp_class", 4),
    ("program", 4),
    ("pending", 4),  # jobs that helpers hold: bits of the wave's scoreboard entries
    ("hoist_from", 4),  # row of the record from which `hoisted` counts
    ("hoisted", 8),  # bit k: the matrix instruction k rows on has been given away and is to be skipped
    ("window_left", 4),  # instructions until the window closes, where that is limited
    ("patience", 4),  # turns in a row that the wave has left to others rather than wait for a job
    ("own", 8),  # the same for those of the group that the wave's own process keeps
    (
        "holders",
        1,
    ),  # u8 [VGPR_COUNT / 4]: 1 + the helper that has computed 4 vector registers last, or 0
    ("_holders", VGPR_COUNT // 4 - 1),
)
WAVE_BYTES: Final = WAVE_SCALARS + 4096

# Beside it the wave's scoreboard, which only means something where `pending` says so. Sets of vector registers are 512 bits:
# VGPR 0-255, AGPR 256-511.
WINDOW: Final = 8
"""Jobs that a wave may have pending."""
SET_BYTES: Final = VGPR_COUNT // 8
SCORES: Final = fields(
    WAVE_SCALARS + 1024,
    ("reads", 8),  # [WINDOW] sets that pending jobs read
    ("_reads", WINDOW * SET_BYTES - 8),
    ("writes", 8),
    ("_writes", WINDOW * SET_BYTES - 8),
    ("all_reads", 8),  # their unions
    ("_all_reads", SET_BYTES - 8),
    ("all_writes", 8),
    ("_all_writes", SET_BYTES - 8),
    ("helpers", 4),  # u32 [WINDOW]: who has the job
    ("_helpers", 4 * WINDOW - 4),
)

HOLDER_BYTES: Final = 4 * 64 * 4

HARDWARE_STATE: Final = (
    "mode", "gpr_idx", "status", "trapsts", "hw_id", "xcc_id", "gpr_alloc", "lds_alloc", "ib_sts", "wave_in_group",
)  # fmt: skip
"""The u32 words that semantics reach by `Context.hardware`."""

CLOCK_STEP: Final = 128
"""What one reading of the wave's clock adds to it: results must not depend on the host's speed."""

WAVE_RUNNING, WAVE_BARRIER, WAVE_ENDED, WAVE_HALTED = 0, 1, 2, 3

EVENTS: Final = {
    "none": 0, "end": 1, "barrier": 2, "sleep": 3, "trap": 4, "halt": 5, "icache": 6, "illegal": 7, "unsupported": 8,
    "yield": 9, "undecoded": 10, "outside": 11, "memory": 12, "misaligned": 13, "slice": 14, "mode": 15, "helpers": 16,
    "start": 17, "issues": 18,
}  # fmt: skip
"""Why a handler returned null, or a turn ended. The first ten are `isa.context.Event`."""

# --- micro-op record ----------------------------------------------------------------------------------------------
# One record per dword of code, at (pc - code base) / 4 * RECORD_BYTES, so that a jump needs no search. The slots of an
# instruction's later dwords stay unused.

RECORD_BYTES: Final = 64
RECORD_HANDLER: Final = 0
RECORD_STEP: Final = 4
RECORD_IMMS: Final = 8
RECORD_OPERANDS: Final = 16
MAX_OPERANDS: Final = 6
MAX_IMMS: Final = 2
SITE_FLAG: Final = 1 << 31
"""In the word of the handler's number, of records that have a site (`exec.plans`): the asynchronous loop looks at these."""
HANDLER_UNDECODED: Final = 0
"""Handler number of a fresh record: leaves the loop with event "undecoded"."""
SENTINELS: Final = 8
"""Records past the end that are never decoded: falling off the code meets one of them."""


def operand_slot(index: int) -> int:
    """Byte offset in the record of operand `index`: u32 offset in the wave's state, or a u64 constant."""
    return RECORD_OPERANDS + 8 * index


# --- process context ------------------------------------------------------------------------------------------------
# One per executing process, in its own memory: host addresses differ from process to process.

ACCESS_CACHE_ENTRIES: Final = 64
"""Direct-mapped cache of the allocation last hit, by micro-op record: (first GPU address, bytes) u64 pairs."""

ASYNC_COUNTERS: Final = (
    "windows", "jobs", "mmas_offloaded", "mmas_kept", "inline_scalar_operand", "inline_not_eligible", "inline_rejected",
    "inline_no_capacity", "dependency_waits", "boundary_drains", "wakeups", "jobs_refused", "jobs_lost",
)  # fmt: skip
"""What the asynchronous loop counts. windows: times that a wave went from no pending job to some. mmas_*, inline_*: matrix
instructions by who ran them, and why the issuer did: its share of a group, no helper or window entry free, an SGPR operand,
not a candidate or EXEC not full, a plan that could not win. wakeups: helpers that slept."""

CTX: Final = fields(
    0,
    ("table", 8),  # handler addresses of the running wave's FP class
    ("tables", 8),  # address of u64 [FP_CLASSES]: handler tables by FP class
    ("class_map", 8),  # address of u8 [CLASS_MAP_BYTES]: MODE bits -> FP class, 255 not known yet
    ("programs", 8),  # address of the PROGRAM entries
    ("records", 8),  # the running wave's program
    ("code_base", 8),
    ("code_bytes", 8),
    ("vram_delta", 8),  # host address - GPU address
    ("allocations", 8),  # host address of the allocation table (shm.vram)
    ("lds", 8),  # host address of the running workgroup's LDS
    ("lds_size", 4),
    ("event", 4),
    ("event_value", 4),
    ("fault_lane", 4),  # WHOLE_WAVE if it is no single lane's
    ("fault_address", 8),
    ("fault_bytes", 4),
    ("fault_space", 4),  # index in FAULT_SPACES
    ("fault_access", 4),  # index in FAULT_ACCESSES
    ("own_xcds", 4),  # this process takes workgroups of XCD x first where x mod own_xcds == own_xcd
    ("own_xcd", 4),
    ("xcd_turn", 4),  # where it looks first
    ("first_slot", 4),  # number of its first slot among those of all processes, for scratch
    ("event_record", 8),  # host address of the record that left the loop
    ("event_wave", 8),  # host address of the wave that left the loop
    ("check_lanes", 8),  # address of allocation_check's function
    ("bell", 8),  # host address of a u32: the run pauses between workgroups' turns once it is not bell_seen
    ("bell_seen", 4),
    ("launch", 4),  # number of the launch, for the trace
    ("trace", 8),  # host address of the trace ring (exec.trace)
    ("clock", 8),  # address of clock_gettime
    ("timespec", 8),  # its result: seconds, nanoseconds
    ("_nanoseconds", 8),
    ("wave_segment", 4),  # number of the segment that this process's waves lie in, for helpers
    ("wave_base", 8),  # host address of its first byte
    ("scoreboard", 8),  # host address, of `shm.scoreboard`
    ("plans", 8),  # host address of the PLAN table
    ("owner", 4),  # this process's number, from 1 on, among those that use the scoreboard
    ("helpers_started", 4),
    ("window_limit", 4),  # instructions past the oldest pending job, 0: any number
    ("next_helper", 4),  # where to look first
    ("pause", 4),  # candidates until free helpers are looked for again
    ("issue_log", 8),  # host address of what is told of issued instructions (exec.issue_log)
    ("workgroups_done", 8),  # by this process in this dispatch
    ("instructions_done", 8),
    *((name, 8) for name in ASYNC_COUNTERS),
    ("access_cache", 8),
    ("_access_cache", ACCESS_CACHE_ENTRIES * 16 - 8),
)

WHOLE_WAVE: Final = 0xFFFFFFFF
FAULT_SPACES: Final = ("global", "lds", "scalar")
FAULT_ACCESSES: Final = ("load", "store", "atomic")

PROGRAM: Final = fields(0, ("records", 8), ("code_base", 8), ("code_bytes", 8), ("sites", 8), ("notes", 8), ("counters", 8))
"""records, sites, notes and counters are host addresses; sites and notes are 0 where there are no helpers (`exec.plans`),
counters where nothing counts instructions (`exec.counting`)."""
MAX_PROGRAMS: Final = 256

FP_CLASSES: Final = 64
CLASS_MAP_BYTES: Final = 8192
_CLASS_BITS: Final = 0x3FF
VSKIP: Final = 1 << 28
GPR_IDX_EN: Final = 1 << 27
FP16_OVFL: Final = 1 << 23
"""MODE bits (CDNA3 ISA, "MODE register") that specialise handlers beside bits 9:0."""
GPR_IDX_KEY: Final = 1 << 10
FP16_OVFL_KEY: Final = 1 << 11
VSKIP_KEY: Final = 1 << 12
_KEY_OF_BIT: Final = {GPR_IDX_EN: GPR_IDX_KEY, FP16_OVFL: FP16_OVFL_KEY, VSKIP: VSKIP_KEY}


def class_key(mode: int) -> int:
    """Index in the class map: what of MODE specialises handlers: rounding, denormals, DX10_CLAMP, IEEE, VGPR indexing,
    FP16_OVFL, VSKIP."""
    return (mode & _CLASS_BITS) | sum(key for bit, key in _KEY_OF_BIT.items() if mode & bit)


def class_mode(key: int) -> int:
    """The MODE bits that a class key stands for."""
    return (key & _CLASS_BITS) | sum(bit for bit, part in _KEY_OF_BIT.items() if key & part)


# --- workgroup slot ---------------------------------------------------------------------------------------------------
# One per resident workgroup: a header, the LDS, then the waves' states. All slots of a dispatch have the same stride.

SLOT: Final = fields(
    0,
    ("workgroup", 8),  # number in the grid, x fastest
    ("id_x", 4),
    ("id_y", 4),
    ("id_z", 4),
    ("state", 4),
    ("waves", 4),
    ("live", 4),  # waves that have not ended
    ("waiting", 4),  # waves at the barrier
    ("next_wave", 4),  # whose turn it is
)
SLOT_HEADER_BYTES: Final = 4096
SLOT_FREE, SLOT_RUNNING = 0, 1

# --- dispatch -----------------------------------------------------------------------------------------------------------
# What native code needs of a DispatchSpec. `xcd_next`, `completed` and `instructions` are atomic counters that all
# processes share. Workgroup n belongs to XCD n mod xcds, as hardware deals them out.

MAX_SYSTEM_SGPRS: Final = 5
MAX_USER_SGPRS: Final = 32
MAX_XCDS: Final = 16
WORKGROUP_SHAPES: Final = 8
"""A workgroup is full or partial in each of three dimensions: bit 0 x, 1 y, 2 z."""

DISPATCH: Final = fields(
    0,
    ("xcd_next", 8),  # workgroups begun, by XCD
    ("_xcd_next", 8 * MAX_XCDS - 8),
    ("total", 8),
    ("completed", 8),
    ("instructions", 8),  # executed by the waves that have ended
    ("entry", 8),
    ("scratch_base", 8),
    ("scratch_stride", 8),
    ("slot_stride", 8),
    ("waves_offset", 8),  # of the first wave in a slot
    ("time_slice", 8),
    ("templates", 8),  # of the wave templates, in bytes from this block
    ("stop", 4),  # not 0: no wave goes on (a fault, a timeout, Ctrl-C)
    ("xcds", 4),
    ("grid_x", 4),
    ("grid_y", 4),
    ("grid_z", 4),
    ("partial", 4),  # dimensions whose last workgroup is partial, as WORKGROUP_SHAPES
    ("scratch_size", 4),
    ("lds_bytes", 4),
    ("max_waves", 4),
    ("quantum", 4),
    ("mode", 4),
    ("fp_class", 4),
    ("program", 4),
    ("vgprs", 4),
    ("agprs", 4),
    ("id_vgprs", 4),  # registers v0.. that a template fills
    ("user_sgprs", 4),
    ("system_sgprs", 4),  # bit 0 workgroup id x, 1 y, 2 z, 3 workgroup info, 4 scratch wave offset
    ("shape_waves", 4),
    ("_shape_waves", 4 * WORKGROUP_SHAPES - 4),
    ("sgprs", 4),
    ("_sgprs", 4 * MAX_USER_SGPRS - 4),
    ("architected_flat_scratch", 4),
    ("suspend", 4),  # not 0: processes shall stop as soon as they can, and keep what is resident
)

TEMPLATE: Final = fields(0, ("exec", 8), ("_pad", 56), ("vgprs", 8))
TEMPLATE_BYTES: Final = 64 + 3 * 64 * 4
"""A wave's initial EXEC and work-item id registers, [shape][wave]."""

MAX_WAVES: Final = 16
"""Waves of a workgroup: 1024 work-items of 64."""

TEMPLATES_OFFSET: Final = -(-DISPATCH["end"] // 64) * 64
DISPATCH_BYTES: Final = TEMPLATES_OFFSET + WORKGROUP_SHAPES * 2 * MAX_WAVES * TEMPLATE_BYTES
"""A DISPATCH block and its templates (with room for 32-lane waves)."""

# --- trace ------------------------------------------------------------------------------------------------------------
# A ring of timed events per process: a header, then the events.

TRACE_HEADER: Final = fields(0, ("recorded", 8), ("capacity", 8))
TRACE_EVENTS: Final = 64
TRACE_EVENT: Final = fields(0, ("began", 8), ("ended", 8), ("detail", 8), ("kind", 4), ("launch", 4))
TRACE_EVENT_BYTES: Final = 32
TRACE_TURN, TRACE_JOB = 0, 4
"""Kinds of the events that native code writes: a turn of the workgroup whose number is the detail; a helper's job of so
many matrix instructions."""

RUN_DONE, RUN_PAUSED, RUN_EVENT, RUN_DEADLOCK = 0, 1, 2, 3
"""What the native run loop returns: grid exhausted; budget used up; an event for Python; every wave waits."""

# --- a helper's process ---------------------------------------------------------------------------------------------

ENV: Final = fields(
    0,
    ("tables", 8),  # host address of u64 [FP_CLASSES]: handler tables by FP class
    ("plans", 8),
    ("segments", 8),  # host address of u64 [MAX_SEGMENTS]: where segments of waves are mapped, 0: not here
    ("undecoded", 8),  # address of the handler that stands for code that is missing
    ("context", 8),  # host address of a CTX for handlers, of no other use
)
MAX_SEGMENTS: Final = 4096
CREDIT_LIMIT: Final = 1 << 21
"""The most credit that a helper may have (`exec.async_turn`)."""

# --- functions of the run time's object code (`exec.runtime_code`) ----------------------------------------------------

CHECK_FUNCTION: Final = "rjemu_check_lanes"
RUNTIME_FUNCTIONS: Final = ("run", "run_traced", "undecoded", "exchange", "increment", CHECK_FUNCTION)
HANDOFF_FUNCTIONS: Final = ("reserve", "give_back", "publish", "join", "serve", "round_trips", "ring", "ticks")
ASYNC_FUNCTIONS: Final = (
    *HANDOFF_FUNCTIONS, "run_job", "run_job_traced", "repeat", "attend", "drain", "drain_slots",
)  # fmt: skip
"""What there is beside them in the variant that gives matrix instructions to helpers."""
