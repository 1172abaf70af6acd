"""External functions that compiled code may call, by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

PROVIDERS: Final[dict[str, Callable[[], int]]] = {}
"""Functions that return the addresses of further external functions; called when code is loaded."""

_NAMES: Final = """
    memcpy memset memmove memcmp free posix_memalign madvise fma fmaf fmod fmodf
    syscall clock_gettime sched_yield pthread_create pthread_join pthread_sigmask
"""
_C_LIBRARY: Final = frozenset(_NAMES.split())
"""Functions of the C library that code may call."""


def address_of(name: str) -> int | None:
    """Return the address of an external function; None if compiled programs may not call that function."""
    if name in PROVIDERS:
        return PROVIDERS[name]()
    if name in _C_LIBRARY:
        return _address_in(_process(), name)
    if name.startswith("Py"):
        return _address_in(ctypes.pythonapi, name)
    return None


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _address_in(library: ctypes.CDLL, name: str) -> int | None:
    function = getattr(library, name, None)
    return ctypes.c_void_p.from_buffer(function).value if function is not None else None
