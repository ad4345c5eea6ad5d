"""Bad launches and bad kernels: each a distinct exception that says where, on both executors, and memory is kept."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from support.asm_kernels import kernarg, load_assembly, run_assembly
from support.assemble import compile_hip, link

import rjemu
from rjemu.errors import (
    BarrierDeadlock,
    IllegalInstruction,
    JumpFault,
    KernelFault,
    LaunchError,
    LaunchInterrupted,
    LaunchTimeout,
    MemoryFault,
    MisalignedAccess,
    TrapFault,
    UnsupportedInstruction,
)


@pytest.fixture(scope="module", params=["native", "reference"])
def gpu(request: pytest.FixtureRequest) -> Iterator[rjemu.Machine]:
    with rjemu.Machine("gfx950_mi355x", executor=request.param, local_mem_size=1 << 28) as machine:
        yield machine


def fault_of(gpu: rjemu.Machine, kind: type[KernelFault], body: str, *values: object, **directives: int) -> KernelFault:
    """The fault of a workgroup of two waves; the second workgroup is the one that meets it where the body says so."""
    with pytest.raises(KernelFault) as caught:
        run_assembly(gpu, body, 2, 128, *values, **directives)
    assert type(caught.value) is kind, caught.value
    return caught.value


LAST_LANE = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_cmp_ne_u32 vcc, 77, v0
    v_mov_b32 v2, 0
    v_mov_b32 v3, s2
    v_cndmask_b32 v4, 1, v2, vcc
    v_and_b32 v4, v4, v3
    v_cmp_eq_u32 vcc, 1, v4
    v_mov_b32 v5, 0
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v6, s6
    v_mov_b32 v7, s7
    v_mov_b32 v8, s4
    v_mov_b32 v9, s5
    v_cndmask_b32 v8, v8, v6, vcc
    v_cndmask_b32 v9, v9, v7, vcc
    v_mov_b32 v10, 1
    global_store_dword v5, v10, s[4:5] offset:60
    s_waitcnt vmcnt(0)
    {access}
    s_endpgm
"""
"""v[8:9] is the first argument in every lane but lane 13 of wave 1 of workgroup 1, where it is the second."""

STRAY = 0x123456789000


@pytest.mark.parametrize(
    ("access", "kind"),
    [
        ("global_load_dword v1, v[8:9], off", "load"),
        ("global_store_dwordx4 v[8:9], v[0:3], off", "store"),
        ("global_atomic_add v[8:9], v10, off", "atomic"),
        ("flat_load_dwordx2 v[2:3], v[8:9]", "load"),
        ("flat_store_byte v[8:9], v10", "store"),
        ("flat_atomic_swap v1, v[8:9], v10 sc0", "atomic"),
    ],
)
def test_stray_access(gpu: rjemu.Machine, access: str, kind: str) -> None:
    out = gpu.zeros(16, np.uint32)
    fault = fault_of(gpu, MemoryFault, LAST_LANE.format(access=access), out, STRAY)
    assert isinstance(fault, MemoryFault)
    assert (fault.space, fault.access, fault.address) == ("global", kind, STRAY)
    assert fault.place is not None
    assert (fault.place.kernel, fault.place.workgroup, fault.place.wave, fault.place.lane) == ("kernel", (1, 0, 0), 1, 13)
    assert fault.place.instruction == access
    assert fault.place.pc > 0
    assert out.to_host()[15] == 1


@pytest.mark.parametrize(
    "access",
    ["global_atomic_add v[8:9], v10, off", "global_atomic_add_x2 v[8:9], v[2:3], off", "flat_atomic_cmpswap v[8:9], v[2:3]"],
)
def test_misaligned_atomic(gpu: rjemu.Machine, access: str) -> None:
    out = gpu.zeros(16, np.uint32)
    fault = fault_of(gpu, MisalignedAccess, LAST_LANE.format(access=access), out, out.address + 2)
    assert isinstance(fault, MisalignedAccess)
    assert (fault.address, fault.access) == (out.address + 2, "atomic")
    assert fault.place is not None
    assert fault.place.lane == 13


def test_null_pointer_names_its_address(gpu: rjemu.Machine) -> None:
    out = gpu.zeros(16, np.uint32)
    fault = fault_of(gpu, MemoryFault, LAST_LANE.format(access="global_load_dword v1, v[8:9], off offset:8"), out, 0)
    assert isinstance(fault, MemoryFault)
    assert fault.address == 8


def test_nearest_allocation_is_named(gpu: rjemu.Machine) -> None:
    out = gpu.zeros(1000, np.float32)
    address = out.address + 4000
    fault = fault_of(gpu, MemoryFault, LAST_LANE.format(access="global_load_dword v1, v[8:9], off"), out, address)
    assert "past the end of array float32[1000]" in str(fault)
    assert hex(out.address) in str(fault)


def test_freed_array_is_stray(gpu: rjemu.Machine) -> None:
    kernel = load_assembly(gpu, LAST_LANE.format(access="global_load_dword v1, v[8:9], off"))
    out, freed = gpu.zeros(16, np.uint32), gpu.zeros(1 << 20, np.uint32)
    address = freed.address + (1 << 20)
    kernel.launch(2, 128, kernarg=kernarg(out, address))
    freed.free()
    with pytest.raises(MemoryFault) as caught:
        kernel.launch(2, 128, kernarg=kernarg(out, address))
    assert caught.value.address == address


LDS_ACCESSES = {
    "ds_read_b32 v2, v1": "load",
    "ds_write_b64 v1, v[2:3]": "store",
    "ds_add_u32 v1, v2": "atomic",
    "ds_read2_b32 v[2:3], v1 offset1:1": "load",
}


@pytest.mark.parametrize("access", LDS_ACCESSES)
def test_lds_out_of_range(gpu: rjemu.Machine, access: str) -> None:
    body = f"v_lshlrev_b32 v1, 3, v0\n{access}\ns_endpgm"
    fault = fault_of(gpu, MemoryFault, body, group_segment_fixed_size=512)
    assert isinstance(fault, MemoryFault)
    assert (fault.space, fault.access) == ("lds", LDS_ACCESSES[access])
    assert "512 bytes of LDS" in str(fault)
    assert fault.place is not None
    assert (fault.place.wave, fault.place.lane, fault.place.instruction) == (1, 0, access)


def test_scratch_out_of_range(gpu: rjemu.Machine) -> None:
    body = "v_lshlrev_b32 v1, 1, v0\nscratch_load_dword v2, v1, off\ns_endpgm"
    fault = fault_of(gpu, MemoryFault, body, private_segment_fixed_size=64, enable_private_segment=1)
    assert isinstance(fault, MemoryFault)
    assert (fault.space, fault.access) == ("scratch", "load")
    assert fault.place is not None
    assert fault.place.instruction.startswith("scratch_load_dword")


def test_scalar_load_of_a_stray_address(gpu: rjemu.Machine) -> None:
    body = "s_mov_b64 s[4:5], 0x1000\ns_load_dwordx2 s[6:7], s[4:5], 0x10\ns_waitcnt lgkmcnt(0)\ns_endpgm"
    fault = fault_of(gpu, MemoryFault, body)
    assert isinstance(fault, MemoryFault)
    assert (fault.space, fault.access, fault.address) == ("scalar", "load", 0x1010)
    assert fault.place is not None
    assert fault.place.lane is None


def test_buffer_whose_memory_is_stray(gpu: rjemu.Machine) -> None:
    """In range of its descriptor, but the descriptor's base is wrong."""
    body = f"""
    s_mov_b32 s4, {STRAY & 0xFFFFFFFF:#x}
    s_mov_b32 s5, {STRAY >> 32:#x}
    s_mov_b32 s6, 0x1000
    s_mov_b32 s7, 0x00027000
    v_lshlrev_b32 v1, 2, v0
    buffer_load_dword v2, v1, s[4:7], 0 offen
    s_waitcnt vmcnt(0)
    s_endpgm
    """
    fault = fault_of(gpu, MemoryFault, body)
    assert isinstance(fault, MemoryFault)
    assert (fault.space, fault.access, fault.address) == ("buffer", "load", STRAY)


def test_buffer_out_of_range_of_its_descriptor_is_no_fault(gpu: rjemu.Machine) -> None:
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_movk_i32 s6, 256
    s_mov_b32 s7, 0x00027000
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 9
    s_waitcnt lgkmcnt(0)
    buffer_store_dword v2, v1, s[4:7], 0 offen
    buffer_load_dword v3, v1, s[4:7], 0 offen
    s_waitcnt vmcnt(0)
    buffer_store_dword v3, v1, s[4:7], 0 offen
    s_endpgm
    """
    out = gpu.zeros(128, np.uint32)
    run_assembly(gpu, body, 1, 128, out)
    assert np.array_equal(out.to_host(), np.repeat([9, 0], 64))


def test_illegal_instruction(gpu: rjemu.Machine) -> None:
    fault = fault_of(gpu, IllegalInstruction, "s_nop 0\n.long 0xbfffffff\ns_endpgm")
    assert "0xbfffffff" in str(fault).lower()


def test_misaligned_pair_of_sgprs(gpu: rjemu.Machine) -> None:
    """s_mov_b64 s[5:6], s[2:3]: 64-bit scalar operands begin at even registers."""
    fault_of(gpu, IllegalInstruction, ".long 0xbe850102\ns_endpgm")


@pytest.mark.parametrize("instruction", ["v_interp", "export"])
def test_graphics_instructions_do_not_exist_on_cdna(gpu: rjemu.Machine, instruction: str) -> None:
    word = {"v_interp": "0xd4000000", "export": "0xc4000000, 0"}[instruction]
    with pytest.raises((IllegalInstruction, UnsupportedInstruction)):
        run_assembly(gpu, f".long {word}\ns_endpgm", 1, 64)


@pytest.mark.parametrize("target", ["0x10", "0x7000", "-1"])
def test_jump_outside_code(gpu: rjemu.Machine, target: str) -> None:
    fault = fault_of(gpu, JumpFault, f"s_mov_b64 s[4:5], {target}\ns_setpc_b64 s[4:5]\ns_endpgm")
    assert fault.place is not None
    assert fault.place.instruction.startswith("s_setpc_b64") or "no code" in fault.place.instruction


def test_code_that_runs_off_its_end(gpu: rjemu.Machine) -> None:
    fault_of(gpu, JumpFault, "s_nop 0")


def test_trap(gpu: rjemu.Machine) -> None:
    assert "s_trap 2" in str(fault_of(gpu, TrapFault, "s_trap 2\ns_endpgm"))


def test_failed_device_assertion_is_a_trap(gpu: rjemu.Machine) -> None:
    source = 'extern "C" __attribute__((global)) void check(int *x) { if (*x != 42) __builtin_trap(); }'
    kernel = gpu.load(link(compile_hip(source, "gfx950")))["check"]
    kernel.launch(1, 64, [gpu.to_device(np.int32([42]))])
    with pytest.raises(TrapFault):
        kernel.launch(1, 64, [gpu.to_device(np.int32([41]))])


def test_barrier_without_its_partner(gpu: rjemu.Machine) -> None:
    """Wave 1 waits for a flag that nobody sets; wave 0 waits for wave 1 at a barrier: a timeout names the one that waits."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_readfirstlane_b32 s6, v0
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 meet
    wait:
    global_load_dword v2, v1, s[4:5] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s7, v2
    s_cmp_eq_u32 s7, 0
    s_cbranch_scc1 wait
    meet:
    s_barrier
    s_endpgm
    """
    kernel, flag = load_assembly(gpu, body), gpu.zeros(1, np.uint32)
    with pytest.raises(LaunchTimeout, match=r"waiting at a barrier: workgroup \(0, 0, 0\) wave 0"):
        kernel.launch(1, 128, kernarg=kernarg(flag), timeout=0.3)


def test_deadlock_names_the_waves_that_wait(gpu: rjemu.Machine) -> None:
    """Wave 0 halts for good, so the barrier that wave 1 has reached never opens."""
    body = """
    v_readfirstlane_b32 s6, v0
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc0 meet
    s_sethalt 1
    s_nop 0
    meet:
    s_barrier
    s_endpgm
    """
    with pytest.raises(BarrierDeadlock, match=r"workgroup \(0, 0, 0\) wave 1"):
        load_assembly(gpu, body).launch(1, 128, kernarg=kernarg(), timeout=60)


ENDLESS = "again:\ns_branch again\ns_endpgm"


def test_timeout_says_how_far_it_came(gpu: rjemu.Machine) -> None:
    with pytest.raises(LaunchTimeout, match="0 of 3 workgroups had ended"):
        load_assembly(gpu, ENDLESS).launch(3, 64, kernarg=kernarg(), timeout=0.2)


def test_ctrl_c_ends_a_launch_within_a_second(gpu: rjemu.Machine) -> None:
    kernel = load_assembly(gpu, ENDLESS)
    pressed: list[float] = []

    def press() -> None:
        time.sleep(0.3)
        pressed.append(time.monotonic())
        _thread.interrupt_main()

    threading.Thread(target=press).start()
    with pytest.raises(LaunchInterrupted, match="interrupted"):
        kernel.launch(1, 64, kernarg=kernarg(), timeout=30)
    assert time.monotonic() - pressed[0] < 1
    assert load_assembly(gpu, "s_endpgm").launch(1, 64, kernarg=kernarg()).wave_instructions == 1


def test_machine_works_after_every_fault(gpu: rjemu.Machine) -> None:
    out = gpu.zeros(16, np.uint32)
    for body in ("s_trap 2\ns_endpgm", ".long 0xbfffffff", LAST_LANE.format(access="global_load_dword v1, v[8:9], off")):
        with pytest.raises(KernelFault):
            run_assembly(gpu, body, 2, 128, out, STRAY)
    run_assembly(gpu, LAST_LANE.format(access="global_store_dword v[8:9], v10, off"), 2, 128, out, out)
    assert out.to_host().tolist() == [1, *[0] * 14, 1]


SCALE = (
    'extern "C" __attribute__((global)) void scale(float *x, float factor, int n, double d) { x[n] = factor + (float)d; }'
)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"args": []}, "takes 4 arguments"),
        ({"args": [0, 1.0, 2, 3.0, 4]}, "takes 4 arguments"),
        ({"args": [0, np.float64(1), 2, 3.0]}, r"argument 1 \(factor\)|argument 1"),
        ({"args": [0, 1.0, np.int64(2), 3.0]}, "given int64 of 8 bytes"),
        ({"args": [0, 1.0, 1 << 40, 3.0]}, "argument 2"),
        ({"args": [1.5, 1.0, 2, 3.0]}, "a pointer"),
        ({"args": [np.zeros(3), 1.0, 2, 3.0]}, "to_device"),
        ({"grid": 0}, "grid"),
        ({"grid": (1, 2, 3, 4)}, "grid"),
        ({"grid": (1 << 32, 1 << 32, 1)}, "at most 4294967295 per dimension"),
        ({"block": 0}, "block"),
        ({"block": 1025}, "1024"),
        ({"block": (64, 64)}, "1024"),
        ({"lds_bytes": 160 * 1024 + 1}, "LDS"),
        ({"lds_bytes": -1}, "lds_bytes"),
    ],
)
def test_launches_that_do_not_fit(gpu: rjemu.Machine, launch: dict[str, object], message: str) -> None:
    kernel = gpu.load(link(compile_hip(SCALE, "gfx950")))["scale"]
    fitting = {"grid": 1, "block": 64, "args": [None, 1.0, 2, 3.0]}
    with pytest.raises(LaunchError, match=message):
        kernel.launch(**{**fitting, **launch})  # type: ignore[arg-type]
