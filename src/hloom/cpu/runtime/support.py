"""hloom's own native code: thread pool, recycled memory, host calls, and the builtin that calls programs.

It is written in LLVM IR, in the files of `native_code/`, compiled once per machine, and kept in the cache of
compiled code like every program.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from hloom.codegen.target import Target, host
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.relocation import LoadError
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.codegen.llvm.routines import Routine

Code: TypeAlias = "tuple[str, list[str]]"
"""LLVM IR, and the names of its functions to optimize."""
_loading: Final = threading.Lock()
_loaded: Final[list[LoadedObject]] = []
FILES: Final = (
    "interruption",
    "pool",
    "memory",
    "entry",
    "host",
    "library",
)
_FOLDER: Final = Path(__file__).parent / "native_code"


def native_code(target: Target, *files: str) -> str:
    """Return the LLVM IR of some of the files."""
    return "\n".join((_FOLDER / f"{name}.ll").read_text() for name in files)


def mixed_code(target: Target, routines: Iterable[Routine], written: str) -> Code:
    """Return the code of routines beside LLVM IR that is written as text."""
    from hloom.codegen.llvm.printer import print_module
    from hloom.codegen.llvm.routines import Library
    from hloom.cpu.jit.llvm import simplified_names

    library = Library(target).add(routines)
    written_names = set(re.findall(r"^(?:declare|define) .*?@([\w.]+)\(", written, re.MULTILINE))
    lines = _without_declarations(print_module(library), written_names)
    lines += _without_declarations(written, set(library.functions))
    return "\n".join(lines), simplified_names(library)


def _without_declarations(text: str, names: set[str]) -> list[str]:
    declared = re.compile(r"declare .*?@([\w.]+)\(")
    return [t for t in text.splitlines() if not ((m := declared.match(t)) and m.group(1) in names)]


def support() -> LoadedObject:
    """Return the loaded native code; it is never unloaded, because threads may be in it at exit."""
    with _loading:
        if not _loaded:
            _loaded.append(_load())
            keep_for_ever(_loaded[0])
    return _loaded[0]


def _begin_child() -> None:
    """Free the locks that threads of the parent held; a forked child does not have these threads."""
    _loading.release()
    if _loaded:
        ctypes.CFUNCTYPE(None)(_loaded[0].symbols["hloom_library_reset"])()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_begin_child
    )


def begin_support() -> None:
    """Load the native code, compiled if necessary, in another thread."""
    if not _loaded:
        threading.Thread(target=support, name="hloom support").start()


def load_code(kind: str, emit: Callable[[], Code], external: Callable[[str], int | None]) -> LoadedObject:
    """Load code of the run time: from the cache, or compile it and store it there.

    Args:
        kind: distinguishes entries of the cache.
        emit: returns the code to compile.
        external: returns the address of a function that the code declares.
    """
    cache = configured_cache()
    key = _key(kind)
    if cache is not None and (entry := cache.get(key)) is not None:
        try:
            return LoadedObject(entry.parts, external)
        except LoadError:
            pass  # compiled again below
    from hloom.cpu.jit.llvm import generate

    text, simplified = emit()
    code = generate(text, host(), simplified=simplified)
    if cache is not None:
        cache.put(key, Entry({}, [code]))
    return LoadedObject([code], external)


def is_compiled(kind: str) -> bool:
    """Return whether the cache has code of the run time; see `load_code`."""
    cache = configured_cache()
    return cache is not None and cache.get(_key(kind)) is not None


def _key(kind: str) -> str:
    return key_of(kind, host().identity)


def _load() -> LoadedObject:
    return load_code("support", lambda: support_code(host()), address_of)


def support_code(target: Target) -> Code:
    """Return the code for a machine."""
    from hloom.codegen.llvm.routines import routines_of
    from hloom.cpu.runtime.routines import clock, exchange, foreign, gang, processor, rendezvous

    return mixed_code(
        target,
        routines_of(clock, processor, foreign, exchange, gang, rendezvous),
        native_code(target, *FILES),
    )


def pool_code(target: Target) -> str:
    """Return the LLVM IR of the thread pool alone."""
    from hloom.codegen.llvm.routines import routines_of
    from hloom.cpu.runtime.routines import processor

    return mixed_code(target, routines_of(processor), native_code(target, "pool"))[0]
