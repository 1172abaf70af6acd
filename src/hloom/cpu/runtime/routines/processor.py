"""Spin-wait hints of processors, and Linux futexes."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import null
from hloom.cpu.runtime.routines.clock import NANOSECONDS, TIMESPEC

_FUTEX_CALLS: Final = {"x86_64": 202, "aarch64": 98}
"""System call number, by architecture."""
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129
_EVERYONE: Final = (1 << 31) - 1
_AARCH64_YIELD: Final = 1

# Variadic in C; both processors pass these arguments in the registers of a function with fixed parameters.
syscall: Final = External("syscall", I64, I64, PTR, I32, I32, PTR, PTR, I32)


@routine(inline=True)
def pause(f: Function) -> None:
    """Emit a routine, always inlined, that consists of the processor's spin-wait hint."""
    if f.target.architecture == "aarch64":
        f.call(VOID, "llvm.aarch64.hint", f.constant(I32, _AARCH64_YIELD))
    else:
        f.call(VOID, "llvm.x86.sse2.pause")


def _futex(f: Function, word: Value, operation: int, value: Value, timeout: Value) -> None:
    number = _FUTEX_CALLS[f.target.architecture]
    syscall(f, number, word, operation, value, timeout, null(f), 0)


@routine(word=PTR, value=I32)
def futex_wait(f: Function, word: Value, value: Value) -> None:
    """Emit a routine that sleeps on the futex ``word`` until woken.

    It returns at once if the word does not hold ``value``.
    """
    _futex(f, word, _WAIT_PRIVATE, value, null(f))


@routine(word=PTR, value=I32, nanoseconds=I64)
def futex_wait_for(f: Function, word: Value, value: Value, nanoseconds: Value) -> None:
    """Emit a routine that sleeps on the futex ``word`` until woken, or for at most ``nanoseconds``.

    It returns at once if the word does not hold ``value``.
    """
    time = Fields(TIMESPEC, f.allocate(I8, TIMESPEC.size))
    time["seconds"] = nanoseconds.unsigned_divide(NANOSECONDS)
    time["nanoseconds"] = nanoseconds.unsigned_remainder(NANOSECONDS)
    _futex(f, word, _WAIT_PRIVATE, value, time.pointer)


@routine(word=PTR)
def futex_wake(f: Function, word: Value) -> None:
    """Emit a routine that wakes all threads that sleep on the futex ``word``."""
    _futex(f, word, _WAKE_PRIVATE, f.constant(I32, _EVERYONE), null(f))
