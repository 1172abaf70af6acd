"""The native code of the run time: thread pool, recycled memory, host calls, and the entry from Python.

It is written as emitters of LLVM IR (`routines/`), compiled once per machine, and cached like programs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from hloom.codegen.target import OPTIMIZED, QUICK, Target, host
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.relocation import LoadError
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.codegen.llvm.routines import Routine

_loading: Final = threading.Lock()
_loaded: Final[list[LoadedObject]] = []


def support() -> LoadedObject:
    """Return the run time's native code, loaded by the first call.

    The code is never unloaded, as threads may run it at exit.
    """
    with _loading:
        if not _loaded:
            _loaded.append(_load())
            keep_for_ever(_loaded[0])
    return _loaded[0]


def _begin_child() -> None:
    """Release the locks held by threads that a forked child does not have."""
    _loading.release()
    if _loaded:
        ctypes.CFUNCTYPE(None)(_loaded[0].symbols["hloom_library_reset"])()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_begin_child
    )


def begin_support() -> None:
    """Start a thread that loads or compiles the run time's native code."""
    if not _loaded:
        threading.Thread(target=support, name="hloom support").start()


def load_code(kind: str, emit: Callable[[], str], external: Callable[[str], int | None]) -> LoadedObject:
    """Load native code of the run time from the cache, or compile it and add it to the cache.

    Without a cache every process compiles it: quickly, into code that is 2 % slower.

    Args:
        kind: the kind of code, part of the cache key.
        emit: returns the LLVM IR to compile.
        external: returns the address of a function that the code declares; None if unknown.
    """
    cache = configured_cache()
    key = _key(kind)
    if cache is not None and (entry := cache.get(key)) is not None:
        try:
            return LoadedObject(entry.parts, external)
        except LoadError:
            pass  # compile again
    from hloom.cpu.jit.llvm import generate

    code = generate(emit(), host(), promoted=True, level=QUICK if cache is None else OPTIMIZED)
    if cache is not None:
        cache.put(key, Entry({}, [code]))
    return LoadedObject([code], external)


def is_compiled(kind: str) -> bool:
    """Return whether the native code of a kind is in the cache; see `load_code`."""
    cache = configured_cache()
    return cache is not None and cache.get(_key(kind)) is not None


def _key(kind: str) -> str:
    return key_of(kind, host().identity)


def _load() -> LoadedObject:
    return load_code("support", lambda: support_code(host()), address_of)


def support_code(target: Target) -> str:
    """Return the LLVM IR of the run time for a target."""
    from hloom.codegen.llvm.routines import routines_of
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

    files = clock, entry, exchange, foreign, gang, host, interruption, library, memory, pool, rendezvous
    return emitted_code(target, [r for r in routines_of(*files) if r.exported])


def pool_code(target: Target) -> str:
    """Return the LLVM IR of the thread pool alone."""
    from hloom.cpu.runtime.routines.pool import hloom_parallel, hloom_pool_stop

    return emitted_code(target, [hloom_parallel, hloom_pool_stop])


def emitted_code(target: Target, exported: Iterable[Routine]) -> str:
    """Return the LLVM IR of routines and of the routines that they call."""
    from hloom.codegen.llvm.printer import print_module
    from hloom.codegen.llvm.routines import Library

    return print_module(Library(target).add(exported))
