"""The run time's object code: the scheduler and what else its processes call. Only the launcher's process makes it; all that
load it (`exec.engine.Runtime`) need nothing of what it is written with."""

from __future__ import annotations

from rjemu.exec.allocation_check import write_check_function
from rjemu.exec.cache import HandlerCache
from rjemu.exec.compiler import compile_object
from rjemu.exec.ir import Module
from rjemu.exec.scheduler import scheduler_text


def runtime_object(
    cache: HandlerCache,
    wave: int,
    *,
    asynchronous: bool = False,
    counting: bool = False,
    watching: bool = False,
    notifying: bool = False,
) -> bytes:
    """The scheduler's object code, from the cache or compiled. asynchronous, counting, watching, notifying: the variants
    that give matrix instructions to helpers, that count executed instructions, that tell of waves' starts and ends, and that
    log what helpers are given."""
    variants = {"async": asynchronous, "counting": counting, "watching": watching, "notifying": notifying}
    symbol = "_".join([f"runtime{wave}", *(name for name, wanted in variants.items() if wanted)])
    pack = cache.find(symbol)
    if pack is not None:
        return pack[0]
    module = Module(cache.host.features)
    write_check_function(module)
    text = scheduler_text(module, wave, asynchronous=asynchronous, counting=counting, watching=watching, notifying=notifying)
    code = compile_object(text, opt=2, optimise=True, host=cache.host)
    cache.write(code, [symbol])
    return code
