"""LLVM IR of the run time's native code; `hloom.cpu.runtime.support` imports this on a cache miss."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.codegen.llvm.printer import print_module
from hloom.codegen.llvm.routines import Library, Routine, routines_of
from hloom.codegen.target import OPTIMIZED, QUICK, Target
from hloom.cpu.runtime.routines import (
    clock,
    entry,
    exchange,
    foreign,
    gang,
    host,
    interruption,
    library,
    memory,
    pool,
    rendezvous,
)


def support_code(target: Target) -> list[tuple[str, int]]:
    """Return (LLVM IR, optimization level) of the two object files with the run time's native code."""
    called = _exported(entry, memory)
    files = clock, exchange, foreign, gang, host, interruption, library, pool, rendezvous
    return object_codes(target, called, _exported(*files))


def object_codes(
    target: Target, called: Iterable[Routine], others: Iterable[Routine]
) -> list[tuple[str, int]]:
    """Return (LLVM IR, optimization level) of two object files: of routines to optimize, and of the others.

    Args:
        target: the machine.
        called: exported routines that every call of a program runs; they are optimized.
        others: the other exported routines, compiled quickly.
    """
    first = Library(target).add(called)
    second = Library(target, first).add(others)
    return [(print_module(first), OPTIMIZED), (print_module(second), QUICK)]


def _exported(*files: object) -> list[Routine]:
    return [routine for routine in routines_of(*files) if routine.exported]


def pool_code(target: Target) -> str:
    """Return the LLVM IR of the thread pool alone, to link with a program that runs without this library."""
    return print_module(Library(target).add([pool.hloom_parallel, pool.hloom_pool_stop]))
