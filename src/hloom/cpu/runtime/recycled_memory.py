"""The process's allocator of arenas and results, which reuses freed blocks; also a memory handler of numpy.

`routines/memory.py` is the allocator. Callers hold the GIL.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Final

from hloom.cpu.runtime.numpy_interface import HANDLER, SET_HANDLER, numpy_function
from hloom.cpu.runtime.structs import RECYCLED
from hloom.cpu.runtime.support import support
from hloom.errors import EvaluationError, plural
from hloom.lifetime import keep_for_ever

_TAKE: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_GIVE: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_SET_HANDLER: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
_LIMIT_FRACTION: Final = 1 / 8
_LARGEST_LIMIT: Final = 1 << 32
"""Limits of free memory: a fraction of the machine's memory, and bytes."""


class RecycledMemory:
    """The process's allocator of results and temporaries, which keeps freed blocks for reuse.

    Attributes:
        record: the C struct `RECYCLED`, with the lists of freed blocks.
        handler: the PyCapsule of the memory handler for NumPy's arrays.
    """

    def __init__(self) -> None:
        symbols = support().symbols
        self.record = RECYCLED.allocate(limit=recycling_limit())
        names = ("malloc", "calloc", "realloc", "free")
        functions = {name: symbols[f"hloom_memory_{name}"] for name in names}
        self._functions = HANDLER.allocate(version=1, context=self.address, **functions)
        ctypes.memmove(self._functions.location("name"), b"hloom", len(b"hloom"))
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self._capsule_name = ctypes.create_string_buffer(b"mem_handler")
        self.handler = new_capsule(self._functions.address, ctypes.addressof(self._capsule_name), None)
        self._set_handler = _SET_HANDLER(numpy_function(SET_HANDLER))
        self._take, self._give = _TAKE(symbols["hloom_take"]), _GIVE(symbols["hloom_give"])
        keep_for_ever(self)

    @property
    def address(self) -> int:
        return self.record.address

    def take(self, size: int) -> int:
        """Allocate ``size`` uninitialized bytes, aligned to 64; return the address, 0 if memory is short."""
        return self._take(self.address, size) or 0

    def give(self, address: int) -> None:
        """Free a block that `take` returned; it is kept for reuse, unless too much memory is kept already."""
        self._give(self.address, address)

    @contextmanager
    def of_arrays(self) -> Generator[None]:
        """Make NumPy use this allocator for arrays that the current thread creates in a ``with`` block."""
        previous = self._set_handler(self.handler)
        try:
            yield
        finally:
            self._set_handler(previous)


@cache
def recycled_memory() -> RecycledMemory:
    """Return the process's allocator, which lives until the process ends."""
    return RecycledMemory()


def recycling_limit() -> int:
    """Return the maximum total size in bytes of the freed blocks that are kept for reuse."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_LARGEST_LIMIT, int(total * _LIMIT_FRACTION))


@contextmanager
def lent_memory(size: int) -> Generator[int]:
    """Allocate uninitialized memory for the duration of a ``with`` block.

    Yields its address, aligned to 64 bytes. Raises EvaluationError if memory is short.
    """
    memory = recycled_memory()
    address = memory.take(size)
    if not address:
        raise EvaluationError(f"no memory for {plural(size, 'byte')} of temporaries", rule="evaluate.memory")
    try:
        yield address
    finally:
        memory.give(address)
