"""LLVM IR of the run time's native code; `hloom.cpu.runtime.support` imports this on a cache miss."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.codegen.llvm.printer import print_module
from hloom.codegen.llvm.routines import Library, Routine, routines_of
from hloom.codegen.target import Target
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


def support_code(target: Target) -> str:
    """Return the LLVM IR of the run time for a target."""
    files = clock, entry, exchange, foreign, gang, host, interruption, library, memory, pool, rendezvous
    return emitted_code(target, [r for r in routines_of(*files) if r.exported])


def pool_code(target: Target) -> str:
    """Return the LLVM IR of the thread pool alone."""
    return emitted_code(target, [pool.hloom_parallel, pool.hloom_pool_stop])


def emitted_code(target: Target, exported: Iterable[Routine]) -> str:
    """Return the LLVM IR of routines and of the routines that they call."""
    return print_module(Library(target).add(exported))
