"""Polls of native code: whether a signal or another thread ends the program early.

A program ends early if another thread sets its stop word, or if a signal handler raises an exception. Python
runs signal handlers in the main thread, and only on request.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import LocalVariable, is_null, is_zero
from hloom.cpu.runtime.device_structs import FIBER
from hloom.cpu.runtime.routines.clock import hloom_clock
from hloom.cpu.runtime.routines.fiber import fiber_look
from hloom.cpu.runtime.routines.host import ensure_gil, release_gil, restore_thread, save_thread
from hloom.cpu.runtime.structs import CONTEXT

_POLL_NANOSECONDS: Final = 100_000_000
"""Time between polls for signals, each of which takes the GIL."""
holds_gil: Final = External("PyGILState_Check", I32)
check_signals: Final = External("PyErr_CheckSignals", I32)
error_occurred: Final = External("PyErr_Occurred", PTR)


@routine(I32)
def look_for_signals(f: Function) -> Value:
    """Emit a routine that runs pending signal handlers; it returns nonzero if a Python exception is set."""
    with f.when(holds_gil(f).compare("ne", 0)):
        f.return_value(check_signals(f).compare("ne", 0).cast("zext", I32))
    raised = LocalVariable(f, I32, 1)
    state = ensure_gil(f)
    with f.when(is_null(error_occurred(f))):
        raised.set(check_signals(f).compare("ne", 0).cast("zext", I32))
    release_gil(f, state)
    return raised.get()


@routine(I32, exported=True, address=I64, last=PTR)
def hloom_poll(f: Function, address: Value, last: Value) -> Value:
    """Emit a routine that polls whether the program must end early; it returns nonzero if so, else 0.

    It must after a failure of another device, or if a signal handler raised an exception. ``address`` is that
    of the run context, 0 for none; it is an integer so that LLVM does not assume that it aliases arrays of
    the program. ``last`` points to the time of the last poll for signals, 0 before the first.
    """
    f.return_if(is_zero(address), 0)
    context = Fields(CONTEXT, address.cast("inttoptr", PTR))
    stop = context["stop"]
    with f.when(~is_null(stop)):
        f.return_if(Atomic(I64, stop).load("monotonic").compare("ne", 0), 1)
    now, before = hloom_clock(f), f.load(I64, last)
    with f.when(is_zero(before)):
        f.store(now, last)
        f.return_value(0)
    f.return_if((now - before).compare("slt", _POLL_NANOSECONDS), 0)
    f.store(now, last)
    fiber = Fields(FIBER, context["fiber"])
    with f.when(is_null(fiber.pointer)):
        f.return_value(look_for_signals(f))
    return fiber_look(f, fiber)


@routine(I32, exported=True, program=PTR, sources=PTR, targets=PTR, arena=PTR, context=PTR)
def hloom_execute(
    f: Function, program: Value, sources: Value, targets: Value, arena: Value, context: Value
) -> Value:
    """Emit a routine that runs a program without the GIL; it returns nonzero if the program ended early.

    ``sources`` and ``targets`` are tables of the addresses of arguments and results, ``arena`` is the memory
    of temporaries.
    """
    thread = save_thread(f)
    status = f.call_pointer(I32, program, sources, targets, arena, context)
    restore_thread(f, thread)
    return status
