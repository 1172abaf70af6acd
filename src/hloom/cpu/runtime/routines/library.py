"""The number of threads of the LAPACK library, which is set to one while programs call LAPACK.

Its threads would compete with those of the program and of other devices. The setting is global to the
process; the last one of concurrent calls restores it.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import is_zero, repeat
from hloom.cpu.runtime.routines.processor import pause

CALLS: Final = State("library_calls", lock=I32, calls=I32, threads=I32)


@routine()
def lock_library(f: Function) -> None:
    """Emit a routine that spins until it has locked the process's counter of concurrent calls of LAPACK."""
    with repeat(f) as loop:
        loop.leave_if(is_zero(CALLS(f).atomic("lock").exchange(1, "acquire")))
        pause(f)


def _unlock(calls: Fields) -> None:
    calls.atomic("lock").store(0, "release")


def _set_unless_one(f: Function, calls: Fields, set: Value, threads: Value) -> None:
    """Emit code that sets LAPACK's number of threads, unless it was one before the concurrent calls.

    ``set`` is the function that sets it, ``threads`` the new number, ``calls`` the struct with the number
    before the calls.
    """
    with f.when(calls["threads"].compare("ne", 1)):
        f.call_pointer(VOID, set, threads)


@routine(exported=True, get=PTR, set=PTR)
def hloom_library_enter(f: Function, get: Value, set: Value) -> None:
    """Emit a routine to call before LAPACK; it makes LAPACK use one thread while the process calls it.

    The first of concurrent calls sets the number of threads. ``get`` and ``set`` are functions that get and
    set that number.
    """
    lock_library(f)
    calls = CALLS(f)
    before = calls["calls"]
    calls["calls"] = before + 1
    with f.when(is_zero(before)):
        calls["threads"] = f.call_pointer(I32, get)
        _set_unless_one(f, calls, set, f.constant(I32, 1))
    _unlock(calls)


@routine(exported=True, get=PTR, set=PTR)
def hloom_library_leave(f: Function, get: Value, set: Value) -> None:
    """Emit a routine to call after LAPACK; the last of concurrent calls restores LAPACK's number of threads.

    ``get`` and ``set`` are functions that get and set that number.
    """
    lock_library(f)
    calls = CALLS(f)
    remaining = calls["calls"] - 1
    calls["calls"] = remaining
    with f.when(is_zero(remaining)):
        _set_unless_one(f, calls, set, calls["threads"])
    _unlock(calls)


@routine(exported=True)
def hloom_library_reset(f: Function) -> None:
    """Emit a routine that resets and unlocks the counter of concurrent calls of LAPACK, in a forked child."""
    calls = CALLS(f)
    calls["calls"] = 0
    _unlock(calls)


@routine(I32, exported=True)
def hloom_library_get_one(f: Function) -> int:
    """Emit a routine that returns 1: the getter for a library without a settable number of threads."""
    return 1


@routine(exported=True, count=I32)
def hloom_library_set_none(f: Function, count: Value) -> None:
    """Emit a routine that does nothing: the setter for a library without a settable number of threads."""
