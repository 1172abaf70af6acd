"""The native code of the run time: thread pool, recycled memory, host calls, and the entry from Python.

It is written as emitters of LLVM IR (`routines/`), compiled when the package is built (`built_code`).
Code whose sources have changed since is compiled once per machine, and cached like programs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from hloom.codegen.target import QUICK, Target, host
from hloom.cpu.jit.cache import CodeCache, Entry, configured_cache, key_of
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.relocation import LoadError
from hloom.cpu.runtime.built_code import read_code
from hloom.hooks import EntryPoint
from hloom.lifetime import keep_for_ever

# Imported only to compile the code:
_support_code: Final[EntryPoint[[Target], list[tuple[str, int]]]] = EntryPoint(
    "hloom.cpu.runtime.support_code:support_code"
)
_generate: Final[EntryPoint[..., bytes]] = EntryPoint("hloom.cpu.jit.llvm:generate")

_loading: Final = threading.Lock()
_loaded: Final[list[LoadedObject]] = []


def support() -> LoadedObject:
    """Return the run time's native code: the routines that compiled programs share. The first call loads it.

    The code is never unloaded, as threads may run it at exit.
    """
    with _loading:
        if not _loaded:
            _loaded.append(_load())
            keep_for_ever(_loaded[0])
    return _loaded[0]


def _begin_child() -> None:
    """In a forked child, release the locks held by threads that the child does not have."""
    _loading.release()
    if _loaded:
        ctypes.CFUNCTYPE(None)(_loaded[0].symbols["hloom_library_reset"])()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_begin_child
    )


def begin_support() -> None:
    """Start a thread that compiles the run time's native code, unless that has been done."""
    if not _loaded:
        begin_code("support", support, _support_code.resolve)


def begin_code(kind: str, load: Callable[[], object], import_emitters: Callable[[], object]) -> None:
    """Start a thread that compiles native code, unless the package or the cache has it.

    The thread imports nothing, as concurrent imports of the same modules may deadlock: what it needs is
    imported before.

    Args:
        kind: the kind of code, part of its cache key; see `load_code`.
        load: compiles and loads the code.
        import_emitters: imports the modules that emit the code.
    """
    if next(_compiled_before(kind, configured_cache()), None) is not None:
        return
    import_emitters()
    _generate.resolve()
    threading.Thread(target=load, name=f"hloom {kind.partition(' ')[0]}").start()


def load_code(
    kind: str, emit: Callable[[], list[tuple[str, int]]], external: Callable[[str], int | None]
) -> LoadedObject:
    """Load native code of the run time from the package or the cache, or compile it and add it to the cache.

    Without both every process compiles it, with few optimizations to save time; a call of a program then
    takes 2 % longer.

    Args:
        kind: the kind of code, part of the cache key; the package has it by the first word.
        emit: returns (LLVM IR, optimization level) for each of the code's object files.
        external: returns the address of a function that the code declares, by name; None if unknown.
    """
    cache = configured_cache()
    key = _key(kind)
    for objects in _compiled_before(kind, cache):
        with suppress(LoadError):  # compile again
            return LoadedObject(objects, external)
    codes = [
        _generate(text, host(), inline_and_promote=True, level=QUICK if cache is None else level)
        for text, level in emit()
    ]
    if cache is not None:
        cache.put(key, Entry({}, codes))
    return LoadedObject(codes, external)


def _compiled_before(kind: str, cache: CodeCache | None) -> Iterator[Sequence[bytes]]:
    """Yield the object files of a kind of code that the package has, then those of the cache."""
    built = read_code(kind.partition(" ")[0], host().architecture)
    if built is not None:
        yield built
    if cache is not None and (entry := cache.get(_key(kind))) is not None:
        yield entry.parts


def _key(kind: str) -> str:
    return key_of(kind, host().identity)


def _load() -> LoadedObject:
    return load_code("support", lambda: _support_code(host()), address_of)
