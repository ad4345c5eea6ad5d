"""Floating-point vector arithmetic (VOP1, VOP2, VOP3): one line per instruction.

16-bit results zero the destination's high half, except in the instructions that gfx9 added (keep_high).
"""

from __future__ import annotations

from collections.abc import Callable

from rjemu.isa import floats, transcendental
from rjemu.isa.context import Context
from rjemu.isa.division import div_fixup, div_fmas, div_scale
from rjemu.isa.lanes import Value
from rjemu.isa.semantics.registry import define
from rjemu.isa.trig_preop import trig_preop

# --- sums and products -------------------------------------------------------------------------------------------------


def _multiply_add(b: Context, x: Value, y: Value, z: Value) -> Value:
    """With two roundings, as the mad and mac instructions."""
    return b.fadd(b.fmul(x, y), z)


for _type in ("f16", "f32", "f64"):
    define(f"v_add_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.fadd(x, y))
    define(f"v_mul_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.fmul(x, y))
for _type in ("f16", "f32"):
    define(f"v_sub_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.fsub(x, y))
    define(f"v_subrev_{_type}", f"{_type} = {_type} {_type}", lambda b, x, y: b.fsub(y, x))
define("v_mul_legacy_f32", "f32 = f32 f32", floats.multiply_legacy)

for _type in ("f32", "f64"):
    define(f"v_fma_{_type}", f"{_type} = {_type} {_type} {_type}", lambda b, x, y, z: b.fma(x, y, z))
    define(f"v_fmac_{_type}", f"{_type} = {_type} {_type} +{_type}", lambda b, x, y, z: b.fma(x, y, z))
define("v_fma_f16", "f16 = f16 f16 f16", lambda b, x, y, z: b.fma(x, y, z), keep_high=True)
define("v_fma_legacy_f16", "f16 = f16 f16 f16", lambda b, x, y, z: b.fma(x, y, z))
define("v_fmaak_f32", "f32 = f32 f32 f32", lambda b, x, y, k: b.fma(x, y, k))
define("v_fmamk_f32", "f32 = f32 f32 f32", lambda b, x, k, y: b.fma(x, k, y))

define("v_mad_f16", "f16 = f16 f16 f16", _multiply_add, keep_high=True)
define("v_mad_legacy_f16", "f16 = f16 f16 f16", _multiply_add)
define("v_mac_f16", "f16 = f16 f16 +f16", _multiply_add)
define("v_madak_f16", "f16 = f16 f16 f16", lambda b, x, y, k: _multiply_add(b, x, y, k))
define("v_madmk_f16", "f16 = f16 f16 f16", lambda b, x, k, y: _multiply_add(b, x, k, y))

# --- smaller, larger, middle -------------------------------------------------------------------------------------------

for _type in ("f16", "f32", "f64"):
    define(f"v_min_{_type}", f"{_type} = {_type} {_type}", floats.min_number)
    define(f"v_max_{_type}", f"{_type} = {_type} {_type}", floats.max_number)
for _type in ("f16", "f32"):
    _ternary = f"{_type} = {_type} {_type} {_type}"
    define(f"v_min3_{_type}", _ternary, floats.min3_number, keep_high=True)
    define(f"v_max3_{_type}", _ternary, floats.max3_number, keep_high=True)
    define(f"v_med3_{_type}", _ternary, floats.median, keep_high=True)
define("v_minimum3_f32", "f32 = f32 f32 f32", floats.minimum3)
define("v_maximum3_f32", "f32 = f32 f32 f32", floats.maximum3)

# --- integral values and parts -----------------------------------------------------------------------------------------

for _type in ("f16", "f32", "f64"):
    _unary = f"{_type} = {_type}"
    define(f"v_floor_{_type}", _unary, lambda b, x: b.ffloor(b.flush_input(x)))
    define(f"v_ceil_{_type}", _unary, lambda b, x: b.fceil(b.flush_input(x)))
    define(f"v_trunc_{_type}", _unary, lambda b, x: b.ftrunc(b.flush_input(x)))
    define(f"v_rndne_{_type}", _unary, lambda b, x: b.frint(b.flush_input(x)))
    define(f"v_fract_{_type}", _unary, floats.fract)
    define(f"v_frexp_mant_{_type}", _unary, floats.frexp_mantissa)
define("v_frexp_exp_i16_f16", "i16 = f16", lambda b, x: floats.frexp_exponent(b, x).to("i16"))
define("v_frexp_exp_i32_f32", "i32 = f32", floats.frexp_exponent)
define("v_frexp_exp_i32_f64", "i32 = f64", floats.frexp_exponent)
define("v_ldexp_f16", "f16 = f16 i16", lambda b, x, n: floats.ldexp(b, x, n.to("i32")))
define("v_ldexp_f32", "f32 = f32 i32", floats.ldexp)
define("v_ldexp_f64", "f64 = f64 i32", floats.ldexp)

# --- division ----------------------------------------------------------------------------------------------------------

for _type in ("f32", "f64"):
    _ternary = f"{_type} {_type} {_type}"
    define(f"v_div_scale_{_type}", f"{_type} mask = {_ternary}", div_scale)
    define(f"v_div_fmas_{_type}", f"{_type} = {_ternary} mask", div_fmas)
    define(f"v_div_fixup_{_type}", f"{_type} = {_ternary}", div_fixup)
define("v_div_fixup_f16", "f16 = f16 f16 f16", div_fixup, keep_high=True)
define("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", div_fixup)

# --- approximated functions --------------------------------------------------------------------------------------------

Unary = Callable[[Context, Value], Value]


def _half(fn: Unary) -> Unary:
    """The f32 function on f16, rounded once more: at most 0.51 ulp."""

    def run(b: Context, x: Value) -> Value:
        x = b.flush_input(x)
        return b.flush_result(fn(b, x.to("f32")).to("f16"))

    return run


FUNCTIONS: dict[str, Unary] = {
    "exp": transcendental.exp2,
    "log": transcendental.log2,
    "rcp": transcendental.reciprocal,
    "rsq": transcendental.reciprocal_root,
    "sqrt": transcendental.square_root,
    "sin": transcendental.sine,
    "cos": transcendental.cosine,
}
for _name, _function in FUNCTIONS.items():
    define(f"v_{_name}_f32", "f32 = f32", _function)
    define(f"v_{_name}_f16", "f16 = f16", _half(_function))
define("v_exp_legacy_f32", "f32 = f32", transcendental.exp2)
define("v_log_legacy_f32", "f32 = f32", transcendental.log2)
define("v_rcp_iflag_f32", "f32 = f32", transcendental.reciprocal)
define("v_rcp_f64", "f64 = f64", lambda b, x: b.fdiv(1.0, x))
define("v_rsq_f64", "f64 = f64", lambda b, x: b.fdiv(1.0, b.fsqrt(x)))
define("v_sqrt_f64", "f64 = f64", lambda b, x: b.fsqrt(x))
define("v_trig_preop_f64", "f64 = f64 u32", trig_preop)

# --- cube maps, packing ------------------------------------------------------------------------------------------------

define("v_cubeid_f32", "f32 = f32 f32 f32", floats.cube_face)
define("v_cubesc_f32", "f32 = f32 f32 f32", floats.cube_s)
define("v_cubetc_f32", "f32 = f32 f32 f32", floats.cube_t)
define("v_cubema_f32", "f32 = f32 f32 f32", floats.cube_major)


def _pack(b: Context, low: Value, high: Value) -> Value:
    return low.bits("u16").to("u32") | (high.bits("u16").to("u32") << 16)


define("v_pack_b32_f16", "u32 = f16 f16", _pack)
