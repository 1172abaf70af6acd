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
    """Return the LLVM IR of the objects of the run time, each with the level to optimize its code to.

    Only what every call of a program runs gains by it.
    """
    called = _exported(entry, memory)
    files = clock, exchange, foreign, gang, host, interruption, library, pool, rendezvous
    others = Library(target, linked={routine.name for routine in called}).add(_exported(*files))
    return [(print_module(Library(target).add(called)), OPTIMIZED), (print_module(others), QUICK)]


def _exported(*files: object) -> list[Routine]:
    return [routine for routine in routines_of(*files) if routine.exported]


def pool_code(target: Target) -> str:
    """Return the LLVM IR of the thread pool alone."""
    return emitted_code(target, [pool.hloom_parallel, pool.hloom_pool_stop])


def emitted_code(target: Target, exported: Iterable[Routine]) -> str:
    """Return the LLVM IR of routines and of the routines that they call."""
    return print_module(Library(target).add(exported))
