"""Reading of the monotonic clock and of a thread's CPU time."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.structs import Struct

NANOSECONDS: Final = 1_000_000_000
_MONOTONIC: Final = 1
_THREAD_CPU_TIME: Final = 3
TIMESPEC: Final = Struct("timespec", seconds="i64", nanoseconds="i64")
_clock_gettime: Final = External("clock_gettime", I32, I32, PTR)


def _read(f: Function, clock: int) -> Value:
    time = Fields(TIMESPEC, f.allocate(I8, TIMESPEC.size))
    _clock_gettime(f, clock, time)
    return time["seconds"] * NANOSECONDS + time["nanoseconds"]


@routine(I64, exported=True)
def hloom_clock(f: Function) -> Value:
    """Emit a routine that returns the monotonic clock's time in nanoseconds."""
    return _read(f, _MONOTONIC)


@routine(I64)
def thread_nanoseconds(f: Function) -> Value:
    """Emit a routine that returns the current thread's CPU time in nanoseconds."""
    return _read(f, _THREAD_CPU_TIME)
